// Package model has the networks: layers with hand-written Forward,
// BackwardInput (backward-p1) and BackwardWeight (backward-p2), the models made
// of them, parameters, initialisation and the optimizer's schedule.
//
// A Layer is the unit at which a model is cut into stages (a decoder block, the
// embedding, the head with its loss). A layer allocates nothing: it declares
// what it keeps and for how long, and the engine hands it the memory, so that
// the plan knows every byte before a rank starts.
package model

import "github.com/pipetrain/pipetrain/kernels"

// Life says how long a slot of one micro-batch lives.
type Life uint8

// Lifetimes. 2BP frees at backward-p1 what backward-p2 does not need.
const (
	// UntilInput: written by Forward, read by BackwardInput, freed after it.
	UntilInput Life = iota
	// UntilWeight: written by Forward (or received), freed after BackwardWeight.
	UntilWeight
	// FromInput: written by BackwardInput (or received), freed after BackwardWeight.
	FromInput
)

// Slot is a matrix that a layer keeps for one micro-batch. BackwardWeight of
// several joined micro-batches sees the UntilWeight and FromInput slots of all of
// them as one matrix, the rows of one micro-batch behind those of the other.
type Slot struct {
	Name string
	Life Life
	Matrix
	// Field names what the data source fills the slot with before Forward (a field of
	// data.Source), in a layer of any stage; empty: it comes from elsewhere.
	Field string
}

// Slots with these names are connected by the stage: every layer has one
// SlotX (its input) with life UntilWeight or UntilInput, and every layer but the last
// (the loss) one SlotDY (the gradient of its output) with life FromInput.
const (
	SlotX  = "x"
	SlotDY = "dy"
)

// Fields of token sequences.
const (
	FieldIDs     = "ids"     // I32, an id a token
	FieldTargets = "targets" // I32, the id that follows each
)

// Pass names one of the three calls, for scratch sizes and costs.
type Pass uint8

// The passes.
const (
	PassForward Pass = iota
	PassInput
	PassWeight
)

// Call is what a layer's pass works on.
type Call struct {
	Dev     kernels.Device
	Shape   Shape            // in BackwardWeight, of all joined micro-batches
	First   int              // number of the first of them in the step, counted over all replicas
	Weights []kernels.Buffer // one for each of Params(), same order
	Grads   []kernels.Buffer // BackwardWeight adds to these
	Slots   []kernels.Buffer // one for each of Slots(), same order; those not alive in this pass are empty
	Out     kernels.Buffer   // Forward writes the output
	DX      kernels.Buffer   // BackwardInput writes the gradient of the input; empty when nobody needs it
	Work    kernels.Buffer   // scratch, at least Work(pass, shape) f32 elements; contents undefined
	// LossScale multiplies the gradient of the sum of the losses: 1 / the terms of the
	// global batch (data.Source.Terms), so that the loss is their mean.
	LossScale float32
}

// Layer is a part of a model with its 2BP passes. Layers hold shapes and names,
// no tensors: one Layer value serves every micro-batch.
type Layer interface {
	Name() string
	// Params and Slots return the layer's own lists, to be read only.
	Params() []Param
	Slots() []Slot
	// In and Out are the layer's input and output; a layer's Out is the next one's In.
	// The last layer's Out holds losses, F32, of which the engine takes the sum.
	In() Matrix
	Out() Matrix
	// Work returns the f32 elements of scratch that a pass needs.
	Work(p Pass, d kernels.Ops, s Shape) int64
	// FLOPs returns the floating-point operations of a pass (2 per multiply-add).
	FLOPs(p Pass, s Shape) int64

	Forward(c *Call)
	BackwardInput(c *Call)
	BackwardWeight(c *Call)
}

// Param declares one parameter matrix (Rows × Cols; a vector has Rows 1).
type Param struct {
	// Name is the name in safetensors (Hugging Face's of the family). A joined
	// matrix has Parts instead: its rows are the parts' rows, in order.
	Name       string
	Parts      []Part
	Rows, Cols int
	Vector     bool // saved with shape [Cols]
	Transposed bool // saved with shape [Cols, Rows]; without Parts
	Init       Init
	Decay      bool // weight decay applies (matrices, not gains)
	// Tie is not empty when the parameter shares its values with the others of the
	// same Tie: each copy keeps a gradient of its own, which are added before the
	// norm and the update. Only the first copy is saved and counted.
	Tie string
}

// Part is a named block of rows of a joined parameter.
type Part struct {
	Name string
	Rows int
}

// Init says how a parameter starts: normal with this standard deviation, or constant when Std is 0.
type Init struct {
	Std   float64
	Value float32
}

// Len returns the elements of the parameter.
func (p Param) Len() int64 { return int64(p.Rows) * int64(p.Cols) }
