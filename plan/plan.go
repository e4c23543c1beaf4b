// Package plan is the planner: what a job's step will take in time
// and memory under its schedule and under every other one, before anything
// starts, as text, JSON and a page with pictures. It predicts with the values
// that a run uses too: the schedule, the layers' own declarations, the costs and the engine's dry step.
package plan

import (
	"fmt"
	"math"
	"slices"

	"github.com/pipetrain/pipetrain/costs"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/schedule"
)

// Options say how a plan is made.
type Options struct {
	Source costs.Source
	// Ops is asked for the scratch memory of passes: the job's device, or a like one.
	Ops kernels.Ops
	// Alone leaves the alternatives out.
	Alone bool
	// Progress, where given, is told how many of the alternatives are done; from several goroutines at once.
	Progress func(what string, done, total int)
	// Auto adds schedule.Auto's result to the alternatives, also where it takes long.
	Auto bool
}

// Idle says why a rank was idle; the parts add up to its idle time.
type Idle struct {
	Warmup     float64 `json:"warmup"`     // before its first op
	Dependency float64 `json:"dependency"` // until another rank had made the input
	Transfer   float64 `json:"transfer"`   // while the input was under way
	Other      float64 `json:"other"`      // reductions and updates
	Drain      float64 `json:"drain"`      // after its last op
}

// Result is what one schedule makes of the job. Lists are by pipeline rank.
type Result struct {
	Schedule     string `json:"schedule"`
	P2           string `json:"backward_p2"`
	Concat       string `json:"concat"`
	Chunks       int    `json:"chunks"`
	Ranks        int    `json:"ranks"`
	Stages       int    `json:"stages"`
	Microbatches int    `json:"microbatches"`

	Makespan float64 `json:"makespan"` // from the step's first op to its last
	// Bubble is the idle share of ranks × makespan; InnerBubble that between each rank's own first and last op.
	Bubble      float64   `json:"bubble"`
	InnerBubble float64   `json:"bubble_within_ranks"`
	Idle        []float64 `json:"idle"`
	// IdleParts splits Idle; of large jobs the job's own schedule alone has it.
	IdleParts []Idle `json:"idle_parts,omitempty"`
	// LowerBound is a makespan that no order with the same stages on the same ranks can beat.
	LowerBound float64 `json:"lower_bound"`
	StepTime   float64 `json:"step_time"` // the makespan and the optimizer
	// TokensPerSecond is over all replicas; 0 where times are units.
	TokensPerSecond float64 `json:"tokens_per_second,omitempty"`

	// PeakMicrobatches is in activations of a rank's whole share of the model: with v chunks, 1/v for each.
	PeakMicrobatches []float64 `json:"peak_microbatches"`
	PeakBytes        []int64   `json:"peak_bytes"`
	// Memory is the peak by category; only where MemoryExact says that PeakBytes
	// is the size of the arena that the engine allocates, else it is an estimate.
	Memory      []map[string]int64 `json:"memory,omitempty"`
	MemoryExact bool               `json:"memory_exact"`
	Transfers   int                `json:"transfers"` // tensors sent in a step of one replica

	Asynchronous bool `json:"asynchronous,omitempty"`
	Fits         bool `json:"fits"`   // within schedule.memory_limit
	Pareto       bool `json:"pareto"` // no other is both as fast and as small
	Job          bool `json:"job,omitempty"`

	worst   int64 // largest of PeakBytes
	program *program
}

// Peak returns the bytes of the rank that holds the most.
func (r *Result) Peak() int64 { return r.worst }

// Name prints the schedule with its dial: "1f1b cooldown concat all", "zb-v native".
func (r *Result) Name() string {
	s := r.Schedule
	if r.Chunks > 1 {
		s += fmt.Sprintf(" ×%d", r.Chunks)
	}
	s += " " + r.P2
	if r.Concat == "all" || r.Concat != "1" && r.Concat != "" {
		s += " concat " + r.Concat
	}
	return s
}

