package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/checkpoint"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/progress"
	"github.com/pipetrain/pipetrain/rank"
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/schedule"
)

// output is what rank 0 writes and shows while it trains; inert on the others.
type output struct {
	p        *process
	metrics  *record.MetricsLog
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
	if !o.p.o.quiet {
		o.progress = progress.New(progress.Config{
			Out: os.Stdout, Log: o.p.o.stderr, Start: done, Steps: o.p.spec.Train.Steps, Title: o.p.spec.Name,
		})
	}
	return nil
}

func (o *output) step(s rank.StepInfo) error {
	if !o.first() {
		return nil
	}
	err := o.metrics.Append(record.Metrics{
		Step: s.Step, Loss: s.Loss, GradNorm: s.GradNorm, LR: s.LR, Tokens: int64(s.Tokens),
		StepSeconds: s.Seconds, TokensPerSecond: s.TokensPerSecond, Bubble: s.Bubble, MakespanSeconds: s.Makespan,
	})
	if err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	if o.progress != nil {
		o.progress.Step(progress.Step{Step: s.Step, Loss: s.Loss, TokensPerSecond: s.TokensPerSecond,
			BubbleMeasured: s.Bubble, BubblePredicted: s.PredictedBubble, PeakBytes: s.PeakBytes})
	}
	return nil
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
}

