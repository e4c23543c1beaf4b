package model

// gelu is y = gelu(x), the tanh form, as in GPT-2.
type gelu struct{ weightless }

func (gelu) forward(c *Call, m matrices)       { c.Dev.GELUForward(m.y, m.x) }
func (gelu) backwardInput(c *Call, m matrices) { c.Dev.GELUBackward(m.dx, m.dy, m.x) }
