package schedule

import "fmt"

// hanayo lays the stages in waves: from rank 0 to the last and back, and again
// (Hanayo, SC 2023, arXiv 2308.15762). A wave is two chunks a rank; consecutive stages at a
// turn are on one rank. The order is what ranks find ready step by step, forwards
// of deeper stages first. Up to p micro-batches, backwards go before forwards and all
// ops are one step long, which makes Chimera folded onto one copy of the weights;
// beyond, forwards go first, at most 2p are under way and a backward is two steps,
// which keeps the bubble from growing with m.
var hanayo = builder{
	Info: Info{
		Name:          "hanayo",
		Summary:       "stages in waves over the ranks, backwards first: Chimera's bubble with one copy of the weights",
		Source:        "Hanayo, arXiv 2308.15762",
		Chunks:        true,
		DefaultChunks: 2,
		Rule:          "an even number of chunks, two for each wave",
	},
	valid: func(c Config) string {
		if c.Chunks%2 != 0 {
			return fmt.Sprintf("chunks must be even, two for each wave; not %d", c.Chunks)
		}
		return ""
	},
	build: func(c Config) *Schedule {
		s := newSchedule(c)
		s.placeV()
		var steps Costs = cellCosts{}
		if c.Microbatches > c.Ranks {
			steps = Units()
		}
		l := newLister(s, steps)
		l.fused = true
		l.underWay = 2 * c.Ranks
		for r := range l.rules {
			l.rules[r].forwardFirst = c.Microbatches > c.Ranks
		}
		if _, ok := l.run(); !ok {
			panic("hanayo: the list scheduler stopped") // nothing limits it but underWay
		}
		return s
	},
}
