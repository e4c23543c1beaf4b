package kerneltest_test

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cpu"
	"github.com/pipetrain/pipetrain/kernels/kerneltest"
)

func sound(threads int) (kernels.Device, error) {
	return cpu.New(cpu.Options{Threads: threads, BLAS: "go"})
}

// broken is a device with one operation gone wrong.
type broken struct {
	hooks
	alloc func(d kernels.Device, n int64) (kernels.Buffer, error)
	zero  func(d kernels.Device, b kernels.Buffer)
}

func threadsOf(d kernels.Device) int64 {
	n, err := strconv.ParseInt(d.Info()["threads"], 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (b *broken) Alloc(n int64) (kernels.Buffer, error) {
	if b.alloc != nil {
		return b.alloc(b.Device, n)
	}
	return b.Device.Alloc(n)
}

func (b *broken) Zero(x kernels.Buffer) {
	if b.zero != nil {
		b.zero(b.Device, x)
		return
	}
	b.Device.Zero(x)
}

func TestSuitePassesSoundDevice(t *testing.T) { kerneltest.Run(t, sound) }

// TestSuiteCatchesFaults breaks one thing at a time: the suite must see each.
func TestSuiteCatchesFaults(t *testing.T) {
	var calls int
	faults := []struct {
		name, cases string // the cases, by prefix, of which one must fail
		b           broken
	}{
		{"Gemm forgets beta", "Gemm", broken{hooks: hooks{onGemm: func(d kernels.Device, ta, tb bool, m, n, k int, alpha float32, a kernels.Buffer, lda int, b kernels.Buffer, ldb int, beta float32, c kernels.Buffer, ldc int) {
			d.Gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, 0, c, ldc)
		}}}},
		{"Gemm reads C when beta is 0", "Gemm", broken{hooks: hooks{onGemm: func(d kernels.Device, ta, tb bool, m, n, k int, alpha float32, a kernels.Buffer, lda int, b kernels.Buffer, ldb int, beta float32, c kernels.Buffer, ldc int) {
			if beta == 0 {
				beta = 1e-30
			}
			d.Gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		}}}},
		{"Gemm leaves the last row when there are many", "Gemm", broken{hooks: hooks{onGemm: func(d kernels.Device, ta, tb bool, m, n, k int, alpha float32, a kernels.Buffer, lda int, b kernels.Buffer, ldb int, beta float32, c kernels.Buffer, ldc int) {
			if m > 300 {
				m--
			}
			d.Gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		}}}},
		{"Gemm loses the end of k beyond 256", "Gemm", broken{hooks: hooks{onGemm: func(d kernels.Device, ta, tb bool, m, n, k int, alpha float32, a kernels.Buffer, lda int, b kernels.Buffer, ldb int, beta float32, c kernels.Buffer, ldc int) {
			if k > 256 {
				k--
			}
			d.Gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		}}}},
		{"Gemm loses the end of k beyond 2048", "Gemm", broken{hooks: hooks{onGemm: func(d kernels.Device, ta, tb bool, m, n, k int, alpha float32, a kernels.Buffer, lda int, b kernels.Buffer, ldb int, beta float32, c kernels.Buffer, ldc int) {
			if k > 2048 {
				k--
			}
			d.Gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		}}}},
		{"Gemm takes C as packed", "Gemm", broken{hooks: hooks{onGemm: func(d kernels.Device, ta, tb bool, m, n, k int, alpha float32, a kernels.Buffer, lda int, b kernels.Buffer, ldb int, beta float32, c kernels.Buffer, ldc int) {
			d.Gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, n)
		}}}},
		{"Gemm ignores transB of square matrices", "Gemm", broken{hooks: hooks{onGemm: func(d kernels.Device, ta, tb bool, m, n, k int, alpha float32, a kernels.Buffer, lda int, b kernels.Buffer, ldb int, beta float32, c kernels.Buffer, ldc int) {
			d.Gemm(ta, tb && n != k, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		}}}},
		{"Gemm is not the same twice", "Gemm", broken{hooks: hooks{onGemm: func(d kernels.Device, ta, tb bool, m, n, k int, alpha float32, a kernels.Buffer, lda int, b kernels.Buffer, ldb int, beta float32, c kernels.Buffer, ldc int) {
			if calls++; calls%97 == 0 {
				alpha = alpha * (1 + 1e-6)
			}
			d.Gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		}}}},
		{"Gemm changes A", "Gemm", broken{hooks: hooks{onGemm: func(d kernels.Device, ta, tb bool, m, n, k int, alpha float32, a kernels.Buffer, lda int, b kernels.Buffer, ldb int, beta float32, c kernels.Buffer, ldc int) {
			d.Gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
			if a.Len > 0 {
				d.Add(a.Slice(0, 1), a.Slice(0, 1), a.Slice(0, 1))
			}
		}}}},
		{"RMSNormBackwardInput drops accumulate", "RMSNorm/BackwardInput", broken{hooks: hooks{onRMSNormBackwardInput: func(d kernels.Device, dx, dy, x, rstd, gamma kernels.Buffer, rows, dim int, _ bool) {
			d.RMSNormBackwardInput(dx, dy, x, rstd, gamma, rows, dim, false)
		}}}},
		{"RMSNormBackwardInput always accumulates", "RMSNorm/BackwardInput", broken{hooks: hooks{onRMSNormBackwardInput: func(d kernels.Device, dx, dy, x, rstd, gamma kernels.Buffer, rows, dim int, _ bool) {
			d.RMSNormBackwardInput(dx, dy, x, rstd, gamma, rows, dim, true)
		}}}},
		{"RMSNormBackwardInput uses dy for x", "RMSNorm/BackwardInput", broken{hooks: hooks{onRMSNormBackwardInput: func(d kernels.Device, dx, dy, x, rstd, gamma kernels.Buffer, rows, dim int, acc bool) {
			d.RMSNormBackwardInput(dx, dy, dy, rstd, gamma, rows, dim, acc)
		}}}},
		{"RMSNormBackwardWeight overwrites", "RMSNorm/BackwardWeight", broken{hooks: hooks{onRMSNormBackwardWeight: func(d kernels.Device, dgamma, dy, x, rstd kernels.Buffer, rows, dim int) {
			d.Zero(dgamma)
			d.RMSNormBackwardWeight(dgamma, dy, x, rstd, rows, dim)
		}}}},
		{"RMSNormBackwardWeight loses the last row", "RMSNorm/BackwardWeight", broken{hooks: hooks{onRMSNormBackwardWeight: func(d kernels.Device, dgamma, dy, x, rstd kernels.Buffer, rows, dim int) {
			d.RMSNormBackwardWeight(dgamma, dy, x, rstd, rows-1, dim)
		}}}},
		{"AddBias adds the bias to the first row alone", "AddBias", broken{hooks: hooks{onAddBias: func(d kernels.Device, x, b kernels.Buffer, rows, dim int) {
			d.AddBias(x, b, min(1, rows), dim)
		}}}},
		{"AddColumns overwrites", "AddColumns", broken{hooks: hooks{onAddColumns: func(d kernels.Device, dbias, dy kernels.Buffer, rows, dim int) {
			d.Zero(dbias)
			d.AddColumns(dbias, dy, rows, dim)
		}}}},
		{"AddColumns loses the last row", "AddColumns", broken{hooks: hooks{onAddColumns: func(d kernels.Device, dbias, dy kernels.Buffer, rows, dim int) {
			d.AddColumns(dbias, dy, rows-1, dim)
		}}}},
		{"Add leaves the tail unwritten", "Add", broken{hooks: hooks{onAdd: func(d kernels.Device, dst, a, b kernels.Buffer) {
			n := dst.Len / 16 * 16
			d.Add(dst.Slice(0, n), a.Slice(0, n), b.Slice(0, n))
		}}}},
		{"Add writes past the end", "Add", broken{hooks: hooks{onAdd: func(d kernels.Device, dst, a, b kernels.Buffer) {
			d.Add(dst, a, b)
			d.Zero(kernels.Buffer{Addr: dst.Addr + uintptr(dst.Bytes()), Len: 1, Type: kernels.F32})
		}}}},
		{"Add writes before the start", "Add", broken{hooks: hooks{onAdd: func(d kernels.Device, dst, a, b kernels.Buffer) {
			d.Add(dst, a, b)
			d.Zero(kernels.Buffer{Addr: dst.Addr - 4, Len: 1, Type: kernels.F32})
		}}}},
		{"Add fails when dst is b", "Add", broken{hooks: hooks{onAdd: func(d kernels.Device, dst, a, b kernels.Buffer) {
			d.Copy(dst, a)
			d.Add(dst, dst, b)
		}}}},
		{"Sum in f32", "Sum", broken{hooks: hooks{onSum: func(d kernels.Device, out, x kernels.Buffer) {
			s := float32(0)
			for i := range x.Len {
				s += host32(d, x.Slice(i, 1))
			}
			put64(d, out, float64(s))
		}}}},
		{"Sum depends on the threads", "Sum", broken{hooks: hooks{onSum: func(d kernels.Device, out, x kernels.Buffer) {
			threads := threadsOf(d)
			n := x.Len / threads
			total := 0.0
			for i := range threads {
				to := (i + 1) * n
				if i == threads-1 {
					to = x.Len
				}
				d.Sum(out, x.Slice(i*n, to-i*n))
				total += get64(d, out)
			}
			put64(d, out, total)
		}}}},
		{"Sum depends on alignment", "Sum", broken{hooks: hooks{onSum: func(d kernels.Device, out, x kernels.Buffer) {
			head := min(x.Len, int64((64-x.Addr%64)%64/4))
			d.Sum(out, x.Slice(0, head))
			first := get64(d, out)
			d.Sum(out, x.Slice(head, x.Len-head))
			put64(d, out, first+get64(d, out))
		}}}},
		{"Embedding overwrites", "Embedding/BackwardWeight", broken{hooks: hooks{onEmbeddingBackwardWeight: func(d kernels.Device, dt, ids, dy kernels.Buffer, rows, dim int) {
			d.Zero(dt)
			d.EmbeddingBackwardWeight(dt, ids, dy, rows, dim)
		}}}},
		{"Embedding keeps only the last of equal ids", "Embedding/BackwardWeight", broken{hooks: hooks{onEmbeddingBackwardWeight: func(d kernels.Device, dt, ids, dy kernels.Buffer, rows, dim int) {
			seen := map[string]int64{}
			for i := range int64(rows) {
				seen[string(d.Host(ids.Slice(i, 1)))] = i
			}
			for _, i := range seen {
				d.EmbeddingBackwardWeight(dt, ids.Slice(i, 1), dy.Slice(i*int64(dim), int64(dim)), 1, dim)
			}
		}}}},
		{"Rotary ignores inverse", "Rotary", broken{hooks: hooks{onRotary: func(d kernels.Device, x kernels.Buffer, rows, seq, heads, dim, ld int, theta float32, _ bool) {
			d.Rotary(x, rows, seq, heads, dim, ld, theta, false)
		}}}},
		{"Rotary counts positions on", "Rotary", broken{hooks: hooks{onRotary: func(d kernels.Device, x kernels.Buffer, rows, _, heads, dim, ld int, theta float32, inv bool) {
			d.Rotary(x, rows, rows, heads, dim, ld, theta, inv)
		}}}},
		{"Rotary turns all columns", "Rotary", broken{hooks: hooks{onRotary: func(d kernels.Device, x kernels.Buffer, rows, seq, heads, dim, ld int, theta float32, inv bool) {
			if ld >= (heads+1)*dim && rows > 1 {
				d.Rotary(x, rows-1, seq, heads+1, dim, ld, theta, inv)
				x, rows = x.Slice(int64((rows-1)*ld), int64(heads*dim)), 1
			}
			d.Rotary(x, rows, seq, heads, dim, ld, theta, inv)
		}}}},
		{"AttentionForward is not causal across sequences", "Attention/Forward", broken{hooks: hooks{onAttentionForward: func(d kernels.Device, o, lse, qkv, work kernels.Buffer, s kernels.Attention) {
			joined := s
			joined.Batch, joined.Seq = 1, s.Rows()
			w, _ := d.Alloc(d.AttentionWork(joined, kernels.F32) * 4)
			d.AttentionForward(o, lse, qkv, w.As(kernels.F32), joined)
			d.Free(w)
		}}}},
		{"AttentionForward mixes up key heads", "Attention/Forward", broken{hooks: hooks{onAttentionForward: func(d kernels.Device, o, lse, qkv, work kernels.Buffer, s kernels.Attention) {
			d.AttentionForward(o, lse, qkv, work, s)
			if s.KVHeads < s.Heads && s.KVHeads > 1 { // h mod KVHeads for h / group
				w := int64(s.Heads * s.HeadDim)
				for i := range int64(s.Rows()) {
					d.Copy(o.Slice(i*w+int64(s.HeadDim), int64(s.HeadDim)), o.Slice(i*w+2*int64(s.HeadDim), int64(s.HeadDim)))
				}
			}
		}}}},
		{"AttentionBackward leaves dv of the last row", "Attention/Backward", broken{hooks: hooks{onAttentionBackward: func(d kernels.Device, dqkv, do, o, lse, qkv, work kernels.Buffer, s kernels.Attention) {
			last := dqkv.Slice(dqkv.Len-1, 1)
			keep := append([]byte(nil), d.Host(last)...)
			d.AttentionBackward(dqkv, do, o, lse, qkv, work, s)
			d.CopyIn(last, keep)
		}}}},
		{"AttentionBackward without do·o", "Attention/Backward", broken{hooks: hooks{onAttentionBackward: func(d kernels.Device, dqkv, do, o, lse, qkv, work kernels.Buffer, s kernels.Attention) {
			z, _ := d.Alloc(o.Bytes())
			d.AttentionBackward(dqkv, do, z.As(kernels.F32), lse, qkv, work, s)
			d.Free(z)
		}}}},
		{"AttentionBackward writes past its scratch", "Attention/Backward", broken{hooks: hooks{onAttentionBackward: func(d kernels.Device, dqkv, do, o, lse, qkv, work kernels.Buffer, s kernels.Attention) {
			d.AttentionBackward(dqkv, do, o, lse, qkv, work, s)
			d.Zero(kernels.Buffer{Addr: work.Addr + uintptr(work.Bytes()), Len: 1, Type: kernels.F32})
		}}}},
		{"SwiGLUBackward fails in place", "SwiGLU/Backward", broken{hooks: hooks{onSwiGLUBackward: func(d kernels.Device, dgu, dy, gu kernels.Buffer, rows, ffn int) {
			if dgu == gu && rows > 1 {
				d.Copy(gu.Slice(0, int64(ffn)), gu.Slice(int64(ffn), int64(ffn)))
			}
			d.SwiGLUBackward(dgu, dy, gu, rows, ffn)
		}}}},
		{"CrossEntropyBackward drops the scale", "CrossEntropy/Backward", broken{hooks: hooks{onCrossEntropyBackward: func(d kernels.Device, dl, l, lse, t kernels.Buffer, rows, vocab int, scale float32) {
			d.CrossEntropyBackward(dl, l, lse, t, rows, vocab, 1)
		}}}},
		{"CrossEntropyBackward takes the wrong row's target", "CrossEntropy/Backward", broken{hooks: hooks{onCrossEntropyBackward: func(d kernels.Device, dl, l, lse, t kernels.Buffer, rows, vocab int, scale float32) {
			for i := range int64(rows) {
				v := int64(vocab)
				d.CrossEntropyBackward(dl.Slice(i*v, v), l.Slice(i*v, v), lse.Slice(i, 1), t.Slice(int64(rows)-1-i, 1), 1, vocab, scale)
			}
		}}}},
		{"AdamW without bias correction", "StepAdamW", broken{hooks: hooks{onStepAdamW: func(d kernels.Device, w, g, m, v, low kernels.Buffer, p kernels.AdamW) {
			p.Step = 1000000
			d.StepAdamW(w, g, m, v, low, p)
		}}}},
		{"AdamW forgets the gradient's scale", "StepAdamW", broken{hooks: hooks{onStepAdamW: func(d kernels.Device, w, g, m, v, low kernels.Buffer, p kernels.AdamW) {
			p.GradScale = 1
			d.StepAdamW(w, g, m, v, low, p)
		}}}},
		{"AdamW without decay", "StepAdamW", broken{hooks: hooks{onStepAdamW: func(d kernels.Device, w, g, m, v, low kernels.Buffer, p kernels.AdamW) {
			p.WeightDecay = 0
			d.StepAdamW(w, g, m, v, low, p)
		}}}},
		{"SGD without momentum", "StepSGD", broken{hooks: hooks{onStepSGD: func(d kernels.Device, w, g, b, low kernels.Buffer, p kernels.SGD) {
			p.Momentum = 0
			d.StepSGD(w, g, kernels.Buffer{}, low, p)
		}}}},
		{"Alloc gives used memory", "Memory", broken{alloc: func(d kernels.Device, n int64) (kernels.Buffer, error) {
			b, err := d.Alloc(n)
			d.Host(b)[n/2] = 1
			return b, err
		}}},
		{"Zero leaves the end", "Memory", broken{zero: func(d kernels.Device, b kernels.Buffer) {
			if b.Len > 0 {
				d.Zero(b.Slice(0, b.Len-1))
			}
		}}},
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			maker := func(threads int) (kernels.Device, error) {
				d, err := sound(threads)
				b := f.b
				b.Device = d
				return &b, err
			}
			tried := 0
			for _, c := range kerneltest.Cases() {
				if strings.HasPrefix(c.Name, f.cases) {
					tried++
					if err := c.Check(maker); err != nil {
						t.Logf("caught: %.300v", err)
						return
					}
				}
			}
			t.Errorf("%d cases %q saw nothing", tried, f.cases)
		})
	}
}

// TestSuiteCatchesPanics: a device that panics fails the case and no more.
func TestSuiteCatchesPanics(t *testing.T) {
	maker := func(threads int) (kernels.Device, error) {
		d, err := sound(threads)
		return &broken{hooks: hooks{Device: d, onAdd: func(kernels.Device, kernels.Buffer, kernels.Buffer, kernels.Buffer) {
			panic(rand.Int())
		}}}, err
	}
	for _, c := range kerneltest.Cases() {
		if c.Name == "Add" {
			if err := c.Check(maker); err == nil || !strings.Contains(err.Error(), "panic") {
				t.Errorf("got %v, want the panic", err)
			}
		}
	}
}
