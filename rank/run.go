package rank

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/costs"
	"github.com/pipetrain/pipetrain/data"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/schedule"
	"github.com/pipetrain/pipetrain/stats"
)

// Config is what a rank needs for a run.
type Config struct {
	Spec      *jobs.Spec
	Transport collectives.Transport
	Device    kernels.Device
	Data      data.Source
	// Rehearsal makes ops take modelled time and compute nothing; Device is then
	// asked for scratch sizes only, nothing is read and nothing saved.
	Rehearsal *Rehearsal
	Dir       string // run folder, seen by every rank
	Resume    bool   // continue from the newest checkpoint
	Program   string // version and commit, for the checkpoints
	Log       zerolog.Logger
	// StopAsked says whether this rank was asked to stop at the next step boundary.
	StopAsked func() bool
	// OnStart is called on every rank before the first step, with the steps done before (resumed).
	OnStart func(done int) error
	// OnStep is called on every rank after each step.
	OnStep func(StepInfo) error
	// BeforeSave is called on every rank before a checkpoint: what was written of
	// the steps it covers must reach the disk first.
	BeforeSave func() error
	// Held says whether Dir is still this run's; asked before a checkpoint is written or removed. nil: it always is.
	Held func() error
}

func (c Config) warn(text string) { c.Log.Warn().Msg(text) }

// StepInfo is what a step's line of metrics and the progress line show.
type StepInfo struct {
	StepResult
	Tokens          int // of the global batch
	TokensPerSecond float64
	// PredictedBubble is what the profile of the first steps predicts; 0 until it is known, and on other ranks than 0.
	PredictedBubble float64
	PeakBytes       int64 // this rank's arena
}

// Report is what a run leaves in numbers. Complete on rank 0 only.
type Report struct {
	Start     int // steps done before (resumed)
	Steps     int // steps done now, those before included
	Stopped   bool
	LossFirst float64
	LossLast  float64
	Seconds   float64 // of the steps of this run
	Tokens    int     // a step
	// StepSeconds, Makespans and Bubbles are by step, of this run: without the steps that calibrated,
	// or, in a run that ended before others came, without the first.
	StepSeconds, Makespans, Bubbles []float64
	// Predicted is the step simulated with the op times of the calibrating steps; nil where the run was too short.
	Predicted *schedule.Timeline
	// Traced are the last steps' ops on all ranks.
	Traced []StepEvents
	// Measured is the traced step with the median makespan, first replica, compute only.
	Measured *schedule.Timeline
	Ranks    []RankReport // by world rank
	Final    int          // step of the last checkpoint
}

// RankReport is one rank's memory and speed.
type RankReport struct {
	Planned  Memory
	Measured Memory
	FLOPs    int64   // of the model, in one step
	Busy     float64 // median seconds of a step in which it computed
	// MatrixRate is the FLOP/s of a large matrix product on its device, measured after the
	// last step, with all ranks at it at once; 0: not measured, the run was too short.
	MatrixRate float64
	// Transfer is how messages leave and reach its device's memory, as device.transfer names it; "host": they need not.
	Transfer string
}

// A run so long is worth a measurement of its device.
const ratedRun = 2 * time.Second

// The steps that a run's profile is taken from: the first is left out, since it
// meets cold caches and first page faults.
const (
	firstProfiled = 2
	lastProfiled  = 6
	tracedSteps   = 8
)

// Run performs a whole run on one rank; all ranks of the world call it together.
func Run(ctx context.Context, c Config) (_ *Report, err error) {
	var tr *Trainer
	if c.Rehearsal != nil {
		tr, err = NewRehearsal(ctx, c.Spec, c.Transport, c.Device, *c.Rehearsal)
	} else {
		tr, err = New(ctx, c.Spec, c.Transport, c.Device, c.Data)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		// After a failure messages may still be on their way out of the memory or into it, and a peer may be
		// reading it by itself: it goes with the process.
		if err == nil {
			tr.Close()
		}
	}()
	tr.held = c.Held
	rep := &Report{Tokens: c.Spec.Train.Batch * c.Spec.Model.Seq, Final: -1}
	if c.Resume {
		if rep.Start, err = tr.Load(ctx, c.Dir, -1, c.warn); err != nil {
			return nil, err
		}
		c.Log.Info().Int("step", rep.Start).Msg("resumed")
		rep.Final = rep.Start
	}
	if c.Rehearsal == nil {
		reading, enough := context.WithCancel(ctx)
		defer enough()
		tr.takeDigest(reading)
	}
	if !c.Resume {
		if err := tr.save(ctx, c, 0, rep); err != nil {
			return nil, err
		}
	}
	rep.Steps = rep.Start
	if c.OnStart != nil {
		if err := c.OnStart(rep.Start); err != nil {
			return nil, err
		}
	}

	if c.Rehearsal != nil {
		if rep.Predicted, err = schedule.Simulate(tr.work.Schedule, c.Rehearsal.Costs); err != nil {
			return nil, err
		}
	}
	r := &runner{c: c, tr: tr, rep: rep, rec: recorder{keep: tracedSteps}}
	begin := time.Now()
	ctx, rest := tr.m.dog.guard(ctx, tr.m.waitsFor)
	defer rest()
	err = r.run(ctx, begin)
	return rep, stalled(ctx, err)
}

// run performs the steps, and what follows the last.
func (r *runner) run(ctx context.Context, begin time.Time) error {
	c, rep := r.c, r.rep
	for step := rep.Start + 1; step <= c.Spec.Train.Steps && !rep.Stopped; step++ {
		if err := r.step(ctx, step); err != nil {
			return err
		}
	}
	rep.Seconds = time.Since(begin).Seconds()
	if rep.Final != rep.Steps {
		if err := r.tr.save(ctx, c, rep.Steps, rep); err != nil {
			return err
		}
	}
	return r.finish(ctx)
}

