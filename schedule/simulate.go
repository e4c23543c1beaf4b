package schedule

import (
	"fmt"
	"math"
)

// Simulate predicts when each op of s runs. An op starts when its rank is free and its inputs
// have arrived. The tensors of one channel (sender, receiver, kind, stage) travel one after another.
// Time and memory are linear in the ops.
//
// Of a lowered schedule it predicts what the engine does: a transfer begins when its SEND was performed and
// its receive is posted, which a rank does ahead (Horizons), and a WAIT lasts until it has ended. The events of RECV
// and WAIT are the rank's waiting, those of SEND the transfer.
//
// Of compute ops alone it predicts the best that any waits could do: a tensor leaves for the next
// stage when its op ends, and never holds up its rank. Where transfers take no time, the two hardly differ.
//
// A schedule that cannot run to its end, or a cost that is negative or not
// finite, is an error.
func Simulate(s *Schedule, costs Costs) (*Timeline, error) {
	if err := checkShape(s); err != nil {
		return nil, err
	}
	if s.Stages > s.Ops()/s.Microbatches+1 {
		return nil, Check(s) // incomplete; and the tables would not be bounded by the input
	}
	sim := newSimulation(s, costs)
	if err := sim.all(); err != nil {
		return nil, err
	}
	for r := range s.Ranks {
		if at := sim.pc[r]; at < len(s.Programs[r]) {
			if err := Check(s); err != nil {
				return nil, err
			}
			return nil, &CheckError{Rank: r, Index: at, Op: s.Programs[r][at], Reason: "waits for ever"}
		}
	}
	return sim.timeline, nil
}

func newSimulation(s *Schedule, costs Costs) *simulation {
	numbers := newChannels(s)
	sim := &simulation{
		s: s, costs: costs,
		in: twoWays[float64](s), done: make([]uint8, s.Stages*s.Microbatches),
		numbers:  numbers,
		free:     make([]float64, numbers.count()),
		now:      make([]float64, s.Ranks),
		pc:       make([]int, s.Ranks),
		blocked:  make([]bool, s.Ranks),
		reduced:  make([]reduction, s.Stages),
		arrived:  make([]int, s.Ranks),
		timeline: &Timeline{Ranks: s.Ranks, Events: make([]Event, s.Ops())},
	}
	for i := range sim.done {
		sim.in[forth][i], sim.in[back][i] = notYet, notYet
	}
	for k := range s.Microbatches {
		sim.in[forth][k] = 0
	}
	if s.Lowered {
		sim.posted, sim.sent, sim.next = twoWays[float64](s), twoWays[*Event](s), make([]int, s.Ranks)
		for i := range sim.done {
			sim.posted[forth][i], sim.posted[back][i] = notYet, notYet
		}
		for _, program := range s.Programs {
			sim.horizons = append(sim.horizons, Horizons(program))
		}
	}
	offset := 0
	for r, program := range s.Programs {
		sim.events = append(sim.events, sim.timeline.Events[offset:offset+len(program)])
		offset += len(program)
		sim.ready = append(sim.ready, s.Ranks-1-r)
		sim.arrived[r] = -1
	}
	return sim
}

// all performs what can be performed.
func (sim *simulation) all() error {
	for len(sim.ready) > 0 {
		r := sim.ready[len(sim.ready)-1]
		sim.ready = sim.ready[:len(sim.ready)-1]
		if err := sim.run(r); err != nil {
			return err
		}
	}
	return nil
}

// notYet is the arrival time of what has not arrived. (NaN would be the slower
// comparison to get wrong.)
const notYet = -1

type reduction struct {
	ranks int     // holders that have come to it
	start float64 // when the last of them came
	end   float64
	over  bool
}

type simulation struct {
	s        *Schedule
	costs    Costs
	in       [2][]float64 // by stage × micro-batches: when F's input, I's gradient is on its rank
	done     []uint8      // the kinds of compute ops that are
	numbers  *channels
	free     []float64 // by channel: end of the last transfer
	now      []float64
	pc       []int
	blocked  []bool
	ready    []int
	reduced  []reduction
	arrived  []int // pc of the reduction that a rank waits in
	events   [][]Event
	timeline *Timeline

	// Of lowered schedules.
	posted   [2][]float64 // by receive: when it was posted
	sent     [2][]*Event  // by receive: the SEND that waits for it to be posted
	horizons [][]int      // by rank
	next     []int        // by rank: receives before it are posted
}

// run performs rank r's ops until one has to wait for another rank.
func (sim *simulation) run(r int) error {
	program, events := sim.s.Programs[r], sim.events[r]
	for sim.pc[r] < len(program) {
		if sim.horizons != nil {
			if err := sim.post(r); err != nil {
				return err
			}
		}
		at := sim.pc[r]
		o, now := program[at], sim.now[r]
		start, ok := sim.input(o, now)
		end := start
		if ok {
			var err error
			switch kinds[o.Kind].class {
			case sends:
				end, err = sim.send(o, start, &events[at])
			case receives, waits:
				start, sim.now[r] = now, end
			default:
				end, ok, err = sim.compute(o, r, start)
			}
			if err != nil {
				return err
			}
		}
		if !ok {
			sim.blocked[r] = true
			return nil
		}
		events[at] = Event{Rank: r, Op: o, Start: start, End: end}
		sim.pc[r]++
	}
	return nil
}

