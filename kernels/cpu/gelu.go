package cpu

import "github.com/pipetrain/pipetrain/kernels"

// GELUForward computes y = x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))) (arXiv 1606.08415, section 2).
func (d *Device) GELUForward(y, x kernels.Buffer) {
	const op = "GELUForward"
	n := int(x.Len)
	if y.Len != x.Len {
		panic("cpu: GELUForward: the buffers differ in length")
	}
	vy, vx := actsOf(op, n, "y", y), like(op, n, "x", x, y)
	d.split(n, 8192, func(w *workerScratch, from, to int) {
		vy.flat(from, to, func(i, j int) {
			v := vy.room(w.row(0, lowBlock), i, j)
			d.vec.gelu(v, vx.read(d, w.row(1, lowBlock), i, j))
			vy.put(d, v, i)
		})
	})
}

// GELUBackward writes dx = dy·gelu'(x). dx may be x itself.
func (d *Device) GELUBackward(dx, dy, x kernels.Buffer) {
	const op = "GELUBackward"
	n := int(x.Len)
	if dx.Len != x.Len || dy.Len != x.Len {
		panic("cpu: GELUBackward: the buffers differ in length")
	}
	vdx, vdy, vx := actsOf(op, n, "dx", dx), like(op, n, "dy", dy, dx), like(op, n, "x", x, dx)
	d.split(n, 8192, func(w *workerScratch, from, to int) {
		vdx.flat(from, to, func(i, j int) {
			v := vdx.room(w.row(0, lowBlock), i, j)
			d.vec.geluGrad(v, vdy.read(d, w.row(1, lowBlock), i, j), vx.read(d, w.row(2, lowBlock), i, j))
			vdx.put(d, v, i)
		})
	})
}

// (1 + tanh(u))/2 = σ(2u), so gelu(x) = x·σ(2u) with 2u = x·(geluA + geluB·x²).
const (
	geluA = 1.5957691216057308   // 2·√(2/π)
	geluB = 0.044715 * geluA     // of x³
	geluC = 3 * 0.044715 * geluA // of x² in the derivative
)

func geluGo(y, x []float32) {
	x = x[:len(y)]
	for i, v := range x {
		y[i] = v / (1 + exp32(-v*(geluA+geluB*v*v)))
	}
}

// geluGradGo is dx = dy·σ·(1 + x·(1−σ)·(2u)'); dx may be x.
func geluGradGo(dx, dy, x []float32) {
	dy, x = dy[:len(dx)], x[:len(dx)]
	for i, v := range x {
		square := v * v
		s := 1 / (1 + exp32(-v*(geluA+geluB*square)))
		dx[i] = dy[i] * s * (1 + v*(1-s)*(geluA+geluC*square))
	}
}
