package model

import (
	"fmt"

	"github.com/pipetrain/pipetrain/kernels"
)

// Block is a LLaMA decoder block (arXiv 2302.13971):
//
//	n1 = rmsnorm(x)·gamma1     qkv = n1·Wqkvᵀ   o = attention(rotary(qkv))   h1 = x + o·Woᵀ
//	n2 = rmsnorm(h1)·gamma2    gu = n2·Wguᵀ     act = silu(g)·u              y = h1 + act·Wdownᵀ
//
// Kept for backward-p2 are the inputs of its Linears and their output
// gradients. Two of the inputs, n1 and n2, are computed again from x and h1,
// which the gains' gradients need anyway; and the gradient of gu takes gu's
// own memory. What only backward-p1 reads (qkv, lse) is freed after it.
type Block struct {
	index        int
	dim, ffn     int
	norm         rmsnorm
	attn         attention
	qkv, out     linear
	gateUp, down linear
	params       []Param
	slots        []Slot
}

// Slots of Block, in order.
const (
	blockX     = iota
	blockQKV   // rotated; freed at I
	blockLSE   // log-sum-exp of the scores; freed at I
	blockO     // attention's output, the output Linear's input
	blockH1    // after the first residual
	blockRSTD1 // statistics of the two norms
	blockRSTD2
	blockGU   // gate and up; from I on, their gradients
	blockAct  // the down Linear's input
	blockDY   // also the down Linear's output gradient
	blockDN2  // gradient of n2, for gamma2
	blockDH1  // also the output Linear's output gradient
	blockDQKV // gradient of qkv before rotation
	blockDN1  // gradient of n1, for gamma1
)

// Parameters of Block, in order.
const (
	blockGamma1 = iota
	blockWQKV
	blockWO
	blockGamma2
	blockWGU
	blockWDown
)

// NewBlock returns decoder block number index (from 0) of a model of cfg, which
// must have passed Check and have its defaults.
func NewBlock(cfg Config, index int) *Block {
	headDim := cfg.HeadDim()
	b := &Block{
		index: index, dim: cfg.Dim, ffn: cfg.FFN,
		norm:   rmsnorm{cfg.Dim, float32(cfg.NormEps)},
		attn:   attention{cfg.Heads, cfg.KVHeads, headDim, float32(cfg.RopeBase)},
		gateUp: linear{cfg.Dim, 2 * cfg.FFN},
		down:   linear{cfg.FFN, cfg.Dim},
	}
	b.qkv = linear{cfg.Dim, b.attn.qkvWidth()}
	b.out = linear{b.attn.outWidth(), cfg.Dim}
	in, res := Init{Std: initStd}, Init{Std: cfg.residualStd()}
	p, q, kv := b.Name(), cfg.Heads*headDim, cfg.KVHeads*headDim
	b.params = []Param{
		blockGamma1: b.norm.gain(p + ".input_layernorm.weight"),
		blockWQKV: {Name: p + ".self_attn.qkv_proj.weight", Rows: q + 2*kv, Cols: cfg.Dim, Init: in, Decay: true, Parts: []Part{
			{p + ".self_attn.q_proj.weight", q}, {p + ".self_attn.k_proj.weight", kv}, {p + ".self_attn.v_proj.weight", kv}}},
		blockWO:     {Name: p + ".self_attn.o_proj.weight", Rows: cfg.Dim, Cols: q, Init: res, Decay: true},
		blockGamma2: b.norm.gain(p + ".post_attention_layernorm.weight"),
		blockWGU: {Name: p + ".mlp.gate_up_proj.weight", Rows: 2 * cfg.FFN, Cols: cfg.Dim, Init: in, Decay: true, Parts: []Part{
			{p + ".mlp.gate_proj.weight", cfg.FFN}, {p + ".mlp.up_proj.weight", cfg.FFN}}},
		blockWDown: {Name: p + ".mlp.down_proj.weight", Rows: cfg.Dim, Cols: cfg.FFN, Init: res, Decay: true},
	}
	f := kernels.F32
	b.slots = []Slot{
		blockX:     {SlotX, UntilWeight, b.dim, f},
		blockQKV:   {"qkv", UntilInput, b.attn.qkvWidth(), f},
		blockLSE:   {"lse", UntilInput, b.attn.heads, f},
		blockO:     {"o", UntilWeight, b.attn.outWidth(), f},
		blockH1:    {"h1", UntilWeight, b.dim, f},
		blockRSTD1: {"rstd1", UntilWeight, 1, f},
		blockRSTD2: {"rstd2", UntilWeight, 1, f},
		blockGU:    {"gu", UntilWeight, 2 * b.ffn, f},
		blockAct:   {"act", UntilWeight, b.ffn, f},
		blockDY:    {SlotDY, FromInput, b.dim, f},
		blockDN2:   {"dn2", FromInput, b.dim, f},
		blockDH1:   {"dh1", FromInput, b.dim, f},
		blockDQKV:  {"dqkv", FromInput, b.attn.qkvWidth(), f},
		blockDN1:   {"dn1", FromInput, b.dim, f},
	}
	return b
}

// Name returns the Hugging Face prefix.
func (b *Block) Name() string { return fmt.Sprintf("model.layers.%d", b.index) }

