package plan

import (
	"errors"
	"fmt"

	"github.com/pipetrain/pipetrain/costs"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/schedule"
)

// search looks for the fastest schedule of the job within its memory limit. The search knows nothing of
// reductions: one that holds the weights twice must be faster than the best with one copy when its
// reduction is counted.
func (j *job) search() (*schedule.Solution, error) {
	found, err := j.searchWith(false)
	if err != nil || len(found.Schedule.Place) == 1 {
		return found, err
	}
	single, err := j.searchWith(true)
	if err != nil { // only two copies of less each fit
		return found, nil
	}
	both, err := j.fullMakespan(found.Schedule)
	if err != nil {
		return nil, err
	}
	one, err := j.fullMakespan(single.Schedule)
	if err != nil {
		return nil, err
	}
	if one <= both {
		return single, nil
	}
	return found, nil
}

// fullMakespan simulates a schedule with its reductions.
func (j *job) fullMakespan(s *schedule.Schedule) (float64, error) {
	_, t, _, err := j.simulate(&Result{Schedule: "auto"}, s, false)
	if err != nil {
		return 0, err
	}
	return t.Makespan(), nil
}

// searchWith searches with or without schedules that hold the weights twice. What ranks need is what
// the engine's dry step of a schedule says; the bytes between ops guide the search. Scratch and tensors on their way
// are not in them: the search corrects its limits by what the dry step finds.
func (j *job) searchWith(oneCopy bool) (*schedule.Solution, error) {
	chunks := []int{1, 2}
	if v := j.spec.Schedule.Chunks; v > 1 {
		chunks = []int{v}
	}
	ranks, microbatches := j.spec.Parallel.Stages, j.spec.Schedule.Microbatches
	problem := schedule.Problem{
		Ranks: ranks, Microbatches: microbatches, Chunks: chunks, Concat: int(j.spec.Schedule.Concat), OneCopy: oneCopy,
		Model: func(stages int) (schedule.Costs, []schedule.StageBytes, bool) {
			c, err := j.cutInto(stages, stages/ranks)
			if err != nil {
				return nil, nil, false
			}
			return c.costs, c.bytes, true
		},
		Peak: j.peak, Ops: j.effort,
	}
	if limit := int64(j.spec.Schedule.MemoryLimit); limit > 0 {
		problem.Limit = []int64{limit}
	}
	return schedule.Auto(problem)
}

// peak returns the bytes that each rank needs for a schedule.
func (j *job) peak(s *schedule.Schedule) ([]int64, error) {
	c, err := j.cutInto(s.Stages, chunksOf(s))
	if err != nil {
		return nil, err
	}
	low, err := lowered(s)
	if err != nil {
		return nil, err
	}
	var r Result
	err = j.fillMemory(&r, low, c)
	return r.PeakBytes, err
}

// Found is what Solve found for a job with schedule.kind = "auto".
type Found struct {
	Schedule *schedule.Schedule
	Kind     string // of the family, or "auto" for an order of the search's own
	Policy   string
	Makespan float64
	Gap      float64 // over the lower bound, as a share of it
	Bound    float64
	Family   float64 // the best makespan of the builders
	Costs    string
	Unit     string
}

// String says what was found and how far it is from the lower bound.
func (f *Found) String() string {
	what := "an order of its own"
	if f.Kind != "auto" {
		what = f.Kind + " " + f.Policy
	}
	s := fmt.Sprintf("schedule auto: %s, makespan %s, %.1f %% above the lower bound", what, f.time(f.Makespan), 100*f.Gap)
	if f.Kind == "auto" && f.Family > f.Makespan {
		if f.Family < 1e300 {
			s += fmt.Sprintf("; the best of the family takes %s", f.time(f.Family))
		} else {
			s += "; none of the family fits the memory limit"
		}
	}
	return s
}

func (f *Found) time(x float64) string { return formatTime(x, f.Unit) }

// Solve finds the schedule of a job with schedule.kind = "auto". The same job and costs give the
// same schedule on every rank.
func Solve(spec *jobs.Spec, source costs.Source, ops kernels.Ops) (*Found, error) {
	if source == nil || ops == nil {
		return nil, errors.New("schedule auto: no costs")
	}
	j, err := newJob(spec, source, ops)
	if err != nil {
		return nil, err
	}
	s, err := j.search()
	if err != nil {
		return nil, err
	}
	s.Schedule.Name = "auto"
	return &Found{Schedule: s.Schedule, Kind: s.Kind, Policy: s.Policy.String(), Makespan: s.Makespan, Gap: s.Gap(), Bound: s.Bound,
		Family: s.Family, Costs: source.String(), Unit: source.Unit()}, nil
}
