package schedule

import (
	"container/heap"
	"math"
)

// lister places ops by list scheduling: whenever a rank is free, it takes the
// best of the ops whose inputs have arrived. Each stage takes its micro-batches in
// order, forwards, backward-p1 and backward-p2 each, so weight gradients are added in that order.
type lister struct {
	s     *Schedule
	costs []stageCost

	fused    bool // backwards are B; else I and W
	underWay int  // micro-batches that may be between F of stage 0 and its I; 0: any number
	rules    []rankRules
	bytes    []StageBytes // by stage; nil: no memory
	limit    []int64      // bytes a rank may hold; nil: any

	inF, inB []float64 // when inputs arrive on their rank; notYet
	stages   []stageState
	ranks    []rankState
	queue    wakeups
	// reserve is, by stage, what must stay free after its F, so that one micro-batch can
	// pass the rank's later stages and turn back: a full rank is never stuck.
	reserve []int64
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
}

type stageCost struct{ f, i, w, b, sendF, sendB float64 }

type stageState struct {
	rank            int
	nextF, nextI, w int // next micro-batch of each kind
}

type rankState struct {
	free    float64
	stages  []int // held, from the first
	held    int64
	waiting int // I done, W not
}

// stageCosts reads the costs of single micro-batches into a table.
func stageCosts(s *Schedule, costs Costs) []stageCost {
	table := make([]stageCost, s.Stages)
	for stage := range table {
		c := &table[stage]
		c.f = costs.Compute(op(stage, Forward, 0))
		c.i = costs.Compute(op(stage, BackwardInput, 0))
		c.w = costs.Compute(op(stage, BackwardWeight, 0))
		c.b = costs.Compute(op(stage, Backward, 0))
		if r := s.Place[0][stage]; stage+1 < s.Stages && s.Place[0][stage+1] != r {
			c.sendF = costs.Transfer(op(stage, SendF, 0), r, s.Place[0][stage+1])
		}
		if r := s.Place[0][stage]; stage > 0 && s.Place[0][stage-1] != r {
			c.sendB = costs.Transfer(op(stage, SendB, 0), r, s.Place[0][stage-1])
		}
	}
	return table
}

// newLister returns a lister that fills in the programs of s, which has one direction.
func newLister(s *Schedule, costs Costs) *lister {
	return &lister{s: s, costs: stageCosts(s, costs), rules: make([]rankRules, s.Ranks)}
}

