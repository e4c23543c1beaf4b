package kerneltest

import (
	"encoding/binary"
	"math"

	"github.com/pipetrain/pipetrain/kernels"
)

var optimizerCases = []Case{
	{Name: "StepAdamW", bothTypes: true, run: func(c *check) {
		for _, n := range lengths {
			p := kernels.AdamW{LR: 0.01, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1, GradScale: 0.5}
			c.begin("%d elements", n)
			w, m, v := c.inOut("w", c.normal(n, 1)), c.inOut("m", make([]float32, n)), c.inOut("v", make([]float32, n))
			low := c.low(n)
			vw, vm, vv := wide(w.data), make([]float64, n), make([]float64, n)
			for step := 1; step <= 3; step++ {
				p.Step = step
				g := c.in("g", c.normal(n, 1))
				c.d.StepAdamW(w.buf, g.buf, m.buf, v.buf, low.buf, p)
				b1, b2, lr := float64(p.Beta1), float64(p.Beta2), float64(p.LR)
				for i := range n {
					gi := float64(g.data[i]) * float64(p.GradScale)
					vm[i] = b1*vm[i] + (1-b1)*gi
					vv[i] = b2*vv[i] + (1-b2)*gi*gi
					mh, vh := vm[i]/(1-math.Pow(b1, float64(step))), vv[i]/(1-math.Pow(b2, float64(step)))
					vw[i] -= lr*float64(p.WeightDecay)*vw[i] + lr*mh/(math.Sqrt(vh)+float64(p.Eps))
				}
				c.equal(m, vm, tolerance{1e-7, 1e-5})
				c.equal(v, vv, tolerance{1e-8, 1e-5})
				c.equal(w, vw, tolerance{5e-7, 2e-6})
				c.rounded(low, w)
			}
			c.end()
		}
	}},
	{Name: "StepAdamW/ZeroGradient", run: func(c *check) {
		c.begin("g = m = v = 0")
		n := 37
		w, zero := c.inOut("w", c.normal(n, 1)), make([]float32, n)
		g, m, v := c.in("g", zero), c.inOut("m", zero), c.inOut("v", zero)
		c.d.StepAdamW(w.buf, g.buf, m.buf, v.buf, kernels.Buffer{}, kernels.AdamW{LR: 0.5, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Step: 1, GradScale: 1})
		c.equal(w, wide(w.data), tolerance{})
		c.end()
	}},
	{Name: "StepSGD", bothTypes: true, run: func(c *check) {
		for _, n := range lengths {
			for _, momentum := range []float32{0, 0.9} {
				p := kernels.SGD{LR: 0.1, Momentum: momentum, WeightDecay: 0.01, GradScale: 2}
				c.begin("%d elements momentum %g", n, momentum)
				w, low := c.inOut("w", c.normal(n, 1)), c.low(n)
				var b kernels.Buffer
				var ob *operand
				if momentum != 0 {
					ob = c.inOut("b", make([]float32, n))
					b = ob.buf
				}
				vw, vb := wide(w.data), make([]float64, n)
				for range 3 {
					g := c.in("g", c.normal(n, 1))
					c.d.StepSGD(w.buf, g.buf, b, low.buf, p)
					for i := range n {
						vb[i] = float64(momentum)*vb[i] + float64(p.GradScale)*float64(g.data[i]) + float64(p.WeightDecay)*vw[i]
						vw[i] -= float64(p.LR) * vb[i]
					}
					if ob != nil {
						c.equal(ob, vb, tolerance{1e-6, 1e-5})
					}
					c.equal(w, vw, tolerance{1e-6, 1e-5})
					c.rounded(low, w)
				}
				c.end()
			}
		}
	}},
}

// low places the rounded copy of n weights where the case is of bf16, else nothing.
func (c *check) low(n int) *operand {
	if c.t == kernels.BF16 {
		return c.outT("low", n)
	}
	return &operand{}
}

// rounded checks that low, unless empty, is w to the bit as Convert rounds it.
func (c *check) rounded(low, w *operand) {
	if low.buf.Empty() {
		return
	}
	got := c.raw(low.buf)
	for i, x := range c.read(w) {
		if bits, want := binary.NativeEndian.Uint16(got[2*i:]), toBF16(float64(x)); bits != want {
			c.failf("low[%d] = %#04x, want %#04x, of %g", i, bits, want, x)
			return
		}
	}
}
