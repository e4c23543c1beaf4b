package model

import (
	"fmt"

	"github.com/pipetrain/pipetrain/kernels"
)

// Block is a decoder block, of LLaMA (arXiv 2302.13971) or with other parts:
//
//	n1 = norm(x)     qkv = n1·Wqkvᵀ   o = attention(rotary(qkv))   h1 = x + o·Woᵀ
//	n2 = norm(h1)    y = h1 + mlp(n2)
//
// norm is RMSNorm or LayerNorm, mlp has SwiGLU or GELU. Kept for backward-p2 are the
// inputs of its Linears and their output gradients. Two of the inputs, n1 and n2,
// are computed again from x and h1, which the gains' gradients need anyway; and the
// gradient of mlp's hidden matrix takes that matrix's own memory. What only
// backward-p1 reads (qkv, lse) is freed after it.
type Block struct {
	index    int
	dim      int
	typ      kernels.DType
	norm     norm
	attn     attention
	qkv, out linear
	mlp      mlp
	params   []Param
	slots    []Slot
}

// Slots of Block, in order; after them, where the norm has one, the second
// statistic of either norm.
const (
	blockX     = iota
	blockQKV   // rotated; freed at I
	blockLSE   // log-sum-exp of the scores; freed at I
	blockO     // attention's output, the output Linear's input
	blockH1    // after the first residual
	blockRSTD1 // statistics of the two norms
	blockRSTD2
	blockHidden // what the activation reads; from I on, its gradient
	blockAct    // the mlp's second Linear's input
	blockDY     // also that Linear's output gradient
	blockDN2    // gradient of n2, for the second norm
	blockDH1    // also the output Linear's output gradient
	blockDQKV   // gradient of qkv before rotation
	blockDN1    // gradient of n1, for the first norm
	blockMore1
	blockMore2
)

// Parameters of Block, in order; after them, where the norm has them, the biases.
const (
	blockGamma1 = iota
	blockWQKV
	blockWO
	blockGamma2
	blockWIn
	blockWOut
	blockBeta1
	blockBeta2
)

// NewBlock returns decoder block number index (from 0) of a model of cfg, which
// must have passed Check and have its defaults.
func NewBlock(cfg Config, index int) *Block {
	headDim, t, f := cfg.HeadDim(), cfg.Type, kernels.F32
	b := &Block{
		index: index, dim: cfg.Dim, typ: t,
		norm: newNorm(cfg),
		attn: attention{cfg.Heads, cfg.KVHeads, headDim, float32(cfg.RopeBase), t},
		mlp:  newMLP(cfg),
	}
	b.qkv = linear{cfg.Dim, b.attn.qkvWidth()}
	b.out = linear{b.attn.outWidth(), cfg.Dim}
	in, res := Init{Std: initStd}, Init{Std: cfg.residualStd()}
	p, q, kv := b.Name(), cfg.Heads*headDim, cfg.KVHeads*headDim
	first, second := b.norm.params(p+".input_layernorm"), b.norm.params(p+".post_attention_layernorm")
	mlp := b.mlp.params(p, in, res)
	b.params = []Param{
		blockGamma1: first[0],
		blockWQKV: {Name: p + ".self_attn.qkv_proj.weight", Rows: q + 2*kv, Cols: cfg.Dim, Init: in, Decay: true, Parts: []Part{
			{p + ".self_attn.q_proj.weight", q}, {p + ".self_attn.k_proj.weight", kv}, {p + ".self_attn.v_proj.weight", kv}}},
		blockWO:     {Name: p + ".self_attn.o_proj.weight", Rows: cfg.Dim, Cols: q, Init: res, Decay: true},
		blockGamma2: second[0],
		blockWIn:    mlp[0],
		blockWOut:   mlp[1],
	}
	b.slots = []Slot{
		blockX:      perToken(SlotX, UntilWeight, b.dim, t),
		blockQKV:    perToken("qkv", UntilInput, b.attn.qkvWidth(), t),
		blockLSE:    perToken("lse", UntilInput, b.attn.heads, f),
		blockO:      perToken("o", UntilWeight, b.attn.outWidth(), t),
		blockH1:     perToken("h1", UntilWeight, b.dim, t),
		blockRSTD1:  perToken(b.norm.stats()[0]+"1", UntilWeight, 1, f),
		blockRSTD2:  perToken(b.norm.stats()[0]+"2", UntilWeight, 1, f),
		blockHidden: perToken("hidden", UntilWeight, b.mlp.hidden(), t),
		blockAct:    perToken("act", UntilWeight, b.mlp.inner(), t),
		blockDY:     perToken(SlotDY, FromInput, b.dim, t),
		blockDN2:    perToken("dn2", FromInput, b.dim, t),
		blockDH1:    perToken("dh1", FromInput, b.dim, t),
		blockDQKV:   perToken("dqkv", FromInput, b.attn.qkvWidth(), t),
		blockDN1:    perToken("dn1", FromInput, b.dim, t),
	}
	if len(first) > 1 {
		b.params = append(b.params, first[1], second[1])
	}
	if s := b.norm.stats(); len(s) > 1 {
		b.slots = append(b.slots, perToken(s[1]+"1", UntilWeight, 1, f), perToken(s[1]+"2", UntilWeight, 1, f))
	}
	return b
}

