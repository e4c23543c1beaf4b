package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pipetrain/pipetrain/schedule"
)

// candidate is a schedule to try for the job.
type candidate struct {
	kind   string
	base   *schedule.Schedule // as built
	policy schedule.Policy
	exact  bool // lower it and plan its memory by dry steps
}

// exactCompute bounds the compute ops × ranks under which all alternatives are
// judged by their lowered forms and dry steps. All or none: their figures are compared.
const exactCompute = 1 << 13

// autoOps bounds the compute ops of a step for which the search is tried unasked.
const autoOps = 3 * 16 * 64 * 2

// compare fills in the alternatives: every kind with every setting of the p2 dial.
func (p *Plan) compare(o Options) error {
	j := p.job
	exact := p.Program.Ranks*p.Program.Ranks*p.Program.Microbatches*3 <= exactCompute
	list := j.candidates(p, exact)
	results := make([]*Result, len(list))
	errs := make([]error, len(list))
	var done atomic.Int64
	var wg sync.WaitGroup
	next := make(chan int)
	for range max(1, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := range next {
				results[i], errs[i] = j.try(list[i])
				if n := done.Add(1); o.Progress != nil {
					o.Progress("schedules", int(n), len(list))
				}
			}
		})
	}
	for i := range list {
		next <- i
	}
	close(next)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	p.Alternatives = append(p.Alternatives, results...)
	if !o.Auto {
		j.effort = asideOps
	}
	if o.Auto || 3*p.Program.Ranks*p.Program.Microbatches*2 <= autoOps {
		if r := j.tryAuto(exact); r != nil {
			p.Alternatives = append(p.Alternatives, r)
		}
	}
	p.markOwn()
	markPareto(p.Alternatives)
	slices.SortStableFunc(p.Alternatives, func(a, b *Result) int {
		if !near(a.StepTime, b.StepTime) {
			return cmp.Compare(a.StepTime, b.StepTime)
		}
		return cmp.Compare(a.worst, b.worst)
	})
	return nil
}

// candidates lists what to try and notes what is impossible.
func (j *job) candidates(p *Plan, exact bool) []candidate {
	var list []candidate
	own := j.spec.Schedule
	for _, info := range schedule.Kinds() {
		chunks := []int{max(1, info.DefaultChunks)}
		if info.Chunks && own.Chunks > 1 && own.Chunks != chunks[0] {
			chunks = append(chunks, own.Chunks)
		}
		for _, v := range chunks {
			config := schedule.Config{Ranks: p.Program.Ranks, Microbatches: p.Program.Microbatches, Chunks: v}
			base, err := schedule.Build(info.Name, config)
			if err == nil {
				_, err = j.cutInto(config.Ranks*v, v)
			}
			if err != nil {
				p.Impossible = append(p.Impossible, Impossible{info.Name, err.Error()})
				continue
			}
			for _, policy := range policies(info, int(own.Concat)) {
				list = append(list, candidate{info.Name, base, policy, exact})
			}
		}
	}
	return list
}

// policies lists the settings of the p2 dial for a kind: each placement, with single W and
// joined as far as possible, and as the job joins them.
func policies(info schedule.Info, concat int) []schedule.Policy {
	if info.Async {
		return []schedule.Policy{{Placement: schedule.PlaceFused, Concat: 1}}
	}
	var list []schedule.Policy
	for _, placement := range schedule.Placements() {
		switch placement {
		case schedule.PlaceNative:
			if info.Split {
				list = append(list, schedule.Policy{Placement: placement, Concat: 1})
			}
			continue
		case schedule.PlaceFused:
			list = append(list, schedule.Policy{Placement: placement, Concat: 1})
			continue
		}
		sizes := []int{1, 0}
		if concat > 1 {
			sizes = append(sizes, concat)
		}
		for _, n := range sizes {
			list = append(list, schedule.Policy{Placement: placement, Concat: n})
		}
	}
	return list
}

