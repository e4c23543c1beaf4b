package schedule

// pipeDream is asynchronous 1F1B (PipeDream, SOSP 2019, arXiv 1806.03377): after
// each backward the stage's weights are updated, and the next forward uses
// the newest. A backward uses the weights of its own forward, which are kept
// (weight stashing), at most p-r versions on rank r. There is no flush between the
// m micro-batches of the program, each of which is a batch of its own.
var pipeDream = builder{
	Info: Info{
		Name:          "pipedream",
		Summary:       "asynchronous 1F1B: an update after every micro-batch, backward with the forward's weights (stashing)",
		Source:        "PipeDream, arXiv 1806.03377",
		DefaultChunks: 1,
		Async:         true,
		Rule:          "any ranks, any micro-batches; m large beside p, for there is a flush after m",
	},
	build: func(c Config) *Schedule {
		s := oneFOneB.build(c)
		s.Async = &Async{Every: 1, Delay: -1}
		return withUpdates(s)
	},
}

// pipeDream2BW is asynchronous 1F1B with two versions of the weights
// (PipeDream-2BW, arXiv 2006.09503): the gradients of p micro-batches are
// added up before an update, and all stages use the version one update back, so
// that the step is w(t+1) = w(t) - lr * gradient(w(t-1)) everywhere.
var pipeDream2BW = builder{
	Info: Info{
		Name:            "pipedream-2bw",
		Summary:         "asynchronous 1F1B with two weight versions: an update every p micro-batches, gradients one update old",
		Source:          "PipeDream-2BW, arXiv 2006.09503",
		DefaultChunks:   1,
		Async:           true,
		Rule:            "micro-batches divisible by the ranks; m large beside p, for there is a flush after m",
		MinMicrobatches: func(ranks, _ int) int { return ranks },
	},
	valid: func(c Config) string {
		if c.Microbatches%c.Ranks != 0 {
			return "the micro-batches must be divisible by the ranks: an update covers as many as there are ranks"
		}
		return ""
	},
	build: func(c Config) *Schedule {
		s := oneFOneB.build(c)
		s.Async = &Async{Every: c.Ranks, Delay: 1}
		return withUpdates(s)
	},
}

// withUpdates adds an Update after each Every backwards of a stage.
func withUpdates(s *Schedule) *Schedule {
	for r, program := range s.Programs {
		var out []Op
		for _, o := range program {
			out = append(out, o)
			if n := o.First + 1; o.Kind == Backward && (n%s.Async.Every == 0 || n == s.Microbatches) {
				first := o.First - o.First%s.Async.Every
				out = append(out, Op{Stage: o.Stage, Kind: Update, First: first, Last: o.First})
			}
		}
		s.Programs[r] = out
	}
	return s
}