// pair returns elements i and, where the norm has a second, more of list.
func pair(list []kernels.Buffer, i, more int) []kernels.Buffer {
	if more >= len(list) {
		return list[i : i+1]
	}
	return []kernels.Buffer{list[i], list[more]}
}

// Name returns the Hugging Face prefix.
func (b *Block) Name() string { return fmt.Sprintf("model.layers.%d", b.index) }

// Params returns the parameters; qkv and gate/up are joined.
func (b *Block) Params() []Param { return b.params }

// Slots returns what one micro-batch keeps.
func (b *Block) Slots() []Slot { return b.slots }

// In is the model's dimension a token.
func (b *Block) In() Matrix { return Matrix{Width: b.dim, Type: b.typ} }

// Out is as In.
func (b *Block) Out() Matrix { return b.In() }

// Work returns the scratch of a pass: n1 or n2 and attention's own in Forward;
// the gradient of act, later of o, in BackwardInput; n1 or n2 and their statistics
// again in BackwardWeight.
func (b *Block) Work(p Pass, d kernels.Ops, s Shape) int64 {
	rows := int64(s.Rows())
	norm := floatsOf(rows*int64(b.dim), b.typ)
	switch p {
	case PassForward:
		return max(norm, b.attn.work(d, s))
	case PassInput:
		return max(floatsOf(rows*int64(b.mlp.inner()), b.typ), align(floatsOf(rows*int64(b.attn.outWidth()), b.typ))+b.attn.work(d, s))
	}
	return statsWork(b.norm, norm, rows)
}

// statsWork is the scratch of a norm's output and all its statistics.
func statsWork(n norm, output, rows int64) int64 {
	k := int64(len(n.stats()))
	return align(output) + (k-1)*align(rows) + rows
}

// again takes room for a norm's output and statistics.
func again(work kernels.Buffer, n norm, rows, dim int, t kernels.DType) (y kernels.Buffer, stats []kernels.Buffer) {
	s := scratch{work}
	y = s.take(int64(rows*dim), t)
	for range n.stats() {
		stats = append(stats, s.take(int64(rows), kernels.F32))
	}
	return y, stats
}

// FLOPs counts the products; norms, activation and rotary are left out.
func (b *Block) FLOPs(p Pass, s Shape) int64 {
	rows := s.Rows()
	return b.qkv.flops(rows) + b.out.flops(rows) + b.mlp.flops(rows) + b.attn.flops(p, s)
}