// try predicts one candidate.
func (j *job) try(c candidate) (*Result, error) {
	s, err := schedule.TwoBP(c.base, c.policy)
	if err != nil {
		return nil, err
	}
	r := &Result{program: &program{candidate: c, ops: s.Ops()}, Schedule: c.kind, P2: string(c.policy.Placement), Concat: concatText(c.policy.Concat, string(c.policy.Placement))}
	return r, j.judge(r, s, c.exact)
}

// program is what a Result was made from, to be made again.
type program struct {
	candidate
	found *schedule.Schedule // by the search; else the candidate's base and policy
	ops   int
}

// replay simulates the schedule of a result once more: timelines of all of them at once would not fit in memory.
func (j *job) replay(r *Result) (*schedule.Schedule, *schedule.Timeline, error) {
	s := r.program.found
	if s == nil {
		var err error
		if s, err = schedule.TwoBP(r.program.base, r.program.policy); err != nil {
			return nil, nil, err
		}
	}
	s, t, _, err := j.simulate(r, s, r.program.exact)
	return s, t, err
}

// judge simulates a schedule of compute ops and fills in r.
func (j *job) judge(r *Result, s *schedule.Schedule, exact bool) error {
	s, t, cut, err := j.simulate(r, s, exact)
	if err != nil {
		return err
	}
	return j.fill(r, s, t, cut)
}

// simulate returns the schedule as simulated, lowered where exact, and its timeline without transfers.
func (j *job) simulate(r *Result, s *schedule.Schedule, exact bool) (*schedule.Schedule, *schedule.Timeline, *cutting, error) {
	cut, err := j.cutInto(s.Stages, chunksOf(s))
	if err != nil {
		return nil, nil, nil, err
	}
	switch {
	case exact:
		if s, err = lowered(s); err != nil {
			return nil, nil, nil, err
		}
	case j.spec.Parallel.Replicas > 1 || len(s.Place) > 1:
		// Reductions take time, and only lowered schedules have them.
		if s, err = schedule.Passes(schedule.AddTransfers, schedule.AddReduceGrad, schedule.Pace)(s); err != nil {
			return nil, nil, nil, err
		}
	}
	t, err := schedule.Simulate(s, cut.costsOf(s))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("simulating %s: %w", r.Name(), err)
	}
	return s, withoutTransfers(t), cut, nil
}

// asideOps is the effort of a search that nobody asked for: about a second.
const asideOps = 150_000

// tryAuto searches for a schedule; nil where none fits.
func (j *job) tryAuto(exact bool) *Result {
	found := j.found
	if found == nil {
		var err error
		if found, err = j.search(); err != nil {
			return nil
		}
	}
	r := &Result{program: &program{candidate: candidate{exact: exact}, found: found.Schedule, ops: found.Schedule.Ops()}, Schedule: "auto", P2: string(schedule.PlaceNative), Concat: "1"}
	if err := j.judge(r, found.Schedule, exact); err != nil {
		return nil
	}
	return r
}

// markOwn marks the job's own schedule among the alternatives.
func (p *Plan) markOwn() {
	for _, r := range p.Alternatives {
		r.Job = r.Schedule == p.Schedule && r.P2 == p.P2 && r.Concat == p.Concat && r.Chunks == p.Chunks
		if r.Job {
			return
		}
	}
	own := p.Result
	p.Alternatives = append(p.Alternatives, &own)
}

// markPareto marks the synchronous results that no other beats in time or memory
// without being worse in the other. Of equals the first is marked.
func markPareto(list []*Result) {
	order := slices.Clone(list)
	slices.SortStableFunc(order, func(a, b *Result) int {
		if !near(a.StepTime, b.StepTime) {
			return cmp.Compare(a.StepTime, b.StepTime)
		}
		return cmp.Compare(a.worst, b.worst)
	})
	least := int64(math.MaxInt64)
	for _, r := range order {
		if !r.Asynchronous && r.worst < least {
			r.Pareto, least = true, r.worst
		}
	}
}