// input returns when op may go on, on a rank that is free at t; ok is false when that is not known yet.
func (sim *simulation) input(o Op, t float64) (start float64, ok bool) {
	k, m := &kinds[o.Kind], sim.s.Microbatches
	way := k.way
	switch {
	case k.recv != 0:
		if k.needs != 0 && sim.done[o.Stage*m+o.First]&(1<<k.needs) == 0 {
			return 0, false
		}
		way = kinds[k.recv].way
	case o.Kind == BackwardWeight:
		for mb := o.First; mb <= o.Last; mb++ {
			if sim.done[o.Stage*m+mb]&(1<<k.needs) == 0 {
				return 0, false
			}
		}
		return t, true
	case k.class == waits:
		o = o.Recv()
	case k.class != receives:
		return t, true
	}
	in := sim.in[way][o.Stage*m+o.First]
	return max(t, in), in != notYet
}

// compute performs an op that computes, reduces or updates, from start; ok is false where the ends of others' reductions are not known yet.
func (sim *simulation) compute(o Op, r int, start float64) (end float64, ok bool, err error) {
	cost := sim.costs.Compute(o)
	end, ok = start+cost, true
	if o.Kind == ReduceGrad {
		end, ok = sim.reduce(o, r, start, cost)
	}
	if !(cost >= 0 && end <= math.MaxFloat64) {
		return 0, false, &CheckError{Rank: r, Index: sim.pc[r], Op: o, Reason: fmt.Sprintf("its cost is %v; times must be finite and not negative", cost)}
	}
	if ok {
		sim.now[r] = end
		if o.Kind.IsCompute() {
			err = sim.finish(o, r, end)
		}
	}
	return end, ok, err
}

// finish records what a compute op made; of a lowered schedule its SEND takes it to another rank.
func (sim *simulation) finish(o Op, r int, end float64) error {
	s := sim.s
	cell := s.cell(o)
	sim.done[cell] |= 1 << o.Kind
	send := kinds[o.Kind].send
	if send == 0 {
		return nil
	}
	way := kinds[send].way
	to := o.Stage + wayStep[way]
	switch {
	case to == s.Stages:
		sim.in[back][cell] = end
	case to < 0:
	case s.RankOf(to, o.First) == r:
		sim.in[way][to*s.Microbatches+o.First] = end
	case !s.Lowered:
		_, err := sim.transfer(op(o.Stage, send, o.First), end)
		return err
	}
	return nil
}

// send performs a SEND of a lowered schedule, and returns the end of the transfer; where that is not known yet,
// the event gets it later.
func (sim *simulation) send(o Op, start float64, event *Event) (end float64, err error) {
	recv := o.Recv()
	way, cell := kinds[recv.Kind].way, sim.s.cell(recv)
	if posted := sim.posted[way][cell]; posted != notYet {
		return sim.transfer(o, max(start, posted))
	}
	sim.sent[way][cell] = event
	return start, nil
}

// transfer moves what a send carries, from t or when its channel is free, and returns the end.
func (sim *simulation) transfer(send Op, t float64) (end float64, err error) {
	s := sim.s
	way := kinds[send.Kind].way
	from, to := s.RankOf(send.Stage, send.First), s.RankOf(send.Stage+wayStep[way], send.First)
	cost := sim.costs.Transfer(send, from, to)
	free := &sim.free[sim.numbers.index(send)]
	end = max(t, *free) + cost
	if !(cost >= 0 && end <= math.MaxFloat64) {
		return 0, &CheckError{Rank: from, Index: -1, Op: send, Reason: fmt.Sprintf("%s takes %v; times must be finite and not negative", send, cost)}
	}
	*free = end
	sim.in[way][(send.Stage+wayStep[way])*s.Microbatches+send.First] = end
	sim.wake(to)
	if s.Lowered {
		sim.wake(from) // which may wait for its end
	}
	return end, nil
}

// post posts the receives that rank r posts before its next op, and begins the
// transfers that waited for them.
func (sim *simulation) post(r int) (err error) {
	for ; sim.next[r] < sim.horizons[r][sim.pc[r]]; sim.next[r]++ {
		o := sim.s.Programs[r][sim.next[r]]
		if !o.Kind.IsRecv() {
			continue
		}
		way, cell := kinds[o.Kind].way, sim.s.cell(o)
		sim.posted[way][cell] = sim.now[r]
		if e := sim.sent[way][cell]; e != nil {
			if e.End, err = sim.transfer(e.Op, max(e.Start, sim.now[r])); err != nil {
				return err
			}
		}
	}
	return nil
}

// reduce joins rank r into a stage's reduction, which starts when all ranks
// that hold the stage have come.
func (sim *simulation) reduce(o Op, r int, t, cost float64) (end float64, ok bool) {
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
	return red.end, red.over
}

func (sim *simulation) wake(r int) {
	if sim.blocked[r] {
		sim.blocked[r] = false
		sim.ready = append(sim.ready, r)
	}
}
