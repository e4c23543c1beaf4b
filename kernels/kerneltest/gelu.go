package kerneltest

import "math"

var geluCases = []Case{
	{Name: "GELU/Forward", bothTypes: true, run: func(c *check) {
		eachGELU(c, func(n int, values []float32) {
			x, y := c.inT("x", values), c.outT("y", n)
			c.d.GELUForward(y.buf, x.buf)
			c.equal(y, geluForward(wide(x.data)), geluTolerance)
		})
	}},
	{Name: "GELU/Backward", bothTypes: true, run: func(c *check) {
		eachGELU(c, func(n int, values []float32) {
			x, dy := c.inT("x", values), c.inT("dy", c.normal(n, 1))
			vx, vdy := wide(x.data), wide(dy.data)
			want := make([]float64, n)
			for i, v := range vx {
				t := math.Tanh(geluScale * (v + 0.044715*v*v*v))
				want[i] = vdy[i] * ((1+t)/2 + v/2*(1-t*t)*geluScale*(1+3*0.044715*v*v))
			}
			dx := c.outT("dx", n)
			c.d.GELUBackward(dx.buf, dy.buf, x.buf)
			c.equal(dx, want, geluTolerance)
			inPlace := c.inOutT("dx in place", values)
			c.d.GELUBackward(inPlace.buf, dy.buf, inPlace.buf)
			c.equal(inPlace, want, geluTolerance)
			c.slopes(dx, vx, nil, 6, tolerance{1e-4, 1e-4}, func() float64 { return dot(geluForward(vx), vdy) })
		})
	}},
}

// geluTolerance: where the function is near zero, 1 + tanh has lost its digits in f32.
var geluTolerance = tolerance{2e-6, 2e-5}

const geluScale = 0.7978845608028654 // √(2/π)

func eachGELU(c *check, f func(n int, values []float32)) {
	for _, n := range lengths {
		c.begin("%d elements", n)
		v := c.normal(n, 2)
		// Where exp overflows and underflows.
		copy(v[:n/2], []float32{-300, 300, -10, 10, -5.5, 5.5, 0})
		f(n, v)
		c.end()
	}
}

func geluForward(x []float64) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v / 2 * (1 + math.Tanh(geluScale*(v+0.044715*v*v*v)))
	}
	return y
}
