package schedule

// zbH2 is zero bubble's schedule with twice 1F1B's memory (arXiv 2401.10241): rank
// r runs 2(p-r)-1 forwards ahead, as many as fit before the first gradient
// reaches it, then a backward-p1 and a forward in turn, W lagging 2r behind its I.
// With equal times no rank waits between its first and last op; every rank
// holds at most 2p-1 micro-batches.
var zbH2 = builder{
	Info: Info{
		Name:          "zb-h2",
		Summary:       "zero bubble with twice the memory: no gap within a rank when the three times are equal",
		Source:        "zero bubble, arXiv 2401.10241",
		DefaultChunks: 1,
		Split:         true,
		Rule:          "any micro-batches; m >= 2p-1 for a full steady state",
	},
	build: func(c Config) *Schedule {
		s := newSchedule(c)
		for r := range s.Programs {
			ahead := min(2*(c.Ranks-r)-1, c.Microbatches)
			program := make([]Op, 0, 3*c.Microbatches)
			for k := range ahead {
				program = append(program, op(r, Forward, k))
			}
			for k := range c.Microbatches {
				program = append(program, op(r, Backward, k))
				if k+ahead < c.Microbatches {
					program = append(program, op(r, Forward, k+ahead))
				}
			}
			s.Programs[r] = placeLagged(program, 2*r)
		}
		return s
	},
}
