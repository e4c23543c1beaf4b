package kerneltest

import "math"

var layerNormCases = []Case{
	{Name: "LayerNorm/Forward", bothTypes: true, run: func(c *check) {
		eachLayerNorm(c, func(rows, dim int, x, gamma *operand) {
			beta := c.inT("beta", c.normal(dim, 1))
			y, mean, rstd := c.outT("y", rows*dim), c.out("mean", rows), c.out("rstd", rows)
			c.d.LayerNormForward(y.buf, mean.buf, rstd.buf, x.buf, gamma.buf, beta.buf, rows, dim, normEps)
			wy, wm, wr := layerNormForward(wide(x.data), wide(gamma.data), wide(beta.data), rows, dim)
			c.equal(y, wy, layerNormTolerance(dim))
			c.equal(mean, wm, tolerance{1e-5, 1e-6})
			c.equal(rstd, wr, tolerance{0, 2e-5})
		})
	}},
	{Name: "LayerNorm/BackwardInput", bothTypes: true, run: func(c *check) {
		eachLayerNorm(c, func(rows, dim int, x, gamma *operand) {
			vx, vg := wide(x.data), wide(gamma.data)
			none := make([]float64, dim)
			_, wm, wr := layerNormForward(vx, vg, none, rows, dim)
			mean, rstd, dy := c.in("mean", narrow(wm)), c.in("rstd", narrow(wr)), c.inT("dy", c.normal(rows*dim, 1))
			vdy := wide(dy.data)
			want := make([]float64, rows*dim)
			for i := range rows {
				g, n := make([]float64, dim), make([]float64, dim)
				meanG, meanGN := 0.0, 0.0
				for j := range dim {
					g[j] = vg[j] * vdy[i*dim+j]
					n[j] = (vx[i*dim+j] - wm[i]) * wr[i]
					meanG += g[j] / float64(dim)
					meanGN += g[j] * n[j] / float64(dim)
				}
				for j := range dim {
					want[i*dim+j] = wr[i] * (g[j] - meanG - n[j]*meanGN)
				}
			}
			tol := layerNormTolerance(dim)
			dx := c.outT("dx", rows*dim)
			c.d.LayerNormBackwardInput(dx.buf, dy.buf, x.buf, mean.buf, rstd.buf, gamma.buf, rows, dim, false)
			c.equal(dx, want, tol)
			loss := func() float64 {
				y, _, _ := layerNormForward(vx, vg, none, rows, dim)
				return dot(y, vdy)
			}
			// A row of one or two is all mean: its slope is zero but for eps, which
			// differences of large numbers do not resolve.
			if dim > 2 {
				c.slopes(dx, vx, nil, 6, tol, loss)
			}
			sum := c.inOutT("dx, accumulated", c.normal(rows*dim, 1))
			c.d.LayerNormBackwardInput(sum.buf, dy.buf, x.buf, mean.buf, rstd.buf, gamma.buf, rows, dim, true)
			before := wide(sum.data)
			for i := range want {
				want[i] += before[i]
			}
			c.equal(sum, want, tol)
		})
	}},
	{Name: "LayerNorm/BackwardWeight", bothTypes: true, run: func(c *check) {
		eachLayerNorm(c, func(rows, dim int, x, gamma *operand) {
			vx, vg, vb := wide(x.data), wide(gamma.data), make([]float64, dim)
			_, wm, wr := layerNormForward(vx, vg, vb, rows, dim)
			mean, rstd, dy := c.in("mean", narrow(wm)), c.in("rstd", narrow(wr)), c.inT("dy", c.normal(rows*dim, 1))
			vdy := wide(dy.data)
			dg, db := c.inOut("dgamma", c.normal(dim, 1)), c.inOut("dbeta", c.normal(dim, 1))
			c.d.LayerNormBackwardWeight(dg.buf, db.buf, dy.buf, x.buf, mean.buf, rstd.buf, rows, dim)
			tol := layerNormTolerance(dim)
			loss := func() float64 {
				y, _, _ := layerNormForward(vx, vg, vb, rows, dim)
				return dot(y, vdy)
			}
			c.slopes(dg, vg, wide(dg.data), 6, tol, loss)
			c.slopes(db, vb, wide(db.data), 6, tol, loss)
			wantG, wantB := wide(dg.data), wide(db.data)
			for i := range rows {
				for j := range dim {
					wantG[j] += vdy[i*dim+j] * (vx[i*dim+j] - wm[i]) * wr[i]
					wantB[j] += vdy[i*dim+j]
				}
			}
			c.equal(dg, wantG, tol)
			c.equal(db, wantB, tol)
		})
	}},
}

// layerNormTolerance: rows of two numbers may lie so close together that the
// division by their deviation, up to 1/√eps, magnifies the error of their mean.
func layerNormTolerance(dim int) tolerance {
	if dim <= 2 {
		return tolerance{2e-3, 1e-3}
	}
	return tolerance{1e-4, 1e-4}
}

// eachLayerNorm gives rows that lie off zero, as the mean is what tells this norm
// from the other.
func eachLayerNorm(c *check, f func(rows, dim int, x, gamma *operand)) {
	for _, s := range [][2]int{{1, 1}, {4, 2}, {3, 7}, {5, 16}, {130, 64}, {33, 129}, {17, 515}} {
		rows, dim := s[0], s[1]
		c.begin("rows %d dim %d", rows, dim)
		x := c.normal(rows*dim, 1.5)
		for i := range x {
			x[i] += float32(i/dim%5) - 2
		}
		f(rows, dim, c.inT("x", x), c.inT("gamma", c.normal(dim, 1)))
		c.end()
	}
	// Far from zero mean(x²) − mean(x)² has no digit left in f32.
	c.begin("rows 2 dim 96 around 4096")
	x := c.normal(2*96, 1)
	for i := range x {
		x[i] = 4096 + 32*float32(math.Round(float64(x[i])))
	}
	f(2, 96, c.inT("x", x), c.inT("gamma", c.normal(96, 1)))
	c.end()
}

func layerNormForward(x, gamma, beta []float64, rows, dim int) (y, mean, rstd []float64) {
	y, mean, rstd = make([]float64, rows*dim), make([]float64, rows), make([]float64, rows)
	for i := range rows {
		row := x[i*dim : (i+1)*dim]
		for _, v := range row {
			mean[i] += v / float64(dim)
		}
		variance := 0.0
		for _, v := range row {
			variance += (v - mean[i]) * (v - mean[i]) / float64(dim)
		}
		rstd[i] = 1 / math.Sqrt(variance+normEps)
		for j, v := range row {
			y[i*dim+j] = (v-mean[i])*rstd[i]*gamma[j] + beta[j]
		}
	}
	return y, mean, rstd
}
