package schedule

import (
	"fmt"
	"math"
	"slices"
)

// Simulate predicts when each op of s runs. It takes compute programs and
// lowered ones, and predicts the same compute times for both: a tensor leaves
// for the next stage when its op ends, without holding up its rank, unless the
// tensor before it on the same channel (sender, receiver, kind, stage) is still
// under way; then the rank waits for that one first. An op starts when its rank
// is free and its inputs have arrived. The events of RECV are the wait
// for the tensor, those of SEND the transfer. Time and memory are linear in the ops.
//
// With costs whose sends are rendezvous, a transfer also waits until its receive is
// posted, which a rank does two compute ops ahead.
//
// A schedule that cannot run to its end, or a cost that is negative or not
// finite, is an error.
func Simulate(s *Schedule, costs Costs) (*Timeline, error) {
	if err := checkShape(s); err != nil {
		return nil, err
	}
	rendezvous := false
	if c, ok := costs.(RendezvousCosts); ok {
		rendezvous = c.RendezvousSends()
	}
	ops := s.Ops()
	if s.Stages > ops/s.Microbatches+1 {
		return nil, Check(s) // incomplete; and the tables below would not be bounded by the input
	}
	if rendezvous && !s.Lowered {
		return simulateLowered(s, costs)
	}
	cells := s.Stages * s.Microbatches
	numbers := newChannels(s)
	sim := &simulation{
		s: s, costs: costs, rendezvous: rendezvous,
		inF: make([]float64, cells), inB: make([]float64, cells), done: make([]uint8, cells),
		numbers:  numbers,
		channels: make([]channel, numbers.count()),
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
	window := min(s.SendWindow(), s.Microbatches)
	for i := range sim.channels {
		sim.channels[i].ends = make([]float64, window)
	}
	if rendezvous {
		sim.posF, sim.posB = make([]float64, cells), make([]float64, cells)
		for i := range cells {
			sim.posF[i], sim.posB[i] = notYet, notYet
		}
		sim.posted, sim.ahead = make([]int, s.Ranks), make([]int, s.Ranks)
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
	numbers  *channels
	channels []channel
	now      []float64
	pc       []int
	blocked  []bool
	ready    []int
	reduced  []reduction
	arrived  []int // pc of the reduction that a rank waits in
	events   [][]Event
	timeline *Timeline

	rendezvous bool
	posF, posB []float64 // when the receive of a stage's input, gradient was posted
	posted     []int     // by rank: ops whose receives are posted
	ahead      []int     // by rank: compute ops between pc and there
}

// channel is the state of one channel of sends.
type channel struct {
	free  float64   // end of the last transfer
	ends  []float64 // ends of the last window of transfers, by number modulo window
	sent  int       // sends issued
	begun int       // of them, those whose receive was posted
	wait  []waitingSend
}

// waitingSend is a send whose receive is not posted yet.
type waitingSend struct {
	op    Op
	since float64
	cost  float64
	event *Event
}

// run performs rank r's ops until one has to wait for another rank.
func (sim *simulation) run(r int) error {
	s := sim.s
	program := s.Programs[r]
	for sim.pc[r] < len(program) {
		o := program[sim.pc[r]]
		start, end, ok := sim.now[r], 0.0, true
		if sim.rendezvous {
			sim.post(r)
			if o.Kind.IsCompute() {
				sim.ahead[r]--
			}
		}
		switch {
		case o.Kind.IsSend():
			start, end, ok = sim.send(o, start, &sim.events[r][sim.pc[r]])
			if ok {
				sim.now[r] = start
			}
		case o.Kind.IsRecv():
			if end, ok = sim.input(o, start); ok {
				sim.now[r] = end
			}
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
			if sim.rendezvous && o.Kind.IsCompute() {
				sim.ahead[r]++
			}
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
	start, _, _ := sim.send(send, end, nil)
	return start
}

// send issues a send at t, or when the send a window before it is over; ok is false when
// that is not known yet. event, if any, gets the end when it is not known yet.
func (sim *simulation) send(o Op, t float64, event *Event) (start, end float64, ok bool) {
	s := sim.s
	ch := &sim.channels[sim.numbers.index(o)]
	start = t
	if window := len(ch.ends); ch.sent >= window {
		if ch.begun <= ch.sent-window {
			return t, t, false
		}
		start = max(t, ch.ends[ch.sent%window])
	}
	ch.sent++
	to := o.Stage + 1
	if o.Kind == SendB {
		to = o.Stage - 1
	}
	cost := sim.costs.Transfer(o, s.RankOf(o.Stage, o.First), s.RankOf(to, o.First))
	if !(cost >= 0) {
		return start, math.Inf(1), true // refused by run
	}
	ready := start
	if sim.rendezvous {
		posted := sim.posF
		if o.Kind == SendB {
			posted = sim.posB
		}
		at := posted[to*s.Microbatches+o.First]
		if at == notYet {
			ch.wait = append(ch.wait, waitingSend{o, start, cost, event})
			return start, start, true
		}
		ready = max(ready, at)
	}
	return start, sim.transfer(ch, o, ready, cost), true
}

// transfer moves what a send carries, from t or when its channel is free, and returns the end.
func (sim *simulation) transfer(ch *channel, o Op, t, cost float64) float64 {
	end := max(t, ch.free) + cost
	ch.free = end
	ch.ends[ch.begun%len(ch.ends)] = end
	ch.begun++
	to, arrivals := o.Stage+1, sim.inF
	if o.Kind == SendB {
		to, arrivals = o.Stage-1, sim.inB
	}
	arrivals[to*sim.s.Microbatches+o.First] = end
	sim.wake(sim.s.RankOf(to, o.First))
	return end
}

// post posts rank r's receives up to the second compute op from here, and begins the
// transfers that waited for them.
func (sim *simulation) post(r int) {
	program := sim.s.Programs[r]
	for sim.ahead[r] < 2 && sim.posted[r] < len(program) {
		o := program[sim.posted[r]]
		sim.posted[r]++
		if o.Kind.IsCompute() {
			sim.ahead[r]++
		}
		if !o.Kind.IsRecv() {
			continue
		}
		cell := o.Stage*sim.s.Microbatches + o.First
		if o.Kind == RecvF {
			sim.posF[cell] = sim.now[r]
		} else {
			sim.posB[cell] = sim.now[r]
		}
		send := sendOf(o)
		ch := &sim.channels[sim.numbers.index(send)]
		for i, w := range ch.wait {
			if w.op == send {
				ch.wait = append(ch.wait[:i], ch.wait[i+1:]...)
				if end := sim.transfer(ch, send, max(w.since, sim.now[r]), w.cost); w.event != nil {
					w.event.End = end
				}
				sim.wake(sim.s.RankOf(send.Stage, send.First))
				break
			}
		}
	}
}

// simulateLowered simulates a schedule with its transfers and leaves them out of the result.
func simulateLowered(s *Schedule, costs Costs) (*Timeline, error) {
	if err := Check(s); err != nil {
		return nil, err
	}
	lowered, err := AddTransfers(s)
	if err != nil {
		return nil, err
	}
	lowered.Window = s.Microbatches
	t, err := Simulate(lowered, costs)
	if err != nil {
		return nil, err
	}
	t.Events = slices.DeleteFunc(t.Events, func(e Event) bool { return e.Op.Kind.IsSend() || e.Op.Kind.IsRecv() })
	return t, nil
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
