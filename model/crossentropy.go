package model

import "github.com/pipetrain/pipetrain/kernels"

// crossEntropy is the end of a model: x are logits, y one loss a row. The gradient is that
// of LossScale × the sum of the losses.
type crossEntropy struct {
	weightless
	rows         Rows
	classes      int
	targets, lse *slot
}

func newCrossEntropy(l *layer, logits Matrix) crossEntropy {
	one := func(t kernels.DType) Matrix { return Matrix{logits.Rows, 1, t} }
	return crossEntropy{rows: logits.Rows, classes: logits.Width,
		targets: l.field("targets", FieldTargets, UntilInput, one(kernels.I32)),
		lse:     l.slot("lse", UntilInput, one(kernels.F32))}
}

func (e crossEntropy) forward(c *Call, m matrices) {
	c.Dev.CrossEntropyForward(m.y, e.lse.of(c), m.x, e.targets.of(c), e.rows.In(c.Shape), e.classes)
}

func (e crossEntropy) backwardInput(c *Call, m matrices) {
	c.Dev.CrossEntropyBackward(m.dx, m.x, e.lse.of(c), e.targets.of(c), e.rows.In(c.Shape), e.classes, c.LossScale)
}
