package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-12*max(1, math.Abs(a), math.Abs(b)) }

func TestMedians(t *testing.T) {
	if m := Median([]float64{3, 1, 2}); m != 2 {
		t.Errorf("median %v", m)
	}
	if m := Median([]float64{4, 1, 2, 3}); m != 2.5 {
		t.Errorf("median of four %v", m)
	}
	if !math.IsNaN(Median(nil)) || !math.IsNaN(MAD(nil)) || !math.IsNaN(Geomean([]float64{1, 0})) {
		t.Error("a figure of nothing is not NaN")
	}
	if m := MAD([]float64{1, 1, 2, 2, 4, 6, 9}); m != 1 {
		t.Errorf("MAD %v, want 1", m)
	}
	if g := Geomean([]float64{1, 10, 100}); !near(g, 10) {
		t.Errorf("geometric mean %v", g)
	}
}

// The orders of the classical table of intervals for the median (binomial, p = 1/2, 95 %).
func TestMedianInterval(t *testing.T) {
	for _, c := range []struct {
		n, lo, hi int
		level     float64
	}{{6, 1, 6, 0.96875}, {7, 1, 7, 0.984375}, {10, 2, 9, 0.978515625}, {12, 3, 10, 0.96142578125}, {25, 8, 18, 0.956714749}} {
		v := make([]float64, c.n)
		for i := range v {
			v[i] = float64(i + 1)
		}
		got := MedianInterval(v, 0.95)
		if got.Lo < float64(c.lo) || got.Hi > float64(c.hi) || got.Level < 0.95 || got.Level > c.level+1e-6 {
			t.Errorf("n = %d: %+v, want within [%d, %d] at 0.95 to %v", c.n, got, c.lo, c.hi, c.level)
		}
	}
	if got := MedianInterval([]float64{3, 1, 2}, 0.95); got != (Interval{1, 3, 0}) {
		t.Errorf("three values: %+v, want their range", got)
	}
	// Coverage: the interval holds the median as often as it says.
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{6, 11, 40} {
		hit := 0
		for range 4000 {
			v := make([]float64, n)
			for i := range v {
				v[i] = r.ExpFloat64()
			}
			if i := MedianInterval(v, 0.95); i.Lo <= math.Ln2 && math.Ln2 <= i.Hi {
				hit++
			}
		}
		if hit < 3760 {
			t.Errorf("n = %d: the interval held the median in %d of 4000", n, hit)
		}
	}
}

// enumerate is the U test by listing every way to split the values: twice the share of those whose U is at
// most the smaller of the two. That is benchstat's definition; with ties the two tails need not be alike.
func enumerate(a, b []float64) float64 {
	all := append(append([]float64{}, a...), b...)
	u2 := func(in func(int) bool) int {
		u := 0
		for i, x := range all {
			for j, y := range all {
				if in(i) && !in(j) {
					switch {
					case x > y:
						u += 2
					case x == y:
						u++
					}
				}
			}
		}
		return u
	}
	product := len(a) * len(b)
	own := u2(func(i int) bool { return i < len(a) })
	if own == product {
		return 1
	}
	own = min(own, 2*product-own)
	hit, ways := 0, 0
	for mask := range 1 << len(all) {
		n := 0
		for i := range all {
			n += mask >> i & 1
		}
		if n != len(a) {
			continue
		}
		ways++
		if u2(func(i int) bool { return mask>>i&1 == 1 }) <= own {
			hit++
		}
	}
	return min(1, 2*float64(hit)/float64(ways))
}

func TestUTest(t *testing.T) {
	// The least p of n values a side: 2 / C(2n, n).
	for n, want := range map[int]float64{2: 1.0 / 3, 3: 0.1, 4: 2.0 / 70, 5: 2.0 / 252, 10: 2.0 / 184756} {
		var a, b []float64
		for i := range n {
			a, b = append(a, float64(i)), append(b, float64(i+100))
		}
		if p := UTest(a, b); !near(p, want) {
			t.Errorf("n = %d apart: p = %v, want %v", n, p, want)
		}
		if p := UTest(b, a); !near(p, want) {
			t.Errorf("n = %d apart, swapped: p = %v", n, p)
		}
	}
	if UTest(nil, []float64{1}) != 1 || UTest([]float64{2, 2}, []float64{2, 2, 2}) != 1 {
		t.Error("nothing to tell apart, yet p is not 1")
	}
	// With and without ties: the same as by listing all ways.
	r := rand.New(rand.NewPCG(3, 4))
	for range 60 {
		a, b := make([]float64, 2+r.IntN(4)), make([]float64, 2+r.IntN(4))
		values := 3 + r.IntN(20)
		for i := range a {
			a[i] = float64(r.IntN(values))
		}
		for i := range b {
			b[i] = float64(r.IntN(values)) + 1
		}
		if p, want := UTest(a, b), enumerate(a, b); !near(p, want) {
			t.Errorf("%v, %v: p = %v, listing all ways %v", a, b, p, want)
		}
	}
	// Large samples: the normal approximation goes on where the exact distribution ends.
	a, b := make([]float64, 50), make([]float64, 50)
	for i := range a {
		a[i], b[i] = float64(i), float64(i)+6.5
	}
	exact := UTest(a, b)
	approx := UTest(append(a, 25.25), b)
	if exact < 0.005 || exact > 0.2 || math.Abs(approx-exact) > 0.25*exact {
		t.Errorf("p = %v of 50 values, %v of 51", exact, approx)
	}
}

// Under the null hypothesis p ≤ α in at most α of the cases.
func TestUTestLevel(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	low := 0
	for range 5000 {
		a, b := make([]float64, 5), make([]float64, 5)
		for i := range a {
			a[i], b[i] = r.NormFloat64(), r.NormFloat64()
		}
		if UTest(a, b) < 0.05 {
			low++
		}
	}
	if low > 250 || low < 80 { // the exact level of n = 5 is 0.0317
		t.Errorf("p < 0.05 in %d of 5000 equal samples", low)
	}
}

func TestRatioInterval(t *testing.T) {
	a, b := []float64{2, 2.1, 1.9, 2.05, 1.95}, []float64{1, 1.02, 0.98, 1.01, 0.99}
	got := RatioInterval(a, b, 7)
	if got != RatioInterval(a, b, 7) {
		t.Error("the same seed gives another interval")
	}
	if got.Lo > 2 || got.Hi < 2 || got.Lo < 1.9/1.02 || got.Hi > 2.1/0.98 {
		t.Errorf("interval %+v of a ratio of 2", got)
	}
}

func TestSteps(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	var v []float64
	for i := range 60 {
		x := 100 + r.NormFloat64()
		if i >= 40 {
			x += 8
		}
		v = append(v, x)
	}
	v[20] = 130 // one bad night is no step
	got := Steps(v, StepPenalty(v))
	if len(got) != 2 || got[0].End != 40 || math.Abs(got[1].Median-108) > 1 {
		t.Errorf("steps %+v, want one at 40 to about 108", got)
	}
	if flat := Steps(v[:40], StepPenalty(v[:40])); len(flat) != 1 {
		t.Errorf("steps %+v in noise", flat)
	}
	if Steps(nil, 1) != nil {
		t.Error("steps in nothing")
	}
}
