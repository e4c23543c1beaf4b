package model

import "github.com/pipetrain/pipetrain/kernels"

// layerNorm is y = (x − mean)·rstd·gamma + beta (arXiv 1607.06450).
type layerNorm struct {
	dim int
	eps float32
}

func (n layerNorm) params(module string) []Param {
	return []Param{gain(module, n.dim), bias(module, n.dim)}
}

func (n layerNorm) stats() []string { return []string{"rstd", "mean"} }

func (n layerNorm) forward(d kernels.Ops, y kernels.Buffer, stats []kernels.Buffer, x kernels.Buffer, w []kernels.Buffer, rows int) {
	d.LayerNormForward(y, stats[1], stats[0], x, w[0], w[1], rows, n.dim, n.eps)
}

func (n layerNorm) backwardInput(d kernels.Device, dx, dy, residual, x kernels.Buffer, stats, w []kernels.Buffer, rows int) {
	add := !residual.Empty()
	if add {
		d.Copy(dx, residual)
	}
	d.LayerNormBackwardInput(dx, dy, x, stats[1], stats[0], w[0], rows, n.dim, add)
}

func (n layerNorm) backwardWeight(d kernels.Ops, g []kernels.Buffer, dy, x kernels.Buffer, stats []kernels.Buffer, rows int) {
	d.LayerNormBackwardWeight(g[0], g[1], dy, x, stats[1], stats[0], rows, n.dim)
}
