package model

import "github.com/pipetrain/pipetrain/kernels"

// part is a piece of a layer: a function of one matrix, with its three passes. A part
// declares its parameters and the slots of its own when it is made, and keeps
// their handles. What it reads and writes besides comes with the call.
type part interface {
	// forward writes y = f(x), plus add where there is one and the part can (see residual).
	forward(c *Call, m matrices)
	// backwardInput writes dx, the gradient of x, plus add where there is one. It reads dy and,
	// as far as they are kept until then, x and y. dx is empty where nobody needs it.
	backwardInput(c *Call, m matrices)
	// backwardWeight adds to the gradients of the parameters, from x and dy.
	backwardWeight(c *Call, m matrices)
	// work returns the f32 elements of scratch that a pass needs.
	work(p Pass, d kernels.Ops, s Shape) int64
	// flops returns the operations of a pass: products only.
	flops(p Pass, s Shape) int64
}

// matrices are what a pass of a part works on.
type matrices struct {
	x, y, dx, dy, add kernels.Buffer
	work              kernels.Buffer
}

// weightless is the rest of a part that has no parameters and costs next to nothing.
type weightless struct{}

func (weightless) backwardWeight(*Call, matrices)      {}
func (weightless) work(Pass, kernels.Ops, Shape) int64 { return 0 }
func (weightless) flops(Pass, Shape) int64             { return 0 }

// slot is the handle of a slot or, without a place in the list of slots, of scratch.
type slot struct {
	Matrix
	at int // in Layer.Slots; -1: scratch
}

// of returns the slot's matrix in a call.
func (s *slot) of(c *Call) kernels.Buffer {
	if c == nil || s.at < 0 {
		return kernels.Buffer{}
	}
	return c.Slots[s.at]
}

// scratch returns the handle of a matrix that no later pass reads.
func scratch(m Matrix) *slot { return &slot{m, -1} }

// weight is the handle of a parameter.
type weight struct{ at int }

func (w *weight) of(c *Call) kernels.Buffer   { return c.Weights[w.at] }
func (w *weight) grad(c *Call) kernels.Buffer { return c.Grads[w.at] }

// layer is a Layer made of parts, which declare what they need with it.
type layer struct {
	name   string
	in     Matrix
	out    Matrix
	parts  sequence
	x, dy  *slot // dy: nil in the last layer
	params []Param
	slots  []Slot
	late   []lateParam
}

type lateParam struct {
	Param
	w *weight
}

// slot declares a slot.
func (l *layer) slot(name string, life Life, m Matrix) *slot {
	l.slots = append(l.slots, Slot{Name: name, Life: life, Matrix: m})
	return &slot{m, len(l.slots) - 1}
}

// field declares a slot that the data source fills.
func (l *layer) field(name, field string, life Life, m Matrix) *slot {
	s := l.slot(name, life, m)
	l.slots[s.at].Field = field
	return s
}

// param declares a parameter. Their order is that of initialisation.
func (l *layer) param(p Param) *weight {
	l.params = append(l.params, p)
	return &weight{len(l.params) - 1}
}

// bias declares a parameter that comes behind all others of the layer.
func (l *layer) bias(p Param) *weight {
	w := &weight{}
	l.late = append(l.late, lateParam{p, w})
	return w
}

// made ends the declarations.
func (l *layer) made(parts sequence) {
	l.parts = parts
	for _, p := range l.late {
		*p.w = *l.param(p.Param)
	}
	l.late = nil
}

func (l *layer) Name() string    { return l.name }
func (l *layer) Params() []Param { return l.params }
func (l *layer) Slots() []Slot   { return l.slots }
func (l *layer) In() Matrix      { return l.in }
func (l *layer) Out() Matrix     { return l.out }

func (l *layer) Work(p Pass, d kernels.Ops, s Shape) int64 { return l.parts.work(p, d, s) }
func (l *layer) FLOPs(p Pass, s Shape) int64               { return l.parts.flops(p, s) }

func (l *layer) Forward(c *Call) {
	l.parts.forward(c, matrices{x: l.x.of(c), y: c.Out, work: c.Work})
}

func (l *layer) BackwardInput(c *Call) { l.parts.backwardInput(c, l.backward(c)) }

func (l *layer) BackwardWeight(c *Call) { l.parts.backwardWeight(c, l.backward(c)) }

func (l *layer) backward(c *Call) matrices {
	m := matrices{x: l.x.of(c), dx: c.DX, work: c.Work}
	if l.dy != nil {
		m.dy = l.dy.of(c)
	}
	return m
}
