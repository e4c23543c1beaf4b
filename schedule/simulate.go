package schedule

import (
	"fmt"
	"math"
)

// Simulate predicts when each op of s runs. It takes compute programs and
// lowered ones, and predicts the same compute times for both: a tensor leaves
// for the next stage when its op ends, without holding up its rank, unless the
// tensor before it on the same channel (sender, receiver, kind, stage) is still
// under way; then the rank waits for that one first. An op starts when its rank
// is free and its inputs have arrived. The events of RECV are the wait
// for the tensor, those of SEND the transfer. Time and memory are linear in the ops.
//
// A schedule that cannot run to its end, or a cost that is negative or not
// finite, is an error.
func Simulate(s *Schedule, costs Costs) (*Timeline, error) {
	if err := checkShape(s); err != nil {
		return nil, err
	}
	ops := s.Ops()
	if s.Stages > ops/s.Microbatches+1 {
		return nil, Check(s) // incomplete; and the tables below would not be bounded by the input
	}
	cells := s.Stages * s.Microbatches
	sim := &simulation{
		s: s, costs: costs,
		inF: make([]float64, cells), inB: make([]float64, cells), done: make([]uint8, cells),
		free:     newChannels(s),
		now:      make([]float64, s.Ranks),
		pc:       make([]int, s.Ranks),
		blocked:  make([]bool, s.Ranks),
		reduced:  make([]reduction, s.Stages),
		arrived:  make([]int, s.Ranks),
		timeline: &Timeline{Ranks: s.Ranks, Events: make([]Event, ops)},
	}
	for i := range cells {
		sim.inF[i], sim.inB[i] = notYet, notYet
	}
	for k := range s.Microbatches {
		sim.inF[k] = 0
	}
	offset := 0
	ready := make([]int, s.Ranks)
	for r := range s.Ranks {
		sim.events = append(sim.events, sim.timeline.Events[offset:offset+len(s.Programs[r])])
		offset += len(s.Programs[r])
		ready[r] = s.Ranks - 1 - r
		sim.arrived[r] = -1
	}
	sim.ready = ready
	for len(sim.ready) > 0 {
		r := sim.ready[len(sim.ready)-1]
		sim.ready = sim.ready[:len(sim.ready)-1]
		if err := sim.run(r); err != nil {
			return nil, err
		}
	}
	for r := range s.Ranks {
		if sim.pc[r] < len(s.Programs[r]) {
			if err := Check(s); err != nil {
				return nil, err
			}
			at := sim.pc[r]
			return nil, &CheckError{Rank: r, Index: at, Op: s.Programs[r][at], Reason: "waits for ever"}
		}
	}
	return sim.timeline, nil
}

// notYet is the arrival time of what has not arrived. (NaN would be the slower
// comparison to get wrong.)
const notYet = -1

const (
	doneF = 1 << iota
	doneI
)

type reduction struct {
	ranks int     // holders that have come to it
	start float64 // when the last of them came
	end   float64
	over  bool
}

type simulation struct {
	s        *Schedule
	costs    Costs
	inF, inB []float64 // by stage × micro-batches: when F's input, I's gradient is on its rank
	done     []uint8   // doneF, doneI
	free     *channels
	now      []float64
	pc       []int
	blocked  []bool
	ready    []int
	reduced  []reduction
	arrived  []int // pc of the reduction that a rank waits in
	events   [][]Event
	timeline *Timeline
}

// run performs rank r's ops until one has to wait for another rank.
func (sim *simulation) run(r int) error {
	s := sim.s
	program := s.Programs[r]
	for sim.pc[r] < len(program) {
		o := program[sim.pc[r]]
		start, end, ok := sim.now[r], 0.0, true
		switch {
		case o.Kind.IsSend():
			start, end, ok = sim.send(o, start)
			sim.now[r] = start
		case o.Kind.IsRecv():
			end, ok = sim.input(o, start)
			sim.now[r] = end
		default:
			start, ok = sim.input(o, start)
			if !ok {
				break
			}
			cost := sim.costs.Compute(o)
			if !(cost >= 0 && cost <= math.MaxFloat64) {
				return &CheckError{Rank: r, Index: sim.pc[r], Op: o, Reason: fmt.Sprintf("its cost is %v; times must be finite and not negative", cost)}
			}
			if o.Kind == ReduceGrad {
				if start, end, ok = sim.reduce(o, r, start, cost); !ok {
					break
				}
				sim.now[r] = end
				break
			}
			end = start + cost
			sim.now[r] = sim.finish(o, end)
		}
		if !ok {
			sim.blocked[r] = true
			return nil
		}
		if !(end <= math.MaxFloat64) {
			return &CheckError{Rank: r, Index: sim.pc[r], Op: o, Reason: "its transfer time is negative or not finite"}
		}
		sim.events[r][sim.pc[r]] = Event{Rank: r, Op: o, Start: start, End: end}
		sim.pc[r]++
	}
	return nil
}

