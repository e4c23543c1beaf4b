package schedule

import (
	"container/heap"
	"math"
)

// lister places ops by list scheduling: whenever a rank is free, it takes the
// best of the ops whose inputs have arrived. Each stage takes its micro-batches in
// order, forwards, backward-p1 and backward-p2 each, so weight gradients are added in that order.
type lister struct {
	s *Schedule

	fused    bool // backwards are B; else I and W
	underWay int  // micro-batches that may be between F of stage 0 and its I; 0: any number
	rules    []rankRules
	limit    []int64 // bytes a rank may hold; nil: any

	inF, inB []float64 // when inputs arrive on their rank; notYet
	lanes    []lane    // by direction × stages
	ranks    []rankState
	queue    wakeups
}

// rankRules are the dials of one rank.
type rankRules struct {
	// ahead is how many micro-batches of its first stage the rank may have between F
	// and I; 0: any number.
	ahead int
	// lag is how many W may wait before one goes before everything else; 0: any number.
	lag int
	// forwardFirst prefers F to I when both could start.
	forwardFirst bool
	// fill is the share of a W that must fit before the next known arrival for W to start.
	fill float64
	// join is how many micro-batches one W may join; 0: as many as wait.
	join int
}

// stageCost holds the times of one stage: of one micro-batch, of each further one
// that a W joins, and of the transfers of what it makes.
type stageCost struct{ f, i, w, wExtra, b, sendF, sendB float64 }

// lane is a stage in one direction, and how far it is.
type lane struct {
	stage, rank int
	cost        stageCost
	bytes       StageBytes
	first, end  int  // its micro-batches
	entry       bool // it is the first of its direction on its rank
	// reserve is what one micro-batch of each direction needs to pass the rank and turn back: where
	// so much stays free after an F, the rank is not stuck.
	reserve         int64
	nextF, nextI, w int // next micro-batch of each kind
}

type rankState struct {
	free    float64
	lanes   []int   // by stage
	ways    [][]int // of them, those of each direction
	held    int64
	waiting int // I done, W not
}

// stageCosts reads the costs of single micro-batches of a direction into a table.
func stageCosts(s *Schedule, costs Costs, direction int) []stageCost {
	place := s.Place[direction]
	table := make([]stageCost, s.Stages)
	for stage := range table {
		c := &table[stage]
		c.f = costs.Compute(op(stage, Forward, 0))
		c.i = costs.Compute(op(stage, BackwardInput, 0))
		c.w = costs.Compute(op(stage, BackwardWeight, 0))
		c.b = costs.Compute(op(stage, Backward, 0))
		if s.Microbatches > 1 {
			c.wExtra = costs.Compute(Op{Stage: stage, Kind: BackwardWeight, First: 0, Last: 1}) - c.w
		}
		if r := place[stage]; stage+1 < s.Stages && place[stage+1] != r {
			c.sendF = costs.Transfer(op(stage, SendF, 0), r, place[stage+1])
		}
		if r := place[stage]; stage > 0 && place[stage-1] != r {
			c.sendB = costs.Transfer(op(stage, SendB, 0), r, place[stage-1])
		}
	}
	return table
}

// newLister returns a lister that fills in the programs of s, whose directions
// have their micro-batches one after the other.
func newLister(s *Schedule, costs Costs) *lister {
	l := &lister{s: s, rules: make([]rankRules, s.Ranks), ranks: make([]rankState, s.Ranks)}
	cells := s.Stages * s.Microbatches
	l.inF, l.inB = make([]float64, cells), make([]float64, cells)
	first := 0
	for d, place := range s.Place {
		end := s.Microbatches
		if s.Direction != nil {
			for end = first; end < s.Microbatches && int(s.Direction[end]) == d; end++ {
			}
		}
		table := stageCosts(s, costs, d)
		entered := make([]bool, s.Ranks)
		for stage, r := range place {
			l.lanes = append(l.lanes, lane{stage: stage, rank: r, cost: table[stage], first: first, end: end, entry: !entered[r]})
			entered[r] = true
		}
		first = end
	}
	for stage := range s.Stages {
		for d, place := range s.Place {
			rank := &l.ranks[place[stage]]
			rank.lanes = append(rank.lanes, d*s.Stages+stage)
			if rank.ways == nil {
				rank.ways = make([][]int, len(s.Place))
			}
			rank.ways[d] = append(rank.ways[d], d*s.Stages+stage)
		}
	}
	return l
}

