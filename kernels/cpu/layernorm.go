package cpu

import (
	"math"

	"github.com/pipetrain/pipetrain/kernels"
)

// LayerNormForward computes y = (x − mean)·rstd·gamma + beta per row (arXiv 1607.06450, eq. 4).
func (d *Device) LayerNormForward(y, mean, rstd, x, gamma, beta kernels.Buffer, rows, dim int, eps float32) {
	const op = "LayerNormForward"
	vy, vm, vr := actsOf(op, rows*dim, "y", y), f32(op, "mean", mean, rows), f32(op, "rstd", rstd, rows)
	vx, vg, vb := like(op, rows*dim, "x", x, y), like(op, dim, "gamma", gamma, y), like(op, dim, "beta", beta, y)
	d.splitRows(rows, dim, func(w *workerScratch, from, to int) {
		g, b := vg.read(d, w.row(0, dim), 0, dim), vb.read(d, w.row(1, dim), 0, dim)
		for i := from; i < to; i++ {
			xi, yi := vx.read(d, w.row(2, dim), i*dim, (i+1)*dim), vy.room(w.row(3, dim), i*dim, (i+1)*dim)
			m := float32(d.vec.sum(xi) / float64(dim))
			// Squares of differences: the mean of squares minus the square of the mean
			// would cancel where a row lies far from zero.
			variance := float64(d.vec.squaresAbout(xi, m)) / float64(dim)
			r := float32(1 / math.Sqrt(variance+float64(eps)))
			vm[i], vr[i] = m, r
			d.vec.normalise(yi, xi, g, b, m, r)
			vy.put(d, yi, i*dim)
		}
	})
}

// LayerNormBackwardInput computes dx (+)= rstd·(g − mean(g) − n·mean(g·n)) with
// n = (x−mean)·rstd and g = gamma·dy.
func (d *Device) LayerNormBackwardInput(dx, dy, x, mean, rstd, gamma kernels.Buffer, rows, dim int, accumulate bool) {
	const op = "LayerNormBackwardInput"
	vdx, vdy := actsOf(op, rows*dim, "dx", dx), like(op, rows*dim, "dy", dy, dx)
	vx, vm, vr := like(op, rows*dim, "x", x, dx), f32(op, "mean", mean, rows), f32(op, "rstd", rstd, rows)
	vg := like(op, dim, "gamma", gamma, dx)
	d.splitRows(rows, dim, func(w *workerScratch, from, to int) {
		g := vg.read(d, w.row(0, dim), 0, dim)
		for i := from; i < to; i++ {
			k, n := i*dim, (i+1)*dim
			xi, dyi := vx.read(d, w.row(1, dim), k, n), vdy.read(d, w.row(2, dim), k, n)
			m, r := vm[i], vr[i]
			sum := d.vec.dot(g, dyi)
			along := d.vec.dotAbout(g, dyi, xi, m) * r // Σ g·n
			var dxi []float32
			if accumulate {
				dxi = vdx.read(d, w.row(3, dim), k, n)
				d.vec.layerNormGradAdd(dxi, dyi, xi, g, m, r, sum/float32(dim), along*r/float32(dim))
			} else {
				dxi = vdx.room(w.row(3, dim), k, n)
				d.vec.layerNormGrad(dxi, dyi, xi, g, m, r, sum/float32(dim), along*r/float32(dim))
			}
			vdx.put(d, dxi, k)
		}
	})
}

// LayerNormBackwardWeight adds Σ_rows dy·(x−mean)·rstd to dgamma and Σ_rows dy to dbeta, rows in order.
func (d *Device) LayerNormBackwardWeight(dgamma, dbeta, dy, x, mean, rstd kernels.Buffer, rows, dim int) {
	const op = "LayerNormBackwardWeight"
	vg, vb, vdy := f32(op, "dgamma", dgamma, dim), f32(op, "dbeta", dbeta, dim), actsOf(op, rows*dim, "dy", dy)
	vx, vm, vr := like(op, rows*dim, "x", x, dy), f32(op, "mean", mean, rows), f32(op, "rstd", rstd, rows)
	d.split(dim, 64, func(w *workerScratch, from, to int) {
		for i := range rows {
			k, n := i*dim+from, i*dim+to
			dyi := vdy.read(d, w.row(0, n-k), k, n)
			d.vec.mulAbout(vg[from:to], dyi, vx.read(d, w.row(1, n-k), k, n), vm[i], vr[i])
			d.vec.add(vb[from:to], vb[from:to], dyi)
		}
	})
}
