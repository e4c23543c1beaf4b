package schedule

import (
	"math"
	"math/rand/v2"
)

// own searches for orders of its own: on each map of stages to ranks list scheduling with rules that are
// searched over, then annealing from what that found.
func (a *auto) own() {
	var maps []*mapSearch
	for _, chunks := range a.p.Chunks {
		maps = append(maps, a.maps(chunks)...)
	}
	if len(maps) == 0 {
		return
	}
	a.best.Bound = math.Inf(1)
	for _, m := range maps {
		a.best.Bound = min(a.best.Bound, m.bound)
	}
	for i, m := range maps {
		if m.bound >= a.best.Makespan*(1-1e-9) {
			continue // nothing to find here
		}
		m.list(a, rand.New(rand.NewPCG(uint64(i), uint64(m.s.Stages))), a.p.Ops/len(maps))
	}
	a.annealAll(maps)
}

// mapSearch is the search on one map of stages to ranks.
type mapSearch struct {
	s     *Schedule // without ops
	costs Costs
	bytes []StageBytes
	limit []int64 // of a rank's micro-batches; nil: any
	bound float64
	best  [][]Op // the best order found; nil: none
	span  float64
}

// maps returns the maps of one number of chunks.
func (a *auto) maps(chunks int) (list []*mapSearch) {
	costs, bytes, ok := a.p.Model(a.p.Ranks * chunks)
	if !ok {
		return nil
	}
	places := []func(*Schedule){func(*Schedule) {}}
	if chunks > 1 {
		places = append(places, (*Schedule).placeV)
	}
	if !a.p.OneCopy && a.p.Ranks > 1 && a.p.Microbatches > 1 {
		places = append(places, (*Schedule).placeBothWays)
	}
	for _, place := range places {
		s := newSchedule(Config{Ranks: a.p.Ranks, Microbatches: a.p.Microbatches, Chunks: chunks})
		s.Name = "auto"
		place(s)
		m := &mapSearch{s: s, costs: costs, bytes: bytes, span: math.Inf(1)}
		if len(a.p.Limit) > 0 {
			m.limit = make([]int64, s.Ranks)
			for r := range m.limit {
				m.limit[r] = a.limit(r)
				for _, stage := range s.StagesOf(r) {
					m.limit[r] -= bytesOf(bytes, stage).Fixed
				}
			}
		}
		m.bound = max(LowerBound(s, costs), limitBound(s, costs, bytes, m.limit))
		list = append(list, m)
	}
	return list
}

// list searches the rules of list scheduling.
func (m *mapSearch) list(a *auto, rng *rand.Rand, ops int) {
	q := &listSearch{auto: a, costs: m.costs, l: newLister(m.s.Clone(), m.costs), rng: rng, least: math.Inf(1), bound: m.bound, budget: ops}
	if m.limit != nil {
		q.l.limitBytes(m.bytes, m.limit)
	}
	q.run()
	if q.best == nil {
		return
	}
	m.best, m.span = q.l.s.Clone().Programs, q.least
	a.offer(m)
}

// offer hands the best order of a map to Auto, as it is and with W joined or fused where that is cheaper.
func (a *auto) offer(m *mapSearch) {
	s := m.s.Clone()
	s.Programs = m.best
	for _, form := range []*Schedule{s, joinWeights(s, a.p.Concat), fuseAdjacent(s)} {
		// An order that was simulated before always runs.
		_ = a.consider(form, "auto", Policy{}, m.costs, m.bytes)
	}
}

// The share of its visits that annealing spends on all maps alike, before it stays with the best one, and the
// runs that follow, each from the best order so far, by their first temperature in mean times of an op.
const (
	visitsPerOp   = 25 // of Problem.Ops
	largeVisits   = 8  // times as many for large problems,
	largeOps      = 1000
	sharedRounds  = 2
	annealedMaps  = 0.4
	coldest       = 0.02
	hopelessShare = 1.15 // of the best makespan: a map's that is left out after the first round
)

var heats = []float64{1, 3, 0.5, 1, 0.25}

// annealAll anneals the orders of all maps, then that of the best.
func (a *auto) annealAll(maps []*mapSearch) {
	n := 3 * a.p.Microbatches * maps[len(maps)-1].s.Stages
	visits := float64(a.p.Ops) * visitsPerOp * min(largeVisits, 1+float64(n)*(largeVisits-1)/largeOps)
	shared := annealedMaps * visits / float64(len(maps)*sharedRounds)
	for round := range sharedRounds {
		for i, m := range maps {
			if m.best != nil && (round == 0 || m.span < hopelessShare*a.best.Makespan) {
				m.anneal(a, int(shared), []float64{3, 1}[round], uint64(100*round+i))
			}
		}
	}
	best := maps[0]
	for _, m := range maps {
		if m.span < best.span {
			best = m
		}
	}
	for round, hot := range heats {
		if best.best != nil {
			best.anneal(a, int((1-annealedMaps)*visits)/len(heats), hot, uint64(1000+round))
		}
	}
}

