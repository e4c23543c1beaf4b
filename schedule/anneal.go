package schedule

import (
	"math"
	"math/rand/v2"
	"slices"
)

// anneal improves orders by simulated annealing. A move takes an op on a longest path that waits for
// its rank to an earlier place, or the one before it to a later place; or does so for several
// micro-batches in turn. A move that a rank has no memory for is refused.
type anneal struct {
	*orders
	rng   *rand.Rand
	best  [][]int32
	span  float64 // of best
	path  []int32 // ops of a longest path that wait for their rank
	heads []float64
	slots []int32
	moved []move
	tried int
}

// move is an op's way from one place of its rank's order to another.
type move struct{ rank, from, to int }

// run makes moves until it has visited so many ops, with a temperature that falls from hot to cold.
func (a *anneal) run(visits int, hot, cold, stop float64) {
	a.findPath()
	total, accepted := float64(visits), 0
	for left := visits; left > 0 && a.span > stop && len(a.path) > 0; {
		t := hot * math.Pow(cold/hot, 1-float64(left)/total)
		bound := a.makespan - t*math.Log(1-a.rng.Float64())
		a.moved = a.moved[:0]
		estimate := a.propose()
		left -= 10
		if len(a.moved) == 0 {
			continue
		}
		if estimate > bound {
			a.takeBack()
			continue
		}
		a.markMoved()
		ok := a.update(bound, len(a.moved) == 1)
		a.unmove()
		left -= len(a.log)
		if !ok {
			a.takeBack()
			continue
		}
		if a.orders.span() > bound {
			a.revert()
			a.takeBack()
			continue
		}
		a.settle()
		left -= a.accept() + len(a.path)/4
		a.tried++
		if accepted++; accepted%renumber == 0 {
			a.evaluate()
			left -= 3 * len(a.seq)
		}
		if a.makespan < a.span {
			a.save()
		}
		a.findPath()
	}
}

// strays is of how many moves one is of any op, and not of one on a longest path.
const strays = 8

// renumber is after how many moves seq is made anew.
const renumber = 5000

// markMoved marks the ops whose times the moves may have changed.
func (a *anneal) markMoved() {
	for _, m := range a.moved {
		list := a.rank[m.rank]
		for _, id := range list[min(m.from, m.to):min(max(m.from, m.to)+2, len(list))] {
			a.mark(id)
			a.moving[id] = true
		}
	}
}

func (a *anneal) unmove() {
	for _, m := range a.moved {
		list := a.rank[m.rank]
		for _, id := range list[min(m.from, m.to):min(max(m.from, m.to)+2, len(list))] {
			a.moving[id] = false
		}
	}
}

// settle gives the moved ops places in seq in their new order, and marks those whose tails may have changed.
func (a *anneal) settle() {
	for _, m := range a.moved {
		list := a.rank[m.rank]
		i, j := min(m.from, m.to), max(m.from, m.to)
		a.slots = a.slots[:0]
		for _, id := range list[i : j+1] {
			a.slots = append(a.slots, a.at[id])
		}
		slices.Sort(a.slots)
		for k, id := range list[i : j+1] {
			a.at[id], a.seq[a.slots[k]] = a.slots[k], id
		}
	}
	for _, m := range a.moved {
		list := a.rank[m.rank]
		for _, id := range list[max(0, min(m.from, m.to)-1) : max(m.from, m.to)+1] {
			a.mark(id)
		}
	}
}

func (a *anneal) save() {
	a.span = a.makespan
	a.best = make([][]int32, len(a.rank))
	for r, list := range a.rank {
		a.best[r] = append([]int32(nil), list...)
	}
}

// findPath walks one longest path backwards and notes where it goes from op to op of a rank.
func (a *anneal) findPath() {
	a.path = a.path[:0]
	id := int32(-1)
	seen := 0
	for _, list := range a.rank {
		if len(list) == 0 {
			continue
		}
		if last := list[len(list)-1]; a.now[last].end >= a.makespan {
			if seen++; a.rng.IntN(seen) == 0 {
				id = last
			}
		}
	}
	for id >= 0 {
		x := &a.nodes[id]
		before := int32(-1)
		if at := a.pos[id]; at > 0 {
			before = a.rank[x.rank][at-1]
		}
		start := a.now[id].start
		byRank := before >= 0 && a.now[before].end >= start
		byInput := x.pred >= 0 && a.now[x.pred].arrive >= start
		if byRank && byInput {
			byRank = before != x.pred && a.rng.IntN(2) == 0
		}
		switch {
		case byRank:
			a.path = append(a.path, id)
			id = before
		case byInput:
			id = x.pred
			for a.nodes[id].sent && a.nodes[id].after >= 0 && a.now[id].end < a.now[a.nodes[id].after].arrive {
				id = a.nodes[id].after
			}
		default:
			id = -1
		}
	}
}

