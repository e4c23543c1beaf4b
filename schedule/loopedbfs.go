package schedule

// loopedBFS is the breadth-first looped pipeline (arXiv 2211.05953): each rank
// runs all micro-batches through its first chunk, then through its second, and so on; the
// backwards take the same way back, chunks and micro-batches reversed. Weight
// gradients are thus added from the last micro-batch to the first.
var loopedBFS = builder{
	Info: Info{
		Name:          "looped-bfs",
		Summary:       "breadth first: all micro-batches through one chunk, then the next; the backward reversed",
		Source:        "breadth-first pipeline, arXiv 2211.05953",
		Chunks:        true,
		DefaultChunks: 2,
		Descending:    true,
		Rule:          "any micro-batches; m >= p for a full steady state",
	},
	build: func(c Config) *Schedule {
		s := newSchedule(c)
		for r := range s.Programs {
			program := make([]Op, 0, 2*c.Chunks*c.Microbatches)
			for chunk := range c.Chunks {
				for k := range c.Microbatches {
					program = append(program, op(chunk*c.Ranks+r, Forward, k))
				}
			}
			for i := len(program) - 1; i >= 0; i-- {
				o := program[i]
				program = append(program, op(o.Stage, Backward, o.First))
			}
			s.Programs[r] = program
		}
		return s
	},
}
