package cpu

import (
	"math"

	"github.com/pipetrain/pipetrain/kernels"
)

// RMSNormForward computes y = x · rstd · gamma per row (arXiv 1910.07467, eq. 4).
func (d *Device) RMSNormForward(y, rstd, x, gamma kernels.Buffer, rows, dim int, eps float32) {
	const op = "RMSNormForward"
	vy, vr := actsOf(op, rows*dim, "y", y), f32(op, "rstd", rstd, rows)
	vx, vg := like(op, rows*dim, "x", x, y), like(op, dim, "gamma", gamma, y)
	d.splitRows(rows, dim, func(w *workerScratch, from, to int) {
		g := vg.read(d, w.row(0, dim), 0, dim)
		for i := from; i < to; i++ {
			xi, yi := vx.read(d, w.row(1, dim), i*dim, (i+1)*dim), vy.room(w.row(2, dim), i*dim, (i+1)*dim)
			mean := float64(d.vec.dot(xi, xi)) / float64(dim)
			r := float32(1 / math.Sqrt(mean+float64(eps)))
			vr[i] = r
			d.vec.scaleMul(yi, xi, g, r)
			vy.put(d, yi, i*dim)
		}
	})
}

// RMSNormBackwardInput computes dx (+)= rstd·(gamma·dy − x·rstd²·mean(gamma·dy·x)).
func (d *Device) RMSNormBackwardInput(dx, dy, x, rstd, gamma kernels.Buffer, rows, dim int, accumulate bool) {
	const op = "RMSNormBackwardInput"
	vdx, vdy := actsOf(op, rows*dim, "dx", dx), like(op, rows*dim, "dy", dy, dx)
	vx, vr := like(op, rows*dim, "x", x, dx), f32(op, "rstd", rstd, rows)
	vg := like(op, dim, "gamma", gamma, dx)
	d.splitRows(rows, dim, func(w *workerScratch, from, to int) {
		g := vg.read(d, w.row(0, dim), 0, dim)
		for i := from; i < to; i++ {
			k, n := i*dim, (i+1)*dim
			xi, dyi := vx.read(d, w.row(1, dim), k, n), vdy.read(d, w.row(2, dim), k, n)
			r := vr[i]
			c := -r * r * r * (d.vec.dot3(g, dyi, xi) / float32(dim))
			var dxi []float32
			if accumulate {
				dxi = vdx.read(d, w.row(3, dim), k, n)
				d.vec.normGradAdd(dxi, dyi, xi, g, r, c)
			} else {
				dxi = vdx.room(w.row(3, dim), k, n)
				d.vec.normGrad(dxi, dyi, xi, g, r, c)
			}
			vdx.put(d, dxi, k)
		}
	})
}

// RMSNormBackwardWeight adds Σ_rows dy·x·rstd to dgamma, rows in order.
func (d *Device) RMSNormBackwardWeight(dgamma, dy, x, rstd kernels.Buffer, rows, dim int) {
	const op = "RMSNormBackwardWeight"
	vd, vdy := f32(op, "dgamma", dgamma, dim), actsOf(op, rows*dim, "dy", dy)
	vx, vr := like(op, rows*dim, "x", x, dy), f32(op, "rstd", rstd, rows)
	d.split(dim, 64, func(w *workerScratch, from, to int) {
		for i := range rows {
			k, n := i*dim+from, i*dim+to
			d.vec.mulAcc(vd[from:to], vdy.read(d, w.row(0, n-k), k, n), vx.read(d, w.row(1, n-k), k, n), vr[i])
		}
	})
}
