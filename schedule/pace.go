package schedule

import (
	"cmp"
	"math"
	"slices"
)

// Pace places the WAITs of a schedule with transfers; those that it has are placed anew.
//
// A send is waited for late: the moments at which ranks come to their ops have one global order, and a sender waits
// at its first moment that follows, in that order, the one at which the receiver posts its receive (see Horizons).
// So each wait points backwards in the order and no set of them closes a circle: a schedule whose order is valid
// cannot deadlock, not even where a send ends only when it is received. The order is by time in unit
// steps, so that no wait holds up its rank where ops take one unit each. And the place is fixed, so the memory of a step
// is known before it runs.
func Pace(s *Schedule) (*Schedule, error) {
	if err := checkShape(s); err != nil {
		return nil, err
	}
	if s.Stages > s.Ops()/s.Microbatches+1 {
		return nil, missingForward(s) // the tables below would not be bounded by the ops
	}
	out := *s
	out.Programs = make([][]Op, s.Ranks)
	for r, program := range s.Programs {
		out.Programs[r] = slices.DeleteFunc(slices.Clone(program), func(o Op) bool { return o.Kind.IsWait() })
	}
	moments := momentsOf(&out)
	posted := twoWays[moment](s) // by receive
	for r, program := range out.Programs {
		next := 0
		for i, horizon := range Horizons(program) {
			for ; next < horizon; next++ {
				if o := program[next]; o.Kind.IsRecv() {
					posted[kinds[o.Kind].way][s.cell(o)] = moments[r][i]
				}
			}
		}
	}
	for r, program := range out.Programs {
		out.Programs[r] = placeWaits(program, func(send int) int {
			recv := program[send].Recv()
			after, _ := slices.BinarySearchFunc(moments[r][send+1:], posted[kinds[recv.Kind].way][s.cell(recv)], func(m, posted moment) int {
				if m.after(posted) {
					return 1
				}
				return -1
			})
			return send + 1 + after
		})
	}
	return &out, nil
}

// moment is when a rank comes to an op: the time in unit steps, and the op's number in an order in
// which all can be performed one after another.
type moment struct {
	time  float64
	order int
}

func (m moment) after(other moment) bool {
	return m.time > other.time || m.time == other.time && m.order > other.order
}

// momentsOf returns the moments of the ops of each rank, of a schedule without WAITs; of what cannot be performed, the last.
func momentsOf(s *Schedule) [][]moment {
	sim := newSimulation(s, Units())
	_ = sim.all() // unit costs are good
	order := globalOrder(s)
	moments := make([][]moment, s.Ranks)
	for r, program := range s.Programs {
		moments[r] = make([]moment, len(program))
		now := 0.0
		for i := range program {
			moments[r][i] = moment{now, order[r][i]}
			if i >= sim.pc[r] {
				now = math.Inf(1)
			} else if e := &sim.events[r][i]; !e.Op.Kind.IsSend() {
				now = e.End
			}
		}
	}
	return moments
}

// placeWaits returns a program with the WAIT of each send before the op that at names by the send's index.
func placeWaits(program []Op, at func(send int) int) []Op {
	type wait struct {
		before int
		op     Op
	}
	var list []wait
	for i, o := range program {
		if o.Kind.IsSend() {
			list = append(list, wait{at(i), o.wait()})
		}
	}
	slices.SortStableFunc(list, func(a, b wait) int { return cmp.Compare(a.before, b.before) })
	paced := make([]Op, 0, len(program)+len(list))
	for i := range len(program) + 1 {
		for ; len(list) > 0 && list[0].before == i; list = list[1:] {
			paced = append(paced, list[0].op)
		}
		if i < len(program) {
			paced = append(paced, program[i])
		}
	}
	return paced
}

// Horizons says for each op of a program how far ahead receives are posted: before op i is performed,
// those with a smaller index than the i-th number. They are those that the next compute op needs and those of
// the compute op after it, so that a message can arrive while one op computes, at the price of
// one more buffer. A WAIT posts none: it frees memory, which a receive takes.
func Horizons(program []Op) []int {
	out := make([]int, len(program))
	next, after := len(program), len(program)
	for i := len(program) - 1; i >= 0; i-- {
		if program[i].Kind.IsCompute() {
			next, after = i, next
		}
		out[i] = after
	}
	for i, o := range program {
		if o.Kind.IsWait() {
			out[i] = 0
			if i > 0 {
				out[i] = out[i-1]
			}
		}
	}
	return out
}

// twoWays returns a table for activations and one for gradients, by stage × micro-batches.
func twoWays[T any](s *Schedule) [2][]T {
	return [2][]T{make([]T, s.Stages*s.Microbatches), make([]T, s.Stages*s.Microbatches)}
}

// cell returns the place of an op in such a table.
func (s *Schedule) cell(o Op) int { return o.Stage*s.Microbatches + o.First }

// globalOrder numbers the ops of all ranks in an order in which they can be
// performed one after another: in rounds, each rank doing one compute op a round
// if it can. What cannot be performed comes last.
func globalOrder(s *Schedule) [][]int {
	order := make([][]int, s.Ranks)
	for r, p := range s.Programs {
		order[r] = make([]int, 0, len(p))
	}
	sent := twoWays[bool](s) // by receive
	stuck := make([]bool, s.Ranks)
	n := 0
	for progress := true; progress; {
		progress = false
		for r, program := range s.Programs {
			computed := false
			for !stuck[r] && len(order[r]) < len(program) {
				o := program[len(order[r])]
				if o.Kind.IsCompute() {
					if computed {
						break
					}
					computed = true
				}
				way := kinds[o.Kind].way
				if o.Kind.IsRecv() && !sent[way][s.cell(o)] {
					stuck[r] = true
					break
				}
				if o.Kind.IsSend() {
					recv := o.Recv()
					sent[way][s.cell(recv)] = true
					stuck[s.RankOf(recv.Stage, recv.First)] = false
				}
				order[r] = append(order[r], n)
				n++
				progress = true
			}
		}
	}
	for r, p := range s.Programs {
		for len(order[r]) < len(p) {
			order[r] = append(order[r], n)
		}
	}
	return order
}
