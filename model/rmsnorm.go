package model

import "github.com/pipetrain/pipetrain/kernels"

// rmsnorm is y = x · rstd · gamma (arXiv 1910.07467).
type rmsnorm struct {
	dim int
	eps float32
}

func (n rmsnorm) params(module string) []Param { return []Param{gain(module, n.dim)} }

func (n rmsnorm) stats() []string { return []string{"rstd"} }

func (n rmsnorm) forward(d kernels.Ops, y kernels.Buffer, stats []kernels.Buffer, x kernels.Buffer, w []kernels.Buffer, rows int) {
	d.RMSNormForward(y, stats[0], x, w[0], rows, n.dim, n.eps)
}

func (n rmsnorm) backwardInput(d kernels.Device, dx, dy, residual, x kernels.Buffer, stats, w []kernels.Buffer, rows int) {
	add := !residual.Empty()
	if add {
		d.Copy(dx, residual)
	}
	d.RMSNormBackwardInput(dx, dy, x, stats[0], w[0], rows, n.dim, add)
}

func (n rmsnorm) backwardWeight(d kernels.Ops, g []kernels.Buffer, dy, x kernels.Buffer, stats []kernels.Buffer, rows int) {
	d.RMSNormBackwardWeight(g[0], dy, x, stats[0], rows, n.dim)
}
