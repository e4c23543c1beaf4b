package cpu

import (
	"math"

	"github.com/pipetrain/pipetrain/kernels"
)

// LayerNormForward computes y = (x − mean)·rstd·gamma + beta per row (arXiv 1607.06450, eq. 4).
func (d *Device) LayerNormForward(y, mean, rstd, x, gamma, beta kernels.Buffer, rows, dim int, eps float32) {
	const op = "LayerNormForward"
	vy, vm, vr := f32(op, "y", y, rows*dim), f32(op, "mean", mean, rows), f32(op, "rstd", rstd, rows)
	vx, vg, vb := f32(op, "x", x, rows*dim), f32(op, "gamma", gamma, dim), f32(op, "beta", beta, dim)
	d.splitRows(rows, dim, func(from, to int) {
		for i := from; i < to; i++ {
			xi := vx[i*dim : (i+1)*dim]
			m := float32(d.vec.sum(xi) / float64(dim))
			// Squares of differences: the mean of squares minus the square of the mean
			// would cancel where a row lies far from zero.
			variance := float64(squaresAboutGo(xi, m)) / float64(dim)
			r := float32(1 / math.Sqrt(variance+float64(eps)))
			vm[i], vr[i] = m, r
			normaliseGo(vy[i*dim:(i+1)*dim], xi, vg, vb, m, r)
		}
	})
}

// LayerNormBackwardInput computes dx (+)= rstd·(g − mean(g) − n·mean(g·n)) with
// n = (x−mean)·rstd and g = gamma·dy.
func (d *Device) LayerNormBackwardInput(dx, dy, x, mean, rstd, gamma kernels.Buffer, rows, dim int, accumulate bool) {
	const op = "LayerNormBackwardInput"
	vdx, vdy := f32(op, "dx", dx, rows*dim), f32(op, "dy", dy, rows*dim)
	vx, vm, vr := f32(op, "x", x, rows*dim), f32(op, "mean", mean, rows), f32(op, "rstd", rstd, rows)
	vg := f32(op, "gamma", gamma, dim)
	d.splitRows(rows, dim, func(from, to int) {
		for i := from; i < to; i++ {
			dxi, dyi, xi := vdx[i*dim:(i+1)*dim], vdy[i*dim:(i+1)*dim], vx[i*dim:(i+1)*dim]
			m, r := vm[i], vr[i]
			sum := d.vec.dot(vg, dyi)
			along := dotAboutGo(vg, dyi, xi, m) * r // Σ g·n
			layerNormGradGo(dxi, dyi, xi, vg, m, r, sum/float32(dim), along*r/float32(dim), accumulate)
		}
	})
}

// LayerNormBackwardWeight adds Σ_rows dy·(x−mean)·rstd to dgamma and Σ_rows dy to dbeta, rows in order.
func (d *Device) LayerNormBackwardWeight(dgamma, dbeta, dy, x, mean, rstd kernels.Buffer, rows, dim int) {
	const op = "LayerNormBackwardWeight"
	vg, vb, vdy := f32(op, "dgamma", dgamma, dim), f32(op, "dbeta", dbeta, dim), f32(op, "dy", dy, rows*dim)
	vx, vm, vr := f32(op, "x", x, rows*dim), f32(op, "mean", mean, rows), f32(op, "rstd", rstd, rows)
	d.split(dim, 64, func(from, to int) {
		for i := range rows {
			dyi := vdy[i*dim+from : i*dim+to]
			mulAboutGo(vg[from:to], dyi, vx[i*dim+from:i*dim+to], vm[i], vr[i])
			d.vec.add(vb[from:to], vb[from:to], dyi)
		}
	})
}
