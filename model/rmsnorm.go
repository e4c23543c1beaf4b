package model

import "github.com/pipetrain/pipetrain/kernels"

// rmsnorm is y = x · rstd · gain (arXiv 1910.07467).
type rmsnorm struct{ norm }

func (n rmsnorm) forward(c *Call, m matrices) { n.compute(c, m, n.kept(c)) }
func (n rmsnorm) again(c *Call, m matrices)   { n.compute(c, m, n.fresh(c, m.work)) }

func (n rmsnorm) compute(c *Call, m matrices, stats [2]kernels.Buffer) {
	c.Dev.RMSNormForward(m.y, stats[0], m.x, n.gain.of(c), n.rows.In(c.Shape), n.dim, n.eps)
}

func (n rmsnorm) backwardInput(c *Call, m matrices) {
	if m.dx.Empty() {
		return
	}
	add := !m.add.Empty()
	if add {
		c.Dev.Copy(m.dx, m.add)
	}
	c.Dev.RMSNormBackwardInput(m.dx, m.dy, m.x, n.kept(c)[0], n.gain.of(c), n.rows.In(c.Shape), n.dim, add)
}

func (n rmsnorm) backwardWeight(c *Call, m matrices) {
	c.Dev.RMSNormBackwardWeight(n.gain.grad(c), m.dy, m.x, n.kept(c)[0], n.rows.In(c.Shape), n.dim)
}