// input returns when op may start on a rank that is free at t; ok is false when that is not known yet.
func (sim *simulation) input(o Op, t float64) (start float64, ok bool) {
	m := sim.s.Microbatches
	cell := o.Stage*m + o.First
	switch o.Kind {
	case Forward, RecvF:
		in := sim.inF[cell]
		return max(t, in), in != notYet
	case BackwardInput, Backward:
		in := sim.inB[cell]
		return max(t, in), in != notYet && sim.done[cell]&doneF != 0
	case RecvB:
		in := sim.inB[cell]
		return max(t, in), in != notYet
	case BackwardWeight:
		for k := o.First; k <= o.Last; k++ {
			if sim.done[o.Stage*m+k]&doneI == 0 {
				return 0, false
			}
		}
	}
	return t, true
}

// finish records what op made at end, and returns when its rank may go on.
func (sim *simulation) finish(o Op, end float64) float64 {
	s := sim.s
	cell := o.Stage*s.Microbatches + o.First
	var to int
	var arrivals []float64
	switch o.Kind {
	case Forward:
		sim.done[cell] |= doneF
		if o.Stage == s.Stages-1 {
			sim.inB[cell] = end
			return end
		}
		to, arrivals = o.Stage+1, sim.inF
	case BackwardInput, Backward:
		sim.done[cell] |= doneI
		if o.Stage == 0 {
			return end
		}
		to, arrivals = o.Stage-1, sim.inB
	default:
		return end
	}
	if s.RankOf(to, o.First) == s.RankOf(o.Stage, o.First) {
		arrivals[to*s.Microbatches+o.First] = end
		return end
	}
	if s.Lowered {
		return end
	}
	_, send := s.transfers(o)
	start, _, _ := sim.send(send, end)
	return start
}

// send starts a transfer at t or when its channel is free.
func (sim *simulation) send(o Op, t float64) (start, end float64, ok bool) {
	s := sim.s
	to, arrivals := o.Stage+1, sim.inF
	if o.Kind == SendB {
		to, arrivals = o.Stage-1, sim.inB
	}
	peer := s.RankOf(to, o.First)
	free := sim.free.of(o)
	start = max(t, *free)
	cost := sim.costs.Transfer(o, s.RankOf(o.Stage, o.First), peer)
	if !(cost >= 0) {
		cost = math.Inf(1) // refused by run
	}
	end = start + cost
	*free = end
	arrivals[to*s.Microbatches+o.First] = end
	sim.wake(peer)
	return start, end, true
}

// reduce joins rank r into a stage's reduction, which starts when all ranks
// that hold the stage have come.
func (sim *simulation) reduce(o Op, r int, t, cost float64) (start, end float64, ok bool) {
	red := &sim.reduced[o.Stage]
	if sim.arrived[r] != sim.pc[r] {
		sim.arrived[r] = sim.pc[r]
		red.ranks++
		red.start = max(red.start, t)
		if holders := sim.s.Holders(o.Stage); red.ranks >= len(holders) {
			red.over, red.end = true, red.start+cost
			for _, h := range holders {
				sim.wake(h)
			}
		}
	}
	return t, red.end, red.over
}

func (sim *simulation) wake(r int) {
	if sim.blocked[r] {
		sim.blocked[r] = false
		sim.ready = append(sim.ready, r)
	}
}

// channels holds a number for each channel (sender, receiver, kind, stage).
type channels struct {
	s     *Schedule
	alias []int // direction → first direction with the same two ranks, by direction × stages × kind
	value []float64
}

func newChannels(s *Schedule) *channels {
	c := &channels{s: s, alias: make([]int, len(s.Place)*s.Stages*2), value: make([]float64, len(s.Place)*s.Stages*2)}
	for d, place := range s.Place {
		for stage := range s.Stages {
			for i, other := range []int{stage + 1, stage - 1} {
				at := (d*s.Stages+stage)*2 + i
				c.alias[at] = at
				for e := range d {
					if other >= 0 && other < s.Stages && s.Place[e][stage] == place[stage] && s.Place[e][other] == place[other] {
						c.alias[at] = (e*s.Stages+stage)*2 + i
						break
					}
				}
			}
		}
	}
	return c
}

// index returns the number of a send's channel.
func (c *channels) index(send Op) int {
	d := 0
	if c.s.Direction != nil {
		d = int(c.s.Direction[send.First])
	}
	at := (d*c.s.Stages + send.Stage) * 2
	if send.Kind == SendB {
		at++
	}
	return c.alias[at]
}

func (c *channels) of(send Op) *float64 { return &c.value[c.index(send)] }
