package schedule

import (
	"math/rand/v2"
	"testing"
)

// uneven returns costs that differ between stages, with transfers and reductions.
func uneven(rng *rand.Rand, stages int) StageCosts {
	times := func(least, most float64) []float64 {
		list := make([]float64, stages)
		for i := range list {
			list[i] = least + (most-least)*rng.Float64()
		}
		return list
	}
	return StageCosts{
		F: times(1, 3), I: times(1, 3), W: times(0.5, 3), WExtra: times(0.4, 2),
		SendF: times(0, 1.5), SendB: times(0, 1.5), Reduce: times(0, 1),
	}
}

// What Simulate predicts keeps to every dependency, and each op starts when it can.
func TestSimulateDependencies(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	everySchedule(t, func(name string, s *Schedule) {
		if s.Microbatches > 8 {
			return
		}
		costs := uneven(rng, s.Stages)
		timeline := simulate(t, s, costs)
		ends := map[Op]float64{}
		for _, e := range timeline.Events {
			for k := e.Op.First; k <= e.Op.Last; k++ {
				ends[op(e.Op.Stage, e.Op.Kind, k)] = e.End
			}
		}
		end := func(o Op) float64 {
			at, ok := ends[o]
			if !ok && o.Kind == BackwardInput {
				o.Kind = Backward
				at, ok = ends[o]
			}
			if !ok {
				t.Fatalf("%s: %s did not run", name, o)
			}
			return at
		}
		for i, e := range timeline.Events {
			if i > 0 && timeline.Events[i-1].Rank == e.Rank && e.Start < timeline.Events[i-1].End-1e-9 {
				t.Fatalf("%s: rank %d: %s overlaps the op before", name, e.Rank, e.Op)
			}
			if !near2(e.End-e.Start, costs.Compute(e.Op)) {
				t.Fatalf("%s: %s takes %v, want %v", name, e.Op, e.End-e.Start, costs.Compute(e.Op))
			}
			needs := 0.0
			recv, _ := s.transfers(e.Op)
			k := e.Op.First
			switch {
			case e.Op.Kind == Forward && e.Op.Stage > 0:
				if needs = end(op(e.Op.Stage-1, Forward, k)); recv.Kind != 0 {
					needs += costs.SendF[e.Op.Stage-1]
				}
			case (e.Op.Kind == BackwardInput || e.Op.Kind == Backward) && e.Op.Stage < s.Stages-1:
				if needs = end(op(e.Op.Stage+1, BackwardInput, k)); recv.Kind != 0 {
					needs += costs.SendB[e.Op.Stage+1]
				}
			case e.Op.Kind == BackwardInput || e.Op.Kind == Backward:
				needs = end(op(e.Op.Stage, Forward, k))
			case e.Op.Kind == BackwardWeight:
				for ; k <= e.Op.Last; k++ {
					needs = max(needs, end(op(e.Op.Stage, BackwardInput, k)))
				}
			}
			if e.Start < needs-1e-9 {
				t.Fatalf("%s: %s starts at %v, before its input at %v", name, e.Op, e.Start, needs)
			}
		}
		checkIdleParts(t, name, s, timeline)
		free := costs
		free.SendF, free.SendB = nil, nil
		for r, part := range IdleParts(s, simulate(t, s, free)) {
			if part.Transfer > 1e-9 {
				t.Fatalf("%s: rank %d waits %v for transfers that take no time", name, r, part.Transfer)
			}
		}
		if bound := LowerBound(s, costs); timeline.Makespan() < bound-1e-9 {
			t.Fatalf("%s: makespan %v below the lower bound %v", name, timeline.Makespan(), bound)
		}
		if s.Async != nil {
			return
		}
		lowered, err := Lower(s)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		withoutReduce := costs
		withoutReduce.Reduce = nil
		paced := simulate(t, lowered, withoutReduce).Makespan()
		if paced < timeline.Makespan()-1e-9 {
			t.Fatalf("%s: waits shorten the makespan from %v to %v", name, timeline.Makespan(), paced)
		}
		if got := simulate(t, lowered, costs).Makespan(); got < paced-1e-9 {
			t.Fatalf("%s: reductions shorten the makespan from %v to %v", name, paced, got)
		}
	})
}