// run fills in the programs and returns the makespan; ok is false when the limits
// leave no way to go on.
func (l *lister) run() (makespan float64, ok bool) {
	s, m := l.s, l.s.Microbatches
	cells := s.Stages * m
	if l.inF == nil {
		l.inF, l.inB = make([]float64, cells), make([]float64, cells)
		l.stages, l.ranks = make([]stageState, s.Stages), make([]rankState, s.Ranks)
		l.reserve = make([]int64, s.Stages)
		for stage, r := range s.Place[0] {
			l.ranks[r].stages = append(l.ranks[r].stages, stage)
			l.stages[stage].rank = r
		}
		for _, r := range l.ranks {
			if l.bytes == nil {
				continue
			}
			var later int64
			for _, stage := range r.stages {
				later = max(later, l.bytes[stage].FromInput)
			}
			for i := len(r.stages) - 1; i >= 0; i-- {
				b := l.bytes[r.stages[i]]
				l.reserve[r.stages[i]] = later
				later += b.UntilInput + b.UntilWeight
			}
		}
	}
	for i := range cells {
		l.inF[i], l.inB[i] = notYet, notYet
	}
	clear(l.inF[:m])
	l.queue = l.queue[:0]
	for r := range l.ranks {
		rank := &l.ranks[r]
		*rank = rankState{stages: rank.stages}
		for _, stage := range rank.stages {
			l.stages[stage] = stageState{rank: r}
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
	for stage := range l.stages {
		st := &l.stages[stage]
		if st.nextI < m || !l.fused && st.w < m {
			return 0, false
		}
	}
	return makespan, true
}

// step lets a free rank start the best op at time t, and returns its end.
func (l *lister) step(r int, t float64) (end float64, started bool) {
	rank, rules := &l.ranks[r], &l.rules[r]
	bestF, bestI, bestW := -1, -1, -1
	next := math.Inf(1) // next known arrival
	m := l.s.Microbatches
	for j := len(rank.stages) - 1; j >= 0; j-- {
		stage := rank.stages[j]
		st := &l.stages[stage]
		if st.nextI < st.nextF {
			switch in := l.inB[stage*m+st.nextI]; {
			case in == notYet:
			case in > t:
				next = min(next, in)
			case bestI < 0 || st.nextI < l.stages[bestI].nextI:
				bestI = stage
			}
		}
		if st.nextF < m && l.mayForward(r, stage, j == 0) {
			switch in := l.inF[stage*m+st.nextF]; {
			case in == notYet:
			case in > t:
				next = min(next, in)
			case bestF < 0:
				bestF = stage
			}
		}
		if !l.fused && st.w < st.nextI && (bestW < 0 || st.w < l.stages[bestW].w) {
			bestW = stage
		}
	}
	if bestW >= 0 && rules.lag > 0 && rank.waiting >= rules.lag {
		return l.weight(r, bestW, t), true
	}
	blocked := bestI >= 0 && l.limit != nil && rank.held+l.bytes[bestI].FromInput > l.limit[r]
	switch {
	case bestI >= 0 && !blocked && (bestF < 0 || !rules.forwardFirst):
		return l.backward(r, bestI, t), true
	case bestF >= 0:
		return l.forward(r, bestF, t), true
	case bestW >= 0 && (blocked || next-t >= rules.fill*l.costs[bestW].w):
		return l.weight(r, bestW, t), true
	}
	return t, false
}

func (l *lister) mayForward(r, stage int, first bool) bool {
	st := &l.stages[stage]
	if l.underWay > 0 && stage == 0 && st.nextF-st.nextI >= l.underWay {
		return false
	}
	if ahead := l.rules[r].ahead; first && ahead > 0 && st.nextF-st.nextI >= ahead {
		return false
	}
	if l.limit == nil {
		return true
	}
	b := l.bytes[stage]
	return l.ranks[r].held+b.UntilInput+b.UntilWeight+l.reserve[stage] <= l.limit[r]
}

func (l *lister) forward(r, stage int, t float64) float64 {
	st, c, m := &l.stages[stage], &l.costs[stage], l.s.Microbatches
	k := st.nextF
	st.nextF++
	l.emit(r, op(stage, Forward, k))
	if l.bytes != nil {
		l.ranks[r].held += l.bytes[stage].UntilInput + l.bytes[stage].UntilWeight
	}
	end := t + c.f
	if stage == l.s.Stages-1 {
		l.inB[stage*m+k] = end
	} else {
		l.inF[(stage+1)*m+k] = end + c.sendF
		l.wake(l.stages[stage+1].rank, end+c.sendF)
	}
	return end
}

func (l *lister) backward(r, stage int, t float64) float64 {
	st, c, m := &l.stages[stage], &l.costs[stage], l.s.Microbatches
	k := st.nextI
	st.nextI++
	end := t + c.i
	if l.fused {
		end = t + c.b
		st.w++
		l.emit(r, op(stage, Backward, k))
	} else {
		l.ranks[r].waiting++
		l.emit(r, op(stage, BackwardInput, k))
	}
	if l.bytes != nil {
		b := l.bytes[stage]
		if l.fused {
			l.ranks[r].held -= b.UntilInput + b.UntilWeight
		} else {
			l.ranks[r].held += b.FromInput - b.UntilInput
		}
	}
	if stage > 0 {
		l.inB[(stage-1)*m+k] = end + c.sendB
		l.wake(l.stages[stage-1].rank, end+c.sendB)
	}
	return end
}

func (l *lister) weight(r, stage int, t float64) float64 {
	st := &l.stages[stage]
	l.emit(r, op(stage, BackwardWeight, st.w))
	st.w++
	l.ranks[r].waiting--
	if l.bytes != nil {
		l.ranks[r].held -= l.bytes[stage].UntilWeight + l.bytes[stage].FromInput
	}
	return t + l.costs[stage].w
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
