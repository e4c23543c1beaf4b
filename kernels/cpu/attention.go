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

// AttentionWork returns the scratch: each thread holds two blocks of scores, where
// the own kernels multiply three operands of a head packed, and with bf16 a head's
// matrices in f32.
func (d *Device) AttentionWork(s kernels.Attention, t kernels.DType) int64 {
	return int64(d.threads) * int64(d.attentionSizes(s, t == kernels.BF16).total)
}

// attentionSizes is the scratch of one thread in elements.
type attentionSizes struct {
	ld     int // row stride of a block of scores
	scores int // elements of a block of scores
	keysT  int // packed HeadDim × Seq: keys or values, transposed
	keys   int // packed Seq × HeadDim
	head   int // Seq × HeadDim, with bf16: keys or values, widened
	sums   int // Seq × HeadDim, with bf16: gradients of keys or values
	block  int // queryBlock × HeadDim, with bf16
	total  int
}

func (d *Device) attentionSizes(s kernels.Attention, low bool) attentionSizes {
	// The stride is off a power of two, and the one that tile kernels read in
	// place where a row is short enough.
	ld := roundUp(s.Seq, 16) + 16
	if s.Seq <= tileKC {
		ld = tileKC + aPad
	}
	z := attentionSizes{ld: ld, scores: min(queryBlock, s.Seq) * ld}
	if low && d.pairs != nil {
		z.keysT, z.keys, z.sums = d.pairs.rightLen(s.HeadDim, s.Seq), d.pairs.rightLen(s.Seq, s.HeadDim), s.Seq*s.HeadDim
		return z.added()
	}
	if d.packs {
		z.keysT = d.vec.gemm.packedLen(s.HeadDim, s.Seq)
		z.keys = d.vec.gemm.packedLen(s.Seq, s.HeadDim)
	}
	if low {
		z.head, z.sums, z.block = s.Seq*s.HeadDim, s.Seq*s.HeadDim, min(queryBlock, s.Seq)*s.HeadDim
	}
	return z.added()
}

func (z attentionSizes) added() attentionSizes {
	z.total = roundUp(2*z.scores+2*z.keysT+z.keys+2*z.head+2*z.sums+4*z.block, 16)
	return z
}

// attentionScratch is a thread's scratch; parts without elements are nil.
type attentionScratch struct {
	scores, dscores      []float32
	keysT, valuesT, keys []float32 // packed
	k, v, dk, dv         []float32 // of a head, with bf16
	q, o, dq, do         []float32 // of a block, with bf16
}

func (z attentionSizes) carve(w []float32) (a attentionScratch) {
	for _, part := range []struct {
		p *[]float32
		n int
	}{{&a.scores, z.scores}, {&a.dscores, z.scores}, {&a.keysT, z.keysT}, {&a.valuesT, z.keysT}, {&a.keys, z.keys},
		{&a.k, z.head}, {&a.v, z.head}, {&a.dk, z.sums}, {&a.dv, z.sums},
		{&a.q, z.block}, {&a.o, z.block}, {&a.dq, z.block}, {&a.do, z.block}} {
		if part.n > 0 {
			*part.p = w[:part.n:part.n]
			w = w[part.n:]
		}
	}
	return a
}

// matrix returns rows of cols elements from element at, ld apart, in f32: in place,
// or widened without gaps into the scratch; and the stride.
func (a acts) matrix(d *Device, scratch []float32, at, rows, cols, ld int) (unsafe.Pointer, int) {
	if a.low == nil {
		return unsafe.Pointer(&a.full[at]), ld
	}
	d.widenRows(scratch, unsafe.Pointer(&a.low[at]), rows, cols, ld)
	return unsafe.Pointer(&scratch[0]), cols
}

// space is matrix for one that is yet to be written, and then given to putMatrix.
func (a acts) space(scratch []float32, at, cols, ld int) (unsafe.Pointer, int) {
	if a.low == nil {
		return unsafe.Pointer(&a.full[at]), ld
	}
	return unsafe.Pointer(&scratch[0]), cols
}

func (a acts) putMatrix(d *Device, scratch []float32, at, rows, cols, ld int) {
	if a.low == nil {
		return
	}
	for i := range rows {
		d.vec.narrow(a.low[at+i*ld:at+i*ld+cols], scratch[i*cols:(i+1)*cols])
	}
}

func attentionCheck(op string, s kernels.Attention) {
	if s.Batch < 0 || s.Seq <= 0 || s.Heads <= 0 || s.KVHeads <= 0 || s.HeadDim <= 0 || s.Heads%s.KVHeads != 0 {
		panic(fmt.Sprintf("cpu: %s: shape %+v: want positive sizes and heads a multiple of key/value heads", op, s))
	}
}

