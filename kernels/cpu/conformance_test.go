package cpu

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/kerneltest"
)

// TestConformance runs the suite for each instruction set that this processor has.
func TestConformance(t *testing.T) {
	for i, isa := range ISAs() {
		t.Run(isa, func(t *testing.T) {
			if testing.Short() && i > 0 {
				t.Skip("short: another instruction set has other numbers, not other threads")
			}
			kerneltest.Run(t, func(threads int) (kernels.Device, error) {
				return New(Options{Threads: threads, ISA: isa, BLAS: "go"})
			})
		})
	}
}

// TestOwnGemmThreads: the own kernels give the same bits for every number of
// threads and for every part of C computed by itself, which the contract does not ask for.
func TestOwnGemmThreads(t *testing.T) {
	const m, n, k = 301, 290, 300
	for _, isa := range ISAs() {
		var first []byte
		for threads := 1; threads <= 5; threads++ {
			d, err := New(Options{Threads: threads, ISA: isa, BLAS: "go"})
			if err != nil {
				t.Fatal(err)
			}
			a, b, c := fill(t, d, m*k), fill(t, d, k*n), fill(t, d, m*n)
			d.Gemm(true, false, m, n, k, 1, a, m, b, n, 0, c, n)
			got := append([]byte(nil), d.Host(c)...)
			if first == nil {
				first = got
				// Row 100 alone, as op(A) has its column 100 there.
				d.Gemm(true, false, 1, n, k, 1, a.Slice(100, (k-1)*m+1), m, b, n, 0, c.Slice(100*n, n), n)
				got = append([]byte(nil), d.Host(c)...)
			}
			if !bytes.Equal(got, first) {
				t.Errorf("%s: other bits with %d threads", isa, threads)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestLowGemmThreads: so do products of bf16, whose blocks are as wide as the threads leave them.
func TestLowGemmThreads(t *testing.T) {
	const m, n, k = 301, 1090, 601
	for _, isa := range ISAs() {
		if isa == "go" && len(ISAs()) > 1 {
			continue // slow, and cut alike
		}
		var first []byte
		for threads := 1; threads <= 4; threads++ {
			d, err := New(Options{Threads: threads, ISA: isa, BLAS: "go"})
			if err != nil {
				t.Fatal(err)
			}
			low := func(b kernels.Buffer) kernels.Buffer {
				room, err := d.Alloc(2 * b.Len)
				if err != nil {
					t.Fatal(err)
				}
				d.Convert(room.As(kernels.BF16), b)
				return room.As(kernels.BF16)
			}
			a, b, c := low(fill(t, d, m*k)), low(fill(t, d, k*n)), low(fill(t, d, m*n))
			d.Gemm(false, true, m, n, k, 1, a, k, b, k, 1, c, n)
			if got := append([]byte(nil), d.Host(c)...); first == nil {
				first = got
			} else if !bytes.Equal(got, first) {
				t.Errorf("%s: other bits with %d threads", isa, threads)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func fill(t testing.TB, d kernels.Device, n int) kernels.Buffer {
	b, err := d.Alloc(int64(n) * 4)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 6))
	v := f32("fill", "v", b.As(kernels.F32), n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return b.As(kernels.F32)
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{Threads: -1}, {ISA: "mmx"}} {
		if _, err := New(o); err == nil {
			t.Errorf("New(%+v) gave no error", o)
		}
	}
	d, err := New(Options{ISA: "go"})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v", d.Info())
	if n := len(found(t)); n > 0 && d.Info()["blas"] == "go" {
		t.Errorf("plain Go multiplies although %d libraries are here", n)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// TestPoolPanic: a panic in a worker reaches the caller, and the pool lives on.
func TestPoolPanic(t *testing.T) {
	p := newPool(3)
	defer p.close()
	for range 3 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			p.run(10, func(_, part int) {
				if part == 7 {
					panic("part 7")
				}
			})
		}()
	}
	var sum atomic.Int64
	p.run(100, func(_, part int) { sum.Add(int64(part)) })
	if sum.Load() != 4950 {
		t.Errorf("sum of parts %d, want 4950", sum.Load())
	}
}

// TestWrongShapes: a shape that does not fit its buffers panics, as the contract says.
func TestWrongShapes(t *testing.T) {
	d, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := fill(t, d, 100)
	for name, f := range map[string]func(){
		"C too short":    func() { d.Gemm(false, false, 11, 10, 1, 1, b, 1, b, 10, 0, b, 10) },
		"stride":         func() { d.Gemm(false, false, 2, 10, 1, 1, b, 1, b, 10, 0, b, 9) },
		"lengths differ": func() { d.Add(b, b.Slice(0, 99), b) },
		"type":           func() { d.Add(b.As(kernels.I32), b, b) },
		"odd head":       func() { d.Rotary(b, 2, 2, 1, 5, 5, 1e4, false) },
		"work too short": func() {
			d.AttentionForward(b, b, b, b.Slice(0, 1), kernels.Attention{Batch: 1, Seq: 4, Heads: 1, KVHeads: 1, HeadDim: 4})
		},
		"free": func() { d.Free(b.Slice(1, 5)) },
	} {
		func() {
			defer func() {
				if r := recover(); r == nil {
					t.Errorf("%s: no panic", name)
				} else if s, ok := r.(string); !ok || !strings.HasPrefix(s, "cpu: ") {
					t.Errorf("%s: panic %v, want one that says where", name, r)
				}
			}()
			f()
		}()
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
