package schedule

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Problem is what Auto solves: the fastest schedule of a job under a memory limit.
type Problem struct {
	Ranks, Microbatches int
	// Chunks are the numbers of stages a rank to try; none: 1 and 2.
	Chunks []int
	// Model returns the costs and bytes of the model cut into so many stages; ok is
	// false when it cannot be cut so.
	Model func(stages int) (costs Costs, bytes []StageBytes, ok bool)
	// Limit is the most bytes that a rank may hold, Fixed included: an entry for each
	// rank, one for all, or none.
	Limit []int64
	// Peak, where given, is what each rank really needs for a schedule, and what is held against Limit: the
	// bytes of Model then only guide the search.
	Peak func(s *Schedule) ([]int64, error)
	// Concat is the largest number of micro-batches that a W may join; 0: any. With
	// 1, gradients have the bits of the fused backward.
	Concat int
	// OneCopy leaves out bidirectional schedules, which hold two copies of the weights.
	OneCopy bool
	// Ops is how many ops the search may place by list scheduling, and a measure of how many annealing
	// visits: it bounds the time; 0: 1.5 million.
	Ops int
}

// Solution is what Auto found.
type Solution struct {
	Schedule *Schedule
	// Kind and Policy say which of the family it is; Kind is "auto" for a placement of Auto's own.
	Kind   string
	Policy Policy

	Makespan float64
	Peak     []int64 // bytes by rank
	// Bound is a makespan that no schedule can beat that has one of the cuts and maps of stages to ranks
	// that were searched, and keeps the limit.
	Bound float64
	// Family is the best makespan of the builders with the p2 dial; +Inf when none fits.
	Family float64
	Tried  int // schedules simulated
}

// Gap returns how far the makespan is above the bound, as a share of the bound.
func (s *Solution) Gap() float64 {
	if s.Bound <= 0 {
		return 0
	}
	return s.Makespan/s.Bound - 1
}

// Auto returns the fastest schedule it finds under the memory limit: the best of
// all synchronous builders with the p2 dial, or an order of its own: by list scheduling, whose
// rules are searched over, improved by simulated annealing. It is deterministic. The error says how much memory the
// least hungry schedule needs when none fits.
func Auto(p Problem) (*Solution, error) {
	if p.Ranks < 1 || p.Ranks > MaxRanks || p.Microbatches < 1 || p.Microbatches > MaxMicrobatches {
		return nil, fmt.Errorf("schedule auto: %d ranks and %d micro-batches; both must be at least 1", p.Ranks, p.Microbatches)
	}
	if len(p.Limit) > 1 && len(p.Limit) != p.Ranks {
		return nil, fmt.Errorf("schedule auto: memory limits for %d ranks instead of %d", len(p.Limit), p.Ranks)
	}
	if p.Chunks == nil {
		p.Chunks = []int{1, 2}
	}
	if p.Ops == 0 {
		p.Ops = 1_500_000
	}
	a := &auto{p: p, best: Solution{Makespan: math.Inf(1), Family: math.Inf(1)}, least: math.MaxInt64}
	if err := a.family(); err != nil {
		return nil, err
	}
	a.best.Family = a.best.Makespan
	if err := a.own(); err != nil {
		return nil, err
	}
	if a.best.Schedule == nil {
		if a.least == math.MaxInt64 {
			return nil, fmt.Errorf("schedule auto: the model cannot be cut into %d ranks × %v chunks", p.Ranks, p.Chunks)
		}
		return nil, fmt.Errorf("schedule auto: no schedule fits: rank %d needs at least %d bytes, its limit is %d; allow more memory, or take smaller micro-batches or more ranks",
			a.leastRank, a.least, a.limit(a.leastRank))
	}
	return &a.best, nil
}

type auto struct {
	p         Problem
	best      Solution
	least     int64 // bytes over which the least hungry schedule tried is still too large
	leastRank int
}

func (a *auto) limit(rank int) int64 {
	switch len(a.p.Limit) {
	case 0:
		return math.MaxInt64
	case 1:
		return a.p.Limit[0]
	}
	return a.p.Limit[rank]
}

// peak returns what each rank holds at most.
func (a *auto) peak(s *Schedule, bytes []StageBytes) ([]int64, error) {
	if a.p.Peak != nil && len(a.p.Limit) > 0 {
		return a.p.Peak(s)
	}
	return PeakBytes(s, bytes), nil
}

