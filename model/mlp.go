package model

import "github.com/pipetrain/pipetrain/kernels"

// mlp is the feed-forward part of a block: a Linear into hidden columns, an
// activation down to inner columns, and a Linear back. The hidden matrix is kept
// until backward-p1 turns it into its gradient in place, the inner one is the
// second Linear's input.
type mlp interface {
	// params declares the two matrices; prefix is the block's name.
	params(prefix string, in, out Init) [2]Param
	// hidden and inner are columns.
	hidden() int
	inner() int
	// forward writes hidden and act from n [rows, dim] and adds the result to y [rows, dim].
	forward(d kernels.Ops, y, hidden, act, n kernels.Buffer, in, out kernels.Buffer, rows int)
	// backwardInput writes dn [rows, dim] from dy [rows, dim]; dact [rows, inner] is
	// scratch, hidden becomes its gradient.
	backwardInput(d kernels.Ops, dn, hidden, dact, dy kernels.Buffer, in, out kernels.Buffer, rows int)
	// backwardWeight adds to the two gradients.
	backwardWeight(d kernels.Ops, in, out kernels.Buffer, dy, act, hidden, n kernels.Buffer, rows int)
	// flops of any of the three passes, the products alone.
	flops(rows int) int64
}

// newMLP returns the feed-forward part of a model of cfg.
func newMLP(cfg Config) mlp {
	if cfg.Activation == ActivationGELU {
		return geluMLP{up: linear{cfg.Dim, cfg.FFN}, down: linear{cfg.FFN, cfg.Dim}}
	}
	return swigluMLP{gateUp: linear{cfg.Dim, 2 * cfg.FFN}, down: linear{cfg.FFN, cfg.Dim}}
}
