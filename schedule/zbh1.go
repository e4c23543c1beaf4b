package schedule

// zbH1 is zero bubble's handcrafted schedule with 1F1B's memory (arXiv
// 2401.10241): 1F1B with split backwards, where rank r does the W of a micro-batch
// r micro-batches after its I, so that every rank holds at most p.
var zbH1 = builder{
	Info: Info{
		Name:          "zb-h1",
		Summary:       "1F1B with split backwards, W lagging r behind its I; every rank holds at most p micro-batches",
		Source:        "zero bubble, arXiv 2401.10241",
		DefaultChunks: 1,
		Split:         true,
		Rule:          "any micro-batches; m >= p for a full steady state",
	},
	build: func(c Config) *Schedule {
		s := oneFOneB.build(c)
		for r, program := range s.Programs {
			s.Programs[r] = placeLagged(program, r)
		}
		return s
	},
}

// placeLagged splits the backwards of a program and places each W `lag` backwards
// behind its I.
func placeLagged(program []Op, lag int) []Op {
	return place(program, lag, Policy{Placement: PlaceLagged, Concat: 1})
}
