package schedule

import (
	"math"
	"math/bits"
)

// orders are the programs of all ranks while a search changes them, with the time of every op:
// what Simulate says of single F, I and W (and of joined W), and fast to repeat after a small change. Each stage takes
// its micro-batches in order. An op's number is that of its lane (a stage in a direction), kind and micro-batch.
type orders struct {
	s     *Schedule // its map; the programs are not looked at
	nodes []node
	rank  [][]int32 // by rank: its ops in order
	pos   []int32   // by op: where in its rank's order
	held  [][]int64 // by rank and place: bytes held after the op
	limit []int64   // by rank, without what is held all the time; nil: any
	join  int       // how many W of a stage may be joined; 0: any number

	now      []opTimes // by op
	tail     []float64 // by op: from its end to the end of the step
	makespan float64

	seq    []int32 // all ops, hardly one before what it waits for: the order in which updates visit them
	at     []int32 // by op: where in seq
	moving []bool  // by op: its tail is not known until the move is accepted
	marked marks   // places of seq whose ops are to be visited
	log    []change
}

// change is what an op's times were before an update.
type change struct {
	id  int32
	was opTimes
}

type opTimes struct {
	start, end float64
	arrive     float64 // when what it makes is where it is needed
	chain      int32   // how many W it is joined to
}

// node is an op that does not change.
type node struct {
	rank, lane  int32
	kind        Kind
	k, n        int32   // its micro-batch, of so many of the lane
	pred, succ  int32   // the F or I that makes its input, and whose input it makes; -1: none
	sent        bool    // what it makes goes to another rank,
	lag         float64 // which takes so long,
	after       int32   // after this op's on the same channel; -1: it is the first
	follows     int32   // whose after this is; -1: none
	dur, joined float64 // time alone, and right after the W before it
	least       float64 // the least time from its end to the end of the step
	alloc, free int64   // bytes held from its start, and no longer after its end
}

// newOrders numbers the ops of a map of stages to ranks, whose directions have their
// micro-batches one after the other.
func newOrders(s *Schedule, costs Costs, bytes []StageBytes, limit []int64, join int) *orders {
	l := newLister(s, costs)
	l.limitBytes(bytes, nil)
	o := &orders{s: s, limit: limit, join: join, rank: make([][]int32, s.Ranks), held: make([][]int64, s.Ranks)}
	base := make([]int32, len(l.lanes)+1)
	for i, ln := range l.lanes {
		base[i+1] = base[i] + int32(3*(ln.end-ln.first))
	}
	for i := range l.lanes {
		ln := &l.lanes[i]
		n := int32(ln.end - ln.first)
		id := func(lane int, kind Kind, k int32) int32 { return base[lane] + int32(kind-Forward)*n + k }
		first, last := ln.stage == 0, ln.stage == s.Stages-1
		for kind := Forward; kind <= BackwardWeight; kind++ {
			for k := range n {
				x := node{rank: int32(ln.rank), lane: int32(i), kind: kind, k: k, n: n, pred: -1, succ: -1, after: -1, follows: -1}
				next := -1
				switch kind {
				case Forward:
					x.dur, x.joined, x.lag = ln.cost.f, ln.cost.f, ln.cost.sendF
					x.alloc = ln.bytes.UntilInput + ln.bytes.UntilWeight
					if !first {
						x.pred = id(i-1, Forward, k)
					}
					if last {
						x.succ = id(i, BackwardInput, k)
					} else {
						x.succ, next = id(i+1, Forward, k), i+1
					}
				case BackwardInput:
					x.dur, x.joined, x.lag = ln.cost.i, ln.cost.i, ln.cost.sendB
					x.alloc, x.free = ln.bytes.FromInput, ln.bytes.UntilInput
					if last {
						x.pred = id(i, Forward, k)
					} else {
						x.pred = id(i+1, BackwardInput, k)
					}
					if !first {
						x.succ, next = id(i-1, BackwardInput, k), i-1
					}
				case BackwardWeight:
					x.dur, x.joined = ln.cost.w, ln.cost.w
					if join != 1 {
						x.joined = min(ln.cost.w, ln.cost.wExtra)
					}
					x.free = ln.bytes.UntilWeight + ln.bytes.FromInput
				}
				x.sent = next >= 0 && l.lanes[next].rank != ln.rank
				if x.sent && k > 0 {
					x.after = id(i, kind, k-1)
				}
				if x.sent && k+1 < n {
					x.follows = id(i, kind, k+1)
				}
				o.nodes = append(o.nodes, x)
			}
		}
	}
	n := len(o.nodes)
	o.pos, o.at, o.seq = make([]int32, n), make([]int32, n), make([]int32, n)
	o.now, o.tail, o.moving, o.marked = make([]opTimes, n), make([]float64, n), make([]bool, n), make(marks, n/64+1)
	for i := range o.nodes {
		o.nodes[i].least = o.leastAfter(int32(i))
		o.seq[i], o.at[i] = int32(i), int32(i)
	}
	return o
}

