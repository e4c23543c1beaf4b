package emutest

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/kernels/cuda/ptx"
)

func library(t *testing.T, o Options) *Library {
	t.Helper()
	path, err := Build(o)
	if errors.Is(err, ErrNoCompiler) && os.Getenv("CI") != "true" {
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
		v[i] = float32(i%17)/8 - 1
	}
	return v
}

// What is emulated is what the binary holds for cards: each kernel with its parameters.
func TestSameKernelsAsPTX(t *testing.T) {
	l := library(t, Options{})
	for _, k := range ptx.Kernels() {
		threads, params, ok := l.Describe(k.Name)
		if !ok || threads != k.MaxThreads || !slices.Equal(params, k.Params) {
			t.Errorf("%s: PTX has %d threads, parameters %v; the emulation %v, %d, %v", k.Name, k.MaxThreads, k.Params, ok, threads, params)
		}
	}
}

// A sum, exact to the element; and one element more than there is.
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
			if err := l.Launch("add_f32", 2, 1, 64, 0, c.Ptr(), a.Ptr(), b.Ptr(), int64(n+1)); err == nil {
				t.Error("an access outside was not seen")
			}
			a.Free()
			b.Free()
			c.Free()
		}
	}
}

func TestLaunchLimits(t *testing.T) {
	l := library(t, Options{})
	for _, c := range []struct {
		blocks, threads, shared int
		want                    string
	}{
		{1, 257, 0, "threads"}, {1, 0, 0, "threads"}, {0, 32, 0, "blocks"}, {1, 32, 1 << 20, "shared memory"},
	} {
		err := l.Launch("sum_total", c.blocks, 1, c.threads, c.shared, From(l, values(2), 0).Ptr(), From(l, values(2), 0).Ptr(), 1)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d blocks of %d threads: %v", c.blocks, c.threads, err)
		}
	}
	if err := l.Launch("nothing", 1, 1, 32, 0); err == nil {
		t.Error("a kernel that does not exist ran")
	}
}
