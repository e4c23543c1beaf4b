package model

import (
	"math"
	"slices"
	"testing"
)

// TestPhilox holds it against the known answers of Random123 (kat_vectors, philox4x32 10).
func TestPhilox(t *testing.T) {
	const all = 0xffffffff
	for _, c := range []struct {
		ctr  [4]uint32
		key  [2]uint32
		want [4]uint32
	}{
		{want: [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{all, all, all, all}, [2]uint32{all, all}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := philox(c.ctr, c.key); got != c.want {
			t.Errorf("philox(%x, %x) = %x, want %x", c.ctr, c.key, got, c.want)
		}
	}
}

// TestInitialise freezes the numbers: a run must start the same with every
// version. They were computed by a few lines of Python from the two papers.
func TestInitialise(t *testing.T) {
	p := Param{Rows: 2, Cols: 3, Init: Init{Std: 0.02}}
	got := make([]float32, 6)
	Initialise(got, p, -5, 3)
	want := []float64{-0.004531639162451029, -0.006171780172735453, -0.029925156384706497, -0.028306376188993454, 0.03940880298614502, -0.00415417505428195}
	if d := apart(got, want); d > 1e-7 {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, other := range []struct {
		seed  int64
		index int
	}{{-5, 4}, {-4, 3}, {-5 ^ 1<<40, 3}} {
		v := make([]float32, 6)
		Initialise(v, p, other.seed, other.index)
		if slices.Equal(v, got) {
			t.Errorf("seed %d, index %d give the numbers of others", other.seed, other.index)
		}
	}
	gain := make([]float32, 3)
	Initialise(gain, Param{Rows: 1, Cols: 3, Init: Init{Value: 1}}, 1, 1)
	if !slices.Equal(gain, []float32{1, 1, 1}) {
		t.Errorf("a gain starts as %v", gain)
	}
}

func TestInitialiseIsNormal(t *testing.T) {
	const n = 200_000
	v := make([]float32, n)
	Initialise(v, Param{Rows: 1, Cols: n, Init: Init{Std: 3}}, 11, 2)
	var m [5]float64 // moments of v/3
	inOne := 0
	for _, x := range v {
		z := float64(x) / 3
		for k, p := 1, z; k <= 4; k, p = k+1, p*z {
			m[k] += p / n
		}
		if math.Abs(z) < 1 {
			inOne++
		}
	}
	for _, c := range []struct {
		what           string
		got, want, tol float64 // five standard errors
	}{{"mean", m[1], 0, 0.012}, {"variance", m[2], 1, 0.016}, {"third moment", m[3], 0, 0.044}, {"fourth moment", m[4], 3, 0.11},
		{"part within one deviation", float64(inOne) / n, 0.682689, 0.0053}} {
		if math.Abs(c.got-c.want) > c.tol {
			t.Errorf("%s is %g, want %g ± %g", c.what, c.got, c.want, c.tol)
		}
	}
}
