package cpu

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/pipetrain/pipetrain/kernels"
)

// queryBlock is how many query rows are worked on at once. Keys after a block's
// last row are masked for all of it and never computed; larger blocks waste more
// of the triangle, smaller ones make the products too thin.
const queryBlock = 64

// AttentionWork returns the scratch: each thread holds two blocks of scores and,
// where the own kernels multiply, three operands of a head packed.
func (d *Device) AttentionWork(s kernels.Attention, _ kernels.DType) int64 {
	return int64(d.threads) * int64(d.attentionSizes(s).total)
}

// attentionSizes is the scratch of one thread in elements.
type attentionSizes struct {
	ld     int // row stride of a block of scores
	scores int // elements of a block of scores
	keysT  int // packed HeadDim × Seq: keys or values, transposed
	keys   int // packed Seq × HeadDim
	total  int
}

func (d *Device) attentionSizes(s kernels.Attention) attentionSizes {
	// The stride is off a power of two, and the one that tile kernels read in
	// place where a row is short enough.
	ld := roundUp(s.Seq, 16) + 16
	if s.Seq <= tileKC {
		ld = tileKC + aPad
	}
	z := attentionSizes{ld: ld, scores: min(queryBlock, s.Seq) * ld}
	if d.packs {
		z.keysT = d.vec.gemm.packedLen(s.HeadDim, s.Seq)
		z.keys = d.vec.gemm.packedLen(s.Seq, s.HeadDim)
	}
	z.total = roundUp(2*z.scores+2*z.keysT+z.keys, 16)
	return z
}

// carve hands out the parts of a thread's scratch; the packed ones are nil when empty.
func (z attentionSizes) carve(w []float32) (s, ds, keysT, valuesT, keys []float32) {
	next := func(n int) []float32 {
		p := w[:n:n]
		w = w[n:]
		if n == 0 {
			return nil
		}
		return p
	}
	return next(z.scores), next(z.scores), next(z.keysT), next(z.keysT), next(z.keys)
}

func attentionCheck(op string, s kernels.Attention) {
	if s.Batch < 0 || s.Seq <= 0 || s.Heads <= 0 || s.KVHeads <= 0 || s.HeadDim <= 0 || s.Heads%s.KVHeads != 0 {
		panic(fmt.Sprintf("cpu: %s: shape %+v: want positive sizes and heads a multiple of key/value heads", op, s))
	}
}

// AttentionForward computes o = softmax(causal(q·kᵀ/√HeadDim))·v, and the
// log-sum-exp of each row of scores.
func (d *Device) AttentionForward(o, lse, qkv, work kernels.Buffer, s kernels.Attention) {
	const op = "AttentionForward"
	attentionCheck(op, s)
	rows, ldq, ldo, hd := s.Rows(), s.QKVWidth(), s.Heads*s.HeadDim, s.HeadDim
	vo, vl, vq := f32(op, "o", o, rows*ldo), f32(op, "lse", lse, rows*s.Heads), f32(op, "qkv", qkv, rows*ldq)
	z := d.attentionSizes(s)
	vw := f32(op, "work", work, d.threads*z.total)
	ld, scale := z.ld, 1/float32(math.Sqrt(float64(hd)))
	group := s.Heads / s.KVHeads
	d.pool.run(s.Batch*s.Heads, func(worker, task int) {
		w := &d.work[worker]
		b, h := task/s.Heads, task%s.Heads
		r0 := b * s.Seq
		q := unsafe.Pointer(&vq[r0*ldq+h*hd])
		k := unsafe.Pointer(&vq[r0*ldq+(s.Heads+h/group)*hd])
		v := unsafe.Pointer(&vq[r0*ldq+(s.Heads+s.KVHeads+h/group)*hd])
		scores, _, bufK, _, bufV := z.carve(vw[worker*z.total : (worker+1)*z.total])
		keysT := d.vec.gemm.right(bufK, true, hd, s.Seq, k, ldq)
		values := d.vec.gemm.right(bufV, false, s.Seq, hd, v, ldq)
		sp := unsafe.Pointer(&scores[0])
		for i0 := 0; i0 < s.Seq; i0 += queryBlock {
			bq := min(queryBlock, s.Seq-i0)
			n := i0 + bq
			d.times(w, &product{m: bq, n: n, k: hd, alpha: 1, a: floats(q, i0*ldq), lda: ldq, c: sp, ldc: ld}, &keysT)
			for i := range bq {
				row := scores[i*ld : i*ld+n]
				seen := row[:i0+i+1]
				m := d.vec.max(seen) * scale
				sum := d.vec.expSum(seen, scale, m)
				d.vec.scale(seen, 1/sum)
				clear(row[i0+i+1:])
				vl[(r0+i0+i)*s.Heads+h] = float32(logSum(m, sum))
			}
			d.times(w, &product{m: bq, n: hd, k: n, alpha: 1, a: sp, lda: ld, leftAsIs: true,
				c: unsafe.Pointer(&vo[(r0+i0)*ldo+h*hd]), ldc: ldo}, &values)
		}
	})
}

