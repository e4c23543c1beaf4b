package schedule

import "fmt"

// interleaved is 1F1B over v chunks a rank, stage s on rank s mod p
// (Megatron-LM, arXiv 2104.04473). Rank r runs (v-1)p + 2(p-1-r) forwards ahead,
// then one forward and one backward in turn. Micro-batches go in rounds of p: a round passes
// through all chunks before the next starts. As in PyTorch, a round may be
// longer than p, so that any m divisible by max(1, m/p) works.
var interleaved = builder{
	Info: Info{
		Name:          "interleaved",
		Summary:       "1F1B over several chunks a rank: a smaller bubble, more transfers",
		Source:        "Megatron-LM, arXiv 2104.04473",
		Chunks:        true,
		DefaultChunks: 2,
		Rule:          "micro-batches divisible by the number of rounds, max(1, m/p rounded down)",
	},
	valid: wholeRounds,
	build: func(c Config) *Schedule {
		return interleave(c, func(r int) int { return 2 * (c.Ranks - 1 - r) })
	},
}

// wholeRounds says whether micro-batches fall into rounds of equal length.
func wholeRounds(c Config) string {
	if rounds := max(1, c.Microbatches/c.Ranks); c.Microbatches%rounds != 0 {
		return fmt.Sprintf("%d micro-batches do not fall into %d equal rounds of at least %d; take a multiple of %d",
			c.Microbatches, rounds, c.Ranks, c.Ranks)
	}
	return ""
}

// interleave emits the interleaved order with fused backwards: rank r runs the
// first round's forwards of all chunks but the last, and ahead(r) more, before its first backward.
func interleave(c Config, ahead func(r int) int) *Schedule {
	s := newSchedule(c)
	round := c.Microbatches / max(1, c.Microbatches/c.Ranks)
	all := c.Microbatches * c.Chunks
	// The i-th op of a kind on a rank: rounds, then chunks, then micro-batches.
	nth := func(i int) (chunk, microbatch int) {
		return i / round % c.Chunks, i/(round*c.Chunks)*round + i%round
	}
	for r := range s.Programs {
		warmup := min((c.Chunks-1)*round+ahead(r), all)
		program := make([]Op, 0, 2*all)
		for i := range all + warmup {
			if i < all {
				chunk, k := nth(i)
				program = append(program, op(chunk*c.Ranks+r, Forward, k))
			}
			if i >= warmup {
				chunk, k := nth(i - warmup)
				program = append(program, op((c.Chunks-1-chunk)*c.Ranks+r, Backward, k))
			}
		}
		s.Programs[r] = program
	}
	return s
}
