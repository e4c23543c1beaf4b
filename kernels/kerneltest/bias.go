package kerneltest

import "github.com/pipetrain/pipetrain/kernels"

var biasCases = []Case{
	{Name: "AddBias", bothTypes: true, run: func(c *check) {
		eachBias(c, func(rows, dim int) {
			x, b := c.inOutT("x", c.normal(rows*dim, 1)), c.inT("b", c.normal(dim, 1))
			want := wide(x.data)
			for i := range want {
				want[i] += float64(b.data[i%dim])
			}
			tol := tolerance{0, 1e-7}
			if c.t == kernels.BF16 {
				tol = tolerance{0, 1.0 / 256} // rounded once
			}
			c.d.AddBias(x.buf, b.buf, rows, dim)
			c.equal(x, want, tol)
		})
	}},
	{Name: "AddColumns", bothTypes: true, run: func(c *check) {
		eachBias(c, func(rows, dim int) {
			dy, db := c.inT("dy", c.normal(rows*dim, 1)), c.inOut("dbias", c.normal(dim, 1))
			want := wide(db.data)
			for i, v := range dy.data {
				want[i%dim] += float64(v)
			}
			c.d.AddColumns(db.buf, dy.buf, rows, dim)
			c.equal(db, want, tolerance{1e-4, 1e-5})
		})
	}},
}

func eachBias(c *check, f func(rows, dim int)) {
	for _, s := range [][2]int{{1, 1}, {3, 7}, {5, 16}, {130, 64}, {33, 129}, {17, 515}, {2, 9001}} {
		c.begin("rows %d dim %d", s[0], s[1])
		f(s[0], s[1])
		c.end()
	}
}
