package model

import "github.com/pipetrain/pipetrain/kernels"

// Embed maps token ids to rows of a table. Ids have no gradient, so its
// backward-p1 is empty and backward-p2 is all of its backward pass.
type Embed struct {
	dim    int
	params []Param
	slots  []Slot
}

// Slots of Embed, in order.
const (
	embedX = iota
	embedDY
)

// NewEmbed returns the embedding of vocab tokens in dim columns. A tie that is not
// empty is shared with the head (see Param.Tie); t is the type of what it gives.
func NewEmbed(vocab, dim int, std float64, tie string, t kernels.DType) *Embed {
	return &Embed{
		dim:    dim,
		params: []Param{{Name: nameEmbed, Rows: vocab, Cols: dim, Init: Init{Std: std}, Decay: true, Tie: tie}},
		slots: []Slot{
			embedX:  field(SlotX, FieldIDs, UntilWeight),
			embedDY: perToken(SlotDY, FromInput, dim, t),
		},
	}
}

// Name returns the Hugging Face prefix.
func (e *Embed) Name() string { return "model.embed_tokens" }

// Params returns the table.
func (e *Embed) Params() []Param { return e.params }

// Slots returns what one micro-batch keeps.
func (e *Embed) Slots() []Slot { return e.slots }

// In is an id a token.
func (e *Embed) In() Matrix { return Matrix{Width: 1, Type: kernels.I32} }

// Out is the model's dimension a token.
func (e *Embed) Out() Matrix { return e.slots[embedDY].Matrix }

// Work is 0 for every pass.
func (e *Embed) Work(Pass, kernels.Ops, Shape) int64 { return 0 }

// FLOPs counts the additions of the scatter; the other passes compute nothing.
func (e *Embed) FLOPs(p Pass, s Shape) int64 {
	if p == PassWeight {
		return int64(s.Rows()) * int64(e.dim)
	}
	return 0
}

// Forward gathers Out [rows, dim].
func (e *Embed) Forward(c *Call) {
	c.Dev.EmbeddingForward(c.Out, c.Weights[0], c.Slots[embedX], c.Shape.Rows(), e.dim)
}

// BackwardInput does nothing.
func (e *Embed) BackwardInput(*Call) {}

// BackwardWeight scatters dy into the table's gradient.
func (e *Embed) BackwardWeight(c *Call) {
	c.Dev.EmbeddingBackwardWeight(c.Grads[0], c.Slots[embedX], c.Slots[embedDY], c.Shape.Rows(), e.dim)
}
