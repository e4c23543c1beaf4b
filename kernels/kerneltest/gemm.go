package kerneltest

import "github.com/pipetrain/pipetrain/kernels"

var gemmCases = []Case{
	{Name: "Gemm/Small", ThreadsMayDiffer: true, bothTypes: true, run: func(c *check) {
		for range 60 {
			checkGemm(c, 1+c.r.IntN(40), 1+c.r.IntN(40), 1+c.r.IntN(40))
		}
	}},
	{Name: "Gemm/Thin", ThreadsMayDiffer: true, bothTypes: true, run: func(c *check) {
		for _, s := range [][3]int{{1, 1, 1}, {1, 300, 5}, {300, 1, 5}, {1, 1, 900}, {2, 513, 3}, {129, 2, 257}} {
			checkGemm(c, s[0], s[1], s[2])
		}
	}},
	{Name: "Gemm/Large", ThreadsMayDiffer: true, bothTypes: true, run: func(c *check) {
		for _, s := range [][3]int{{64, 64, 64}, {131, 97, 300}, {64, 400, 64}, {310, 49, 270}} {
			checkGemm(c, s[0], s[1], s[2])
		}
	}},
	{Name: "Gemm/Deep", ThreadsMayDiffer: true, bothTypes: true, run: func(c *check) {
		for _, s := range [][3]int{{3, 5, 2500}, {2, 9, 4099}} {
			checkGemm(c, s[0], s[1], s[2])
		}
	}},
	{Name: "Gemm/Empty", bothTypes: true, run: func(c *check) {
		// k = 0 leaves beta·C; a product without rows or columns touches nothing.
		c.begin("k = 0")
		out := c.inOutT("C", c.normal(12, 1))
		c.d.Gemm(false, false, 3, 4, 0, 1, out.buf.Slice(0, 0), 1, out.buf.Slice(0, 0), 4, 2, out.buf, 4)
		want := wide(out.data)
		for i := range want {
			want[i] *= 2
		}
		c.equal(out, want, tolerance{})
		c.d.Gemm(false, false, 0, 4, 3, 1, out.buf.Slice(0, 0), 3, out.buf.Slice(0, 12), 4, 0, out.buf, 4)
		c.equal(out, want, tolerance{})
		c.end()
	}},
}

// checkGemm tries all transposes with random strides and factors.
func checkGemm(c *check, m, n, k int) {
	factors := []float64{0, 1, -0.5, 2}
	for t := range 4 {
		ta, tb := t&1 != 0, t&2 != 0
		ar, ac, br, bc := m, k, k, n
		if ta {
			ar, ac = k, m
		}
		if tb {
			br, bc = n, k
		}
		lda, ldb, ldc := ac+c.r.IntN(2)*c.r.IntN(9), bc+c.r.IntN(2)*c.r.IntN(9), n+c.r.IntN(2)*c.r.IntN(9)
		alpha, beta := factors[1+c.r.IntN(3)], factors[c.r.IntN(4)]
		c.begin("m %d n %d k %d transA %v transB %v lda %d ldb %d ldc %d alpha %g beta %g", m, n, k, ta, tb, lda, ldb, ldc, alpha, beta)
		// The last row ends with its columns: nothing may be read or written after it.
		a, b := c.inT("A", c.strided(ar, ac, lda)), c.inT("B", c.strided(br, bc, ldb))
		// Weight gradients add up in f32 whatever the operands are.
		ct := kernels.F32
		if c.t != ct && c.r.IntN(2) == 0 {
			ct = c.t
		}
		values := poisoned((m-1)*ldc + n)
		if beta != 0 {
			values = c.strided(m, n, ldc)
		}
		out := c.put("C", values, ct, output)
		c.d.Gemm(ta, tb, m, n, k, float32(alpha), a.buf, lda, b.buf, ldb, float32(beta), out.buf, ldc)
		want := c.once("C", func() []float64 {
			want := make([]float64, m*n)
			for i := range m {
				for j := range n {
					s := 0.0
					for l := range k {
						ai, bi := i*lda+l, l*ldb+j
						if ta {
							ai = l*lda + i
						}
						if tb {
							bi = j*ldb + l
						}
						s += float64(a.data[ai]) * float64(b.data[bi])
					}
					want[i*n+j] = alpha * s
					if beta != 0 {
						want[i*n+j] += beta * float64(out.data[i*ldc+j])
					}
				}
			}
			return want
		})
		c.compare(out, want, m, n, ldc, tolerance{2e-6 * float64(8+k), 1e-5})
		c.end()
	}
}

// strided returns a random rows × cols matrix with NaN between its rows.
func (c *check) strided(rows, cols, ld int) []float32 {
	v := c.normal((rows-1)*ld+cols, 0.5)
	for i := range rows - 1 {
		for j := cols; j < ld; j++ {
			v[i*ld+j] = poison
		}
	}
	return v
}