// Impossible is a schedule that the job cannot have, and why.
type Impossible struct {
	Schedule string `json:"schedule"`
	Reason   string `json:"reason"`
}

// Plan is the prediction of a job under its own schedule, and under others.
type Plan struct {
	Name  string `json:"name"`
	Unit  string `json:"unit"`  // of all times: "s" or "units"
	Costs string `json:"costs"` // where the times come from
	Result
	MemoryLimit  int64        `json:"memory_limit,omitempty"`
	Replicas     int          `json:"replicas"`
	Precision    string       `json:"precision"`
	Alternatives []*Result    `json:"alternatives"`
	Impossible   []Impossible `json:"impossible,omitempty"`

	// Timeline is the job's own step: compute ops, reductions and updates.
	Timeline *schedule.Timeline `json:"-"`
	// Program is the job's own schedule, lowered.
	Program *schedule.Schedule `json:"-"`
	job     *job
}

// Make predicts a checked job.
func Make(spec *jobs.Spec, o Options) (*Plan, error) {
	j, err := newJob(spec, o.Source, o.Ops)
	if err != nil {
		return nil, err
	}
	p := &Plan{Name: spec.Name, Unit: o.Source.Unit(), Costs: o.Source.String(), Replicas: spec.Parallel.Replicas, Precision: spec.Train.Precision,
		MemoryLimit: int64(spec.Schedule.MemoryLimit), Alternatives: []*Result{}, job: j}
	s, own, err := j.own()
	if err != nil {
		return nil, err
	}
	if p.Program, err = lowered(s); err != nil {
		return nil, err
	}
	c, err := j.cutInto(s.Stages, chunksOf(s))
	if err != nil {
		return nil, err
	}
	t, err := schedule.Simulate(p.Program, c.costsOf(s))
	if err != nil {
		return nil, fmt.Errorf("simulating the job's schedule: %w", err)
	}
	p.Timeline = withoutTransfers(t)
	own.Job = true
	if err := j.fill(own, p.Program, p.Timeline, c); err != nil {
		return nil, err
	}
	p.Result = *own
	if o.Alone {
		return p, nil
	}
	if err := p.compare(o); err != nil {
		return nil, err
	}
	return p, nil
}

// own returns the job's schedule and its name in the table.
func (j *job) own() (*schedule.Schedule, *Result, error) {
	k := j.spec.Schedule
	if k.Kind == jobs.KindAuto && j.spec.CustomSchedule() == nil {
		found, err := j.search()
		if err != nil {
			return nil, nil, err
		}
		j.found = found
		return found.Schedule, &Result{Schedule: k.Kind, P2: string(schedule.PlaceNative), Concat: "1"}, nil
	}
	s, err := j.spec.BuildSchedule()
	if err != nil {
		return nil, nil, err
	}
	return s, &Result{Schedule: k.Kind, P2: k.BackwardP2, Concat: concatText(int(k.Concat), k.BackwardP2)}, nil
}

func lowered(s *schedule.Schedule) (*schedule.Schedule, error) {
	if s.Lowered {
		return s, nil
	}
	return schedule.Lower(s)
}

func chunksOf(s *schedule.Schedule) int { return max(1, s.Stages/s.Ranks) }

func concatText(n int, p2 string) string {
	switch {
	case p2 == string(schedule.PlaceFused) || p2 == string(schedule.PlaceNative):
		return "1"
	case n == 0:
		return "all"
	}
	return fmt.Sprint(n)
}

// withoutTransfers leaves SEND, RECV and WAIT out of a timeline.
func withoutTransfers(t *schedule.Timeline) *schedule.Timeline {
	moves := func(e schedule.Event) bool { return e.Op.Kind.IsTransfer() }
	if !slices.ContainsFunc(t.Events, moves) {
		return t
	}
	out := &schedule.Timeline{Ranks: t.Ranks, Events: make([]schedule.Event, 0, len(t.Events)/2)}
	for _, e := range t.Events {
		if !moves(e) {
			out.Events = append(out.Events, e)
		}
	}
	return out
}