// The transform keeps the order of F and I, and the W of a stage in the order of
// its I: ascending, unless the kind says otherwise.
func TestTwoBPOrder(t *testing.T) {
	everySchedule(t, func(name string, s *Schedule) {
		info, _ := Lookup(s.Name)
		for r, program := range s.Programs {
			var backwards, weights []Op
			lastW := map[int]int{}
			for _, o := range program {
				switch o.Kind {
				case BackwardInput:
					backwards = append(backwards, o)
				case BackwardWeight, Backward:
					for k := o.First; k <= o.Last; k++ {
						weights = append(weights, op(o.Stage, o.Kind, k))
					}
					last, ok := lastW[o.Stage]
					if ok && info.Descending != (o.First < last) {
						t.Fatalf("%s: rank %d: %s after micro-batch %d", name, r, o, last)
					}
					lastW[o.Stage] = o.First
				}
			}
			if len(backwards) > len(weights) {
				t.Fatalf("%s: rank %d: %d I and %d W", name, r, len(backwards), len(weights))
			}
		}
	})
	// I stands where B stood.
	base := build(t, "1f1b", 4, 9, 0, Policy{})
	for _, placement := range []Placement{PlaceLagged, PlaceCooldown, PlaceEnd} {
		split := build(t, "1f1b", 4, 9, 0, Policy{placement, 2})
		for r := range base.Programs {
			var kept []Op
			for _, o := range split.Programs[r] {
				if o.Kind == BackwardInput {
					o.Kind = Backward
				}
				if o.Kind != BackwardWeight {
					kept = append(kept, o)
				}
			}
			if len(kept) != len(base.Programs[r]) {
				t.Fatalf("%s: rank %d: %v", placement, r, kept)
			}
			for i := range kept {
				if kept[i] != base.Programs[r][i] {
					t.Fatalf("%s: rank %d: op %d is %s, was %s", placement, r, i, kept[i], base.Programs[r][i])
				}
			}
		}
		joined, err := TwoBP(split, Policy{Placement: PlaceFused})
		if err != nil || Format(joined) != Format(base) {
			t.Errorf("%s: fusing again does not give the base schedule back: %v", placement, err)
		}
	}
}

// Largest group of a concatenated W, by policy.
func TestTwoBPConcat(t *testing.T) {
	for _, kind := range []string{"naive", "gpipe", "1f1b"} {
		for _, placement := range []Placement{PlaceLagged, PlaceCooldown, PlaceEnd} {
			for concat := range 5 {
				s := build(t, kind, 4, 10, 0, Policy{placement, concat})
				most := 0
				for _, program := range s.Programs {
					for _, o := range program {
						if o.Kind == BackwardWeight {
							most = max(most, o.Microbatches())
						}
					}
				}
				want := concat
				if concat == 0 {
					want = 10
				}
				if placement == PlaceEnd && most != want || most > want {
					t.Errorf("%s %s concat %d: largest W covers %d", kind, placement, concat, most)
				}
			}
		}
	}
	s := build(t, "gpipe", 3, 7, 0, Policy{PlaceLagged, 2})
	if got := Format(s); got == "" || s.Programs[1][7+3-1].String() != "1I2" || s.Programs[1][7+3].String() != "1W0-1" {
		t.Errorf("lagged concat 2 on rank 1: want 1W0-1 after 1I2:\n%s", got)
	}
}

// Idle time by makespan, where the closed forms hold.
func TestClosedForms(t *testing.T) {
	costs := [][3]float64{{1, 1, 1}, {2, 2, 1}, {1, 2, 1}, {1, 2, 2}, {2, 1, 1}, {1, 1, 2}, {3, 2, 1}, {1, 2, 3}, {2, 1, 3}, {1, 3, 2}, {0.7, 1.3, 0.9}}
	type form func(f, i, w float64) float64 // idle time / (p-1)
	all := func(f, i, w float64) float64 { return f + i + w }
	noW := func(f, i, w float64) float64 { return f + i }
	// A W fills the gap of one micro-batch's cycle only as far as it fits beside F
	// and I; for tW <= tI, tF this is the published tF + tI - tW.
	filled := func(f, i, w float64) float64 { return f + i - min(f, i, w) }
	for _, c := range []struct {
		kind   string
		place  Placement
		leastM func(p int) int
		idle   form
	}{
		{"gpipe", PlaceFused, func(int) int { return 1 }, all},
		{"gpipe", PlaceEnd, func(int) int { return 1 }, noW},
		{"1f1b", PlaceFused, func(int) int { return 1 }, all},
		{"1f1b", PlaceEnd, func(int) int { return 1 }, noW},
		{"1f1b", PlaceCooldown, func(p int) int { return p }, filled},
		{"1f1b", PlaceLagged, func(p int) int { return p }, filled},
	} {
		for p := 1; p <= 16; p += 1 + p/6 {
			for m := c.leastM(p); m <= 64; m += 1 + m/4 {
				for _, x := range costs {
					f, i, w := x[0], x[1], x[2]
					timeline := simulate(t, build(t, c.kind, p, m, 0, Policy{Placement: c.place}), Uniform(f, i, w))
					want := float64(p-1)*c.idle(f, i, w) + float64(m)*(f+i+w)
					if got := timeline.Makespan(); !near2(got, want) {
						t.Errorf("%s %s p=%d m=%d times %v: makespan %v, want %v", c.kind, c.place, p, m, x, got, want)
					}
					if got, want := timeline.Bubble(), 1-float64(m)*(f+i+w)/want; !near2(got, want) {
						t.Errorf("%s %s p=%d m=%d times %v: bubble %v, want %v", c.kind, c.place, p, m, x, got, want)
					}
				}
			}
		}
	}
}

