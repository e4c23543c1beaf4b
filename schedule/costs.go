package schedule

// Costs says how long ops take, in seconds or in any unit. The times must not be negative.
type Costs interface {
	// Compute returns the time of F, I, W (of op.Microbatches() at once), B,
	// REDUCE_GRAD or UPDATE.
	Compute(op Op) float64
	// Transfer returns the time that the tensor of a SEND_F or SEND_B is under way
	// between two different ranks.
	Transfer(send Op, from, to int) float64
}

// StageCosts are costs by stage: each slice has one entry for every stage, or a
// single one for all, or none, which means 0.
type StageCosts struct {
	F, I, W []float64 // of one micro-batch
	// B is the fused backward; none: I + W.
	B []float64
	// WExtra is what each further micro-batch adds to a concatenated W; none: W,
	// that is, concatenation saves nothing.
	WExtra       []float64
	SendF, SendB []float64 // by the sending stage
	Reduce       []float64
	Update       []float64
}

// Uniform returns costs equal on all stages, without transfers or reductions.
func Uniform(f, i, w float64) StageCosts {
	return StageCosts{F: []float64{f}, I: []float64{i}, W: []float64{w}}
}

// Units are the unit costs tF = tI = tW = 1.
func Units() StageCosts { return Uniform(1, 1, 1) }

func at(times []float64, stage int) float64 {
	switch {
	case len(times) == 0:
		return 0
	case len(times) == 1:
		return times[0]
	}
	return times[stage]
}

// Compute implements Costs.
func (c StageCosts) Compute(op Op) float64 {
	switch op.Kind {
	case Forward:
		return at(c.F, op.Stage)
	case BackwardInput:
		return at(c.I, op.Stage)
	case BackwardWeight:
		extra := c.WExtra
		if len(extra) == 0 {
			extra = c.W
		}
		return at(c.W, op.Stage) + float64(op.Last-op.First)*at(extra, op.Stage)
	case Backward:
		if len(c.B) == 0 {
			return at(c.I, op.Stage) + at(c.W, op.Stage)
		}
		return at(c.B, op.Stage)
	case ReduceGrad:
		return at(c.Reduce, op.Stage)
	case Update:
		return at(c.Update, op.Stage)
	}
	return 0
}

// Transfer implements Costs.
func (c StageCosts) Transfer(send Op, _, _ int) float64 {
	if send.Kind == SendF {
		return at(c.SendF, send.Stage)
	}
	return at(c.SendB, send.Stage)
}