// rounding is the share of a makespan below which a difference of times is rounding.
const rounding = 1e-12

// exact returns x, a difference of times up to `of`, or 0 where it is rounding: sums leave some
// 1e-15 where they mean 0.
func exact(of, x float64) float64 {
	if x < rounding*of {
		return 0
	}
	return x
}

// splitOps bounds the ops of an alternative whose idle time is split: it takes longer than all else.
const splitOps = 1 << 15

// fill computes all figures of a simulated schedule. Memory is exact where s is
// lowered and small enough for a dry step of every rank.
func (j *job) fill(r *Result, s *schedule.Schedule, t *schedule.Timeline, c *cutting) error {
	r.Chunks, r.Ranks, r.Stages, r.Microbatches = chunksOf(s), s.Ranks, s.Stages, s.Microbatches
	r.Asynchronous = s.Async != nil
	r.Makespan = t.Makespan()
	r.Bubble, r.InnerBubble = exact(1, t.Bubble()), exact(1, t.InnerBubble())
	for _, rank := range t.PerRank() {
		r.Idle = append(r.Idle, exact(r.Makespan, rank.Idle))
	}
	if r.Job || s.Ops() <= splitOps {
		for _, part := range schedule.IdleParts(s, t) {
			r.IdleParts = append(r.IdleParts, Idle{exact(r.Makespan, part.Warmup), exact(r.Makespan, part.Dependency), exact(r.Makespan, part.Transfer), exact(r.Makespan, part.Other), exact(r.Makespan, part.Drain)})
		}
	}
	r.LowerBound = min(r.Makespan, schedule.LowerBound(s, c.costs))
	r.StepTime = r.Makespan + updateTime(s, c.costs)
	if j.source.Unit() == "s" && r.StepTime > 0 {
		r.TokensPerSecond = float64(j.spec.Train.Batch) * float64(j.spec.Model.Seq) / r.StepTime
	}
	for _, p := range schedule.PeakMicrobatches(s) {
		r.PeakMicrobatches = append(r.PeakMicrobatches, float64(p.Live)/float64(r.Chunks))
	}
	r.Transfers = transfers(s)
	if err := j.fillMemory(r, s, c); err != nil {
		return err
	}
	limit := int64(j.spec.Schedule.MemoryLimit)
	r.worst = 0
	for _, n := range r.PeakBytes {
		r.worst = max(r.worst, n)
	}
	r.Fits = limit == 0 || r.worst <= limit
	return nil
}

// exactOps bounds ranks × ops of a schedule whose memory is planned by a dry step of every rank.
const exactOps = 1 << 18

func (j *job) fillMemory(r *Result, s *schedule.Schedule, c *cutting) error {
	if s.Lowered && s.Ops()*s.Ranks <= exactOps {
		exact, err := j.exactMemory(s, c)
		if err != nil {
			return fmt.Errorf("planning the memory of %s: %w", s.Name, err)
		}
		r.MemoryExact = true
		for _, m := range exact {
			r.PeakBytes, r.Memory = append(r.PeakBytes, m.Arena), append(r.Memory, m.ByCategory)
		}
		return nil
	}
	r.PeakBytes = estimateMemory(s, c)
	return nil
}

// updateTime returns the time of the optimizer after the step: the rank that takes longest.
// Asynchronous schedules have it within the step.
func updateTime(s *schedule.Schedule, c costs.Costs) float64 {
	if s.Async != nil {
		return 0
	}
	longest := 0.0
	for r := range s.Ranks {
		t := 0.0
		for _, stage := range s.StagesOf(r) {
			t += c.StageUpdate(stage)
		}
		longest = max(longest, t)
	}
	return longest
}

// transfers counts the tensors that go from one rank to another.
func transfers(s *schedule.Schedule) int {
	n := 0
	for k := range s.Microbatches {
		for stage := range s.Stages - 1 {
			if s.RankOf(stage, k) != s.RankOf(stage+1, k) {
				n += 2
			}
		}
	}
	return n
}

// near says whether two times are the same but for rounding.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b)) }