// propose makes a move and returns the length of the longest path through what moved, or 0 where it is not known.
func (a *anneal) propose() float64 {
	id := a.path[a.rng.IntN(len(a.path))]
	if a.rng.IntN(strays) == 0 { // any op: it may make way, or memory, for one on the path
		id = int32(a.rng.IntN(len(a.nodes)))
	}
	x := &a.nodes[id]
	r := int(x.rank)
	list := a.rank[r]
	at := int(a.pos[id])
	far := 1
	switch a.rng.IntN(4) {
	case 0:
		far = 1 + a.rng.IntN(4)
	case 1:
		far = 1 + a.rng.IntN(16)
	}
	later := at > 0 && a.rng.IntN(3) == 0
	if later {
		at--
		id = list[at]
		x = &a.nodes[id]
	}
	if a.rng.IntN(4) > 0 {
		i, j, ok := a.shift(r, at, far, later)
		if !ok {
			return 0
		}
		return a.estimate(r, i, j)
	}
	// The same for the following micro-batches, or those before.
	n := 2 + a.rng.IntN(a.s.Microbatches)
	if a.rng.IntN(2) == 0 {
		n = 2 + a.rng.IntN(6)
	}
	step := int32(1)
	if a.rng.IntN(2) == 0 {
		step = -1
	}
	if later == (step > 0) {
		// Those that move away first make way for the next.
		k := int(x.k)
		for n > 1 && (k+int(step)*(n-1) < 0 || int(id)+int(step)*(n-1) >= len(a.nodes) || !a.alike(id, id+step*int32(n-1))) {
			n--
		}
		id += step * int32(n-1)
		step = -step
	}
	for ; n > 0; n-- {
		a.shift(r, int(a.pos[id]), far, later)
		if int(id)+int(step) < 0 || int(id)+int(step) >= len(a.nodes) || !a.alike(id, id+step) {
			break
		}
		id += step
	}
	return 0
}

// alike says whether two ops differ in the micro-batch alone.
func (a *anneal) alike(i, j int32) bool {
	return i >= 0 && j >= 0 && a.nodes[i].lane == a.nodes[j].lane && a.nodes[i].kind == a.nodes[j].kind
}

// shift moves the op at a place of rank r as far as it can go, up to `far` places, and returns the
// places between which the order changed.
func (a *anneal) shift(r, at, far int, later bool) (i, j int, ok bool) {
	list := a.rank[r]
	id, to := list[at], at
	careful := a.rng.IntN(2) == 0
	if later {
		for to+1 < len(list) && to-at < far && !a.before(id, list[to+1]) && !(careful && a.waits(list[to+1], id)) {
			to++
		}
	} else {
		for to > 0 && at-to < far && !a.before(list[to-1], id) && !(careful && a.waits(id, list[to-1])) {
			to--
		}
	}
	if to == at {
		return 0, 0, false
	}
	a.place(r, at, to)
	i, j = min(at, to), max(at, to)
	if !a.hold(r, i, j+1) {
		a.place(r, to, at)
		a.hold(r, i, j+1)
		return 0, 0, false
	}
	a.moved = append(a.moved, move{r, at, to})
	return i, j, true
}

// place moves the op at one place of a rank's order to another.
func (a *anneal) place(r, from, to int) {
	list := a.rank[r]
	id := list[from]
	for ; from < to; from++ {
		list[from] = list[from+1]
		a.pos[list[from]] = int32(from)
	}
	for ; from > to; from-- {
		list[from] = list[from-1]
		a.pos[list[from]] = int32(from)
	}
	list[to], a.pos[id] = id, int32(to)
}

// takeBack undoes the moves, the last first.
func (a *anneal) takeBack() {
	for k := len(a.moved) - 1; k >= 0; k-- {
		m := a.moved[k]
		a.place(m.rank, m.to, m.from)
		a.hold(m.rank, min(m.from, m.to), max(m.from, m.to)+1)
	}
}

// waits says whether the input of op j is begun only after op i of the same rank has ended: it may
// follow from i, and would at least keep the rank waiting if j came before i.
func (a *anneal) waits(j, i int32) bool {
	pred := a.nodes[j].pred
	return pred >= 0 && a.now[pred].start >= a.now[i].end
}

// before says whether op i must stay before op j of the same rank.
func (a *anneal) before(i, j int32) bool {
	x, y := &a.nodes[i], &a.nodes[j]
	return x.lane == y.lane && (x.kind == y.kind || x.k == y.k) || y.pred == i
}

// estimate returns the length of the longest path through places i..j of a rank's order.
func (a *anneal) estimate(r, i, j int) (longest float64) {
	list := a.rank[r]
	free, before, chain := 0.0, int32(-1), int32(0)
	if i > 0 {
		before = list[i-1]
		free, chain = a.now[before].end, a.now[before].chain
	}
	a.heads = a.heads[:0]
	for _, id := range list[i : j+1] {
		x := &a.nodes[id]
		if x.pred >= 0 && a.nodes[x.pred].rank != x.rank {
			free = max(free, a.now[x.pred].arrive)
		}
		a.heads = append(a.heads, free) // its start, then its end
		var dur float64
		dur, chain = a.time(before, id, chain)
		free += dur
		a.heads = append(a.heads, free)
		before = id
	}
	after := 0.0
	if j+1 < len(list) {
		next := list[j+1]
		after = a.now[next].end - a.now[next].start + a.tail[next]
	}
	for t := j; t >= i; t-- {
		id := list[t]
		x := &a.nodes[id]
		if x.succ >= 0 && a.nodes[x.succ].rank != x.rank {
			after = max(after, x.lag+a.now[x.succ].end-a.now[x.succ].start+a.tail[x.succ])
		}
		longest = max(longest, a.heads[2*(t-i)+1]+after)
		after += a.heads[2*(t-i)+1] - a.heads[2*(t-i)]
	}
	return longest
}