// limitBytes gives each rank a limit of bytes for its micro-batches.
func (l *lister) limitBytes(bytes []StageBytes, limit []int64) {
	l.limit = limit
	for i := range l.lanes {
		l.lanes[i].bytes = bytesOf(bytes, l.lanes[i].stage)
	}
	for i := range l.lanes {
		ln := &l.lanes[i]
		var gradient int64
		for _, j := range l.ranks[ln.rank].lanes {
			other := &l.lanes[j]
			gradient = max(gradient, other.bytes.FromInput)
			if i/l.s.Stages != j/l.s.Stages || other.stage > ln.stage {
				ln.reserve += other.bytes.UntilInput + other.bytes.UntilWeight
			}
		}
		ln.reserve += gradient
	}
}

// run fills in the programs and returns the makespan; ok is false when the limits
// leave no way to go on.
func (l *lister) run() (makespan float64, ok bool) {
	s, m := l.s, l.s.Microbatches
	cells := s.Stages * m
	for i := range cells {
		l.inF[i], l.inB[i] = notYet, notYet
	}
	clear(l.inF[:m])
	l.queue = l.queue[:0]
	for r := range l.ranks {
		rank := &l.ranks[r]
		*rank = rankState{lanes: rank.lanes, ways: rank.ways}
		for _, i := range rank.lanes {
			ln := &l.lanes[i]
			ln.nextF, ln.nextI, ln.w = ln.first, ln.first, ln.first
		}
		s.Programs[r] = s.Programs[r][:0]
		l.queue = append(l.queue, wakeup{0, r})
	}
	heap.Init(&l.queue)
	for len(l.queue) > 0 {
		w := heap.Pop(&l.queue).(wakeup)
		rank := &l.ranks[w.rank]
		if w.time < rank.free {
			continue // it is still at work, and wakes at its end
		}
		if end, started := l.step(w.rank, w.time); started {
			rank.free = end
			makespan = max(makespan, end)
			heap.Push(&l.queue, wakeup{end, w.rank})
		}
	}
	for i := range l.lanes {
		if l.lanes[i].w < l.lanes[i].end {
			return 0, false
		}
	}
	return makespan, true
}

// step lets a free rank start the best op at time t, and returns its end.
func (l *lister) step(r int, t float64) (end float64, started bool) {
	rank, rules := &l.ranks[r], &l.rules[r]
	var bestF, bestI, bestW *lane
	next := math.Inf(1) // next known arrival
	m := l.s.Microbatches
	for j := len(rank.lanes) - 1; j >= 0; j-- {
		ln := &l.lanes[rank.lanes[j]]
		if ln.nextI < ln.nextF {
			switch in := l.inB[ln.stage*m+ln.nextI]; {
			case in == notYet:
			case in > t:
				next = min(next, in)
			case bestI == nil || ln.nextI-ln.first < bestI.nextI-bestI.first:
				bestI = ln
			}
		}
		if ln.nextF < ln.end && l.mayForward(ln) {
			switch in := l.inF[ln.stage*m+ln.nextF]; {
			case in == notYet:
			case in > t:
				next = min(next, in)
			case bestF == nil:
				bestF = ln
			}
		}
		if ln.w < ln.nextI && (bestW == nil || ln.w-ln.first < bestW.w-bestW.first) {
			bestW = ln
		}
	}
	if bestW != nil && rules.lag > 0 && rank.waiting >= rules.lag {
		return l.weight(bestW, t, math.Inf(1)), true
	}
	blocked := bestI != nil && l.limit != nil && rank.held+bestI.bytes.FromInput > l.limit[r]
	switch {
	case bestI != nil && !blocked && (bestF == nil || !rules.forwardFirst):
		return l.backward(bestI, t), true
	case bestF != nil:
		return l.forward(bestF, t), true
	case bestW != nil && (blocked || next-t >= rules.fill*bestW.cost.w):
		return l.weight(bestW, t, next), true
	}
	return t, false
}

func (l *lister) mayForward(ln *lane) bool {
	live := ln.nextF - ln.nextI
	if l.underWay > 0 && ln.stage == 0 && live >= l.underWay {
		return false
	}
	if ahead := l.rules[ln.rank].ahead; ln.entry && ahead > 0 && live >= ahead {
		return false
	}
	return l.limit == nil || l.fits(ln)
}