func TestPeaks(t *testing.T) {
	for p := 1; p <= 16; p++ {
		for _, m := range []int{1, 2, 3, 5, 8, 16, 33, 64} {
			for _, c := range []struct {
				kind  string
				place Placement
				live  func(r int) int
			}{
				{"naive", PlaceFused, func(int) int { return 1 }},
				{"gpipe", PlaceFused, func(int) int { return m }},
				{"gpipe", PlaceEnd, func(int) int { return m }},
				{"1f1b", PlaceFused, func(r int) int { return min(m, p-r) }},
				{"1f1b", PlaceLagged, func(r int) int { return min(m, p) }},
				{"1f1b", PlaceEnd, func(r int) int { return m }},
				{"1f1b", PlaceCooldown, func(r int) int { return m }},
			} {
				s := build(t, c.kind, p, m, 0, Policy{Placement: c.place, Concat: 1})
				for r, peak := range PeakMicrobatches(s) {
					if want := c.live(r); peak.Live != want {
						t.Errorf("%s %s p=%d m=%d rank %d: %d live, want %d", c.kind, c.place, p, m, r, peak.Live, want)
					}
					if c.kind == "1f1b" && peak.UntilInput != min(m, p-r) {
						t.Errorf("1f1b %s p=%d m=%d rank %d: %d before I, want %d", c.place, p, m, r, peak.UntilInput, min(m, p-r))
					}
				}
			}
		}
	}
	s := build(t, "1f1b", 4, 8, 0, Policy{Placement: PlaceLagged, Concat: 1})
	bytes := PeakBytes(s, []StageBytes{{UntilInput: 100, UntilWeight: 10, FromInput: 1}})
	// Rank 0: four micro-batches after F, and the gradient that I is making.
	if want := int64(4*110 + 1); bytes[0] != want {
		t.Errorf("peak of rank 0 is %d bytes, want %d", bytes[0], want)
	}
}

func TestBuildRefuses(t *testing.T) {
	for _, c := range []struct {
		kind string
		c    Config
	}{
		{"nonsense", Config{Ranks: 1, Microbatches: 1}},
		{"gpipe", Config{Ranks: 0, Microbatches: 1}},
		{"gpipe", Config{Ranks: -1, Microbatches: 1}},
		{"gpipe", Config{Ranks: 1 << 40, Microbatches: 1}},
		{"gpipe", Config{Ranks: 1, Microbatches: 0}},
		{"gpipe", Config{Ranks: 1, Microbatches: 1 << 40}},
		{"gpipe", Config{Ranks: 1, Microbatches: 1, Chunks: 2}},
	} {
		if s, err := Build(c.kind, c.c); err == nil {
			t.Errorf("Build(%q, %+v) = %v; want an error", c.kind, c.c, s.Name)
		}
	}
	s := build(t, "gpipe", 1, 1, 0, Policy{})
	for _, policy := range []Policy{{"sideways", 0}, {PlaceEnd, -1}} {
		if _, err := TwoBP(s, policy); err == nil {
			t.Errorf("TwoBP with %+v; want an error", policy)
		}
	}
}

func TestSimulateRefusesCosts(t *testing.T) {
	s := build(t, "gpipe", 2, 2, 0, Policy{})
	nan := 0.0
	nan /= nan
	for _, costs := range []StageCosts{
		Uniform(-1, 1, 1), Uniform(nan, 1, 1), Uniform(1, 1e308, 1e308),
		{F: []float64{1}, SendF: []float64{nan}}, {F: []float64{1}, SendB: []float64{-1}},
	} {
		if _, err := Simulate(s, costs); err == nil {
			t.Errorf("Simulate with %+v; want an error", costs)
		}
	}
}

// checkIdleParts checks that the parts are not negative and add up to the idle time.
func checkIdleParts(t *testing.T, name string, s *Schedule, timeline *Timeline) {
	t.Helper()
	ranks := timeline.PerRank()
	for r, part := range IdleParts(s, timeline) {
		sum := part.Warmup + part.Dependency + part.Transfer + part.Other + part.Drain
		least := min(part.Warmup, part.Dependency, part.Transfer, part.Other, part.Drain)
		if !near2(sum, ranks[r].Idle) || least < 0 {
			t.Fatalf("%s: rank %d: idle %v, parts %+v", name, r, ranks[r].Idle, part)
		}
	}
}

func TestIdleParts(t *testing.T) {
	costs := Uniform(2, 2, 1)
	costs.SendF, costs.SendB = []float64{0.5}, []float64{0.25}
	s := build(t, "naive", 2, 1, 0, Policy{})
	got := IdleParts(s, simulate(t, s, costs))
	// Rank 0: 0-2 F; rank 1: 2.5-4.5 F, 4.5-7.5 B; rank 0: 7.75-10.75 B.
	want := []IdleTimes{{Dependency: 5.5, Transfer: 0.25}, {Warmup: 2.5, Drain: 3.25}}
	for r := range want {
		if got[r] != want[r] {
			t.Errorf("rank %d: %+v, want %+v", r, got[r], want[r])
		}
	}
}
