package cpu

import (
	"math"
	"unsafe"

	"github.com/pipetrain/pipetrain/kernels"
)

// Attention of bf16 where pairs are multiplied: matrices are read and written where they
// lie, scores and sums are f32, and probabilities and their gradients are rounded to
// bf16, where the f32 numbers began, before they meet another matrix.

// attentionCall is what the two passes share.
type attentionCall struct {
	s          kernels.Attention
	qkv        []uint16
	lse        []float32
	work       []float32
	sizes      attentionSizes
	ldq, ldo   int
	scale      float32
	perKV      int // query heads of a key/value head
	scoresLine int // bytes of a row of scores
}

func (d *Device) newAttentionCall(s kernels.Attention, qkv []uint16, lse, work []float32) attentionCall {
	z := d.attentionSizes(s, true)
	return attentionCall{s, qkv, lse, work, z, s.QKVWidth(), s.Heads * s.HeadDim, 1 / float32(math.Sqrt(float64(s.HeadDim))), s.Heads / s.KVHeads, z.ld * 4}
}

// scratch is a thread's.
func (c *attentionCall) scratch(worker int) attentionScratch {
	return c.sizes.carve(c.work[worker*c.sizes.total : (worker+1)*c.sizes.total])
}

// scores writes a·b of bq rows and n columns.
func (c *attentionCall) scores(g *pairKernel, w *workerScratch, to []float32, a *uint16, lda, bq, n int, b *pairRight) {
	g.multiply(w, &lowProduct{product: product{m: bq, n: n, k: c.s.HeadDim, alpha: 1, a: unsafe.Pointer(a), lda: lda}}, b,
		place{}, place{unsafe.Pointer(&to[0]), c.scoresLine, inFull})
}

// lowRow is a row of scores as the bf16 numbers that take its place.
func (c *attentionCall) lowRow(scores []float32, i, n int) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(&scores[i*c.sizes.ld])), n)
}

// attentionForwardPairs is one head of a sequence of AttentionForward.
func (d *Device) attentionForwardPairs(c *attentionCall, o []uint16, worker, task int) {
	g, w, s, hd := d.pairs, &d.work[worker], c.s, c.s.HeadDim
	b, h := task/s.Heads, task%s.Heads
	r0, kv := b*s.Seq, h/c.perKV
	t := c.scratch(worker)
	keysT := g.right(t.keysT, true, hd, s.Seq, &c.qkv[r0*c.ldq+(s.Heads+kv)*hd], c.ldq)
	values := g.right(t.keys, false, s.Seq, hd, &c.qkv[r0*c.ldq+(s.Heads+s.KVHeads+kv)*hd], c.ldq)
	for i0 := 0; i0 < s.Seq; i0 += queryBlock {
		bq := min(queryBlock, s.Seq-i0)
		n := i0 + bq
		c.scores(g, w, t.scores, &c.qkv[(r0+i0)*c.ldq+h*hd], c.ldq, bq, n, &keysT)
		for i := range bq {
			seen := t.scores[i*c.sizes.ld:][:i0+i+1]
			m := d.vec.max(seen) * c.scale
			sum := d.vec.expSum(seen, c.scale, m)
			row := c.lowRow(t.scores, i, n)
			g.scaleLow(&row[0], &seen[0], len(seen), 1/sum)
			clear(row[len(seen):])
			c.lse[(r0+i0+i)*s.Heads+h] = float32(logSum(m, sum))
		}
		g.multiply(w, &lowProduct{product: product{m: bq, n: hd, k: n, alpha: 1, a: unsafe.Pointer(&t.scores[0]), lda: 2 * c.sizes.ld}}, &values,
			place{}, place{unsafe.Pointer(&o[(r0+i0)*c.ldo+h*hd]), c.ldo * 2, inLow})
	}
}

// attentionBackwardPairs is one key/value head of a sequence of AttentionBackward.
func (d *Device) attentionBackwardPairs(c *attentionCall, dqkv, do, o []uint16, worker, task int) {
	g, w, s, hd := d.pairs, &d.work[worker], c.s, c.s.HeadDim
	b, kv := task/s.KVHeads, task%s.KVHeads
	r0 := b * s.Seq
	t := c.scratch(worker)
	atK, atV := r0*c.ldq+(s.Heads+kv)*hd, r0*c.ldq+(s.Heads+s.KVHeads+kv)*hd
	keysT := g.right(t.keysT, true, hd, s.Seq, &c.qkv[atK], c.ldq)
	valuesT := g.right(t.valuesT, true, hd, s.Seq, &c.qkv[atV], c.ldq)
	keys := g.right(t.keys, false, s.Seq, hd, &c.qkv[atK], c.ldq)
	first := true
	for h := kv * c.perKV; h < (kv+1)*c.perKV; h++ {
		// From the last block, which reaches all keys, to the first: so the first
		// product into dk and dv writes every row.
		for i0 := (s.Seq - 1) / queryBlock * queryBlock; i0 >= 0; i0 -= queryBlock {
			bq := min(queryBlock, s.Seq-i0)
			n := i0 + bq
			atQ, atO := (r0+i0)*c.ldq+h*hd, (r0+i0)*c.ldo+h*hd
			c.scores(g, w, t.scores, &c.qkv[atQ], c.ldq, bq, n, &keysT)
			c.scores(g, w, t.dscores, &do[atO], c.ldo, bq, n, &valuesT)
			for i := range bq {
				delta := g.dotLow(&do[atO+i*c.ldo], &o[atO+i*c.ldo], hd)
				seen := i0 + i + 1
				p, dp := t.scores[i*c.sizes.ld:][:seen], t.dscores[i*c.sizes.ld:][:seen]
				d.vec.softmaxGrad(p, dp, c.scale, c.lse[(r0+i0+i)*s.Heads+h], delta)
				for _, scores := range [][]float32{t.scores, t.dscores} {
					row := c.lowRow(scores, i, n)
					g.scaleLow(&row[0], &scores[i*c.sizes.ld], seen, 1)
					clear(row[seen:])
				}
			}
			g.multiply(w, &lowProduct{product: product{m: bq, n: hd, k: n, alpha: 1, a: unsafe.Pointer(&t.dscores[0]), lda: 2 * c.sizes.ld}}, &keys,
				place{}, place{unsafe.Pointer(&dqkv[atQ]), c.ldq * 2, inLow})
			// A block of the last head is the last to add to its own keys' rows.
			own := n
			if h == (kv+1)*c.perKV-1 {
				own = i0
			}
			for _, x := range []struct {
				scores, sums []float32
				b            *uint16
				ldb, at      int
			}{{t.dscores, t.dk, &c.qkv[atQ], c.ldq, atK}, {t.scores, t.dv, &do[atO], c.ldo, atV}} {
				in := place{unsafe.Pointer(&x.sums[0]), hd * 4, inFull}
				out := in
				if first {
					in.kind = nothing
				}
				p := lowProduct{product: product{transA: true, m: own, n: hd, k: bq, alpha: 1, a: unsafe.Pointer(&x.scores[0]), lda: 2 * c.sizes.ld, b: unsafe.Pointer(x.b), ldb: x.ldb}}
				g.multiply(w, &p, nil, in, out)
				if own < n {
					p.a, p.m = halfs(p.a, own), n-own
					g.multiply(w, &p, nil, in.from(own, 0), place{unsafe.Pointer(&dqkv[x.at]), c.ldq * 2, inLow}.from(own, 0))
				}
			}
			first = false
		}
	}
}
