package model

import "github.com/pipetrain/pipetrain/kernels"

// NewEmbed returns the layer that maps ids to the rows of a table of vocab rows and dim
// columns. A tie that is not empty is shared with the head (see Param.Tie);
// t is the type of what it gives.
func NewEmbed(vocab, dim int, std float64, tie string, t kernels.DType) Layer {
	l := &layer{name: "model.embed_tokens", in: Matrix{Token, 1, kernels.I32}, out: Matrix{Token, dim, t}}
	l.x, l.dy = l.field(SlotX, FieldIDs, UntilWeight, l.in), l.slot(SlotDY, FromInput, l.out)
	l.made(sequence{{part: lookup{dim: dim,
		table: l.param(Param{Name: nameEmbed, Rows: vocab, Cols: dim, Init: Init{Std: std}, Decay: true, Tie: tie})}}})
	return l
}

// lookup is y[i] = table[x[i]]. Ids have no gradient, so its backward-p1 is empty and
// backward-p2 is all of its backward pass.
type lookup struct {
	rows  Rows
	dim   int
	table *weight
}

func (e lookup) forward(c *Call, m matrices) {
	c.Dev.EmbeddingForward(m.y, e.table.of(c), m.x, e.rows.In(c.Shape), e.dim)
}

func (e lookup) backwardInput(*Call, matrices) {}

func (e lookup) backwardWeight(c *Call, m matrices) {
	c.Dev.EmbeddingBackwardWeight(e.table.grad(c), m.x, m.dy, e.rows.In(c.Shape), e.dim)
}

func (e lookup) work(Pass, kernels.Ops, Shape) int64 { return 0 }

// flops counts the additions of the scatter; the other passes compute nothing.
func (e lookup) flops(p Pass, s Shape) int64 {
	if p == PassWeight {
		return int64(e.rows.In(s)) * int64(e.dim)
	}
	return 0
}
