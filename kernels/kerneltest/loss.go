package kerneltest

import "math"

var lossCases = []Case{
	{Name: "CrossEntropy/Forward", bothTypes: true, run: func(c *check) {
		eachLoss(c, func(rows, vocab int, values []float32, targets *operand) {
			logits := c.inT("logits", values)
			loss, lse := c.out("loss", rows), c.out("lse", rows)
			c.d.CrossEntropyForward(loss.buf, lse.buf, logits.buf, targets.buf, rows, vocab)
			wl, we := lossForward(wide(logits.data), ints(targets), rows, vocab)
			c.equal(loss, wl, tolerance{2e-5, 1e-5})
			c.equal(lse, we, tolerance{1e-6, 2e-6})
		})
	}},
	{Name: "CrossEntropy/Backward", bothTypes: true, run: func(c *check) {
		eachLoss(c, func(rows, vocab int, values []float32, targets *operand) {
			const scale = 0.125
			logits := c.inT("logits", values)
			v := wide(logits.data)
			_, we := lossForward(v, ints(targets), rows, vocab)
			lse := c.in("lse", narrow(we))
			want := make([]float64, rows*vocab)
			for i := range rows {
				for j := range vocab {
					want[i*vocab+j] = math.Exp(v[i*vocab+j]-we[i]) * scale
				}
				want[i*vocab+int(ints(targets)[i])] -= scale
			}
			tol := tolerance{2e-6, 2e-5}
			d := c.outT("dlogits", rows*vocab)
			c.d.CrossEntropyBackward(d.buf, logits.buf, lse.buf, targets.buf, rows, vocab, scale)
			c.equal(d, want, tol)
			inPlace := c.inOutT("dlogits in place", values)
			c.d.CrossEntropyBackward(inPlace.buf, inPlace.buf, lse.buf, targets.buf, rows, vocab, scale)
			c.equal(inPlace, want, tol)
			c.slopes(d, v, nil, 6, tolerance{1e-4, 1e-4}, func() float64 {
				l, _ := lossForward(v, ints(targets), rows, vocab)
				s := 0.0
				for _, x := range l {
					s += x * scale
				}
				return s
			})
		})
	}},
}

func eachLoss(c *check, f func(rows, vocab int, values []float32, targets *operand)) {
	for _, s := range [][2]int{{1, 1}, {3, 5}, {4, 16}, {70, 256}, {9, 1003}} {
		for _, scale := range []float64{1, 40} { // 40: beyond exp's range without the maximum taken off
			c.begin("rows %d vocab %d scale %g", s[0], s[1], scale)
			f(s[0], s[1], c.normal(s[0]*s[1], scale), c.ids("targets", c.tokens(s[0], s[1])))
			c.end()
		}
	}
}

func lossForward(x []float64, targets []int32, rows, vocab int) (loss, lse []float64) {
	loss, lse = make([]float64, rows), make([]float64, rows)
	for i := range rows {
		row := x[i*vocab : (i+1)*vocab]
		m := math.Inf(-1)
		for _, v := range row {
			m = max(m, v)
		}
		s := 0.0
		for _, v := range row {
			s += math.Exp(v - m)
		}
		lse[i] = m + math.Log(s)
		loss[i] = lse[i] - row[targets[i]]
	}
	return loss, lse
}
