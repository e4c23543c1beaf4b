package model

import "github.com/pipetrain/pipetrain/kernels"

// NewHead returns the end of a decoder of cfg: norm, vocabulary Linear and cross-entropy,
//
//	n = norm(x)    logits = n·Wᵀ    loss = cross-entropy(logits, targets)
//
// one loss a row. The gradient of the logits takes the logits' own memory; n is
// computed again in backward-p2, as in a block. When the model is tied the Linear's
// weight is a copy of the embedding's table.
func NewHead(cfg Config) Layer {
	return newHead(cfg, "model.norm", Param{Name: nameHead, Rows: cfg.Vocab, Cols: cfg.Dim, Init: Init{Std: initStd}, Decay: true, Tie: cfg.tie()})
}

// newHead is NewHead with the norm of a name and the Linear of a parameter.
func newHead(cfg Config, norm string, table Param) Layer {
	dim, vocab := Matrix{Token, cfg.Dim, cfg.Type}, Matrix{Token, cfg.Vocab, cfg.Type}
	l := &layer{name: "lm_head", in: dim, out: Matrix{Token, 1, kernels.F32}}
	l.x = l.slot(SlotX, UntilWeight, dim)
	logits := l.slot("logits", UntilWeight, vocab) // from I on their gradient
	l.made(sequence{
		{newNorm(l, cfg, norm, ""), scratch(dim), l.slot("dn", FromInput, dim)},
		{newLinear(l, Token, table), logits, logits},
		{part: newCrossEntropy(l, vocab)},
	})
	return l
}
