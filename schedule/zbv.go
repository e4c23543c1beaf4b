package schedule

// zbV is zero bubble over two chunks a rank laid in a V, rank 0 having the first
// and the last stage (ZB-V, arXiv 2401.10241, section 6): 1F1B's memory, and no gap
// within a rank when the three times are equal. With fewer than 2p-1 micro-batches it is the order
// of 2p-1 with those that are missing left out.
var zbV = builder{
	Info: Info{
		Name:          "zb-v",
		Summary:       "zero bubble over two chunks laid in a V: no gap within a rank at 1F1B's memory when times are equal",
		Source:        "zero bubble, arXiv 2401.10241, section 6",
		DefaultChunks: 2,
		Split:         true,
		Rule:          "any micro-batches; m >= 2p-1 for a full steady state",
	},
	build: func(c Config) *Schedule {
		s := newSchedule(c)
		s.placeV()
		for r := range s.Programs {
			s.Programs[r] = zbVProgram(c, r)
		}
		return s
	},
}

func zbVProgram(c Config, r int) []Op {
	p, m := c.Ranks, max(2*c.Ranks-1, c.Microbatches)
	e := emitter{least: c.Microbatches, stages: [2]int{r, 2*p - 1 - r}}
	for range 2*(p-r) - 1 {
		e.emit(0, Forward)
	}
	for range r {
		e.emit(1, Forward)
		e.emit(0, Forward)
	}
	for range p - r {
		e.emit(1, Forward)
		e.emit(1, BackwardInput)
		e.emit(1, BackwardWeight)
	}
	for e.count(1, Forward) < e.count(0, Forward) || e.count(0, Forward) < m {
		if e.count(0, Forward) < m {
			e.emit(0, Forward)
		}
		e.emit(0, BackwardInput)
		e.emit(0, BackwardWeight)
		e.emit(1, Forward)
		e.emit(1, BackwardInput)
		e.emit(1, BackwardWeight)
	}
	for range r {
		e.emit(0, BackwardInput)
		e.emit(1, BackwardInput)
	}
	for range p - r {
		e.emit(0, BackwardInput)
		e.emit(0, BackwardWeight)
	}
	for _, chunk := range []int{1, 0} {
		for e.count(chunk, BackwardWeight) < e.count(chunk, BackwardInput) {
			e.emit(chunk, BackwardWeight)
		}
	}
	return e.program
}

// emitter writes the program of a rank with two chunks, counting micro-batches by itself.
type emitter struct {
	stages  [2]int
	least   int // micro-batches from here on are left out
	next    [2][Update + 1]int
	program []Op
}

// emit appends the chunk's next op of a kind. A fused Backward counts as I and W.
func (e *emitter) emit(chunk int, k Kind) {
	counted := k
	if k == Backward {
		counted = BackwardInput
		e.next[chunk][BackwardWeight]++
	}
	mb := e.next[chunk][counted]
	e.next[chunk][counted]++
	if mb < e.least {
		e.program = append(e.program, op(e.stages[chunk], k, mb))
	}
}

func (e *emitter) count(chunk int, k Kind) int { return e.next[chunk][k] }