type runner struct {
	c         Config
	tr        *Trainer
	rep       *Report
	rec       recorder
	predicted float64
	busy      []float64 // by step, this rank's
}

func (r *runner) step(ctx context.Context, step int) error {
	c, rep := r.c, r.rep
	stop := c.StopAsked != nil && c.StopAsked()
	r.tr.m.dog.step.Store(int64(step))
	res, err := r.tr.Step(ctx, step, stop)
	r.tr.m.dog.advance(betweenSteps)
	if err == nil {
		err = r.tr.digest.check()
	}
	if err != nil {
		return err
	}
	local := step - rep.Start
	if local >= firstProfiled {
		r.rec.add(step, r.tr.events, r.tr.offset)
	}
	if local == lastProfiled && c.Rehearsal == nil {
		if err := r.predict(ctx); err != nil {
			return err
		}
	}
	if local == 1 {
		rep.LossFirst = res.Loss
	}
	rep.LossLast, rep.Steps, rep.Stopped = res.Loss, step, res.Stop && step < c.Spec.Train.Steps
	if local == firstProfiled || local == lastProfiled+1 && c.Rehearsal == nil {
		// The first step, and those that calibrated, count only where none came after them.
		rep.StepSeconds, rep.Makespans, rep.Bubbles, r.busy = nil, nil, nil, nil
	}
	rep.StepSeconds = append(rep.StepSeconds, res.Seconds)
	rep.Makespans = append(rep.Makespans, res.Makespan)
	rep.Bubbles = append(rep.Bubbles, res.Bubble)
	r.busy = append(r.busy, r.tr.span().busy)
	if c.OnStep != nil {
		info := StepInfo{StepResult: res, Tokens: rep.Tokens, TokensPerSecond: float64(rep.Tokens) / res.Seconds,
			PredictedBubble: r.predicted, PeakBytes: r.tr.Measured().Arena}
		if err := c.OnStep(info); err != nil {
			return err
		}
	}
	r.tr.hurry = rep.Stopped
	every := c.Spec.Checkpoint.Every
	if every > 0 && step%every == 0 || rep.Stopped {
		return r.tr.save(ctx, c, step, rep)
	}
	return nil
}

// predict simulates the step with the op times measured so far.
func (r *runner) predict(ctx context.Context) error {
	steps, err := r.tr.gather(ctx, &r.rec)
	if err != nil {
		return err
	}
	r.rec = recorder{keep: tracedSteps}
	if steps == nil {
		return nil
	}
	measured, err := costs.Measure(r.tr.work.Schedule.Stages, samples(steps, r.tr.pipelineRank))
	if err != nil {
		return err
	}
	t, err := schedule.Simulate(r.tr.work.Schedule, measured)
	if err != nil {
		return fmt.Errorf("simulating the schedule with the measured times: %w", err)
	}
	r.rep.Predicted = t
	r.predicted = t.Bubble()
	return nil
}

// finish brings to rank 0 what the report needs from the others.
func (r *runner) finish(ctx context.Context) error {
	rep := r.rep
	steps, err := r.tr.gather(ctx, &r.rec)
	if err != nil {
		return err
	}
	mine := RankReport{Planned: r.tr.Planned(), Measured: r.tr.Measured(), FLOPs: r.tr.stepFLOPs(), Busy: stats.MedianOr(r.busy, 0), Transfer: r.tr.m.courier.Name()}
	if r.c.Rehearsal == nil && rep.Seconds >= ratedRun.Seconds() {
		mine.MatrixRate = matrixRate(r.c.Device, r.tr.work.Model.Config.Type)
	}
	own, err := json.Marshal(mine)
	if err != nil {
		return err
	}
	all, err := r.tr.world.Gather(ctx, 0, own)
	if err != nil {
		return err
	}
	for _, b := range all {
		var m RankReport
		if err := json.Unmarshal(b, &m); err != nil {
			return err
		}
		rep.Ranks = append(rep.Ranks, m)
	}
	rep.Traced = steps
	if len(steps) > 0 {
		rep.Measured = middle(steps, r.tr.pipelineRank, r.tr.work.Schedule.Ranks)
	}
	return nil
}

// middle returns the timeline with the median makespan.
func middle(steps []StepEvents, pipelineRank func(int) (int, bool), ranks int) *schedule.Timeline {
	var spans []float64
	var lines []*schedule.Timeline
	for _, s := range steps {
		t := s.Timeline(pipelineRank, ranks)
		lines, spans = append(lines, t), append(spans, t.Makespan())
	}
	want, best := stats.MedianOr(spans, 0), 0
	for i := range lines {
		if d := spans[i] - want; d*d < (spans[best]-want)*(spans[best]-want) {
			best = i
		}
	}
	return lines[best]
}

// pipelineRank translates a world rank into the pipeline rank of the first replica.
func (tr *Trainer) pipelineRank(world int) (int, bool) {
	p := tr.grid.Coord(world)
	return p.Stage, p.Replica == 0
}

func (tr *Trainer) save(ctx context.Context, c Config, step int, rep *Report) error {
	if c.Rehearsal != nil || !c.Spec.Checkpoint.Enabled { // there is nothing to save, or nobody wants it
		rep.Final = -1
		return nil
	}
	start := time.Now()
	if c.BeforeSave != nil {
		if err := c.BeforeSave(); err != nil {
			return err
		}
	}
	if err := tr.Save(ctx, c.Dir, step, c.Program, c.warn); err != nil {
		return err
	}
	rep.Final = step
	c.Log.Debug().Int("step", step).Dur("took", time.Since(start)).Msg("checkpoint saved")
	return nil
}
