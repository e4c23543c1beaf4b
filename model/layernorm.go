package model

import "github.com/pipetrain/pipetrain/kernels"

// layerNorm is y = (x − mean)·rstd·gain + bias (arXiv 1607.06450).
type layerNorm struct {
	norm
	bias *weight
}

func (n layerNorm) forward(c *Call, m matrices) { n.compute(c, m, n.kept(c)) }
func (n layerNorm) again(c *Call, m matrices)   { n.compute(c, m, n.fresh(c, m.work)) }

func (n layerNorm) compute(c *Call, m matrices, stats [2]kernels.Buffer) {
	c.Dev.LayerNormForward(m.y, stats[1], stats[0], m.x, n.gain.of(c), n.bias.of(c), n.rows.In(c.Shape), n.dim, n.eps)
}

func (n layerNorm) backwardInput(c *Call, m matrices) {
	if m.dx.Empty() {
		return
	}
	add, stats := !m.add.Empty(), n.kept(c)
	if add {
		c.Dev.Copy(m.dx, m.add)
	}
	c.Dev.LayerNormBackwardInput(m.dx, m.dy, m.x, stats[1], stats[0], n.gain.of(c), n.rows.In(c.Shape), n.dim, add)
}

func (n layerNorm) backwardWeight(c *Call, m matrices) {
	stats := n.kept(c)
	c.Dev.LayerNormBackwardWeight(n.gain.grad(c), n.bias.grad(c), m.dy, m.x, stats[1], stats[0], n.rows.In(c.Shape), n.dim)
}
