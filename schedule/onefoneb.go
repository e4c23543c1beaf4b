package schedule

// oneFOneB is one-forward-one-backward with a flush (PipeDream-Flush, arXiv
// 2006.09503; DAPPLE, arXiv 2007.01045): rank r runs p-1-r forwards ahead, then a
// forward and a backward in turn, then the backwards that are left. At most
// p-r micro-batches are alive on rank r.
var oneFOneB = builder{
	Info: Info{
		Name:          "1f1b",
		Summary:       "one forward, one backward in turn; rank r holds at most p-r micro-batches",
		Source:        "PipeDream-Flush, arXiv 2006.09503; DAPPLE, arXiv 2007.01045",
		DefaultChunks: 1,
		Rule:          "any ranks, any micro-batches; m >= p for a full steady state",
	},
	build: func(c Config) *Schedule {
		s := newSchedule(c)
		for r := range s.Programs {
			program := make([]Op, 0, 2*c.Microbatches)
			ahead := min(c.Ranks-1-r, c.Microbatches)
			for k := range ahead {
				program = append(program, op(r, Forward, k))
			}
			for k := ahead; k < c.Microbatches; k++ {
				program = append(program, op(r, Forward, k), op(r, Backward, k-ahead))
			}
			for k := c.Microbatches - ahead; k < c.Microbatches; k++ {
				program = append(program, op(r, Backward, k))
			}
			s.Programs[r] = program
		}
		return s
	},
}
