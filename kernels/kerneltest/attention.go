package kerneltest

import (
	"math"

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
	{Name: "Attention/Forward", run: func(c *check) {
		for _, s := range attentionShapes {
			for _, scale := range []float64{1, 6} { // 6: peaked rows, large scores
				c.begin("%+v scale %g", s, scale)
				qkv := c.in("qkv", c.normal(s.Rows()*s.QKVWidth(), scale))
				o, lse := c.out("o", s.Rows()*s.Heads*s.HeadDim), c.out("lse", s.Rows()*s.Heads)
				c.d.AttentionForward(o.buf, lse.buf, qkv.buf, c.work(c.d.AttentionWork(s, kernels.F32)).buf, s)
				wo, wl := attentionOnce(c, wide(qkv.data), s)
				c.equal(o, wo, tolerance{2e-5 * scale * scale, 1e-4})
				c.equal(lse, wl, tolerance{1e-5, 1e-5})
				c.end()
			}
		}
	}},
	{Name: "Attention/Backward", run: func(c *check) {
		for _, s := range attentionShapes {
			c.begin("%+v", s)
			qkv, do := c.in("qkv", c.normal(s.Rows()*s.QKVWidth(), 1)), c.in("do", c.normal(s.Rows()*s.Heads*s.HeadDim, 1))
			vq, vdo := wide(qkv.data), wide(do.data)
			wo, wl := attentionOnce(c, vq, s)
			o, lse := c.in("o", narrow(wo)), c.in("lse", narrow(wl))
			dqkv := c.out("dqkv", s.Rows()*s.QKVWidth())
			c.d.AttentionBackward(dqkv.buf, do.buf, o.buf, lse.buf, qkv.buf, c.work(c.d.AttentionWork(s, kernels.F32)).buf, s)
			tol := tolerance{1e-4, 1e-3}
			c.equal(dqkv, c.once("dqkv", func() []float64 { return attentionBackward(vq, vdo, wo, wl, s) }), tol)
			if s.Seq < 140 && !c.again {
				c.slopes(dqkv, vq, nil, 12, tol, func() float64 {
					y, _ := attentionForward(vq, s)
					return dot(y, vdo)
				})
			}
			c.end()
		}
	}},
}

func attentionOnce(c *check, qkv []float64, s kernels.Attention) (o, lse []float64) {
	both := c.once("o, lse", func() []float64 {
		o, lse := attentionForward(qkv, s)
		return append(o, lse...)
	})
	n := s.Rows() * s.Heads * s.HeadDim
	return both[:n], both[n:]
}

// at is the index in qkv of element e of head h (queries, then keys, then values) of a row.
func at(s kernels.Attention, b, t, h, e int) int {
	return (b*s.Seq+t)*s.QKVWidth() + h*s.HeadDim + e
}

func attentionForward(qkv []float64, s kernels.Attention) (o, lse []float64) {
	o, lse = make([]float64, s.Rows()*s.Heads*s.HeadDim), make([]float64, s.Rows()*s.Heads)
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
						o[(row*s.Heads+h)*s.HeadDim+e] += p[j] / sum * qkv[at(s, b, j, kh+s.KVHeads, e)]
					}
				}
			}
		}
	}
	return o, lse
}

func attentionBackward(qkv, do, o, lse []float64, s kernels.Attention) []float64 {
	d := make([]float64, len(qkv))
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
						d[at(s, b, j, vh, e)] += p * doi[e]
						d[at(s, b, i, h, e)] += ds * qkv[at(s, b, j, kh, e)]
						d[at(s, b, j, kh, e)] += ds * qkv[at(s, b, i, h, e)]
					}
				}
			}
		}
	}
	return d
}
