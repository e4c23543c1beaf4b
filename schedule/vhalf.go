package schedule

// vHalf is the V-shape schedule with half of 1F1B's memory (arXiv 2405.15362):
// one step a rank on the way down, two on the way up.
var vHalf = builder{
	Info: Info{
		Name:          "v-half",
		Summary:       "two chunks in a V with half of 1F1B's activations, and a small bubble",
		Source:        "controllable memory, arXiv 2405.15362",
		DefaultChunks: 2,
		Split:         true,
		Rule:          "any ranks, any micro-batches",
	},
	build: func(c Config) *Schedule { return vShape(c, 1, 2) },
}
