package model

// swiglu is y = silu(gate)·up (arXiv 2002.05202); x has both side by side, gate first.
type swiglu struct {
	weightless
	rows Rows
	ffn  int
}

func (a swiglu) forward(c *Call, m matrices) {
	c.Dev.SwiGLUForward(m.y, m.x, a.rows.In(c.Shape), a.ffn)
}

func (a swiglu) backwardInput(c *Call, m matrices) {
	c.Dev.SwiGLUBackward(m.dx, m.dy, m.x, a.rows.In(c.Shape), a.ffn)
}
