package schedule

// vMin is the V-shape schedule with the least memory (arXiv 2405.15362): every op
// follows its input by one step. Ranks hold about p/3 micro-batches, a third of 1F1B's.
var vMin = builder{
	Info: Info{
		Name:          "v-min",
		Summary:       "two chunks in a V with a third of 1F1B's activations, at a larger bubble",
		Source:        "controllable memory, arXiv 2405.15362",
		DefaultChunks: 2,
		Split:         true,
		Rule:          "any ranks, any micro-batches",
	},
	build: func(c Config) *Schedule { return vShape(c, 1, 1) },
}