// fits says whether a rank may hold the next micro-batch of a lane: whether every one under way could still
// finish after it, the oldest first, with W right after I. So a full rank is never stuck.
func (l *lister) fits(ln *lane) bool {
	rank, limit := &l.ranks[ln.rank], l.limit[ln.rank]
	held := rank.held + ln.bytes.UntilInput + ln.bytes.UntilWeight
	if held+ln.reserve <= limit {
		return true
	}
	if held > limit {
		return false
	}
	for _, i := range rank.lanes {
		x := &l.lanes[i]
		held -= int64(x.nextI-x.w) * (x.bytes.UntilWeight + x.bytes.FromInput)
	}
	ln.nextF++
	defer func() { ln.nextF-- }()
	for d := range l.s.Place {
		lanes := rank.ways[d]
		if len(lanes) == 0 {
			continue
		}
		first := &l.lanes[lanes[0]]
		for k := first.nextI; k < first.nextF; k++ {
			for _, i := range lanes {
				if x := &l.lanes[i]; k >= x.nextF {
					if held += x.bytes.UntilInput + x.bytes.UntilWeight; held > limit {
						return false
					}
				}
			}
			for j := len(lanes) - 1; j >= 0; j-- {
				if x := &l.lanes[lanes[j]]; k >= x.nextI {
					if held+x.bytes.FromInput > limit {
						return false
					}
					held -= x.bytes.UntilInput + x.bytes.UntilWeight
				}
			}
		}
	}
	return true
}

func (l *lister) forward(ln *lane, t float64) float64 {
	k := ln.nextF
	ln.nextF++
	l.emit(ln.rank, op(ln.stage, Forward, k))
	l.ranks[ln.rank].held += ln.bytes.UntilInput + ln.bytes.UntilWeight
	end := t + ln.cost.f
	if ln.stage == l.s.Stages-1 {
		l.inB[ln.stage*l.s.Microbatches+k] = end
	} else {
		l.inF[(ln.stage+1)*l.s.Microbatches+k] = end + ln.cost.sendF
		l.wake(l.s.RankOf(ln.stage+1, k), end+ln.cost.sendF)
	}
	return end
}

func (l *lister) backward(ln *lane, t float64) float64 {
	k := ln.nextI
	ln.nextI++
	rank := &l.ranks[ln.rank]
	end := t + ln.cost.i
	if l.fused {
		end = t + ln.cost.b
		ln.w++
		l.emit(ln.rank, op(ln.stage, Backward, k))
		rank.held -= ln.bytes.UntilInput + ln.bytes.UntilWeight
	} else {
		rank.waiting++
		l.emit(ln.rank, op(ln.stage, BackwardInput, k))
		rank.held += ln.bytes.FromInput - ln.bytes.UntilInput
	}
	if ln.stage > 0 {
		l.inB[(ln.stage-1)*l.s.Microbatches+k] = end + ln.cost.sendB
		l.wake(l.s.RankOf(ln.stage-1, k), end+ln.cost.sendB)
	}
	return end
}

// weight starts the W of what waits, joining no more than ends by next.
func (l *lister) weight(ln *lane, t, next float64) float64 {
	rank, join := &l.ranks[ln.rank], l.rules[ln.rank].join
	first, end := ln.w, t+ln.cost.w
	for ln.w++; ln.w < ln.nextI && ln.w-first != join && end+ln.cost.wExtra <= next; ln.w++ {
		end += ln.cost.wExtra
	}
	l.emit(ln.rank, Op{Stage: ln.stage, Kind: BackwardWeight, First: first, Last: ln.w - 1})
	rank.waiting -= ln.w - first
	rank.held -= int64(ln.w-first) * (ln.bytes.UntilWeight + ln.bytes.FromInput)
	return end
}

func (l *lister) emit(r int, o Op) { l.s.Programs[r] = append(l.s.Programs[r], o) }

func (l *lister) wake(r int, t float64) { heap.Push(&l.queue, wakeup{t, r}) }

// wakeup is a time at which a rank looks for work.
type wakeup struct {
	time float64
	rank int
}

type wakeups []wakeup

func (q wakeups) Len() int { return len(q) }
func (q wakeups) Less(i, j int) bool {
	return q[i].time < q[j].time || q[i].time == q[j].time && q[i].rank < q[j].rank
}
func (q wakeups) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *wakeups) Push(x any)   { *q = append(*q, x.(wakeup)) }
func (q *wakeups) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}
