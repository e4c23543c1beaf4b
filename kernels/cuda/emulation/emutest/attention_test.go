package emutest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Bf16 is the upper half of a float.
type bf16 uint16

func (b bf16) wide() float64 { return float64(math.Float32frombits(uint32(b) << 16)) }

func rounded(v float64) bf16 {
	b := math.Float32bits(float32(v))
	return bf16((b + 0x7fff + b>>16&1) >> 16)
}

type shape struct{ batch, seq, heads, kv, width int }

func (s shape) ld() int   { return (s.heads + 2*s.kv) * s.width }
func (s shape) rows() int { return s.batch * s.seq }

// The tensor core kernels against attention in f64 on the same rounded inputs, at any
// alignment and in any order of threads.
func TestAttentionOnTensorCores(t *testing.T) {
	l := library(t, Options{})
	for _, s := range []shape{{1, 1, 1, 1, 1}, {2, 5, 2, 1, 3}, {1, 33, 3, 3, 16}, {2, 64, 2, 1, 32}, {1, 131, 4, 2, 20}, {1, 200, 2, 1, 64}, {1, 150, 2, 2, 128}, {1, 70, 1, 1, 104}} {
		t.Run(fmt.Sprintf("%+v", s), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			normal := func(n int) []bf16 {
				v := make([]bf16, n)
				for i := range v {
					v[i] = rounded(r.NormFloat64())
				}
				return v
			}
			qkv, do := normal(s.rows()*s.ld()), normal(s.rows()*s.heads*s.width)
			want := reference(s, qkv, do)
			var first []bf16
			for run := range 3 {
				l.Seed(uint64(run))
				got, o, lse := attention(t, l, s, qkv, do, run*run)
				if run == 0 {
					first = got
					near(t, "o", wide(o), want.o, 0.01)
					near(t, "lse", lse, want.lse, 1e-5)
					near(t, "dqkv", wide(got), want.dqkv, 0.015)
				} else if !slices.Equal(first, got) {
					t.Error("another order of threads or another alignment gives other bits")
				}
			}
		})
	}
}

// near asks for a root mean square error of at most tolerance of the mean square, and
// for no single error of more than 8 times that.
func near(t *testing.T, what string, got, want []float64, tolerance float64) {
	t.Helper()
	sum, size, worst := 0.0, 0.0, 0.0
	for i := range want {
		d := math.Abs(got[i] - want[i])
		if !(d < math.Inf(1)) {
			t.Fatalf("%s[%d] = %g", what, i, got[i])
		}
		worst = max(worst, d)
		sum += d * d
		size += want[i] * want[i]
	}
	n := float64(len(want))
	rms := math.Sqrt(size / n)
	if e := math.Sqrt(sum / n); e > tolerance*rms+1e-6 || worst > 8*tolerance*rms+1e-5 {
		t.Errorf("%s: error %.3g, worst %.3g of values of %.3g", what, e, worst, rms)
	}
}

func wide(v []bf16) []float64 {
	w := make([]float64, len(v))
	for i, x := range v {
		w[i] = x.wide()
	}
	return w
}

// attention runs forward and backward; buffers are offset elements off alignment.
func attention(t *testing.T, l *Library, s shape, qkv, do []bf16, offset int) (grad, out []bf16, sums []float64) {
	t.Helper()
	d, b := 128, 32
	if s.width <= 64 {
		d, b = 64, 64
	}
	if s.width <= 32 {
		d = 32
	}
	n := s.rows() * s.heads
	q, g := From(l, qkv, offset), From(l, do, offset)
	o, lse, delta, dq := NewMemory[bf16](l, len(do), offset), NewMemory[float32](l, n, 0), NewMemory[float32](l, n, 0), NewMemory[bf16](l, len(qkv), offset)
	defer func() {
		q.Free()
		g.Free()
		o.Free()
		lse.Free()
		delta.Free()
		dq.Free()
	}()
	scale := float32(1 / math.Sqrt(float64(s.width)))
	tiles, row := (s.seq+63)/64, 2*(d+8)
	dims := []any{s.seq, s.heads, s.kv, s.width, scale}
	run := func(name string, blocks, threads, shared int, args ...any) {
		t.Helper()
		if err := l.Launch(name, blocks, 1, threads, shared, args...); err != nil {
			t.Fatal(err)
		}
	}
	run(fmt.Sprintf("attention_forward_bf16_%d", d), tiles*s.batch*s.heads, 128, 256*row, append([]any{o.Ptr(), lse.Ptr(), q.Ptr()}, dims...)...)
	run("attention_delta_bf16", (n+7)/8, 256, 0, delta.Ptr(), g.Ptr(), o.Ptr(), n, s.width)
	back := append([]any{dq.Ptr(), g.Ptr(), lse.Ptr(), delta.Ptr(), q.Ptr()}, dims...)
	run(fmt.Sprintf("attention_keys_bf16_%d", d), tiles*s.batch*s.kv, 128, (128+4*b)*row+16*b, back...)
	run(fmt.Sprintf("attention_queries_bf16_%d", d), tiles*s.batch*s.heads, 128, (128+4*b)*row, back...)
	for _, x := range lse.V {
		sums = append(sums, float64(x))
	}
	return slices.Clone(dq.V), slices.Clone(o.V), sums
}

type attended struct{ o, lse, dqkv []float64 }

func reference(s shape, qkv, do []bf16) attended {
	in, g := wide(qkv), wide(do)
	a := attended{make([]float64, len(do)), make([]float64, s.rows()*s.heads), make([]float64, len(qkv))}
	at := func(b, i, h int) int { return (b*s.seq+i)*s.ld() + h*s.width }
	dot := func(x, y []float64) (d float64) {
		for i, v := range x {
			d += v * y[i]
		}
		return d
	}
	add := func(y []float64, f float64, x []float64) {
		for i, v := range x {
			y[i] += f * v
		}
	}
	scale := 1 / math.Sqrt(float64(s.width))
	for b := range s.batch {
		for h := range s.heads {
			kh := s.heads + h/(s.heads/s.kv)
			for i := range s.seq {
				row := (b*s.seq+i)*s.heads + h
				q := in[at(b, i, h):][:s.width]
				e, sum := make([]float64, i+1), 0.0
				for j := range e {
					e[j] = math.Exp(scale * dot(q, in[at(b, j, kh):]))
					sum += e[j]
				}
				a.lse[row] = math.Log(sum)
				o, d := a.o[row*s.width:][:s.width], g[row*s.width:][:s.width]
				for j := range e {
					add(o, e[j]/sum, in[at(b, j, kh+s.kv):][:s.width])
				}
				delta := dot(d, o)
				for j := range e {
					p := e[j] / sum
					ds := p * (dot(d, in[at(b, j, kh+s.kv):]) - delta) * scale
					add(a.dqkv[at(b, j, kh+s.kv):], p, d)
					add(a.dqkv[at(b, i, h):], ds, in[at(b, j, kh):][:s.width])
					add(a.dqkv[at(b, j, kh):], ds, q)
				}
			}
		}
	}
	return a
}