// leastAfter returns the least time from the end of an op to the end of the step.
func (o *orders) leastAfter(i int32) (least float64) {
	for x := &o.nodes[i]; x.succ >= 0; x = &o.nodes[x.succ] {
		least += x.lag + o.nodes[x.succ].dur
	}
	return least
}

// set takes the programs of a schedule on the same map, fused backwards and joined W taken apart.
// It returns false when they do not keep the limit.
func (o *orders) set(programs [][]Op) bool {
	ids := map[Op]int32{}
	firsts := make([]int, len(o.s.Place))
	for k := len(o.s.Direction) - 1; k >= 0; k-- {
		firsts[o.s.Direction[k]] = k
	}
	for i := range o.nodes {
		ids[o.op(int32(i), firsts)] = int32(i)
	}
	for r, program := range programs {
		list := make([]int32, 0, len(o.rank[r]))
		for _, p := range program {
			switch p.Kind {
			case Backward:
				list = append(list, ids[op(p.Stage, BackwardInput, p.First)], ids[op(p.Stage, BackwardWeight, p.First)])
			default:
				for k := p.First; k <= p.Last; k++ {
					list = append(list, ids[op(p.Stage, p.Kind, k)])
				}
			}
		}
		o.rank[r], o.held[r] = list, make([]int64, len(list))
		if !o.hold(r, 0, len(list)) {
			return false
		}
		for i, id := range list {
			o.pos[id] = int32(i)
		}
	}
	return o.evaluate()
}

func (o *orders) op(i int32, firsts []int) Op {
	x := &o.nodes[i]
	direction := int(x.lane) / o.s.Stages
	return op(int(x.lane)%o.s.Stages, x.kind, firsts[direction]+int(x.k))
}

// programs returns the orders as programs.
func (o *orders) programs() [][]Op {
	firsts := make([]int, len(o.s.Place))
	for k := len(o.s.Direction) - 1; k >= 0; k-- {
		firsts[o.s.Direction[k]] = k
	}
	out := make([][]Op, len(o.rank))
	for r, list := range o.rank {
		for _, id := range list {
			out[r] = append(out[r], o.op(id, firsts))
		}
	}
	return out
}

// hold fills in what rank r holds after its ops from..to-1, and says whether it keeps the limit.
func (o *orders) hold(r, from, to int) bool {
	held, most := int64(0), int64(math.MaxInt64)
	if from > 0 {
		held = o.held[r][from-1]
	}
	if o.limit != nil {
		most = o.limit[r]
	}
	for i := from; i < to; i++ {
		x := &o.nodes[o.rank[r][i]]
		if held += x.alloc; held > most {
			return false
		}
		held -= x.free
		o.held[r][i] = held
	}
	return true
}

// time returns what an op takes right after another one of its rank (-1: none), and to how many W it
// is joined: such a one takes less.
func (o *orders) time(before, id, chain int32) (float64, int32) {
	x := &o.nodes[id]
	if x.joined < x.dur && before >= 0 && x.k > 0 && before == id-1 && (o.join == 0 || int(chain)+1 < o.join) {
		return x.joined, chain + 1
	}
	return x.dur, 0
}

// evaluate computes the times of all ops anew, and an order for seq in which none comes before what it
// waits for. It returns false where the orders wait for each other.
func (o *orders) evaluate() bool {
	n := int32(len(o.nodes))
	done := o.seq[:0]
	for i := range o.at {
		o.at[i] = n
	}
	pc, awaited, ready := make([]int, len(o.rank)), make([]int32, len(o.rank)), make([]int32, len(o.rank))
	for r := range ready {
		ready[r], awaited[r] = int32(r), -1
	}
	for len(ready) > 0 {
		r := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		for list := o.rank[r]; pc[r] < len(list); pc[r]++ {
			id := list[pc[r]]
			x := &o.nodes[id]
			if x.pred >= 0 && o.at[x.pred] == n {
				awaited[r] = x.pred
				break
			}
			o.now[id] = o.timesOf(id)
			o.at[id] = int32(len(done))
			done = append(done, id)
			if x.succ >= 0 {
				if to := o.nodes[x.succ].rank; awaited[to] == id {
					awaited[to] = -1
					ready = append(ready, to)
				}
			}
		}
	}
	o.seq = done[:cap(done)]
	if len(done) < int(n) {
		for i := range o.seq {
			o.seq[i], o.at[i] = int32(i), int32(i)
		}
		return false
	}
	o.makespan = o.span()
	for i := len(o.seq) - 1; i >= 0; i-- {
		o.tail[o.seq[i]] = o.tailAfter(o.seq[i])
	}
	return true
}

