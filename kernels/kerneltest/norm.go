package kerneltest

import "math"

var normCases = []Case{
	{Name: "RMSNorm/Forward", bothTypes: true, run: func(c *check) {
		eachNorm(c, func(rows, dim int, x, gamma *operand) {
			y, rstd := c.outT("y", rows*dim), c.out("rstd", rows)
			c.d.RMSNormForward(y.buf, rstd.buf, x.buf, gamma.buf, rows, dim, normEps)
			wy, wr := normForward(wide(x.data), wide(gamma.data), rows, dim)
			c.equal(y, wy, tolerance{1e-5, 1e-5})
			c.equal(rstd, wr, tolerance{0, 1e-5})
		})
	}},
	{Name: "RMSNorm/BackwardInput", bothTypes: true, run: func(c *check) {
		eachNorm(c, func(rows, dim int, x, gamma *operand) {
			_, wr := normForward(wide(x.data), wide(gamma.data), rows, dim)
			rstd, dy := c.in("rstd", narrow(wr)), c.inT("dy", c.normal(rows*dim, 1))
			vx, vg, vdy := wide(x.data), wide(gamma.data), wide(dy.data)
			want := make([]float64, rows*dim)
			for i := range rows {
				mean := 0.0
				for j := range dim {
					mean += vg[j] * vdy[i*dim+j] * vx[i*dim+j] / float64(dim)
				}
				r := wr[i]
				for j := range dim {
					want[i*dim+j] = r * (vg[j]*vdy[i*dim+j] - vx[i*dim+j]*r*r*mean)
				}
			}
			tol := tolerance{1e-4, 1e-4}
			dx := c.outT("dx", rows*dim)
			c.d.RMSNormBackwardInput(dx.buf, dy.buf, x.buf, rstd.buf, gamma.buf, rows, dim, false)
			c.equal(dx, want, tol)
			loss := func() float64 {
				y, _ := normForward(vx, vg, rows, dim)
				return dot(y, vdy)
			}
			c.slopes(dx, vx, nil, 6, tol, loss)
			sum := c.inOutT("dx, accumulated", c.normal(rows*dim, 1))
			c.d.RMSNormBackwardInput(sum.buf, dy.buf, x.buf, rstd.buf, gamma.buf, rows, dim, true)
			before := wide(sum.data)
			c.slopes(sum, vx, before, 6, tol, loss)
			for i := range want {
				want[i] += before[i]
			}
			c.equal(sum, want, tol)
		})
	}},
	{Name: "RMSNorm/BackwardWeight", bothTypes: true, run: func(c *check) {
		eachNorm(c, func(rows, dim int, x, gamma *operand) {
			vx, vg := wide(x.data), wide(gamma.data)
			_, wr := normForward(vx, vg, rows, dim)
			rstd, dy := c.in("rstd", narrow(wr)), c.inT("dy", c.normal(rows*dim, 1))
			vdy := wide(dy.data)
			dg := c.inOut("dgamma", c.normal(dim, 1))
			c.d.RMSNormBackwardWeight(dg.buf, dy.buf, x.buf, rstd.buf, rows, dim)
			want := wide(dg.data)
			tol := tolerance{1e-4, 1e-4}
			c.slopes(dg, vg, wide(dg.data), 6, tol, func() float64 {
				y, _ := normForward(vx, vg, rows, dim)
				return dot(y, vdy)
			})
			for i := range rows {
				for j := range dim {
					want[j] += vdy[i*dim+j] * vx[i*dim+j] * wr[i]
				}
			}
			c.equal(dg, want, tol)
		})
	}},
}

const normEps = 1e-5

func eachNorm(c *check, f func(rows, dim int, x, gamma *operand)) {
	for _, s := range [][2]int{{1, 1}, {3, 7}, {5, 16}, {130, 64}, {33, 129}, {17, 515}} {
		c.begin("rows %d dim %d", s[0], s[1])
		f(s[0], s[1], c.inT("x", c.normal(s[0]*s[1], 1.5)), c.inT("gamma", c.normal(s[1], 1)))
		c.end()
	}
}

func normForward(x, gamma []float64, rows, dim int) (y, rstd []float64) {
	y, rstd = make([]float64, rows*dim), make([]float64, rows)
	for i := range rows {
		s := 0.0
		for j := range dim {
			s += x[i*dim+j] * x[i*dim+j]
		}
		rstd[i] = 1 / math.Sqrt(s/float64(dim)+normEps)
		for j := range dim {
			y[i*dim+j] = x[i*dim+j] * rstd[i] * gamma[j]
		}
	}
	return y, rstd
}

func narrow(v []float64) []float32 {
	w := make([]float32, len(v))
	for i, x := range v {
		w[i] = float32(x)
	}
	return w
}

func dot(a, b []float64) float64 {
	s := 0.0
	for i := range a {
		s += a[i] * b[i]
	}
	return s
}
