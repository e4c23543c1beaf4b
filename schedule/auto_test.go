package schedule

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// cutModel returns a model whose p parts of uneven cost and size can be cut into v
// equal chunks each.
func cutModel(rng *rand.Rand, p int, even bool) func(stages int) (Costs, []StageBytes, bool) {
	base := uneven(rng, p)
	if even {
		base = Uniform(1, 1, 1)
	}
	sizes := make([]StageBytes, p)
	for i := range sizes {
		sizes[i] = StageBytes{UntilInput: 50 + rng.Int64N(100), UntilWeight: 20 + rng.Int64N(40), FromInput: 20 + rng.Int64N(40), Fixed: 300 + rng.Int64N(100)}
	}
	return func(stages int) (Costs, []StageBytes, bool) {
		v := stages / p
		cut := func(times []float64) []float64 {
			list := make([]float64, stages)
			for i := range list {
				list[i] = at(times, i/v) / float64(v)
			}
			return list
		}
		c := StageCosts{F: cut(base.F), I: cut(base.I), W: cut(base.W)}
		if !even {
			c.WExtra = make([]float64, stages)
			for i := range c.WExtra {
				c.WExtra[i] = 0.9 * c.W[i]
			}
			c.SendF, c.SendB = []float64{0.05}, []float64{0.05}
		}
		bytes := make([]StageBytes, stages)
		for i := range bytes {
			b := sizes[i/v]
			n := int64(v)
			bytes[i] = StageBytes{b.UntilInput / n, b.UntilWeight / n, b.FromInput / n, b.Fixed / n}
		}
		return c, bytes, true
	}
}

// Auto is never slower than any builder with any setting of the dial, keeps the limit, and
// reports honest figures.
func TestAutoBeatsTheFamily(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	var gaps []float64
	for _, c := range []struct{ p, m int }{{1, 3}, {2, 4}, {3, 7}, {4, 4}, {4, 12}, {6, 24}, {8, 16}, {16, 32}} {
		model := cutModel(rng, c.p, c.m == 12)
		for _, limit := range []int64{0, 350 + 190*int64(c.p), 900, 420} {
			if c.m == 32 && limit > 0 && limit < 1000 {
				continue
			}
			p := Problem{Ranks: c.p, Microbatches: c.m, Model: model, Ops: 60_000}
			if limit > 0 {
				p.Limit = []int64{limit}
			}
			name := fmt.Sprintf("p=%d m=%d limit=%d", c.p, c.m, limit)
			got, err := Auto(p)
			best := math.Inf(1)
			for _, info := range Kinds() {
				for _, chunks := range []int{1, 2} {
					if info.Async {
						continue
					}
					base, buildErr := Build(info.Name, Config{c.p, c.m, chunks})
					if buildErr != nil {
						continue
					}
					costs, bytes, _ := model(base.Stages)
					for _, placement := range Placements() {
						for _, concat := range []int{0, 1, 4} {
							s, err := TwoBP(base, Policy{placement, concat})
							if err != nil {
								t.Fatal(err)
							}
							if limit == 0 || slices.Max(PeakBytes(s, bytes)) <= limit {
								best = min(best, simulate(t, s, costs).Makespan())
							}
						}
					}
				}
			}
			if err != nil {
				if !math.IsInf(best, 1) || !strings.Contains(err.Error(), "needs at least") {
					t.Errorf("%s: %v, but the family has %v", name, err, best)
				}
				continue
			}
			if got.Makespan > best*(1+1e-12) {
				t.Errorf("%s: makespan %v, the family has %v", name, got.Makespan, best)
			}
			if got.Makespan < got.Bound*(1-1e-9) {
				t.Errorf("%s: makespan %v below the bound %v", name, got.Makespan, got.Bound)
			}
			if err := Check(got.Schedule); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			costs, bytes, _ := model(got.Schedule.Stages)
			if peak := PeakBytes(got.Schedule, bytes); !reflect.DeepEqual(peak, got.Peak) || limit > 0 && slices.Max(peak) > limit {
				t.Errorf("%s: peak %v, reported %v", name, peak, got.Peak)
			}
			if m := simulate(t, got.Schedule, costs).Makespan(); m != got.Makespan {
				t.Errorf("%s: makespan %v, reported %v", name, m, got.Makespan)
			}
			if limit == 0 {
				gaps = append(gaps, got.Gap())
			}
		}
	}
	slices.Sort(gaps)
	if median := gaps[len(gaps)/2]; median > 0.03 {
		t.Errorf("median gap to the bound %.1f %%, want at most 3 %%: %v", 100*median, gaps)
	}
}

func TestAutoIsDeterministic(t *testing.T) {
	p := Problem{Ranks: 4, Microbatches: 8, Model: cutModel(rand.New(rand.NewPCG(1, 1)), 4, false), Limit: []int64{1200, 1200, 1100, 1000}, Concat: 1, Ops: 50_000}
	a, err := Auto(p)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Auto(p)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a, b) {
		t.Error("two searches of one problem differ")
	}
	if concatenated(a.Schedule) {
		t.Error("concat 1, and W are joined")
	}
	p.OneCopy = true
	if a, err = Auto(p); err != nil || len(a.Schedule.Place) > 1 {
		t.Errorf("one copy of the weights was asked for: %v", err)
	}
}

func TestAutoRefuses(t *testing.T) {
	model := cutModel(rand.New(rand.NewPCG(1, 1)), 2, true)
	for _, c := range []struct {
		p      Problem
		reason string
	}{
		{Problem{Ranks: 0, Microbatches: 1, Model: model}, "at least 1"},
		{Problem{Ranks: 2, Microbatches: 1, Model: model, Limit: []int64{10}}, "needs at least"},
		{Problem{Ranks: 2, Microbatches: 1, Model: model, Limit: []int64{1, 2, 3}}, "instead of 2"},
		{Problem{Ranks: 2, Microbatches: 1, Model: func(int) (Costs, []StageBytes, bool) { return nil, nil, false }}, "cannot be cut"},
	} {
		if _, err := Auto(c.p); err == nil || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%v; want an error with %q", err, c.reason)
		}
	}
}

// The bound is exact where the optimum is known.
func TestLowerBoundExact(t *testing.T) {
	for p := 1; p <= 8; p++ {
		s := build(t, "zb-h2", p, 4*p, 0, Policy{})
		if got, want := LowerBound(s, Units()), float64(12*p+p-1); got != want {
			t.Errorf("p=%d: bound %v, the optimum is %v", p, got, want)
		}
		s = build(t, "naive", p, 1, 0, Policy{PlaceEnd, 1})
		if got, want := LowerBound(s, Units()), simulate(t, s, Units()).Makespan(); got < want-1 || got > want {
			t.Errorf("p=%d, one micro-batch: bound %v, the optimum is %v", p, got, want)
		}
	}
}

func BenchmarkAuto(b *testing.B) {
	model := cutModel(rand.New(rand.NewPCG(1, 1)), 16, false)
	for range b.N {
		if _, err := Auto(Problem{Ranks: 16, Microbatches: 64, Model: model, Limit: []int64{3000}}); err != nil {
			b.Fatal(err)
		}
	}
}
