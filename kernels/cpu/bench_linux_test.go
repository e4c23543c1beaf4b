package cpu

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/kernels"
)

func open(b *testing.B, o Options) *Device {
	b.Helper()
	d, err := New(o)
	if err != nil {
		b.Skip(err)
	}
	b.Cleanup(func() { _ = d.Close() })
	return d.(*Device)
}

// random allocates n f32 between -1 and 1.
func random(b *testing.B, d *Device, n int) kernels.Buffer {
	b.Helper()
	buf, err := d.Alloc(int64(n) * 4)
	if err != nil {
		b.Fatal(err)
	}
	x := uint32(1)
	v := f32("random", "x", buf.As(kernels.F32), n)
	for i := range v {
		x = x*1664525 + 1013904223
		v[i] = float32(int32(x)) / (1 << 31)
	}
	return buf.As(kernels.F32)
}

// BenchmarkSgemm compares every BLAS of this machine with the own kernels on one
// thread. Each iteration lets all of them multiply in turn, since the rate of a
// shared machine may halve from one second to the next, and the best of each counts.
func BenchmarkSgemm(b *testing.B) {
	type candidate struct {
		name    string
		d       *Device
		fastest float64
	}
	for _, n := range []int{512, 1024, 2048} {
		for _, trans := range []string{"NN", "NT", "TN"} {
			b.Run(fmt.Sprintf("%d/%s", n, trans), func(b *testing.B) {
				var all []*candidate
				for _, l := range found(b) {
					all = append(all, &candidate{l, open(b, Options{BLAS: l}), math.MaxInt64})
				}
				for _, isa := range ISAs() {
					if isa != "go" || n == 512 {
						all = append(all, &candidate{"own-" + isa, open(b, Options{BLAS: "go", ISA: isa}), math.MaxInt64})
					}
				}
				d := all[0].d
				x, y, z := random(b, d, n*n), random(b, d, n*n), random(b, d, n*n)
				for range b.N {
					for _, c := range all {
						c.fastest = min(c.fastest, seconds(b, func() {
							c.d.Gemm(trans[0] == 'T', trans[1] == 'T', n, n, n, 1, x, n, y, n, 0, z, n)
						}))
					}
				}
				for _, c := range all {
					b.ReportMetric(2*float64(n)*float64(n)*float64(n)/c.fastest/1e9, c.name+"-GFLOP/s")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkLowGemm is the rate of products of bf16 into bf16, or into f32 for weight
// gradients (TN), with each instruction set, and the rate of the best in f32 beside.
func BenchmarkLowGemm(b *testing.B) {
	for _, s := range []struct {
		m, n, k int
		trans   string
	}{{512, 512, 512, "NN"}, {1024, 1024, 1024, "NN"}, {1024, 1024, 1024, "NT"}, {1024, 1024, 1024, "TN"}, {2048, 2048, 2048, "NT"},
		{1024, 2752, 512, "NT"}, {1024, 512, 1376, "NT"}, {1024, 512, 2752, "NN"}, {2752, 512, 1024, "TN"}} {
		b.Run(fmt.Sprintf("%dx%dx%d/%s", s.m, s.n, s.k, s.trans), func(b *testing.B) {
			ta, tb := s.trans[0] == 'T', s.trans[1] == 'T'
			lda, ldb := s.k, s.n
			if ta {
				lda = s.m
			}
			if tb {
				ldb = s.k
			}
			for _, isa := range append([]string{"f32"}, ISAs()...) {
				if isa == "go" {
					continue
				}
				typ, name := kernels.BF16, isa
				if isa == "f32" {
					typ, name = kernels.F32, ""
				}
				d := open(b, Options{BLAS: "go", ISA: name})
				x, y, z := random(b, d, s.m*s.k), random(b, d, s.k*s.n), random(b, d, s.m*s.n)
				if typ == kernels.BF16 {
					lx, ly := random(b, d, s.m*s.k).As(typ).Slice(0, x.Len), random(b, d, s.k*s.n).As(typ).Slice(0, y.Len)
					d.Convert(lx, x)
					d.Convert(ly, y)
					x, y = lx, ly
					if !ta {
						z = z.As(typ)
					}
				}
				fastest := math.Inf(1)
				for range b.N {
					fastest = min(fastest, seconds(b, func() { d.Gemm(ta, tb, s.m, s.n, s.k, 1, x, lda, y, ldb, 0, z, s.n) }))
				}
				b.ReportMetric(2*float64(s.m)*float64(s.n)*float64(s.k)/fastest/1e9, isa+"-GFLOP/s")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// seconds is the CPU time of the thread in f: on a shared machine the clock on
// the wall counts the turns of others too.
func seconds(b *testing.B, f func()) float64 {
	b.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	read := func() float64 {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
			b.Fatal(err)
		}
		return float64(t.Nano()) / 1e9
	}
	start := read()
	f()
	return read() - start
}

// best runs f b.N times and reports the floating-point operations of the fastest,
// which says what the code can do on a machine that does other things too.
func best(b *testing.B, flop float64, f func()) {
	b.Helper()
	fastest := math.Inf(1)
	for range b.N {
		fastest = min(fastest, seconds(b, f))
	}
	b.ReportMetric(flop/fastest/1e9, "GFLOP/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkAttention reports the rate over the operations that causality leaves:
// half of 4·Seq²·HeadDim forward, 2.5 times that backward.
func BenchmarkAttention(b *testing.B) {
	s := kernels.Attention{Batch: 4, Seq: 256, Heads: 8, KVHeads: 8, HeadDim: 64}
	flop := 2 * float64(s.Batch*s.Heads*s.HeadDim) * float64(s.Seq*s.Seq)
	for _, blas := range append(found(b), "go") {
		d := open(b, Options{BLAS: blas})
		qkv, dqkv := random(b, d, s.Rows()*s.QKVWidth()), random(b, d, s.Rows()*s.QKVWidth())
		o, do := random(b, d, s.Rows()*s.Heads*s.HeadDim), random(b, d, s.Rows()*s.Heads*s.HeadDim)
		lse, work := random(b, d, s.Rows()*s.Heads), random(b, d, int(d.AttentionWork(s, kernels.F32)))
		b.Run("forward/"+blas, func(b *testing.B) {
			best(b, flop, func() { d.AttentionForward(o, lse, qkv, work, s) })
		})
		b.Run("backward/"+blas, func(b *testing.B) {
			best(b, 2.5*flop, func() { d.AttentionBackward(dqkv, do, o, lse, qkv, work, s) })
		})
	}
}

// BenchmarkElementwise reports the bytes that an operation must at least move.
func BenchmarkElementwise(b *testing.B) {
	const rows, dim, ffn, vocab = 1024, 512, 1408, 4096
	for _, isa := range ISAs() {
		d := open(b, Options{ISA: isa})
		x, y, z := random(b, d, rows*dim), random(b, d, rows*dim), random(b, d, rows*dim)
		gamma, rstd := random(b, d, dim), random(b, d, rows)
		gu, dgu, h := random(b, d, rows*2*ffn), random(b, d, rows*2*ffn), random(b, d, rows*ffn)
		logits, loss := random(b, d, rows*vocab), random(b, d, rows)
		targets := random(b, d, rows)
		d.Zero(targets)
		ids := targets.As(kernels.I32)
		w, g, m, v := random(b, d, 1<<22), random(b, d, 1<<22), random(b, d, 1<<22), random(b, d, 1<<22)
		d.Zero(v)
		out, err := d.Alloc(8)
		if err != nil {
			b.Fatal(err)
		}
		for _, k := range []struct {
			name   string
			floats int
			run    func()
		}{
			{"Add", 3 * rows * dim, func() { d.Add(z, x, y) }},
			{"Sum", 1 << 22, func() { d.Sum(out.As(kernels.F64), w) }},
			{"SumSquares", 1 << 22, func() { d.SumSquares(out.As(kernels.F64), w) }},
			{"RMSNormForward", 2 * rows * dim, func() { d.RMSNormForward(y, rstd, x, gamma, rows, dim, 1e-5) }},
			{"RMSNormBackwardInput", 3 * rows * dim, func() { d.RMSNormBackwardInput(z, y, x, rstd, gamma, rows, dim, false) }},
			{"RMSNormBackwardWeight", 2 * rows * dim, func() { d.RMSNormBackwardWeight(gamma, y, x, rstd, rows, dim) }},
			{"Rotary", 2 * rows * dim, func() { d.Rotary(x, rows, 256, 8, 64, dim, 10000, false) }},
			{"SwiGLUForward", 3 * rows * ffn, func() { d.SwiGLUForward(h, gu, rows, ffn) }},
			{"SwiGLUBackward", 5 * rows * ffn, func() { d.SwiGLUBackward(dgu, h, gu, rows, ffn) }},
			{"CrossEntropyForward", rows * vocab, func() { d.CrossEntropyForward(loss, rstd, logits, ids, rows, vocab) }},
			{"CrossEntropyBackward", 2 * rows * vocab, func() { d.CrossEntropyBackward(logits, logits, rstd, ids, rows, vocab, 1) }},
			{"StepAdamW", 7 << 22, func() {
				d.StepAdamW(w, g, m, v, kernels.Buffer{}, kernels.AdamW{LR: 1e-5, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Step: 1, GradScale: 1})
			}},
			{"StepSGD", 5 << 22, func() { d.StepSGD(w, g, m, kernels.Buffer{}, kernels.SGD{LR: 1e-5, Momentum: 0.9, GradScale: 1}) }},
		} {
			b.Run(k.name+"/"+isa, func(b *testing.B) {
				fastest := math.Inf(1)
				for range b.N {
					fastest = min(fastest, seconds(b, k.run))
				}
				b.ReportMetric(float64(k.floats)*4/fastest/1e9, "GB/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
