package cpu

import (
	"math"

	"github.com/pipetrain/pipetrain/kernels"
)

// RMSNormForward computes y = x · rstd · gamma per row (arXiv 1910.07467, eq. 4).
func (d *Device) RMSNormForward(y, rstd, x, gamma kernels.Buffer, rows, dim int, eps float32) {
	const op = "RMSNormForward"
	vy, vr := f32(op, "y", y, rows*dim), f32(op, "rstd", rstd, rows)
	vx, vg := f32(op, "x", x, rows*dim), f32(op, "gamma", gamma, dim)
	d.splitRows(rows, dim, func(from, to int) {
		for i := from; i < to; i++ {
			xi := vx[i*dim : (i+1)*dim]
			mean := float64(d.vec.dot(xi, xi)) / float64(dim)
			r := float32(1 / math.Sqrt(mean+float64(eps)))
			vr[i] = r
			d.vec.scaleMul(vy[i*dim:(i+1)*dim], xi, vg, r)
		}
	})
}

// RMSNormBackwardInput computes dx (+)= rstd·(gamma·dy − x·rstd²·mean(gamma·dy·x)).
func (d *Device) RMSNormBackwardInput(dx, dy, x, rstd, gamma kernels.Buffer, rows, dim int, accumulate bool) {
	const op = "RMSNormBackwardInput"
	vdx, vdy := f32(op, "dx", dx, rows*dim), f32(op, "dy", dy, rows*dim)
	vx, vr := f32(op, "x", x, rows*dim), f32(op, "rstd", rstd, rows)
	vg := f32(op, "gamma", gamma, dim)
	d.splitRows(rows, dim, func(from, to int) {
		for i := from; i < to; i++ {
			dxi, dyi, xi := vdx[i*dim:(i+1)*dim], vdy[i*dim:(i+1)*dim], vx[i*dim:(i+1)*dim]
			r := vr[i]
			c := -r * r * r * (d.vec.dot3(vg, dyi, xi) / float32(dim))
			if accumulate {
				d.vec.normGradAdd(dxi, dyi, xi, vg, r, c)
			} else {
				d.vec.normGrad(dxi, dyi, xi, vg, r, c)
			}
		}
	})
}

// RMSNormBackwardWeight adds Σ_rows dy·x·rstd to dgamma, rows in order.
func (d *Device) RMSNormBackwardWeight(dgamma, dy, x, rstd kernels.Buffer, rows, dim int) {
	const op = "RMSNormBackwardWeight"
	vd, vdy := f32(op, "dgamma", dgamma, dim), f32(op, "dy", dy, rows*dim)
	vx, vr := f32(op, "x", x, rows*dim), f32(op, "rstd", rstd, rows)
	d.split(dim, 64, func(from, to int) {
		for i := range rows {
			d.vec.mulAcc(vd[from:to], vdy[i*dim+from:i*dim+to], vx[i*dim+from:i*dim+to], vr[i])
		}
	})
}
