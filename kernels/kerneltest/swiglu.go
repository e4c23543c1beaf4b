package kerneltest

import "math"

var swigluCases = []Case{
	{Name: "SwiGLU/Forward", bothTypes: true, run: func(c *check) {
		eachSwiGLU(c, func(rows, ffn int, values []float32) {
			gu, y := c.inT("gu", values), c.outT("y", rows*ffn)
			c.d.SwiGLUForward(y.buf, gu.buf, rows, ffn)
			c.equal(y, swigluForward(wide(gu.data), rows, ffn), tolerance{1e-6, 1e-5})
		})
	}},
	{Name: "SwiGLU/Backward", bothTypes: true, run: func(c *check) {
		eachSwiGLU(c, func(rows, ffn int, values []float32) {
			gu, dy := c.inT("gu", values), c.inT("dy", c.normal(rows*ffn, 1))
			vgu, vdy := wide(gu.data), wide(dy.data)
			want := make([]float64, 2*rows*ffn)
			for i := range rows {
				for j := range ffn {
					g, u, d := vgu[i*2*ffn+j], vgu[i*2*ffn+ffn+j], vdy[i*ffn+j]
					s := 1 / (1 + math.Exp(-g))
					want[i*2*ffn+j] = d * u * (s + g*s*(1-s))
					want[i*2*ffn+ffn+j] = d * g * s
				}
			}
			tol := tolerance{2e-6, 2e-5}
			dgu := c.outT("dgu", 2*rows*ffn)
			c.d.SwiGLUBackward(dgu.buf, dy.buf, gu.buf, rows, ffn)
			c.equal(dgu, want, tol)
			inPlace := c.inOutT("dgu in place", values)
			c.d.SwiGLUBackward(inPlace.buf, dy.buf, inPlace.buf, rows, ffn)
			c.equal(inPlace, want, tol)
			c.slopes(dgu, vgu, nil, 6, tolerance{1e-4, 1e-4}, func() float64 { return dot(swigluForward(vgu, rows, ffn), vdy) })
		})
	}},
}

func eachSwiGLU(c *check, f func(rows, ffn int, values []float32)) {
	for _, s := range [][2]int{{1, 1}, {3, 5}, {2, 16}, {65, 130}, {9, 1027}} {
		c.begin("rows %d ffn %d", s[0], s[1])
		v := c.normal(2*s[0]*s[1], 2)
		// Gates at which exp overflows and underflows.
		extreme := []float32{-200, 200, -88, 88, -90, 0}
		for i := range min(len(extreme), s[1]-1) {
			v[i] = extreme[i]
		}
		f(s[0], s[1], v)
		c.end()
	}
}

func swigluForward(gu []float64, rows, ffn int) []float64 {
	y := make([]float64, rows*ffn)
	for i := range rows {
		for j := range ffn {
			g, u := gu[i*2*ffn+j], gu[i*2*ffn+ffn+j]
			y[i*ffn+j] = g / (1 + math.Exp(-g)) * u
		}
	}
	return y
}
