package schedule

// naive is model parallelism without pipelining: each micro-batch goes forward
// and backward through all ranks before the next starts. With one micro-batch
// it is the naive schedule of 2BP (arXiv 2405.18047, fig. 1).
var naive = builder{
	Info: Info{
		Name:          "naive",
		Summary:       "one micro-batch at a time: forward through all ranks, then backward",
		Source:        "2BP, arXiv 2405.18047",
		DefaultChunks: 1,
		Rule:          "any ranks, any micro-batches",
	},
	build: func(c Config) *Schedule {
		s := newSchedule(c)
		for r := range s.Programs {
			for k := range c.Microbatches {
				s.Programs[r] = append(s.Programs[r], op(r, Forward, k), op(r, Backward, k))
			}
		}
		return s
	},
}
