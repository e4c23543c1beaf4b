package model

import "github.com/pipetrain/pipetrain/kernels"

// swigluMLP is y = (silu(n·Wgᵀ) · (n·Wuᵀ))·Wdownᵀ (arXiv 2002.05202); gate and up
// are one matrix, gate first.
type swigluMLP struct{ gateUp, down linear }

func (m swigluMLP) params(prefix string, in, out Init) [2]Param {
	ffn, dim := m.down.in, m.down.out
	p := prefix + ".mlp"
	return [2]Param{
		{Name: p + ".gate_up_proj.weight", Rows: 2 * ffn, Cols: dim, Init: in, Decay: true, Parts: []Part{
			{p + ".gate_proj.weight", ffn}, {p + ".up_proj.weight", ffn}}},
		{Name: p + ".down_proj.weight", Rows: dim, Cols: ffn, Init: out, Decay: true},
	}
}

func (m swigluMLP) hidden() int { return m.gateUp.out }
func (m swigluMLP) inner() int  { return m.down.in }

func (m swigluMLP) forward(d kernels.Ops, y, hidden, act, n kernels.Buffer, in, out kernels.Buffer, rows int) {
	m.gateUp.forward(d, hidden, n, in, rows, false)
	d.SwiGLUForward(act, hidden, rows, m.down.in)
	m.down.forward(d, y, act, out, rows, true)
}

func (m swigluMLP) backwardInput(d kernels.Ops, dn, hidden, dact, dy kernels.Buffer, in, out kernels.Buffer, rows int) {
	m.down.backwardInput(d, dact, dy, out, rows)
	d.SwiGLUBackward(hidden, dact, hidden, rows, m.down.in)
	m.gateUp.backwardInput(d, dn, hidden, in, rows)
}

func (m swigluMLP) backwardWeight(d kernels.Ops, in, out kernels.Buffer, dy, act, hidden, n kernels.Buffer, rows int) {
	m.down.backwardWeight(d, out, dy, act, rows)
	m.gateUp.backwardWeight(d, in, hidden, n, rows)
}

func (m swigluMLP) flops(rows int) int64 { return m.gateUp.flops(rows) + m.down.flops(rows) }
