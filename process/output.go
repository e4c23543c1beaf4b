package process

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/progress"
	"github.com/pipetrain/pipetrain/rank"
	"github.com/pipetrain/pipetrain/record"
)

// output is what rank 0 writes and shows while it trains; inert on the others.
type output struct {
	p        *process
	metrics  *record.MetricsLog
	board    *record.TensorBoard // nil: not asked for, or it could not be written
	progress *progress.Progress
}

func newOutput(p *process) *output { return &output{p: p} }

func (o *output) first() bool { return o.p.world.Rank == 0 }

// start begins the metrics after `done` steps.
func (o *output) start(done int) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err == nil {
		// On the host's clock, so that whoever started the program can tell how long it took.
		o.p.log.Info().Float64("monotonic_seconds", float64(now.Nano())/1e9).Msg("first op")
	}
	if !o.first() {
		return nil
	}
	var err error
	if o.metrics, err = o.p.folder.OpenMetrics(done); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	if o.metrics.Gap != "" {
		o.p.log.Warn().Msg(o.metrics.Gap)
	}
	if o.p.spec.Metrics.TensorBoard {
		if o.board, err = o.p.folder.OpenTensorBoard(done); err != nil {
			o.withoutBoard(err)
		}
	}
	if !o.p.o.Quiet {
		o.progress = progress.New(progress.Config{
			Out: o.p.o.Stdout, Log: o.p.o.Stderr, Start: done, Steps: o.p.spec.Train.Steps, Title: o.p.spec.Name,
		})
	}
	return nil
}

func (o *output) step(s rank.StepInfo) error {
	if !o.first() {
		return nil
	}
	m := record.Metrics{
		Step: s.Step, Loss: s.Loss, GradNorm: s.GradNorm, LR: s.LR, Tokens: int64(s.Tokens),
		StepSeconds: s.Seconds, TokensPerSecond: s.TokensPerSecond, Bubble: s.Bubble, MakespanSeconds: s.Makespan,
	}
	if err := o.metrics.Append(m); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	if o.board != nil {
		if err := o.board.Append(m); err != nil {
			o.withoutBoard(err)
		}
	}
	if o.progress != nil {
		o.progress.Step(progress.Step{Step: s.Step, Loss: s.Loss, TokensPerSecond: s.TokensPerSecond,
			BubbleMeasured: s.Bubble, BubblePredicted: s.PredictedBubble, PeakBytes: s.PeakBytes})
	}
	return nil
}

// withoutBoard goes on without TensorBoard's file: it repeats what the metrics have, and ends no run.
func (o *output) withoutBoard(err error) {
	o.p.log.Warn().Err(err).Msg("no TensorBoard file from here on; pipetrain metrics --format tensorboard makes one afterwards")
	if o.board != nil {
		o.board.Close()
		o.board = nil
	}
}

// sync brings the metrics to the disk.
func (o *output) sync() error {
	if o.metrics == nil {
		return nil
	}
	if err := o.metrics.Sync(); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	return nil
}

func (o *output) close() {
	if o.progress != nil {
		o.progress.Close()
		o.progress = nil
	}
	if o.metrics != nil {
		o.metrics.Close()
		o.metrics = nil
	}
	if o.board != nil {
		o.board.Close()
		o.board = nil
	}
}

// finish writes summary and trace, and leaves the timeline to be shown.
func (o *output) finish(rep *rank.Report, failure error, took time.Duration) error {
	o.close()
	s := baseSummary(o.p.o.Version, o.p.spec)
	s.Status, s.ExitCode = exitcode.Of(failure).Name(), int(exitcode.Of(failure))
	if failure != nil {
		s.Error = failure.Error()
	}
	s.Transport, s.Device, s.SecondsTotal = o.p.transport.Kind(), o.p.device.Name(), took.Seconds()
	if o.p.spec.Device.Kind == jobs.DeviceRehearse {
		s.Device = jobs.DeviceRehearse
	}
	if rep != nil {
		fill(&s, rep)
	}
	if err := o.p.folder.WriteSummary(s); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	if rep == nil {
		return nil
	}
	if err := o.writeTrace(rep); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	if err := o.writeTimelines(rep); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	if !o.p.o.Quiet && failure == nil {
		o.p.show = func() { o.show(rep, s) }
	}
	return nil
}

func (o *output) writeTrace(rep *rank.Report) error {
	t, err := o.p.folder.CreateTrace()
	if err != nil {
		return err
	}
	grid := o.p.spec.Grid()
	for r := range grid.World() {
		t.Rank(r, grid.Coord(r).String())
	}
	zero := 0.0
	for _, step := range rep.Traced {
		end := 0.0
		for _, e := range step.Events {
			cat := record.Category(e.Category)
			if e.Op.Kind.IsSend() || e.Op.Kind.IsRecv() {
				cat = record.Transfer
			}
			t.Add(record.Slice{Rank: e.Rank, Replica: grid.Coord(e.Rank).Replica, Step: step.Step, Op: e.Op, Cat: cat,
				Start: zero + e.Start, End: zero + e.End})
			end = max(end, e.End)
		}
		zero += end * 1.02
	}
	return t.Close()
}

// writeTimelines writes the typical step beside the predicted one.
func (o *output) writeTimelines(rep *rank.Report) error {
	s, err := o.p.spec.BuildSchedule()
	if err != nil {
		return err
	}
	return o.p.folder.WriteTimelines(record.Timelines{Predicted: record.NewTimeline(s, rep.Predicted), Measured: record.NewTimeline(s, rep.Measured)})
}
