package cpu

import (
	"fmt"
	"math"
	"testing"
	"time"

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

// BenchmarkSgemm compares every BLAS of this machine with the own kernels, one thread.
func BenchmarkSgemm(b *testing.B) {
	type maker struct{ name, blas, isa string }
	var all []maker
	for _, l := range found(b) {
		all = append(all, maker{l, l, ""})
	}
	for _, isa := range ISAs() {
		all = append(all, maker{"own-" + isa, "go", isa})
	}
	for _, n := range []int{512, 1024, 2048} {
		for _, trans := range []string{"NN", "NT", "TN"} {
			for _, m := range all {
				if m.isa == "go" && n > 512 {
					continue
				}
				b.Run(fmt.Sprintf("%d/%s/%s", n, trans, m.name), func(b *testing.B) {
					d := open(b, Options{BLAS: m.blas, ISA: m.isa})
					x, y, z := random(b, d, n*n), random(b, d, n*n), random(b, d, n*n)
					b.ResetTimer()
					best(b, 2*float64(n)*float64(n)*float64(n), func() {
						d.Gemm(trans[0] == 'T', trans[1] == 'T', n, n, n, 1, x, n, y, n, 0, z, n)
					})
				})
			}
		}
	}
}

// best runs f b.N times and reports the floating-point operations of the fastest,
// which says what the code can do on a machine that does other things too.
func best(b *testing.B, flop float64, f func()) {
	b.Helper()
	fastest := time.Duration(math.MaxInt64)
	for range b.N {
		start := time.Now()
		f()
		fastest = min(fastest, time.Since(start))
	}
	b.ReportMetric(flop/fastest.Seconds()/1e9, "best-GFLOP/s")
	b.ReportMetric(flop*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
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
		lse, work := random(b, d, s.Rows()*s.Heads), random(b, d, int(d.AttentionWork(s)))
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
				d.StepAdamW(w, g, m, v, kernels.AdamW{LR: 1e-5, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Step: 1, GradScale: 1})
			}},
			{"StepSGD", 5 << 22, func() { d.StepSGD(w, g, m, kernels.SGD{LR: 1e-5, Momentum: 0.9, GradScale: 1}) }},
		} {
			b.Run(k.name+"/"+isa, func(b *testing.B) {
				b.SetBytes(int64(k.floats) * 4)
				fastest := time.Duration(math.MaxInt64)
				for range b.N {
					start := time.Now()
					k.run()
					fastest = min(fastest, time.Since(start))
				}
				b.ReportMetric(float64(k.floats)*4/fastest.Seconds()/1e9, "best-GB/s")
			})
		}
	}
}
