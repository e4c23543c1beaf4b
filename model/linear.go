package model

import "github.com/pipetrain/pipetrain/kernels"

// linear is y = x·Wᵀ without a bias; W is out × in, the layout of Hugging Face
// and PyTorch, so that joined projections are joined rows.
type linear struct{ in, out int }

// forward maps x [rows, in] to y [rows, out]; with add it adds to y, which
// saves the pass of a residual sum.
func (l linear) forward(d kernels.Ops, y, x, w kernels.Buffer, rows int, add bool) {
	d.Gemm(false, true, rows, l.out, l.in, 1, x, l.in, w, l.in, beta(add), y, l.out)
}

// backwardInput computes dx = dy·W, [rows, out] to [rows, in].
func (l linear) backwardInput(d kernels.Ops, dx, dy, w kernels.Buffer, rows int) {
	d.Gemm(false, false, rows, l.in, l.out, 1, dy, l.out, w, l.in, 0, dx, l.in)
}

// backwardWeight computes dW += dyᵀ·x. For n concatenated micro-batches this is
// one product whose inner dimension is all their rows (2BP, section 3.2). It
// adds even for the first micro-batch, onto zero, so that the order of the
// micro-batches alone decides the bits.
func (l linear) backwardWeight(d kernels.Ops, dw, dy, x kernels.Buffer, rows int) {
	d.Gemm(true, false, l.out, l.in, rows, 1, dy, l.out, x, l.in, 1, dw, l.in)
}

// flops of any of the three passes: two for each multiply-add.
func (l linear) flops(rows int) int64 { return 2 * int64(rows) * int64(l.in) * int64(l.out) }

func beta(add bool) float32 {
	if add {
		return 1
	}
	return 0
}
