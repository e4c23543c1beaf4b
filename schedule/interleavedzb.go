package schedule

// interleavedZB is interleaved 1F1B with split backwards and half the warm-up:
// (v-1)p + (p-1-r) forwards ahead, and W lagging r behind its I (ZB1P over chunks,
// arXiv 2401.10241; PyTorch's ScheduleInterleavedZeroBubble).
var interleavedZB = builder{
	Info: Info{
		Name:          "interleaved-zb",
		Summary:       "interleaved 1F1B with split backwards, W lagging r behind its I",
		Source:        "zero bubble, arXiv 2401.10241; torch.distributed.pipelining",
		Chunks:        true,
		DefaultChunks: 2,
		Split:         true,
		Rule:          "micro-batches divisible by the number of rounds, max(1, m/p rounded down)",
	},
	valid: wholeRounds,
	build: func(c Config) *Schedule {
		s := interleave(c, func(r int) int { return c.Ranks - 1 - r })
		for r, program := range s.Programs {
			s.Programs[r] = placeLagged(program, r)
		}
		return s
	},
}