// timesOf computes the times of an op from those of the op before it on its rank and of what makes its input.
func (o *orders) timesOf(id int32) opTimes {
	x := &o.nodes[id]
	start, before, chain := 0.0, int32(-1), int32(0)
	if i := o.pos[id]; i > 0 {
		before = o.rank[x.rank][i-1]
		was := &o.now[before]
		start, chain = was.end, was.chain
	}
	if x.pred >= 0 {
		start = max(start, o.now[x.pred].arrive)
	}
	dur, chain := o.time(before, id, chain)
	end := start + dur
	arrive := end
	if x.sent {
		if x.after >= 0 {
			arrive = max(arrive, o.now[x.after].arrive)
		}
		arrive += x.lag
	}
	return opTimes{start, end, arrive, chain}
}

// tailAfter returns the time from the end of an op to the end of the step.
func (o *orders) tailAfter(id int32) (tail float64) {
	x := &o.nodes[id]
	if list, i := o.rank[x.rank], int(o.pos[id])+1; i < len(list) {
		next := list[i]
		tail = o.now[next].end - o.now[next].start + o.tail[next]
	}
	if x.succ >= 0 {
		tail = max(tail, x.lag+o.now[x.succ].end-o.now[x.succ].start+o.tail[x.succ])
	}
	return tail
}

// span returns the end of the last op.
func (o *orders) span() (end float64) {
	for _, list := range o.rank {
		if len(list) > 0 {
			end = max(end, o.now[list[len(list)-1]].end)
		}
	}
	return end
}

// update computes the times of the marked ops, and of those that follow from them. It returns false,
// with all times as before, where an op shows that the makespan is above bound; an order that waits for
// itself ends so too. tails says that those known are of use: that nothing was moved behind what is marked.
func (o *orders) update(bound float64, tails bool) bool {
	o.log = o.log[:0]
	for at := o.marked.first(0); at >= 0; {
		o.marked.clear(at)
		id := o.seq[at]
		t := o.timesOf(id)
		next := at
		if was := o.now[id]; t != was {
			o.log = append(o.log, change{id, was})
			o.now[id] = t
			x := &o.nodes[id]
			least := x.least
			if tails && !o.moving[id] {
				least = max(least, o.tail[id])
			}
			if t.end+least > bound || len(o.log) > hopeless*len(o.nodes) {
				o.revert()
				return false
			}
			if list, i := o.rank[x.rank], int(o.pos[id])+1; i < len(list) {
				next = min(next, o.mark(list[i]))
			}
			if t.arrive != was.arrive && x.succ >= 0 {
				next = min(next, o.mark(x.succ))
				if x.sent && x.follows >= 0 {
					next = min(next, o.mark(x.follows))
				}
			}
		}
		at = o.marked.first(next)
	}
	return true
}

// hopeless is how often an update may visit every op: an order that waits for itself need not take time.
const hopeless = 20

func (o *orders) mark(id int32) int {
	at := int(o.at[id])
	o.marked.set(at)
	return at
}

// revert takes back what update did.
func (o *orders) revert() {
	for at := o.marked.first(0); at >= 0; at = o.marked.first(at) {
		o.marked.clear(at)
	}
	for i := len(o.log) - 1; i >= 0; i-- {
		o.now[o.log[i].id] = o.log[i].was
	}
}

// accept brings the tails up to date after update: those of the marked ops and what follows from them.
func (o *orders) accept() (visits int) {
	for _, c := range o.log {
		now := &o.now[c.id]
		if now.end-now.start != c.was.end-c.was.start {
			o.markBefore(c.id)
		}
	}
	for at := o.marked.last(len(o.seq) - 1); at >= 0; visits++ {
		o.marked.clear(at)
		id := o.seq[at]
		next := at
		if tail := o.tailAfter(id); tail != o.tail[id] {
			o.tail[id] = tail
			next = max(next, o.markBefore(id))
		}
		at = o.marked.last(next)
	}
	o.makespan = o.span()
	return visits
}

// markBefore marks the ops whose tails follow from an op's.
func (o *orders) markBefore(id int32) (at int) {
	x := &o.nodes[id]
	if i := o.pos[id]; i > 0 {
		at = o.mark(o.rank[x.rank][i-1])
	}
	if x.pred >= 0 {
		at = max(at, o.mark(x.pred))
	}
	return at
}

// marks is a set of small numbers.
type marks []uint64

func (m marks) set(i int)   { m[i>>6] |= 1 << (i & 63) }
func (m marks) clear(i int) { m[i>>6] &^= 1 << (i & 63) }

// first returns the smallest number from i on, last the largest up to i; -1: there is none.
func (m marks) first(i int) int {
	w := i >> 6
	for word := m[w] &^ (1<<(i&63) - 1); ; word = m[w] {
		if word != 0 {
			return w<<6 + bits.TrailingZeros64(word)
		}
		if w++; w == len(m) {
			return -1
		}
	}
}

func (m marks) last(i int) int {
	w := i >> 6
	for word := m[w] << (63 - i&63) >> (63 - i&63); ; word = m[w] {
		if word != 0 {
			return w<<6 + 63 - bits.LeadingZeros64(word)
		}
		if w--; w < 0 {
			return -1
		}
	}
}
