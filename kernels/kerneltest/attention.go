package kerneltest

import (
	"math"
	"slices"

	"github.com/pipetrain/pipetrain/kernels"
)

var attentionShapes = []kernels.Attention{
	{Batch: 1, Seq: 1, Heads: 1, KVHeads: 1, HeadDim: 1},
	{Batch: 2, Seq: 5, Heads: 2, KVHeads: 1, HeadDim: 3},
	{Batch: 1, Seq: 33, Heads: 3, KVHeads: 3, HeadDim: 16},
	{Batch: 2, Seq: 64, Heads: 4, KVHeads: 2, HeadDim: 8},
	{Batch: 1, Seq: 131, Heads: 4, KVHeads: 2, HeadDim: 20},
	{Batch: 1, Seq: 300, Heads: 1, KVHeads: 1, HeadDim: 64},
}

var attentionCases = []Case{
	{Name: "Attention/Forward", bothTypes: true, run: func(c *check) {
		for _, s := range attentionShapes {
			for _, scale := range []float64{1, 6} { // 6: peaked rows, large scores
				c.begin("%+v scale %g", s, scale)
				qkv := c.inT("qkv", c.normal(s.Rows()*s.QKVWidth(), scale))
				o, lse := c.outT("o", s.Rows()*s.Heads*s.HeadDim), c.out("lse", s.Rows()*s.Heads)
				c.d.AttentionForward(o.buf, lse.buf, qkv.buf, c.work(c.d.AttentionWork(s, c.t)).buf, s)
				wo, wl, sizes := attentionOnce(c, wide(qkv.data), s)
				c.within(o, wo, sizes, tolerance{2e-5 * scale * scale, 1e-4})
				c.equal(lse, wl, tolerance{1e-5, 1e-5})
				c.end()
			}
		}
	}},
	{Name: "Attention/Backward", bothTypes: true, run: func(c *check) {
		for _, s := range attentionShapes {
			c.begin("%+v", s)
			qkv, do := c.inT("qkv", c.normal(s.Rows()*s.QKVWidth(), 1)), c.inT("do", c.normal(s.Rows()*s.Heads*s.HeadDim, 1))
			vq, vdo := wide(qkv.data), wide(do.data)
			wo, wl, _ := attentionOnce(c, vq, s)
			o, lse := c.inT("o", narrow(wo)), c.in("lse", narrow(wl))
			dqkv := c.outT("dqkv", s.Rows()*s.QKVWidth())
			c.d.AttentionBackward(dqkv.buf, do.buf, o.buf, lse.buf, qkv.buf, c.work(c.d.AttentionWork(s, c.t)).buf, s)
			tol := tolerance{1e-4, 1e-3}
			both := c.once("dqkv", func() []float64 {
				d, sizes := attentionBackward(vq, vdo, wide(o.data), wl, s)
				return append(d, sizes...)
			})
			c.within(dqkv, both[:len(vq)], both[len(vq):], tol)
			if s.Seq < 140 && !c.again {
				c.slopes(dqkv, vq, nil, 12, tol, func() float64 {
					y, _, _ := attentionForward(vq, s)
					return dot(y, vdo)
				})
			}
			c.end()
		}
	}},
}

// within is equal for sums Σ p·x whose p a device may round to bf16 before it
// multiplies, where the case is of bf16: that moves them by at most 2⁻⁸ of sizes, Σ |p·x|.
func (c *check) within(o *operand, want, sizes []float64, tol tolerance) {
	if c.t != kernels.BF16 {
		c.equal(o, want, tol)
		return
	}
	got := c.read(o)
	for i, w := range want {
		slack := 0x1p-8 * sizes[i]
		if d := math.Abs(float64(got[i]) - w); !(d <= tolerance{tol.abs + slack, tol.rel}.of(c.t, w)) {
			c.failf("%s[%d] = %g, want %g", o.name, i, got[i], w)
			return
		}
	}
}

// attentionOnce returns o, lse and the sums of the sizes of o's terms.
func attentionOnce(c *check, qkv []float64, s kernels.Attention) (o, lse, sizes []float64) {
	all := c.once("o, lse", func() []float64 {
		o, lse, sizes := attentionForward(qkv, s)
		return slices.Concat(o, lse, sizes)
	})
	n := s.Rows() * s.Heads * s.HeadDim
	return all[:n], all[n : n+s.Rows()*s.Heads], all[n+s.Rows()*s.Heads:]
}

// at is the index in qkv of element e of head h (queries, then keys, then values) of a row.
func at(s kernels.Attention, b, t, h, e int) int {
	return (b*s.Seq+t)*s.QKVWidth() + h*s.HeadDim + e
}

func attentionForward(qkv []float64, s kernels.Attention) (o, lse, sizes []float64) {
	o, lse = make([]float64, s.Rows()*s.Heads*s.HeadDim), make([]float64, s.Rows()*s.Heads)
	sizes = make([]float64, len(o))
	p := make([]float64, s.Seq)
	for b := range s.Batch {
		for h := range s.Heads {
			kh := s.Heads + h*s.KVHeads/s.Heads
			for i := range s.Seq {
				m := math.Inf(-1)
				for j := range i + 1 {
					p[j] = dot(qkv[at(s, b, i, h, 0):at(s, b, i, h, s.HeadDim)], qkv[at(s, b, j, kh, 0):]) / math.Sqrt(float64(s.HeadDim))
					m = max(m, p[j])
				}
				sum := 0.0
				for j := range i + 1 {
					p[j] = math.Exp(p[j] - m)
					sum += p[j]
				}
				row := b*s.Seq + i
				lse[row*s.Heads+h] = m + math.Log(sum)
				for j := range i + 1 {
					for e := range s.HeadDim {
						x := p[j] / sum * qkv[at(s, b, j, kh+s.KVHeads, e)]
						o[(row*s.Heads+h)*s.HeadDim+e] += x
						sizes[(row*s.Heads+h)*s.HeadDim+e] += math.Abs(x)
					}
				}
			}
		}
	}
	return o, lse, sizes
}

func attentionBackward(qkv, do, o, lse []float64, s kernels.Attention) (d, sizes []float64) {
	d, sizes = make([]float64, len(qkv)), make([]float64, len(qkv))
	add := func(i int, x float64) {
		d[i] += x
		sizes[i] += math.Abs(x)
	}
	scale := 1 / math.Sqrt(float64(s.HeadDim))
	for b := range s.Batch {
		for h := range s.Heads {
			kh := s.Heads + h*s.KVHeads/s.Heads
			vh := kh + s.KVHeads
			for i := range s.Seq {
				row := (b*s.Seq+i)*s.Heads + h
				doi, oi := do[row*s.HeadDim:(row+1)*s.HeadDim], o[row*s.HeadDim:]
				delta := dot(doi, oi)
				for j := range i + 1 {
					p := math.Exp(scale*dot(qkv[at(s, b, i, h, 0):at(s, b, i, h, s.HeadDim)], qkv[at(s, b, j, kh, 0):]) - lse[row])
					ds := scale * p * (dot(doi, qkv[at(s, b, j, vh, 0):]) - delta)
					for e := range s.HeadDim {
						add(at(s, b, j, vh, e), p*doi[e])
						add(at(s, b, i, h, e), ds*qkv[at(s, b, j, kh, e)])
						add(at(s, b, j, kh, e), ds*qkv[at(s, b, i, h, e)])
					}
				}
			}
		}
	}
	return d, sizes
}
