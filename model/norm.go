package model

import "github.com/pipetrain/pipetrain/kernels"

// norm is what the normalisations share: rows of dim columns, a gain, and
// statistics, one f32 a row each.
type norm struct {
	rows  Rows
	dim   int
	eps   float32
	gain  *weight
	stats []*slot
}

// newNorm returns the norm of a decoder of cfg. module is its Hugging Face name, mark
// ends the names of its statistics.
func newNorm(l *layer, cfg Config, module, mark string) part {
	n := norm{dim: cfg.Dim, eps: float32(cfg.NormEps), gain: l.param(gain(module, cfg.Dim))}
	n.keep(l, "rstd"+mark)
	if cfg.Norm == NormLayer {
		n.keep(l, "mean"+mark)
		return layerNorm{n, l.bias(bias(module, cfg.Dim))}
	}
	return rmsnorm{n}
}

// keep declares a statistic.
func (n *norm) keep(l *layer, name string) {
	n.stats = append(n.stats, l.slot(name, UntilWeight, Matrix{n.rows, 1, kernels.F32}))
}

// kept returns the statistics of a call, fresh returns scratch for them.
func (n norm) kept(c *Call) (stats [2]kernels.Buffer) {
	for i, s := range n.stats {
		stats[i] = s.of(c)
	}
	return stats
}

func (n norm) fresh(c *Call, work kernels.Buffer) (stats [2]kernels.Buffer) {
	free := space{all: work}
	for i, s := range n.stats {
		stats[i] = free.take(s.Len(c.Shape), kernels.F32)
	}
	return stats
}

func (n norm) againWork(s Shape) int64 {
	var free space
	for _, st := range n.stats {
		free.take(st.Len(s), kernels.F32)
	}
	return free.end
}

func (n norm) work(Pass, kernels.Ops, Shape) int64 { return 0 }
func (n norm) flops(Pass, Shape) int64             { return 0 }

// gain and bias declare a norm's parameters.
func gain(module string, dim int) Param {
	return Param{Name: module + ".weight", Rows: 1, Cols: dim, Vector: true, Init: Init{Value: 1}}
}

func bias(module string, dim int) Param {
	return Param{Name: module + ".bias", Rows: 1, Cols: dim, Vector: true}
}