// finish writes summary and trace and shows the timeline.
func (o *output) finish(rep *rank.Report, failure error, took time.Duration) error {
	o.close()
	s := baseSummary(o.p.spec)
	s.Status, s.ExitCode = statusOf(failure), int(exitcode.Of(failure))
	if failure != nil {
		s.Error = failure.Error()
	}
	s.Transport, s.Device, s.SecondsTotal = o.p.transport.Kind(), o.p.device.Name(), took.Seconds()
	if o.p.spec.Device.Kind == "rehearse" {
		s.Device = "rehearse"
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
	if !o.p.o.quiet && failure == nil {
		return o.show(rep, s)
	}
	return nil
}

func fill(s *record.Summary, rep *rank.Report) {
	s.Steps, s.ResumedAt = rep.Steps, rep.Start
	s.LossFirst, s.LossLast = rep.LossFirst, rep.LossLast
	s.StepSecondsMedian = record.Median(rep.StepSeconds)
	if s.StepSecondsMedian > 0 {
		s.TokensPerSecond = float64(rep.Tokens) / s.StepSecondsMedian
	}
	s.BubbleMeasured = record.Median(rep.Bubbles)
	s.MakespanMeasuredSeconds = record.Median(rep.Makespans)
	s.BubblePredicted, s.MakespanPredictedSeconds = math.NaN(), math.NaN() // too few steps to tell
	if rep.Predicted != nil {
		s.BubblePredicted, s.MakespanPredictedSeconds = rep.Predicted.Bubble(), rep.Predicted.Makespan()
	}
	for _, r := range rep.Ranks {
		s.PeakBytesPredicted = append(s.PeakBytesPredicted, r.Planned.Arena)
		s.PeakBytesMeasured = append(s.PeakBytesMeasured, r.Measured.Arena)
		s.PeakBytesByCategory = append(s.PeakBytesByCategory, r.Measured.ByCategory)
		if s.Device == "rehearse" {
			continue
		}
		if r.Transfer != "" && r.Transfer != "host" { // host memory, or nobody to send to
			s.Transfers = append(s.Transfers, r.Transfer)
		}
		rate := func(seconds float64) float64 {
			if seconds <= 0 {
				return 0
			}
			return float64(r.FLOPs) / seconds / 1e12
		}
		s.TFLOPS = append(s.TFLOPS, rate(s.StepSecondsMedian))
		s.TFLOPSBusy = append(s.TFLOPSBusy, rate(r.Busy))
		if r.MatrixRate > 0 {
			s.MatrixTFLOPS = append(s.MatrixTFLOPS, r.MatrixRate/1e12)
			s.MFU = append(s.MFU, rate(s.StepSecondsMedian)*1e12/r.MatrixRate)
		}
	}
	if rep.Final >= 0 {
		s.FinalCheckpoint = filepath.Join(record.CheckpointsName, checkpoint.StepDir(rep.Final))
	}
}

func baseSummary(spec *jobs.Spec) record.Summary {
	v, commit, _ := record.BuildInfo(version)
	s := record.Summary{
		Name: spec.Name, Version: v, Commit: commit, StepsAsked: spec.Train.Steps,
		Ranks: spec.World(), Replicas: spec.Parallel.Replicas, Stages: spec.Parallel.Stages,
		Schedule: spec.ScheduleName(), BackwardP2: spec.Schedule.BackwardP2, Concat: concatText(spec.Schedule.Concat),
		Microbatches: spec.Schedule.Microbatches, Precision: spec.Train.Precision,
	}
	if m, err := model.New(spec.ModelConfig()); err == nil {
		s.Parameters = m.ParamCount()
	}
	return s
}

func concatText(c jobs.Concat) string {
	if c == 0 {
		return "all"
	}
	return strconv.Itoa(int(c))
}

// statusOf names an ending as the exit record does.
func statusOf(err error) string { return exitcode.Of(err).Name() }

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

// show draws the last steps' typical timeline beside the predicted one.
func (o *output) show(rep *rank.Report, s record.Summary) error {
	w := o.p.o.stdout
	opts := schedule.DrawOptions{Width: min(width(w), 160), Color: isTerminal(w) && os.Getenv("NO_COLOR") == ""}
	if rep.Predicted != nil {
		from := "the op times of the first steps"
		if s.Device == "rehearse" {
			from = "the modelled op times"
		}
		fmt.Fprintf(w, "\npredicted, from %s:\n", from)
		if err := schedule.Draw(w, rep.Predicted, opts); err != nil {
			return err
		}
	}
	if rep.Measured != nil {
		fmt.Fprintf(w, "\nmeasured (a step of median length):\n")
		if err := schedule.Draw(w, rep.Measured, opts); err != nil {
			return err
		}
	}
	if s.Device == "rehearse" {
		fmt.Fprintf(w, "\nrehearsed %d steps, %.0f tokens/s; nothing was computed\n", s.Steps, s.TokensPerSecond)
	} else {
		fmt.Fprintf(w, "\nloss %.4f → %.4f in %d steps, %.0f tokens/s\n", s.LossFirst, s.LossLast, s.Steps, s.TokensPerSecond)
	}
	if rep.Predicted != nil {
		fmt.Fprintf(w, "bubble    predicted %5.1f %%   | measured %5.1f %%   (idle share of ranks × makespan)\n", 100*s.BubblePredicted, 100*s.BubbleMeasured)
		fmt.Fprintf(w, "makespan  predicted %s | measured %s\n", seconds(s.MakespanPredictedSeconds), seconds(s.MakespanMeasuredSeconds))
		if s.Device == "cpu" && o.p.shared != "" {
			fmt.Fprintf(w, "cores     %s\n", o.p.shared)
		}
	}
	for r, m := range rep.Ranks {
		fmt.Fprintf(w, "memory    rank %d: planned %s | measured %s\n", r, mebibytes(m.Planned.Arena), mebibytes(m.Measured.Arena))
	}
	for r := range s.TFLOPS {
		fmt.Fprintf(w, "compute   rank %d: %s over the step, %s while it computed", r, flops(s.TFLOPS[r]), flops(s.TFLOPSBusy[r]))
		if r < len(s.MFU) {
			fmt.Fprintf(w, "; MFU %.0f %% of the %s of a matrix product", 100*s.MFU[r], flops(s.MatrixTFLOPS[r]))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "run folder %s\n", o.p.folder.Path)
	return nil
}

// flops prints TFLOP/s with three digits.
func flops(tera float64) string {
	if tera < 1 {
		return fmt.Sprintf("%.3g GFLOP/s", tera*1e3)
	}
	return fmt.Sprintf("%.3g TFLOP/s", tera)
}

func seconds(s float64) string     { return fmt.Sprintf("%6.1f ms", s*1e3) }
func mebibytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
