package model

import "github.com/pipetrain/pipetrain/kernels"

// attention is rotary position and causal grouped-query attention: x is the
// joined qkv matrix, which it turns in place, y has a head beside the other. It has no
// weights, so nothing of it lives past backward-p1.
type attention struct {
	weightless
	heads, kvHeads, headDim int
	theta                   float32 // 0: no rotary position
	typ                     kernels.DType
	lse                     *slot // log-sum-exp of the scores
}

func newAttention(l *layer, cfg Config) attention {
	return attention{heads: cfg.Heads, kvHeads: cfg.KVHeads, headDim: cfg.HeadDim(), theta: float32(cfg.RopeBase), typ: cfg.Type,
		lse: l.slot("lse", UntilInput, Matrix{Token, cfg.Heads, kernels.F32})}
}

func (a attention) shape(s Shape) kernels.Attention {
	return kernels.Attention{Batch: s.Batch, Seq: s.Seq, Heads: a.heads, KVHeads: a.kvHeads, HeadDim: a.headDim}
}

// in and out are the forms of qkv and of the heads' outputs.
func (a attention) in() Matrix  { return Matrix{Token, a.shape(Shape{}).QKVWidth(), a.typ} }
func (a attention) out() Matrix { return Matrix{Token, a.heads * a.headDim, a.typ} }

func (a attention) work(p Pass, d kernels.Ops, s Shape) int64 {
	if p == PassWeight {
		return 0
	}
	return d.AttentionWork(a.shape(s), a.typ)
}

func (a attention) rotate(c *Call, qkv kernels.Buffer, back bool) {
	if a.theta == 0 {
		return
	}
	c.Dev.Rotary(qkv, c.Shape.Rows(), c.Shape.Seq, a.heads+a.kvHeads, a.headDim, a.in().Width, a.theta, back)
}

func (a attention) forward(c *Call, m matrices) {
	a.rotate(c, m.x, false)
	c.Dev.AttentionForward(m.y, a.lse.of(c), m.x, m.work, a.shape(c.Shape))
}

// backwardInput reads x as forward left it, turned. A rotation's transpose is
// the rotation back, so the gradient is turned back in place.
func (a attention) backwardInput(c *Call, m matrices) {
	c.Dev.AttentionBackward(m.dx, m.dy, m.y, a.lse.of(c), m.x, m.work, a.shape(c.Shape))
	a.rotate(c, m.dx, true)
}

// flops counts the products over the causal half: q·kᵀ and p·v, or dv, dp, dq
// and dk. What a backend computes again to save memory is its own affair.
func (a attention) flops(p Pass, s Shape) int64 {
	products := map[Pass]int64{PassForward: 2, PassInput: 4}[p]
	pairs := int64(s.Batch) * int64(s.Seq) * int64(s.Seq+1) / 2
	return products * 2 * pairs * int64(a.out().Width)
}
