package schedule

import (
	"fmt"
	"slices"
)

// chimera runs two pipelines over the same ranks in opposite directions, each
// with its own copy of the weights: rank r holds stage r for the micro-batches
// that go down and stage p-1-r for those that go up (Chimera, arXiv 2107.06925). Each
// direction runs units of p/2 micro-batches in 1F1B order; the two orders merge by
// time step, one filling the other's gaps. Units follow each other 2p steps
// apart. The first half of the micro-batches goes down, the second up; the two
// copies' gradients are added at the end of the step.
var chimera = builder{
	Info: Info{
		Name:            "chimera",
		Summary:         "two pipelines in opposite directions, two copies of the weights: about half of 1F1B's bubble",
		Source:          "Chimera, arXiv 2107.06925",
		DefaultChunks:   1,
		Bidirectional:   true,
		Rule:            "an even number of ranks and of micro-batches",
		MinMicrobatches: func(int, int) int { return 2 },
	},
	valid: func(c Config) string {
		if c.Ranks%2 != 0 || c.Microbatches%2 != 0 {
			return fmt.Sprintf("ranks and micro-batches must be even, not %d and %d", c.Ranks, c.Microbatches)
		}
		return ""
	},
	build: func(c Config) *Schedule {
		s := newSchedule(c)
		s.placeBothWays()
		p, half := c.Ranks, c.Microbatches/2
		// The steps of one direction alone, all ops one step long.
		unit := p / 2
		alone := oneFOneB.build(Config{Ranks: p, Microbatches: unit, Chunks: 1})
		t, err := Simulate(alone, cellCosts{})
		if err != nil {
			panic("chimera: " + err.Error()) // 1F1B always runs
		}
		steps := t.byRank()
		type timed struct {
			step, unit int
			op         Op
		}
		for r := range p {
			var ops []timed
			for direction, stage := range []int{r, p - 1 - r} {
				for u := 0; u*unit < half; u++ {
					for _, e := range steps[stage] {
						if k := u*unit + e.Op.First; k < half {
							ops = append(ops, timed{int(e.Start) + 2*p*u, u, op(stage, e.Op.Kind, direction*half+k)})
						}
					}
				}
			}
			slices.SortStableFunc(ops, func(a, b timed) int {
				if a.step != b.step {
					return a.step - b.step
				}
				return a.unit - b.unit
			})
			for _, o := range ops {
				s.Programs[r] = append(s.Programs[r], o.op)
			}
		}
		return s
	},
}
