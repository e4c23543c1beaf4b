package model

import "github.com/pipetrain/pipetrain/kernels"

// Head is the end of a decoder: norm, vocabulary Linear and cross-entropy,
//
//	n = norm(x)    logits = n·Wᵀ    loss = cross-entropy(logits, targets)
//
// one loss a row. The gradient of the logits takes the logits' own memory; n is
// computed again in backward-p2, as in Block.
type Head struct {
	dim, vocab int
	typ        kernels.DType
	norm       norm
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
	headDN   // gradient of n, for the norm
	headMore // the norm's second statistic, where it has one
)

// Parameters of Head, in order.
const (
	headGamma = iota
	headW
	headBeta // where the norm has one
)

// NewHead returns the head of a model of cfg; when the model is tied its
// weight is a copy of the embedding's table.
func NewHead(cfg Config) *Head {
	h := &Head{dim: cfg.Dim, vocab: cfg.Vocab, typ: cfg.Type, norm: newNorm(cfg), lm: linear{cfg.Dim, cfg.Vocab}}
	norm := h.norm.params("model.norm")
	h.params = []Param{
		headGamma: norm[0],
		headW:     {Name: nameHead, Rows: cfg.Vocab, Cols: cfg.Dim, Init: Init{Std: initStd}, Decay: true, Tie: cfg.tie()},
	}
	h.params = append(h.params, norm[1:]...)
	t, f := cfg.Type, kernels.F32
	h.slots = []Slot{
		headX:       perToken(SlotX, UntilWeight, h.dim, t),
		headTargets: field(FieldTargets, FieldTargets, UntilInput),
		headRSTD:    perToken(h.norm.stats()[0], UntilWeight, 1, f),
		headLogits:  perToken("logits", UntilWeight, h.vocab, t),
		headLSE:     perToken("lse", UntilInput, 1, f),
		headDN:      perToken("dn", FromInput, h.dim, t),
	}
	for _, s := range h.norm.stats()[1:] {
		h.slots = append(h.slots, perToken(s, UntilWeight, 1, f))
	}
	return h
}

// Name returns the Hugging Face prefix.
func (h *Head) Name() string { return "lm_head" }

// Params returns the norm's parameters and the vocabulary matrix.
func (h *Head) Params() []Param { return h.params }

// Slots returns what one micro-batch keeps.
func (h *Head) Slots() []Slot { return h.slots }

// In is the model's dimension a token.
func (h *Head) In() Matrix { return Matrix{Width: h.dim, Type: h.typ} }

// Out is a loss a token.
func (h *Head) Out() Matrix { return Matrix{Width: 1, Type: kernels.F32} }

// Work returns the scratch of a pass: n in Forward, n and its statistics in BackwardWeight.
func (h *Head) Work(p Pass, _ kernels.Ops, s Shape) int64 {
	rows := int64(s.Rows())
	norm := floatsOf(rows*int64(h.dim), h.typ)
	switch p {
	case PassForward:
		return norm
	case PassWeight:
		return statsWork(h.norm, norm, rows)
	}
	return 0
}

// FLOPs counts the product of the vocabulary Linear.
func (h *Head) FLOPs(_ Pass, s Shape) int64 { return h.lm.flops(s.Rows()) }

// Forward maps x [rows, dim] and targets [rows] to Out [rows], the losses.
func (h *Head) Forward(c *Call) {
	d, s, w, rows := c.Dev, c.Slots, c.Weights, c.Shape.Rows()
	room := scratch{c.Work}
	n := room.take(int64(rows*h.dim), h.typ)
	h.norm.forward(d, n, pair(s, headRSTD, headMore), s[headX], pair(w, headGamma, headBeta), rows)
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
		h.norm.backwardInput(d, c.DX, s[headDN], kernels.Buffer{}, s[headX], pair(s, headRSTD, headMore), pair(w, headGamma, headBeta), rows)
	}
}

// BackwardWeight adds the gradients of gain and vocabulary matrix.
func (h *Head) BackwardWeight(c *Call) {
	d, s, w, g, rows := c.Dev, c.Slots, c.Weights, c.Grads, c.Shape.Rows()
	n, stats := again(c.Work, h.norm, rows, h.dim, h.typ)
	h.norm.forward(d, n, stats, s[headX], pair(w, headGamma, headBeta), rows)
	h.lm.backwardWeight(d, g[headW], s[headLogits], n, rows)
	h.norm.backwardWeight(d, pair(g, headGamma, headBeta), s[headDN], s[headX], pair(s, headRSTD, headMore), rows)
}
