package schedule

import (
	"math/bits"
	"slices"
)

// The V-shape schedules repeat one building block: the times of a micro-batch's
// six ops on every rank, in steps of one op, for two chunks laid in a V; the next
// micro-batch has the same times six steps later (controllable memory, arXiv
// 2405.15362). How long activations live in the block decides the
// memory; that no two ops of a rank fall on the same step modulo six makes it repeat without a gap.
//
// Forwards go down through the first chunks at `down` steps a rank and up through the
// second at `up`; backward-p1 goes down through the second chunks at `down`
// and up through the first at `up`.
func vShape(c Config, down, up int) *Schedule {
	s := newSchedule(c)
	s.placeV()
	p := c.Ranks
	turns := vTurns(p, down, up)
	for r := range p {
		b := vBlock(p, r, down, up, turns)
		type timed struct {
			time int
			op   Op
		}
		ops := make([]timed, 0, 6*c.Microbatches)
		for k := range c.Microbatches {
			for i, t := range b {
				stage, kind := r, vOps[i].kind
				if vOps[i].chunk == 1 {
					stage = 2*p - 1 - r
				}
				ops = append(ops, timed{t + 6*k, op(stage, kind, k)})
			}
		}
		slices.SortFunc(ops, func(a, b timed) int { return a.time - b.time })
		for _, o := range ops {
			s.Programs[r] = append(s.Programs[r], o.op)
		}
	}
	return s
}

// vOps are the six ops of a block.
var vOps = [6]struct {
	chunk int
	kind  Kind
}{{0, Forward}, {1, Forward}, {1, BackwardInput}, {0, BackwardInput}, {1, BackwardWeight}, {0, BackwardWeight}}

// vBlock returns the times of rank r's six ops for micro-batch 0, with the given
// steps at the three turns of the path.
func vBlock(p, r, down, up int, turns [3]int) [6]int {
	var b [6]int
	b[0] = down * r
	b[1] = down*(p-1) + turns[0] + up*(p-1-r)
	b[2] = (down+up)*(p-1) + turns[0] + turns[1] + down*r
	b[3] = (2*down+up)*(p-1) + turns[0] + turns[1] + turns[2] + up*(p-1-r)
	// The two W take the two steps modulo six that are left, each soon after its I.
	var free []int
	for step := range 6 {
		if step != b[0]%6 && step != b[1]%6 && step != b[2]%6 && step != b[3]%6 {
			free = append(free, step)
		}
	}
	if len(free) != 2 {
		return b // two ops on one step; vTurns sees it
	}
	after := func(t, step int) int { return t + 1 + (step-t-1+6*(t+1))%6 }
	b[4], b[5] = after(b[2], free[0]), after(b[3], free[1])
	if x, y := after(b[2], free[1]), after(b[3], free[0]); x+y < b[4]+b[5] {
		b[4], b[5] = x, y
	}
	return b
}

// vTurns returns the turns with which no rank has two ops on one step and the
// ranks hold the least; of several, the shortest.
func vTurns(p, down, up int) [3]int {
	var best [3]int
	least := 0
	for a := 1; a <= 6; a++ {
		for b := 1; b <= 6; b++ {
		next:
			for c := 1; c <= 6; c++ {
				turns, most := [3]int{a, b, c}, 0
				for r := range p {
					block := vBlock(p, r, down, up, turns)
					steps := 0
					for _, t := range block[:4] {
						steps |= 1 << (t % 6)
					}
					if bits.OnesCount(uint(steps)) < 4 {
						continue next
					}
					most = max(most, vLive(block))
				}
				if least == 0 || most < least || most == least && a+b+c < best[0]+best[1]+best[2] {
					best, least = turns, most
				}
			}
		}
	}
	return best
}

// vLive returns how many activations a rank holds in the steady state of a
// repeated block: those of the first chunk from op 0 to op 5, of the second from op 1 to op 4.
func vLive(block [6]int) int {
	most := 0
	for step := range 6 {
		live := 0
		for _, span := range [2][2]int{{block[0], block[5]}, {block[1], block[4]}} {
			length := span[1] - span[0] + 1
			live += length / 6
			if (step-span[0]%6+6)%6 < length%6 {
				live++
			}
		}
		most = max(most, live)
	}
	return most
}
