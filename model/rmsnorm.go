package model

import "github.com/pipetrain/pipetrain/kernels"

// rmsnorm is y = x · rstd · gamma over rows of dim columns (arXiv 1910.07467).
type rmsnorm struct {
	dim int
	eps float32
}

// forward writes y [rows, dim] and rstd [rows]. The backward-p2 of the Linear
// that follows calls it again on what was kept: y costs one element-wise pass to
// compute and a whole rows × dim matrix to keep from F to W.
func (n rmsnorm) forward(d kernels.Ops, y, rstd, x, gamma kernels.Buffer, rows int) {
	d.RMSNormForward(y, rstd, x, gamma, rows, n.dim, n.eps)
}

// backwardInput computes dx = residual + the norm's gradient; the residual is
// the gradient that bypasses the norm, empty for none.
func (n rmsnorm) backwardInput(d kernels.Device, dx, dy, residual, x, rstd, gamma kernels.Buffer, rows int) {
	add := !residual.Empty()
	if add {
		d.Copy(dx, residual)
	}
	d.RMSNormBackwardInput(dx, dy, x, rstd, gamma, rows, n.dim, add)
}

// backwardWeight adds to dgamma [dim].
func (n rmsnorm) backwardWeight(d kernels.Ops, dgamma, dy, x, rstd kernels.Buffer, rows int) {
	d.RMSNormBackwardWeight(dgamma, dy, x, rstd, rows, n.dim)
}

// gain declares the norm's parameter.
func (n rmsnorm) gain(name string) Param {
	return Param{Name: name, Rows: 1, Cols: n.dim, Vector: true, Init: Init{Value: 1}}
}
