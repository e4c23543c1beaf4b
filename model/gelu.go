package model

import "github.com/pipetrain/pipetrain/kernels"

// geluMLP is y = gelu(n·Wupᵀ)·Wdownᵀ with the tanh form of GELU, as GPT-2; its
// names are those of Starcoder2, the decoder with rotary position that has it.
type geluMLP struct{ up, down linear }

func (m geluMLP) params(prefix string, in, out Init) [2]Param {
	return [2]Param{
		{Name: prefix + ".mlp.c_fc.weight", Rows: m.up.out, Cols: m.up.in, Init: in, Decay: true},
		{Name: prefix + ".mlp.c_proj.weight", Rows: m.down.out, Cols: m.down.in, Init: out, Decay: true},
	}
}

func (m geluMLP) hidden() int { return m.up.out }
func (m geluMLP) inner() int  { return m.down.in }

func (m geluMLP) forward(d kernels.Ops, y, hidden, act, n kernels.Buffer, in, out kernels.Buffer, rows int) {
	m.up.forward(d, hidden, n, in, rows, false)
	d.GELUForward(act, hidden)
	m.down.forward(d, y, act, out, rows, true)
}

func (m geluMLP) backwardInput(d kernels.Ops, dn, hidden, dact, dy kernels.Buffer, in, out kernels.Buffer, rows int) {
	m.down.backwardInput(d, dact, dy, out, rows)
	d.GELUBackward(hidden, dact, hidden)
	m.up.backwardInput(d, dn, hidden, in, rows)
}

func (m geluMLP) backwardWeight(d kernels.Ops, in, out kernels.Buffer, dy, act, hidden, n kernels.Buffer, rows int) {
	m.down.backwardWeight(d, out, dy, act, rows)
	m.up.backwardWeight(d, in, hidden, n, rows)
}

func (m geluMLP) flops(rows int) int64 { return m.up.flops(rows) + m.down.flops(rows) }
