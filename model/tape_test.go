package model

import "math"

// tape is a reverse-mode automatic differentiation of single float64 numbers:
// slow, tiny, and sharing no formula with the layers, whose gradients it judges.
type tape struct {
	val  []float64
	from [][2]num     // operands; equal to the number itself: none
	part [][2]float64 // partial derivatives by the operands
}

// num is a number on the tape.
type num int32

func (t *tape) push(v float64, a, b num, da, db float64) num {
	t.val = append(t.val, v)
	t.from = append(t.from, [2]num{a, b})
	t.part = append(t.part, [2]float64{da, db})
	return num(len(t.val) - 1)
}

func (t *tape) leaf(v float64) num {
	n := num(len(t.val))
	return t.push(v, n, n, 0, 0)
}

func (t *tape) add(a, b num) num { return t.push(t.val[a]+t.val[b], a, b, 1, 1) }
func (t *tape) sub(a, b num) num { return t.push(t.val[a]-t.val[b], a, b, 1, -1) }
func (t *tape) mul(a, b num) num { return t.push(t.val[a]*t.val[b], a, b, t.val[b], t.val[a]) }
func (t *tape) div(a, b num) num {
	x, y := t.val[a], t.val[b]
	return t.push(x/y, a, b, 1/y, -x/(y*y))
}
func (t *tape) scale(a num, by float64) num { return t.push(t.val[a]*by, a, a, by, 0) }
func (t *tape) plus(a num, c float64) num   { return t.push(t.val[a]+c, a, a, 1, 0) }
func (t *tape) exp(a num) num {
	e := math.Exp(t.val[a])
	return t.push(e, a, a, e, 0)
}
func (t *tape) log(a num) num { return t.push(math.Log(t.val[a]), a, a, 1/t.val[a], 0) }
func (t *tape) sqrt(a num) num {
	s := math.Sqrt(t.val[a])
	return t.push(s, a, a, 0.5/s, 0)
}

func (t *tape) sum(xs []num) num {
	s := t.leaf(0)
	for _, x := range xs {
		s = t.add(s, x)
	}
	return s
}

func (t *tape) dot(a, b []num) num {
	s := t.leaf(0)
	for i := range a {
		s = t.add(s, t.mul(a[i], b[i]))
	}
	return s
}

// gradient returns d(result)/d(every number on the tape).
func (t *tape) gradient(result num) []float64 {
	g := make([]float64, len(t.val))
	g[result] = 1
	for n := result; n >= 0; n-- {
		if g[n] == 0 {
			continue
		}
		for k, op := range t.from[n] {
			if op != n {
				g[op] += g[n] * t.part[n][k]
			}
		}
	}
	return g
}

// mat is a matrix of numbers on the tape.
type mat [][]num

func (t *tape) mat(rows, cols int, v []float64) mat {
	m := make(mat, rows)
	for i := range m {
		m[i] = make([]num, cols)
		for j := range m[i] {
			m[i][j] = t.leaf(v[i*cols+j])
		}
	}
	return m
}

// pick returns the gradients of m's numbers, row by row.
func (m mat) pick(g []float64) []float64 {
	var out []float64
	for _, row := range m {
		for _, n := range row {
			out = append(out, g[n])
		}
	}
	return out
}