// AttentionForward computes o = softmax(causal(q·kᵀ/√HeadDim))·v, and the
// log-sum-exp of each row of scores. Probabilities stay f32 with bf16 too.
func (d *Device) AttentionForward(o, lse, qkv, work kernels.Buffer, s kernels.Attention) {
	const op = "AttentionForward"
	attentionCheck(op, s)
	rows, ldq, ldo, hd := s.Rows(), s.QKVWidth(), s.Heads*s.HeadDim, s.HeadDim
	vo, vl, vq := actsOf(op, rows*ldo, "o", o), f32(op, "lse", lse, rows*s.Heads), like(op, rows*ldq, "qkv", qkv, o)
	z := d.attentionSizes(s, o.Type == kernels.BF16)
	vw := f32(op, "work", work, d.threads*z.total)
	if vo.low != nil && d.pairs != nil {
		c := d.newAttentionCall(s, vq.low, vl, vw)
		d.pool.run(s.Batch*s.Heads, func(worker, task int) { d.attentionForwardPairs(&c, vo.low, worker, task) })
		return
	}
	ld, scale := z.ld, 1/float32(math.Sqrt(float64(hd)))
	group := s.Heads / s.KVHeads
	d.pool.run(s.Batch*s.Heads, func(worker, task int) {
		w := &d.work[worker]
		b, h := task/s.Heads, task%s.Heads
		r0 := b * s.Seq
		t := z.carve(vw[worker*z.total : (worker+1)*z.total])
		k, ldk := vq.matrix(d, t.k, r0*ldq+(s.Heads+h/group)*hd, s.Seq, hd, ldq)
		v, _ := vq.matrix(d, t.v, r0*ldq+(s.Heads+s.KVHeads+h/group)*hd, s.Seq, hd, ldq)
		keysT := d.vec.gemm.right(t.keysT, true, hd, s.Seq, k, ldk)
		values := d.vec.gemm.right(t.keys, false, s.Seq, hd, v, ldk)
		sp := unsafe.Pointer(&t.scores[0])
		for i0 := 0; i0 < s.Seq; i0 += queryBlock {
			bq := min(queryBlock, s.Seq-i0)
			n := i0 + bq
			q, ldk := vq.matrix(d, t.q, (r0+i0)*ldq+h*hd, bq, hd, ldq)
			d.times(w, &product{m: bq, n: n, k: hd, alpha: 1, a: q, lda: ldk, c: sp, ldc: ld}, &keysT)
			for i := range bq {
				row := t.scores[i*ld : i*ld+n]
				seen := row[:i0+i+1]
				m := d.vec.max(seen) * scale
				sum := d.vec.expSum(seen, scale, m)
				d.vec.scale(seen, 1/sum)
				clear(row[i0+i+1:])
				vl[(r0+i0+i)*s.Heads+h] = float32(logSum(m, sum))
			}
			at := (r0+i0)*ldo + h*hd
			oi, ldoi := vo.space(t.o, at, hd, ldo)
			d.times(w, &product{m: bq, n: hd, k: n, alpha: 1, a: sp, lda: ld, leftAsIs: true, c: oi, ldc: ldoi}, &values)
			vo.putMatrix(d, t.o, at, bq, hd, ldo)
		}
	})
}