// AttentionBackward writes dqkv from do and what the forward saved, with the
// probabilities computed again from lse (arXiv 2205.14135, algorithm 4).
func (d *Device) AttentionBackward(dqkv, do, o, lse, qkv, work kernels.Buffer, s kernels.Attention) {
	const op = "AttentionBackward"
	attentionCheck(op, s)
	rows, ldq, ldo, hd := s.Rows(), s.QKVWidth(), s.Heads*s.HeadDim, s.HeadDim
	vd, vq := f32(op, "dqkv", dqkv, rows*ldq), f32(op, "qkv", qkv, rows*ldq)
	vdo, vo, vl := f32(op, "do", do, rows*ldo), f32(op, "o", o, rows*ldo), f32(op, "lse", lse, rows*s.Heads)
	z := d.attentionSizes(s)
	vw := f32(op, "work", work, d.threads*z.total)
	ld, scale := z.ld, 1/float32(math.Sqrt(float64(hd)))
	group := s.Heads / s.KVHeads
	blocks := (s.Seq + queryBlock - 1) / queryBlock
	// One task has all query heads of a key/value head: they add to the same dk
	// and dv, in a fixed order.
	d.pool.run(s.Batch*s.KVHeads, func(worker, task int) {
		w := &d.work[worker]
		b, kv := task/s.KVHeads, task%s.KVHeads
		r0 := b * s.Seq
		kc, vc := (s.Heads+kv)*hd, (s.Heads+s.KVHeads+kv)*hd
		k, v := unsafe.Pointer(&vq[r0*ldq+kc]), unsafe.Pointer(&vq[r0*ldq+vc])
		dk, dv := unsafe.Pointer(&vd[r0*ldq+kc]), unsafe.Pointer(&vd[r0*ldq+vc])
		scores, dscores, bufK, bufV, bufKeys := z.carve(vw[worker*z.total : (worker+1)*z.total])
		keysT := d.vec.gemm.right(bufK, true, hd, s.Seq, k, ldq)
		valuesT := d.vec.gemm.right(bufV, true, hd, s.Seq, v, ldq)
		keys := d.vec.gemm.right(bufKeys, false, s.Seq, hd, k, ldq)
		sp, dp := unsafe.Pointer(&scores[0]), unsafe.Pointer(&dscores[0])
		beta := float32(0)
		for h := kv * group; h < (kv+1)*group; h++ {
			// From the last block, which reaches all keys, to the first: so the first
			// product into dk and dv writes every row.
			for blk := blocks - 1; blk >= 0; blk-- {
				i0 := blk * queryBlock
				bq := min(queryBlock, s.Seq-i0)
				n := i0 + bq
				q := unsafe.Pointer(&vq[(r0+i0)*ldq+h*hd])
				doi := unsafe.Pointer(&vdo[(r0+i0)*ldo+h*hd])
				d.times(w, &product{m: bq, n: n, k: hd, alpha: 1, a: q, lda: ldq, c: sp, ldc: ld}, &keysT)
				d.times(w, &product{m: bq, n: n, k: hd, alpha: 1, a: doi, lda: ldo, c: dp, ldc: ld}, &valuesT)
				for i := range bq {
					at := (r0+i0+i)*ldo + h*hd
					delta := d.vec.dot(vdo[at:at+hd], vo[at:at+hd])
					seen := i0 + i + 1
					d.vec.softmaxGrad(scores[i*ld:i*ld+seen], dscores[i*ld:i*ld+seen], scale, vl[(r0+i0+i)*s.Heads+h], delta)
					clear(scores[i*ld+seen : i*ld+n])
					clear(dscores[i*ld+seen : i*ld+n])
				}
				d.times(w, &product{m: bq, n: hd, k: n, alpha: 1, a: dp, lda: ld, leftAsIs: true,
					c: unsafe.Pointer(&vd[(r0+i0)*ldq+h*hd]), ldc: ldq}, &keys)
				d.small(w, &product{transA: true, m: n, n: hd, k: bq, alpha: 1, a: dp, lda: ld, leftAsIs: true,
					b: q, ldb: ldq, beta: beta, c: dk, ldc: ldq})
				d.small(w, &product{transA: true, m: n, n: hd, k: bq, alpha: 1, a: sp, lda: ld, leftAsIs: true,
					b: doi, ldb: ldo, beta: beta, c: dv, ldc: ldq})
				beta = 1
			}
		}
	})
}

// small multiplies by the own kernels where they are good, else by the library.
func (d *Device) small(w *workerScratch, p *product) {
	if d.packs {
		ownBLAS{&d.vec.gemm}.sgemm(w, p)
		return
	}
	d.gemm.sgemm(w, p)
}
