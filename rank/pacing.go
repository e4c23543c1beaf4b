package rank

import "github.com/pipetrain/pipetrain/schedule"

// pacing says when a rank posts its receives and when it waits for its sends.
//
// Receives are posted ahead: before an op, all those that the next compute op
// needs and those of the compute op after it, so that a message can arrive while
// one op computes, at the price of one more buffer.
//
// Sends are waited for late, at the first op of the sender that comes, in one
// fixed order of the ops of all ranks, after the op at which the receiver posts its
// receive. Each such wait points backwards in that order, so no set of them
// closes a circle: a schedule whose order is valid cannot deadlock, not even
// where a send ends only when it is received. And the point is fixed, so the
// memory of a step is known before it runs.
type pacing struct {
	horizon []int   // receives before horizon[i] are posted before op i
	release [][]int // before op i (len: at the end) wait for these sends, as program indices
}

// pace returns the pacing of every rank of a lowered schedule.
func pace(s *schedule.Schedule) []pacing {
	out := make([]pacing, s.Ranks)
	order := globalOrder(s)
	posted := map[schedule.Op]int{} // order of the op before which the receive is posted, by the send
	for r, program := range s.Programs {
		out[r] = pacing{horizon: horizons(program), release: make([][]int, len(program)+1)}
		next := 0
		for i := range program {
			for ; next < out[r].horizon[i]; next++ {
				if program[next].Kind.IsRecv() {
					posted[sendOf(program[next])] = order[r][i]
				}
			}
		}
	}
	for r, program := range s.Programs {
		for i, op := range program {
			if !op.Kind.IsSend() {
				continue
			}
			at := len(program)
			// Binary search would do; the point is a few ops away.
			for y := i + 1; y < len(program); y++ {
				if order[r][y] > posted[op] {
					at = y
					break
				}
			}
			out[r].release[at] = append(out[r].release[at], i)
		}
	}
	return out
}

// horizons says for each op how far ahead receives are posted.
func horizons(program []schedule.Op) []int {
	out := make([]int, len(program))
	next, after := len(program), len(program)
	for i := len(program) - 1; i >= 0; i-- {
		if program[i].Kind.IsCompute() {
			next, after = i, next
		}
		out[i] = after
	}
	return out
}

// globalOrder numbers the ops of all ranks in an order in which they can be
// performed one after another: in rounds, each rank doing one compute op a round
// if it can, which is roughly the order in time.
func globalOrder(s *schedule.Schedule) [][]int {
	order := make([][]int, s.Ranks)
	pc := make([]int, s.Ranks)
	for r, p := range s.Programs {
		order[r] = make([]int, len(p))
	}
	sent := map[schedule.Op]bool{}
	n := 0
	for progress := true; progress; {
		progress = false
		for r, program := range s.Programs {
			for computed := false; pc[r] < len(program); pc[r]++ {
				op := program[pc[r]]
				if op.Kind.IsCompute() {
					if computed {
						break
					}
					computed = true
				}
				if op.Kind.IsRecv() && !sent[sendOf(op)] {
					break
				}
				if op.Kind.IsSend() {
					sent[op] = true
				}
				order[r][pc[r]] = n
				n++
				progress = true
			}
		}
	}
	return order
}
