package model

import "github.com/pipetrain/pipetrain/kernels"

// attention is rotary position and causal grouped-query attention over a
// joined qkv matrix. It has no weights, so nothing of it lives past backward-p1.
type attention struct {
	heads, kvHeads, headDim int
	theta                   float32
	typ                     kernels.DType
}

func (a attention) shape(s Shape) kernels.Attention {
	return kernels.Attention{Batch: s.Batch, Seq: s.Seq, Heads: a.heads, KVHeads: a.kvHeads, HeadDim: a.headDim}
}

// qkvWidth and outWidth are the columns of qkv and of o.
func (a attention) qkvWidth() int { return a.shape(Shape{}).QKVWidth() }
func (a attention) outWidth() int { return a.heads * a.headDim }

// work returns the f32 elements of scratch of either pass.
func (a attention) work(d kernels.Ops, s Shape) int64 {
	return d.AttentionWork(a.shape(s), a.typ)
}

// forward turns queries and keys of qkv [rows, qkvWidth] in place by their
// position and writes o [rows, outWidth] and lse [rows, heads].
func (a attention) forward(d kernels.Ops, o, lse, qkv, work kernels.Buffer, s Shape) {
	d.Rotary(qkv, s.Rows(), s.Seq, a.heads+a.kvHeads, a.headDim, a.qkvWidth(), a.theta, false)
	d.AttentionForward(o, lse, qkv, work, a.shape(s))
}

// backwardInput writes dqkv from do; qkv is what forward left, turned. A rotation's
// transpose is the rotation back, so the gradient is turned back in place.
func (a attention) backwardInput(d kernels.Ops, dqkv, do, o, lse, qkv, work kernels.Buffer, s Shape) {
	d.AttentionBackward(dqkv, do, o, lse, qkv, work, a.shape(s))
	d.Rotary(dqkv, s.Rows(), s.Seq, a.heads+a.kvHeads, a.headDim, a.qkvWidth(), a.theta, true)
}

// flops counts the products over the causal half: q·kᵀ and p·v, or dv, dp, dq
// and dk. What a backend computes again to save memory is its own affair.
func (a attention) flops(p Pass, s Shape) int64 {
	products := map[Pass]int64{PassForward: 2, PassInput: 4}[p]
	pairs := int64(s.Batch) * int64(s.Seq) * int64(s.Seq+1) / 2
	return products * 2 * pairs * int64(a.outWidth())
}