// AttentionBackward writes dqkv from do and what the forward saved, with the
// probabilities computed again from lse (arXiv 2205.14135, algorithm 4).
func (d *Device) AttentionBackward(dqkv, do, o, lse, qkv, work kernels.Buffer, s kernels.Attention) {
	const op = "AttentionBackward"
	attentionCheck(op, s)
	rows, ldq, ldo, hd := s.Rows(), s.QKVWidth(), s.Heads*s.HeadDim, s.HeadDim
	vd, vq := actsOf(op, rows*ldq, "dqkv", dqkv), like(op, rows*ldq, "qkv", qkv, dqkv)
	vdo, vo, vl := like(op, rows*ldo, "do", do, dqkv), like(op, rows*ldo, "o", o, dqkv), f32(op, "lse", lse, rows*s.Heads)
	z := d.attentionSizes(s, dqkv.Type == kernels.BF16)
	vw := f32(op, "work", work, d.threads*z.total)
	if vd.low != nil && d.pairs != nil {
		c := d.newAttentionCall(s, vq.low, vl, vw)
		d.pool.run(s.Batch*s.KVHeads, func(worker, task int) { d.attentionBackwardPairs(&c, vd.low, vdo.low, vo.low, worker, task) })
		return
	}
	ld, scale := z.ld, 1/float32(math.Sqrt(float64(hd)))
	group := s.Heads / s.KVHeads
	blocks := (s.Seq + queryBlock - 1) / queryBlock
	// One task has all query heads of a key/value head: they add to the same dk
	// and dv, in a fixed order.
	d.pool.run(s.Batch*s.KVHeads, func(worker, task int) {
		w := &d.work[worker]
		b, kv := task/s.KVHeads, task%s.KVHeads
		r0 := b * s.Seq
		t := z.carve(vw[worker*z.total : (worker+1)*z.total])
		atK, atV := r0*ldq+(s.Heads+kv)*hd, r0*ldq+(s.Heads+s.KVHeads+kv)*hd
		k, ldk := vq.matrix(d, t.k, atK, s.Seq, hd, ldq)
		v, _ := vq.matrix(d, t.v, atV, s.Seq, hd, ldq)
		dk, _ := vd.space(t.dk, atK, hd, ldq)
		dv, _ := vd.space(t.dv, atV, hd, ldq)
		keysT := d.vec.gemm.right(t.keysT, true, hd, s.Seq, k, ldk)
		valuesT := d.vec.gemm.right(t.valuesT, true, hd, s.Seq, v, ldk)
		keys := d.vec.gemm.right(t.keys, false, s.Seq, hd, k, ldk)
		sp, dp := unsafe.Pointer(&t.scores[0]), unsafe.Pointer(&t.dscores[0])
		beta := float32(0)
		for h := kv * group; h < (kv+1)*group; h++ {
			// From the last block, which reaches all keys, to the first: so the first
			// product into dk and dv writes every row.
			for blk := blocks - 1; blk >= 0; blk-- {
				i0 := blk * queryBlock
				bq := min(queryBlock, s.Seq-i0)
				n := i0 + bq
				atQ, atO := (r0+i0)*ldq+h*hd, (r0+i0)*ldo+h*hd
				q, _ := vq.matrix(d, t.q, atQ, bq, hd, ldq)
				doi, ldoi := vdo.matrix(d, t.do, atO, bq, hd, ldo)
				oi, _ := vo.matrix(d, t.o, atO, bq, hd, ldo)
				dq, _ := vd.space(t.dq, atQ, hd, ldq)
				d.times(w, &product{m: bq, n: n, k: hd, alpha: 1, a: q, lda: ldk, c: sp, ldc: ld}, &keysT)
				d.times(w, &product{m: bq, n: n, k: hd, alpha: 1, a: doi, lda: ldoi, c: dp, ldc: ld}, &valuesT)
				for i := range bq {
					delta := d.vec.dot(floatRow(doi, i*ldoi, hd), floatRow(oi, i*ldoi, hd))
					seen := i0 + i + 1
					d.vec.softmaxGrad(t.scores[i*ld:i*ld+seen], t.dscores[i*ld:i*ld+seen], scale, vl[(r0+i0+i)*s.Heads+h], delta)
					clear(t.scores[i*ld+seen : i*ld+n])
					clear(t.dscores[i*ld+seen : i*ld+n])
				}
				d.times(w, &product{m: bq, n: hd, k: n, alpha: 1, a: dp, lda: ld, leftAsIs: true, c: dq, ldc: ldk}, &keys)
				vd.putMatrix(d, t.dq, atQ, bq, hd, ldq)
				d.small(w, &product{transA: true, m: n, n: hd, k: bq, alpha: 1, a: dp, lda: ld, leftAsIs: true,
					b: q, ldb: ldk, beta: beta, c: dk, ldc: ldk})
				d.small(w, &product{transA: true, m: n, n: hd, k: bq, alpha: 1, a: sp, lda: ld, leftAsIs: true,
					b: doi, ldb: ldoi, beta: beta, c: dv, ldc: ldk})
				beta = 1
			}
		}
		vd.putMatrix(d, t.dk, atK, s.Seq, hd, ldq)
		vd.putMatrix(d, t.dv, atV, s.Seq, hd, ldq)
	})
}

// floatRow is n numbers from number at.
func floatRow(p unsafe.Pointer, at, n int) []float32 {
	return unsafe.Slice((*float32)(floats(p, at)), n)
}

// small multiplies by the own kernels where they are good, else by the library.
func (d *Device) small(w *workerScratch, p *product) {
	if d.packs {
		ownBLAS{&d.vec.gemm}.sgemm(w, p)
		return
	}
	d.gemm.sgemm(w, p)
}
