package kerneltest

import (
	"math"
	"math/cmplx"
)

var rotaryCases = []Case{
	{Name: "Rotary", bothTypes: true, run: func(c *check) {
		for _, s := range []struct{ rows, seq, heads, dim, gap int }{
			{1, 1, 1, 2, 0}, {6, 3, 2, 4, 3}, {40, 20, 3, 64, 64}, {10, 10, 5, 6, 1}, {70, 35, 2, 34, 0}, {300, 300, 1, 16, 5},
		} {
			for _, inverse := range []bool{false, true} {
				theta := 10000.0
				if s.seq == 20 {
					theta = 500
				}
				c.begin("%+v inverse %v theta %g", s, inverse, theta)
				cols := s.heads * s.dim
				ld := cols + s.gap
				x := c.inOutT("x", c.normal((s.rows-1)*ld+cols, 1))
				c.d.Rotary(x.buf, s.rows, s.seq, s.heads, s.dim, ld, float32(theta), inverse)
				want := make([]float64, s.rows*cols)
				for i := range s.rows {
					for h := range s.heads {
						for j := range s.dim / 2 {
							angle := float64(i%s.seq) * math.Pow(theta, -2*float64(j)/float64(s.dim))
							if inverse {
								angle = -angle
							}
							at := i*ld + h*s.dim + j
							z := complex(float64(x.data[at]), float64(x.data[at+s.dim/2])) * cmplx.Exp(complex(0, angle))
							want[i*cols+h*s.dim+j], want[i*cols+h*s.dim+j+s.dim/2] = real(z), imag(z)
						}
					}
				}
				c.compare(x, want, s.rows, cols, ld, tolerance{2e-6, 2e-6})
				c.end()
			}
		}
	}},
}