// fits says whether peaks keep the limit.
func (a *auto) fits(peak []int64) bool {
	worst, over := 0, int64(math.MinInt64)
	for r, n := range peak {
		if d := n - a.limit(r); d > over {
			worst, over = r, d
		}
	}
	if over > 0 && peak[worst] < a.least {
		a.least, a.leastRank = peak[worst], worst
	}
	return over <= 0
}

// consider keeps s when it is faster than the best so far and fits. It returns what its ranks hold
// where it is faster, and nil where it is not.
func (a *auto) consider(s *Schedule, kind string, policy Policy, costs Costs, bytes []StageBytes) ([]int64, error) {
	a.best.Tried++
	t, err := Simulate(s, costs)
	if err != nil || t.Makespan() >= a.best.Makespan {
		return nil, err
	}
	peak, err := a.peak(s, bytes)
	if err != nil || !a.fits(peak) {
		return peak, err
	}
	a.best.Schedule, a.best.Kind, a.best.Policy = s, kind, policy
	a.best.Makespan, a.best.Peak = t.Makespan(), peak
	a.best.Bound = LowerBound(s, costs)
	return peak, nil
}

// family tries every synchronous builder with every setting of the p2 dial, the fastest first, until one fits.
func (a *auto) family() error {
	type member struct {
		kind     string
		chunks   int
		policy   Policy
		makespan float64
	}
	make := func(m member) (*Schedule, error) {
		base, err := Build(m.kind, Config{Ranks: a.p.Ranks, Microbatches: a.p.Microbatches, Chunks: m.chunks})
		if err != nil {
			return nil, err
		}
		return TwoBP(base, m.policy)
	}
	var list []member
	for _, chunks := range a.p.Chunks {
		costs, _, ok := a.p.Model(a.p.Ranks * chunks)
		if !ok {
			continue
		}
		for _, info := range Kinds() {
			if info.Async || info.Bidirectional && a.p.OneCopy || !info.Chunks && info.DefaultChunks != chunks {
				continue
			}
			base, err := Build(info.Name, Config{Ranks: a.p.Ranks, Microbatches: a.p.Microbatches, Chunks: chunks})
			if err != nil {
				continue // not for these ranks and micro-batches
			}
			for _, placement := range Placements() {
				for _, concat := range a.concats(placement) {
					m := member{info.Name, chunks, Policy{placement, concat}, 0}
					s, err := TwoBP(base, m.policy)
					if err != nil {
						return err
					}
					t, err := Simulate(s, costs)
					if err != nil {
						return err
					}
					m.makespan = t.Makespan()
					list = append(list, m)
				}
			}
		}
	}
	slices.SortStableFunc(list, func(x, y member) int { return cmp.Compare(x.makespan, y.makespan) })
	for _, m := range list {
		s, err := make(m)
		if err != nil {
			return err
		}
		costs, bytes, _ := a.p.Model(s.Stages)
		if _, err := a.consider(s, m.kind, m.policy, costs, bytes); err != nil {
			return err
		}
		if a.best.Schedule != nil {
			break
		}
	}
	return nil
}

// concats returns the group sizes of W worth trying.
func (a *auto) concats(placement Placement) []int {
	switch {
	case placement == PlaceFused || placement == PlaceNative || a.p.Concat == 1:
		return []int{1}
	case a.p.Concat == 0:
		return []int{1, 2, 4, 0}
	}
	return []int{1, a.p.Concat}
}

// joinWeights joins W of a stage that follow each other, up to concat (0: all).
func joinWeights(s *Schedule, concat int) *Schedule {
	out := s.Clone()
	for r, program := range out.Programs {
		joined := program[:0]
		for _, o := range program {
			if n := len(joined); n > 0 && o.Kind == BackwardWeight && joined[n-1].Kind == BackwardWeight &&
				joined[n-1].Stage == o.Stage && joined[n-1].Last+1 == o.First &&
				(concat == 0 || joined[n-1].Microbatches() < concat) {
				joined[n-1].Last = o.Last
				continue
			}
			joined = append(joined, o)
		}
		out.Programs[r] = joined
	}
	return out
}

// fuseAdjacent makes one B of an I and its W where they stand side by side.
func fuseAdjacent(s *Schedule) *Schedule {
	out := s.Clone()
	for r, program := range out.Programs {
		fused := program[:0]
		for _, o := range program {
			if n := len(fused); n > 0 && o.Kind == BackwardWeight && fused[n-1] == op(o.Stage, BackwardInput, o.First) && o.First == o.Last {
				fused[n-1].Kind = Backward
				continue
			}
			fused = append(fused, o)
		}
		out.Programs[r] = fused
	}
	return out
}
