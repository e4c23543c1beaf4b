package model

import "github.com/pipetrain/pipetrain/kernels"

// Head is the end of a decoder: norm, vocabulary Linear and cross-entropy,
//
//	n = rmsnorm(x)·gamma    logits = n·Wᵀ    loss = cross-entropy(logits, targets)
//
// one loss a row. The gradient of the logits takes the logits' own memory; n is
// computed again in backward-p2, as in Block.
type Head struct {
	dim, vocab int
	norm       rmsnorm
	lm         linear
	params     []Param
	slots      []Slot
}

// Slots of Head, in order.
const (
	headX = iota
	headTargets
	headRSTD
	headLogits // from I on, their gradient
	headLSE
	headDN // gradient of n, for gamma
)

// Parameters of Head, in order.
const (
	headGamma = iota
	headW
)

// NewHead returns the head of a model of cfg; when the model is tied its
// weight is a copy of the embedding's table.
func NewHead(cfg Config) *Head {
	h := &Head{dim: cfg.Dim, vocab: cfg.Vocab, norm: rmsnorm{cfg.Dim, float32(cfg.NormEps)}, lm: linear{cfg.Dim, cfg.Vocab}}
	h.params = []Param{
		headGamma: h.norm.gain("model.norm.weight"),
		headW:     {Name: nameHead, Rows: cfg.Vocab, Cols: cfg.Dim, Init: Init{Std: initStd}, Decay: true, Tie: cfg.tie()},
	}
	f := kernels.F32
	h.slots = []Slot{
		headX:       {SlotX, UntilWeight, h.dim, f},
		headTargets: {SlotTargets, UntilInput, 1, kernels.I32},
		headRSTD:    {"rstd", UntilWeight, 1, f},
		headLogits:  {"logits", UntilWeight, h.vocab, f},
		headLSE:     {"lse", UntilInput, 1, f},
		headDN:      {"dn", FromInput, h.dim, f},
	}
	return h
}

// Name returns the Hugging Face prefix.
func (h *Head) Name() string { return "lm_head" }

// Params returns the norm's gain and the vocabulary matrix.
func (h *Head) Params() []Param { return h.params }

// Slots returns what one micro-batch keeps.
func (h *Head) Slots() []Slot { return h.slots }

// InWidth is the model's dimension.
func (h *Head) InWidth() int { return h.dim }

// OutWidth is 1: a loss a row.
func (h *Head) OutWidth() int { return 1 }

// Work returns the scratch of a pass: n in Forward, n and its rstd in BackwardWeight.
func (h *Head) Work(p Pass, _ kernels.Ops, s Shape) int64 {
	rows := int64(s.Rows())
	norm := rows * int64(h.dim)
	switch p {
	case PassForward:
		return norm
	case PassWeight:
		return align(norm) + rows
	}
	return 0
}

// FLOPs counts the product of the vocabulary Linear.
func (h *Head) FLOPs(_ Pass, s Shape) int64 { return h.lm.flops(s.Rows()) }

// Forward maps x [rows, dim] and targets [rows] to Out [rows], the losses.
func (h *Head) Forward(c *Call) {
	d, s, w, rows := c.Dev, c.Slots, c.Weights, c.Shape.Rows()
	n := c.Work.Slice(0, int64(rows*h.dim))
	h.norm.forward(d, n, s[headRSTD], s[headX], w[headGamma], rows)
	h.lm.forward(d, s[headLogits], n, w[headW], rows, false)
	d.CrossEntropyForward(c.Out, s[headLSE], s[headLogits], s[headTargets], rows, h.vocab)
}

// BackwardInput starts the backward pass: the gradient of LossScale × the sum
// of the losses, down to DX [rows, dim].
func (h *Head) BackwardInput(c *Call) {
	d, s, w, rows := c.Dev, c.Slots, c.Weights, c.Shape.Rows()
	d.CrossEntropyBackward(s[headLogits], s[headLogits], s[headLSE], s[headTargets], rows, h.vocab, c.LossScale)
	h.lm.backwardInput(d, s[headDN], s[headLogits], w[headW], rows)
	if !c.DX.Empty() {
		h.norm.backwardInput(d, c.DX, s[headDN], kernels.Buffer{}, s[headX], s[headRSTD], w[headGamma], rows)
	}
}

// BackwardWeight adds the gradients of gain and vocabulary matrix.
func (h *Head) BackwardWeight(c *Call) {
	d, s, w, g, rows := c.Dev, c.Slots, c.Weights, c.Grads, c.Shape.Rows()
	width := int64(rows * h.dim)
	n, rstd := c.Work.Slice(0, width), c.Work.Slice(align(width), int64(rows))
	h.norm.forward(d, n, rstd, s[headX], w[headGamma], rows)
	h.lm.backwardWeight(d, g[headW], s[headLogits], n, rows)
	h.norm.backwardWeight(d, g[headGamma], s[headDN], s[headX], s[headRSTD], rows)
}