// Forward maps x [rows, dim] to Out [rows, dim].
func (b *Block) Forward(c *Call) {
	d, s, w, rows := c.Dev, c.Slots, c.Weights, c.Shape.Rows()
	room := scratch{c.Work}
	n := room.take(int64(rows*b.dim), b.typ)
	b.norm.forward(d, n, pair(s, blockRSTD1, blockMore1), s[blockX], pair(w, blockGamma1, blockBeta1), rows)
	b.qkv.forward(d, s[blockQKV], n, w[blockWQKV], rows, false)
	b.attn.forward(d, s[blockO], s[blockLSE], s[blockQKV], c.Work, c.Shape)
	d.Copy(s[blockH1], s[blockX])
	b.out.forward(d, s[blockH1], s[blockO], w[blockWO], rows, true)

	b.norm.forward(d, n, pair(s, blockRSTD2, blockMore2), s[blockH1], pair(w, blockGamma2, blockBeta2), rows)
	d.Copy(c.Out, s[blockH1])
	b.mlp.forward(d, c.Out, s[blockHidden], s[blockAct], n, w[blockWIn], w[blockWOut], rows)
}

// BackwardInput maps dy [rows, dim] to DX [rows, dim], leaving the gradients
// that backward-p2 needs in their slots.
func (b *Block) BackwardInput(c *Call) {
	d, s, w, rows := c.Dev, c.Slots, c.Weights, c.Shape.Rows()
	room := scratch{c.Work}
	dact := room.take(int64(rows*b.mlp.inner()), b.typ)
	b.mlp.backwardInput(d, s[blockDN2], s[blockHidden], dact, s[blockDY], w[blockWIn], w[blockWOut], rows)
	b.norm.backwardInput(d, s[blockDH1], s[blockDN2], s[blockDY], s[blockH1],
		pair(s, blockRSTD2, blockMore2), pair(w, blockGamma2, blockBeta2), rows)

	room = scratch{c.Work}
	do := room.take(int64(rows*b.attn.outWidth()), b.typ)
	b.out.backwardInput(d, do, s[blockDH1], w[blockWO], rows)
	b.attn.backwardInput(d, s[blockDQKV], do, s[blockO], s[blockLSE], s[blockQKV], room.rest, c.Shape)
	b.qkv.backwardInput(d, s[blockDN1], s[blockDQKV], w[blockWQKV], rows)
	if !c.DX.Empty() {
		b.norm.backwardInput(d, c.DX, s[blockDN1], s[blockDH1], s[blockX],
			pair(s, blockRSTD1, blockMore1), pair(w, blockGamma1, blockBeta1), rows)
	}
}

// BackwardWeight adds the gradients of all parameters, one product a Linear
// however many micro-batches there are.
func (b *Block) BackwardWeight(c *Call) {
	d, s, w, g, rows := c.Dev, c.Slots, c.Weights, c.Grads, c.Shape.Rows()
	n, stats := again(c.Work, b.norm, rows, b.dim, b.typ)

	b.norm.forward(d, n, stats, s[blockH1], pair(w, blockGamma2, blockBeta2), rows)
	b.mlp.backwardWeight(d, g[blockWIn], g[blockWOut], s[blockDY], s[blockAct], s[blockHidden], n, rows)
	b.norm.backwardWeight(d, pair(g, blockGamma2, blockBeta2), s[blockDN2], s[blockH1], pair(s, blockRSTD2, blockMore2), rows)

	b.out.backwardWeight(d, g[blockWO], s[blockDH1], s[blockO], rows)
	b.norm.forward(d, n, stats, s[blockX], pair(w, blockGamma1, blockBeta1), rows)
	b.qkv.backwardWeight(d, g[blockWQKV], s[blockDQKV], n, rows)
	b.norm.backwardWeight(d, pair(g, blockGamma1, blockBeta1), s[blockDN1], s[blockX], pair(s, blockRSTD1, blockMore1), rows)
}
