package schedule

// gpipe runs all forwards, then all backwards (GPipe, arXiv 1811.06965). The
// backwards go in micro-batch order, not reversed as in the paper's figure, so
// that weight gradients are added in the order that all other schedules have.
var gpipe = builder{
	Info: Info{
		Name:          "gpipe",
		Summary:       "all forwards, then all backwards",
		Source:        "GPipe, arXiv 1811.06965",
		DefaultChunks: 1,
		Rule:          "any ranks, any micro-batches",
	},
	build: func(c Config) *Schedule {
		s := newSchedule(c)
		for r := range s.Programs {
			program := make([]Op, 0, 2*c.Microbatches)
			for k := range c.Microbatches {
				program = append(program, op(r, Forward, k))
			}
			for k := range c.Microbatches {
				program = append(program, op(r, Backward, k))
			}
			s.Programs[r] = program
		}
		return s
	},
}
