package emutest

import (
	"errors"
	"testing"
)

func library(t *testing.T, o Options) *Library {
	t.Helper()
	path, err := Build(o)
	if errors.Is(err, ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func values(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(i%17) - 8
	}
	return v
}

func TestAdd(t *testing.T) {
	l := library(t, Options{})
	for _, n := range []int{1, 5, 1000} {
		for offset := range 2 {
			a, b, c := From(l, values(n), offset), From(l, values(n), 0), NewMemory[float32](l, n, 0)
			if err := l.Launch("add_f32", 2, 1, 64, 0, c.Ptr(), a.Ptr(), b.Ptr(), int64(n)); err != nil {
				t.Fatal(err)
			}
			for i, v := range c.V {
				if v != 2*a.V[i] {
					t.Fatalf("element %d: %g", i, v)
				}
			}
			err := l.Launch("add_f32", 2, 1, 64, 0, c.Ptr(), a.Ptr(), b.Ptr(), int64(n+1))
			if err == nil {
				t.Error("out of bounds not seen")
			}
			a.Free()
			b.Free()
			c.Free()
		}
	}
}
