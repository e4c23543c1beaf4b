package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v3"

	"github.com/pipetrain/pipetrain/costs"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/launcher"
	"github.com/pipetrain/pipetrain/process"
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/schedule"
)

// profiledSteps is enough for a trace without the steps that warm up.
const profiledSteps = 14

func profileCommand(stdout, stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name: "profile", Usage: "measure the op times of a job in a few real steps, for plan --profile and schedule.kind = \"auto\"",
		UsageText:                 "pipetrain profile [options] JOB.toml\npipetrain profile [options] --run RUN_DIR",
		DisableSliceFlagSeparator: true,
		OnUsageError:              usageError,
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "set", Usage: "override a key of the job: `KEY=VALUE` (may be repeated)"},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write the profile to `FILE`", Value: "profile.json"},
			&cli.StringFlag{Name: "run", Usage: "take the times from the trace in `RUN_DIR`, a finished run under any launcher, and start nothing"},
		},
		Action: func(ctx context.Context, c *cli.Command) error { return makeProfile(ctx, c, stdout, stderr) },
	}
}

func makeProfile(ctx context.Context, c *cli.Command, stdout, stderr io.Writer) error {
	var dirs []string
	var spec *jobs.Spec
	var err error
	if dir := c.String("run"); dir != "" {
		if c.Args().Len() > 0 || c.IsSet("set") {
			return usage("profile: --run takes the job from the run folder; leave the job file and --set out")
		}
		if spec, err = jobs.Load(filepath.Join(dir, record.JobName), nil); err != nil {
			return exitcode.With(exitcode.Usage, err)
		}
		dirs = []string{dir}
	} else {
		if c.Args().Len() != 1 {
			return usage("profile: want one job file, got %d arguments", c.Args().Len())
		}
		if spec, err = jobs.Load(c.Args().First(), c.StringSlice("set")); err != nil {
			return exitcode.With(exitcode.Usage, err)
		}
		if launcher.Detect(os.Environ()).IsRank() {
			return usage("profile starts the ranks itself; under mpirun or srun run the job, then: pipetrain profile --run RUN_DIR")
		}
		var done func()
		if dirs, done, err = profileRuns(ctx, c, spec, stderr); err != nil {
			return err
		}
		defer done()
	}
	p, err := profileOf(spec, dirs)
	if err != nil {
		return exitcode.With(exitcode.Usage, err)
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	path := c.String("output")
	if err := record.WriteFile(path, append(text, '\n')); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	_, err = fmt.Fprintf(stdout, "%s: %v; use it with pipetrain plan --profile %s, or schedule.profile\n", path, p, path)
	return err
}

// profileRuns trains a few steps with single W, with joined ones and with fused backwards, so
// that all kinds of ops are seen. done removes what they left.
func profileRuns(ctx context.Context, c *cli.Command, spec *jobs.Spec, stderr io.Writer) (dirs []string, done func(), err error) {
	if err := os.MkdirAll(spec.Run.Dir, 0o755); err != nil {
		return nil, nil, exitcode.With(exitcode.Environment, err)
	}
	// Beside the runs: every rank sees it, and its disk has space.
	root, err := os.MkdirTemp(spec.Run.Dir, "profile-")
	if err != nil {
		return nil, nil, exitcode.With(exitcode.Environment, err)
	}
	done = func() {
		os.RemoveAll(root)
		_ = os.Remove(spec.Run.Dir) // where nothing else is in it
	}
	k := spec.Schedule
	variants := [][]string{nil}
	// A schedule with updates or transfers of its own cannot be split in other ways.
	if s, err := spec.BuildSchedule(); k.Kind == jobs.KindAuto || err == nil && s.Async == nil && !s.Lowered {
		variants = [][]string{
			{"schedule.backward_p2=lagged", "schedule.concat=1"},
			{"schedule.backward_p2=cooldown", `schedule.concat="all"`},
			{"schedule.backward_p2=fused"},
		}
	}
	if k.Kind == jobs.KindAuto {
		for i := range variants {
			variants[i] = append(variants[i], "schedule.kind=1f1b", "schedule.chunks=1")
		}
	}
	for i, v := range variants {
		dir := filepath.Join(root, fmt.Sprint(i))
		sets := append(append([]string{}, c.StringSlice("set")...), fmt.Sprintf("train.steps=%d", profiledSteps), "optimizer.warmup=0", "checkpoint.every=0")
		err := start(ctx, process.Options{Job: c.Args().First(), Sets: append(sets, v...), Out: dir, Quiet: true}, io.Discard, stderr)
		if err != nil {
			done()
			return nil, nil, fmt.Errorf("profile: %w", err)
		}
		dirs = append(dirs, dir)
	}
	return dirs, done, nil
}

// profileOf reads the traces of runs of one job.
func profileOf(spec *jobs.Spec, dirs []string) (*costs.Profile, error) {
	var runs [][]costs.Sample
	var overheads []float64
	device := "?"
	stages := 0
	for _, dir := range dirs {
		own, err := jobs.Load(filepath.Join(dir, record.JobName), nil)
		if err != nil {
			return nil, err
		}
		s, err := own.BuildSchedule()
		if err != nil {
			return nil, err
		}
		stages = s.Stages
		samples, err := readTrace(filepath.Join(dir, record.TraceName), own.Grid())
		if err != nil {
			return nil, err
		}
		runs = append(runs, samples)
		metrics, err := record.ReadMetrics(filepath.Join(dir, record.MetricsName))
		if err != nil {
			return nil, err
		}
		for _, m := range metrics[min(len(metrics), 2):] {
			overheads = append(overheads, max(0, m.StepSeconds-m.MakespanSeconds))
		}
		summary, err := record.ReadSummary(filepath.Join(dir, record.SummaryName))
		if err != nil {
			return nil, err
		}
		if device = summary.Device; device == jobs.DeviceRehearse {
			return nil, errors.New("profile: the run was a rehearsal: its times are modelled, not measured")
		}
	}
	return costs.NewProfile(spec, stages, device, runs, overheads)
}

// readTrace reads the ops of the first replica from a run's trace.
func readTrace(path string, grid jobs.Grid) ([]costs.Sample, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("profile: %w (is it a finished run?)", err)
	}
	var trace struct {
		TraceEvents []struct {
			Name, Ph string
			PID      int
			TS, Dur  float64
			Args     struct{ Step int }
		}
	}
	if err := json.Unmarshal(text, &trace); err != nil {
		return nil, fmt.Errorf("profile: %s: %w", path, err)
	}
	var samples []costs.Sample
	for _, e := range trace.TraceEvents {
		if e.Ph != "X" || e.PID < 0 || e.PID >= grid.World() || grid.Coord(e.PID).Replica != 0 {
			continue
		}
		op, err := schedule.ParseOp(e.Name)
		if err != nil {
			continue // the optimizer and the like
		}
		samples = append(samples, costs.Sample{Step: e.Args.Step, Op: op, Start: e.TS * 1e-6, End: (e.TS + e.Dur) * 1e-6})
	}
	return samples, nil
}
