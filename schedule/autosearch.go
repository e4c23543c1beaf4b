package schedule

import (
	"math"
	"math/rand/v2"
)

// own searches for orders of its own: on each map of stages to ranks list scheduling with rules that are
// searched over, then annealing from what that found.
func (a *auto) own() error {
	var maps []*mapSearch
	for _, chunks := range a.p.Chunks {
		maps = append(maps, a.maps(chunks)...)
	}
	if len(maps) == 0 {
		return nil
	}
	a.best.Bound = math.Inf(1)
	for _, m := range maps {
		a.best.Bound = min(a.best.Bound, m.bound)
	}
	for i, m := range maps {
		if m.bound >= a.best.Makespan*(1-1e-9) {
			continue // nothing to find here
		}
		if err := m.list(a, rand.New(rand.NewPCG(uint64(i), uint64(m.s.Stages))), a.p.Ops/len(maps)); err != nil {
			return err
		}
	}
	return a.annealAll(maps)
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
	// listed is what list scheduling found.
	listed [][]Op
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

// list searches the rules of list scheduling. Where what it finds needs more than the limit, or less than the
// bytes of the model say, the search is repeated with limits that are lower or higher by as much.
func (m *mapSearch) list(a *auto, rng *rand.Rand, ops int) error {
	for try := range limitTries {
		q := &listSearch{auto: a, costs: m.costs, l: newLister(m.s.Clone(), m.costs), rng: rng, least: math.Inf(1), bound: m.bound, budget: ops / (try + 1)}
		if m.limit != nil {
			q.l.limitBytes(m.bytes, m.limit)
		}
		q.run()
		if q.best == nil {
			return nil
		}
		done, err := m.offer(a, q.l.s.Clone().Programs, q.least, try)
		if done || err != nil {
			return err
		}
	}
	return nil
}

// limitTries bounds how often limits are corrected.
const limitTries = 5

// offer hands an order to Auto, as it is and with W joined or fused where that is cheaper, and keeps it
// as the map's best where it fits. Where not, or where a first try leaves memory, the map's limits are corrected, and done is false.
func (m *mapSearch) offer(a *auto, programs [][]Op, span float64, try int) (done bool, err error) {
	s := m.s.Clone()
	s.Programs = programs
	peak, err := a.peak(s, m.bytes)
	if err != nil {
		return true, err
	}
	if a.fits(peak) {
		if span < m.span {
			m.best, m.span = programs, span
		}
		if m.listed == nil {
			m.listed = programs
		}
		for _, form := range []*Schedule{s, joinWeights(s, a.p.Concat), fuseAdjacent(s)} {
			if _, err := a.consider(form, "auto", Policy{}, m.costs, m.bytes); err != nil {
				return true, err
			}
		}
	}
	if a.p.Peak == nil || m.limit == nil {
		return true, nil
	}
	done = true
	for r, n := range PeakBytes(s, m.bytes) {
		over := peak[r] - a.limit(r)
		switch {
		case over > 0:
			m.limit[r] -= over
			done = false
		case try == 0 && peak[r] < n: // there is more memory than the bytes say
			m.limit[r] += n - peak[r]
			done = false
		}
	}
	return done, nil
}

// How annealing is done: the ops that it visits, by Problem.Ops, and more for large problems; and
// the temperature at which every visit ends, in mean times of an op.
const (
	visitsPerOp = 40
	largeVisits = 4    // times as many where there are
	largeOps    = 500  // so many ops or more
	coldOps     = 3000 // and the temperature is lower, in proportion, where there are more
	coldest     = 0.02
)

// round is an annealing run on the maps that take part.
type round struct {
	hot    float64 // the temperature that it starts at, in mean times of an op
	fresh  bool    // from what list scheduling found, and not from the map's best
	within float64 // how much slower than the best a map may be to take part
}

// A small problem is begun anew several times. A large one is not, and starts the colder the larger it is.
var (
	rounds      = []round{{1, true, math.Inf(1)}, {3, true, 1.15}, {8, true, 1.1}, {3, false, 1.05}, {1, false, 1.03}, {0.5, false, 1.02}}
	largeRounds = []round{{1, true, math.Inf(1)}, {0.8, false, 1.05}, {0.4, false, 1.02}}
)

// annealAll anneals the orders of the maps.
func (a *auto) annealAll(maps []*mapSearch) error {
	n := 3 * a.p.Microbatches * maps[len(maps)-1].s.Stages
	visits := float64(a.p.Ops) * visitsPerOp * min(largeVisits, 1+float64(n)*(largeVisits-1)/largeOps)
	list, scale := rounds, 1.0
	if n >= largeOps {
		list, scale = largeRounds, coldOps/float64(n)
	}
	for i, how := range list {
		least := math.Inf(1)
		for _, m := range maps {
			least = min(least, m.span)
		}
		var taking []*mapSearch
		for _, m := range maps {
			if m.best != nil && m.span <= how.within*least {
				taking = append(taking, m)
			}
		}
		for k, m := range taking {
			if err := m.anneal(a, how.fresh, int(visits)/len(list)/len(taking), scale*how.hot, uint64(100*i+k)); err != nil {
				return err
			}
		}
	}
	return nil
}

// anneal improves the best order of a map.
func (m *mapSearch) anneal(a *auto, fresh bool, visits int, hot float64, seed uint64) error {
	stop := m.bound * (1 + 1e-9)
	if m.span <= stop || m.bound >= a.best.Makespan*(1-1e-9) {
		return nil
	}
	o := newOrders(m.s, m.costs, m.bytes, m.limit, a.p.Concat)
	start := m.best
	if fresh {
		start = m.listed
	}
	if len(o.nodes) > mostAnnealed || !o.set(start) {
		return nil
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
		return nil
	}
	copy(o.rank, q.best)
	_, err := m.offer(a, o.programs(), q.span, 1)
	return err
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
