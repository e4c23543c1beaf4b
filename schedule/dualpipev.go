package schedule

// dualPipeV is DualPipe cut in half (DeepSeek-V3, arXiv 2412.19437;
// github.com/deepseek-ai/DualPipe): p ranks, two chunks each laid in a V, in eight
// phases. Where the original runs a forward and a backward overlapped, as one op, the forward
// comes first here. Its backwards are fused, except where a split one shortens the bubble.
var dualPipeV = builder{
	Info: Info{
		Name:            "dualpipe-v",
		Summary:         "DualPipe's eight phases over a V of two chunks a rank; forwards beside backwards",
		Source:          "DeepSeek-V3, arXiv 2412.19437; deepseek-ai/DualPipe",
		DefaultChunks:   2,
		Split:           true,
		Rule:            "at least 2p micro-batches",
		MinMicrobatches: func(ranks, _ int) int { return 2 * ranks },
	},
	build: func(c Config) *Schedule {
		s := newSchedule(c)
		s.placeV()
		for r := range s.Programs {
			s.Programs[r] = dualPipeVProgram(c, r)
		}
		return s
	},
}

func dualPipeVProgram(c Config, r int) []Op {
	p, m := c.Ranks, c.Microbatches
	e := emitter{least: m, stages: [2]int{r, 2*p - 1 - r}}
	type split struct{ chunk, microbatch int }
	var waiting []split // split I whose W has not come
	backwardInput := func(chunk int) {
		waiting = append(waiting, split{chunk, e.count(chunk, BackwardInput)})
		e.emit(chunk, BackwardInput)
	}
	weight := func() {
		if len(waiting) > 0 {
			w := waiting[0]
			waiting = waiting[1:]
			e.program = append(e.program, op(e.stages[w.chunk], BackwardWeight, w.microbatch))
		}
	}
	for range 2 * (p - 1 - r) { // 1: forwards of the first chunk
		e.emit(0, Forward)
	}
	for range r + 1 { // 2: forwards of both
		e.emit(0, Forward)
		e.emit(1, Forward)
	}
	for range p - 1 - r { // 3: the second chunk's first backwards, split
		backwardInput(1)
		weight()
		e.emit(1, Forward)
	}
	for range m - 2*p + r + 1 { // 4: steady state
		e.emit(0, Forward)
		e.emit(1, Backward)
		e.emit(1, Forward)
		e.emit(0, Backward)
	}
	for range p - 1 - r { // 5: no forwards of the first chunk are left
		e.emit(1, Backward)
		e.emit(1, Forward)
		e.emit(0, Backward)
	}
	// 6: backwards of both; those of the second half are split, so that their
	// gradients reach the next ranks sooner.
	backward := func(chunk int, splitIt bool) {
		if splitIt {
			backwardInput(chunk)
		} else {
			e.emit(chunk, Backward)
		}
	}
	half := (r + 1) / 2
	for i := range r + 1 {
		backward(1, i > half || i == half && r%2 == 1)
		backward(0, i >= half)
	}
	for range p - 1 - r { // 7: backwards of the first chunk
		weight()
		backwardInput(0)
	}
	for range r + 1 { // 8: weights
		weight()
	}
	return e.program
}
