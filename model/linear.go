package model

import "github.com/pipetrain/pipetrain/kernels"

// linear is y = x·Wᵀ, plus a bias where it has one; W is out × in, the layout of Hugging Face
// and PyTorch, so that joined projections are joined rows.
type linear struct {
	rows    Rows
	in, out int
	w       *weight
	bias    *weight // nil: none
}

func newLinear(l *layer, rows Rows, p Param) linear {
	return linear{rows, p.Cols, p.Rows, l.param(p), nil}
}

func newBiasedLinear(l *layer, rows Rows, p, bias Param) linear {
	k := newLinear(l, rows, p)
	k.bias = l.bias(bias)
	return k
}

// forward maps x [rows, in] to y [rows, out]; adding by the product itself saves a pass.
func (l linear) forward(c *Call, m matrices) {
	l.product(c, true, l.out, l.in, m.y, m.x, m.add)
	if l.bias != nil {
		c.Dev.AddBias(m.y, l.bias.of(c), l.rows.In(c.Shape), l.out)
	}
}

// backwardInput computes dx = dy·W, [rows, out] to [rows, in].
func (l linear) backwardInput(c *Call, m matrices) {
	if !m.dx.Empty() {
		l.product(c, false, l.in, l.out, m.dx, m.dy, m.add)
	}
}

// product writes to [rows, n] = from [rows, k] · W or Wᵀ + add.
func (l linear) product(c *Call, transposed bool, n, k int, to, from, add kernels.Buffer) {
	beta := float32(0)
	if !add.Empty() {
		c.Dev.Copy(to, add)
		beta = 1
	}
	c.Dev.Gemm(false, transposed, l.rows.In(c.Shape), n, k, 1, from, k, l.w.of(c), l.in, beta, to, n)
}

// backwardWeight computes dW += dyᵀ·x. For n concatenated micro-batches this is
// one product whose inner dimension is all their rows (2BP, section 3.2). It
// adds even for the first micro-batch, onto zero, so that the order of the
// micro-batches alone decides the bits.
func (l linear) backwardWeight(c *Call, m matrices) {
	c.Dev.Gemm(true, false, l.out, l.in, l.rows.In(c.Shape), 1, m.dy, l.out, m.x, l.in, 1, l.w.grad(c), l.in)
	if l.bias != nil {
		c.Dev.AddColumns(l.bias.grad(c), m.dy, l.rows.In(c.Shape), l.out)
	}
}

func (l linear) work(Pass, kernels.Ops, Shape) int64 { return 0 }

// flops of any of the three passes: two for each multiply-add.
func (l linear) flops(_ Pass, s Shape) int64 {
	return 2 * int64(l.rows.In(s)) * int64(l.in) * int64(l.out)
}