// Params returns the six parameters; qkv and gate/up are joined.
func (b *Block) Params() []Param { return b.params }

// Slots returns what one micro-batch keeps.
func (b *Block) Slots() []Slot { return b.slots }

// InWidth is the model's dimension.
func (b *Block) InWidth() int { return b.dim }

// OutWidth is the model's dimension.
func (b *Block) OutWidth() int { return b.dim }

// Work returns the scratch of a pass: n1 or n2 and attention's own in Forward;
// the gradient of act, later of o, in BackwardInput; n1 or n2 and their rstd
// again in BackwardWeight.
func (b *Block) Work(p Pass, d kernels.Ops, s Shape) int64 {
	rows := int64(s.Rows())
	norm := rows * int64(b.dim)
	switch p {
	case PassForward:
		return max(norm, b.attn.work(d, s))
	case PassInput:
		return max(rows*int64(b.ffn), align(rows*int64(b.attn.outWidth()))+b.attn.work(d, s))
	}
	return align(norm) + rows
}

// FLOPs counts the products; norms, SwiGLU and rotary are left out.
func (b *Block) FLOPs(p Pass, s Shape) int64 {
	rows := s.Rows()
	products := b.qkv.flops(rows) + b.out.flops(rows) + b.gateUp.flops(rows) + b.down.flops(rows)
	return products + b.attn.flops(p, s)
}

// Forward maps x [rows, dim] to Out [rows, dim].
func (b *Block) Forward(c *Call) {
	d, s, w, rows := c.Dev, c.Slots, c.Weights, c.Shape.Rows()
	n := c.Work.Slice(0, int64(rows*b.dim))
	b.norm.forward(d, n, s[blockRSTD1], s[blockX], w[blockGamma1], rows)
	b.qkv.forward(d, s[blockQKV], n, w[blockWQKV], rows, false)
	b.attn.forward(d, s[blockO], s[blockLSE], s[blockQKV], c.Work, c.Shape)
	d.Copy(s[blockH1], s[blockX])
	b.out.forward(d, s[blockH1], s[blockO], w[blockWO], rows, true)

	b.norm.forward(d, n, s[blockRSTD2], s[blockH1], w[blockGamma2], rows)
	b.gateUp.forward(d, s[blockGU], n, w[blockWGU], rows, false)
	d.SwiGLUForward(s[blockAct], s[blockGU], rows, b.ffn)
	d.Copy(c.Out, s[blockH1])
	b.down.forward(d, c.Out, s[blockAct], w[blockWDown], rows, true)
}

// BackwardInput maps dy [rows, dim] to DX [rows, dim], leaving the gradients
// that backward-p2 needs in their slots.
func (b *Block) BackwardInput(c *Call) {
	d, s, w, rows := c.Dev, c.Slots, c.Weights, c.Shape.Rows()
	dact := c.Work.Slice(0, int64(rows*b.ffn))
	b.down.backwardInput(d, dact, s[blockDY], w[blockWDown], rows)
	d.SwiGLUBackward(s[blockGU], dact, s[blockGU], rows, b.ffn)
	b.gateUp.backwardInput(d, s[blockDN2], s[blockGU], w[blockWGU], rows)
	b.norm.backwardInput(d, s[blockDH1], s[blockDN2], s[blockDY], s[blockH1], s[blockRSTD2], w[blockGamma2], rows)

	o := int64(rows * b.attn.outWidth())
	do, work := c.Work.Slice(0, o), c.Work.Slice(align(o), c.Work.Len-align(o))
	b.out.backwardInput(d, do, s[blockDH1], w[blockWO], rows)
	b.attn.backwardInput(d, s[blockDQKV], do, s[blockO], s[blockLSE], s[blockQKV], work, c.Shape)
	b.qkv.backwardInput(d, s[blockDN1], s[blockDQKV], w[blockWQKV], rows)
	if !c.DX.Empty() {
		b.norm.backwardInput(d, c.DX, s[blockDN1], s[blockDH1], s[blockX], s[blockRSTD1], w[blockGamma1], rows)
	}
}

// BackwardWeight adds the gradients of all six parameters, one product a Linear
// however many micro-batches there are.
func (b *Block) BackwardWeight(c *Call) {
	d, s, w, g, rows := c.Dev, c.Slots, c.Weights, c.Grads, c.Shape.Rows()
	width := int64(rows * b.dim)
	n, rstd := c.Work.Slice(0, width), c.Work.Slice(align(width), int64(rows))

	b.down.backwardWeight(d, g[blockWDown], s[blockDY], s[blockAct], rows)
	b.norm.forward(d, n, rstd, s[blockH1], w[blockGamma2], rows)
	b.gateUp.backwardWeight(d, g[blockWGU], s[blockGU], n, rows)
	b.norm.backwardWeight(d, g[blockGamma2], s[blockDN2], s[blockH1], s[blockRSTD2], rows)

	b.out.backwardWeight(d, g[blockWO], s[blockDH1], s[blockO], rows)
	b.norm.forward(d, n, rstd, s[blockX], w[blockGamma1], rows)
	b.qkv.backwardWeight(d, g[blockWQKV], s[blockDQKV], n, rows)
	b.norm.backwardWeight(d, g[blockGamma1], s[blockDN1], s[blockX], s[blockRSTD1], rows)
}