// anneal improves the best order of a map.
func (m *mapSearch) anneal(a *auto, visits int, hot float64, seed uint64) {
	stop := m.bound * (1 + 1e-9)
	if m.span <= stop || m.bound >= a.best.Makespan*(1-1e-9) {
		return
	}
	o := newOrders(m.s, m.costs, m.bytes, m.limit, a.p.Concat)
	if len(o.nodes) > mostAnnealed || !o.set(m.best) {
		return
	}
	mean := 0.0
	for i := range o.nodes {
		mean += o.nodes[i].dur / float64(len(o.nodes))
	}
	q := &anneal{orders: o, rng: rand.New(rand.NewPCG(seed, 1))}
	q.save()
	q.run(visits, hot*mean, coldest*mean, stop)
	a.best.Tried += q.tried
	if q.span >= m.span {
		return
	}
	copy(o.rank, q.best)
	m.best, m.span = o.programs(), q.span
	a.offer(m)
}

// mostAnnealed bounds the ops of a problem that is annealed: a larger one gets too few moves.
const mostAnnealed = 200_000

// listSearch looks for the rules with which list scheduling is fastest on one map.
type listSearch struct {
	*auto
	costs  Costs
	l      *lister
	rng    *rand.Rand
	budget int // ops
	best   []rankRules
	least  float64
	bound  float64
}

func (q *listSearch) run() {
	s := q.l.s
	p := s.Ranks
	for _, ahead := range []func(r int) int{
		func(int) int { return 0 },
		func(r int) int { return p - r },
		func(r int) int { return 2*(p-r) - 1 },
		func(r int) int { return p },
		func(r int) int { return p + (p-r)/2 },
		func(r int) int { return 2 * p },
	} {
		for _, fill := range []float64{1, 0.5, 0} {
			for _, forwardFirst := range []bool{false, true} {
				for _, join := range q.joins() {
					rules := make([]rankRules, p)
					for r := range rules {
						rules[r] = rankRules{ahead: ahead(r), fill: fill, forwardFirst: forwardFirst, join: join}
					}
					q.try(rules)
				}
			}
		}
	}
	for q.budget > 0 && q.best != nil && q.least > q.bound*(1+1e-9) {
		rules := append([]rankRules(nil), q.best...)
		for range 1 + q.rng.IntN(3) {
			q.mutate(rules)
		}
		q.try(rules)
	}
	if q.best == nil {
		return
	}
	q.try(q.best)
}

// joins returns the sizes of W to start from: single ones, and the largest
// allowed where joining saves time.
func (q *listSearch) joins() []int {
	for i := range q.l.lanes {
		if c := q.l.lanes[i].cost; q.p.Concat != 1 && c.wExtra < c.w {
			return []int{1, q.p.Concat}
		}
	}
	return []int{1}
}

// mutate changes one rule of one rank, or of all.
func (q *listSearch) mutate(rules []rankRules) {
	from, to := 0, len(rules)
	if q.rng.IntN(4) > 0 {
		from = q.rng.IntN(len(rules))
		to = from + 1
	}
	what, by := q.rng.IntN(4), 1-2*q.rng.IntN(2)
	fill := float64(q.rng.IntN(5)) / 4
	m := q.p.Microbatches
	for r := from; r < to; r++ {
		switch rule := &rules[r]; what {
		case 0:
			if rule.ahead == 0 {
				rule.ahead = m
			}
			rule.ahead = max(1, min(m, rule.ahead+by))
		case 1:
			rule.fill = fill
		case 2:
			rule.forwardFirst = !rule.forwardFirst
		case 3:
			if rule.lag += by; rule.lag < 0 || rule.lag > m {
				rule.lag = 0
			}
		}
	}
}

// try runs the list scheduler with rules and keeps them when they are no slower.
func (q *listSearch) try(rules []rankRules) {
	copy(q.l.rules, rules)
	q.budget -= 3 * q.p.Microbatches * q.l.s.Stages
	q.auto.best.Tried++
	if makespan, ok := q.l.run(); ok && makespan <= q.least {
		q.best, q.least = rules, makespan
	}
}
