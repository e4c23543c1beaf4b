package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/pipetrain/pipetrain/costs"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/plan"
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/report"
	"github.com/pipetrain/pipetrain/slurm"
	"github.com/pipetrain/pipetrain/study"
)

func studyCommand(stdout, stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name: "study", Usage: "run a job over axes and repeats, record every attempt, judge against a baseline", ArgsUsage: "STUDY.toml",
		OnUsageError: usageError,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "out", Usage: "the study's folder `DIR` (default: a new one in " + study.Root + ")"},
			&cli.BoolFlag{Name: "resume", Usage: "go on with the study in --out, or with the newest that has not come to its end: what is missing or failed runs"},
			&cli.BoolFlag{Name: "auto-resume", Usage: "--resume where there is one younger than a day, else a new study: for scripts that start again"},
			&cli.BoolFlag{Name: "dry-run", Usage: "print cases, order, seconds a run and node-hours; start nothing"},
			&cli.StringFlag{Name: "only", Usage: "run only the case with this `LABEL`"},
			&cli.StringSliceFlag{Name: "set", Usage: "override a key of the study or of its job: `KEY=VALUE` (may be repeated)"},
			&cli.StringFlag{Name: "gate", Usage: "judge against the baseline `NAME`, whose program runs in the same rounds"},
			&cli.StringFlag{Name: "save-baseline", Usage: "keep this program and its results as baseline `NAME` in " + study.Baselines},
			&cli.BoolFlag{Name: "quiet", Usage: "print nothing when all is well, else a line a case and the report's path"},
			&cli.BoolFlag{Name: "json", Usage: "how it ended as one JSON object on standard output"},
		},
		Action: func(ctx context.Context, c *cli.Command) error { return runStudy(ctx, c, stdout, stderr) },
	}
}

func runStudy(ctx context.Context, c *cli.Command, stdout, stderr io.Writer) error {
	if c.Args().Len() != 1 {
		return usage("study: want one study file, got %d arguments", c.Args().Len())
	}
	if c.Bool("resume") && c.Bool("auto-resume") {
		return usage("study: --resume goes on with a study, --auto-resume starts one where there is none: give one of them")
	}
	for _, name := range []string{"gate", "save-baseline"} {
		if strings.ContainsAny(c.String(name), "/\\") || strings.HasPrefix(c.String(name), ".") {
			return usage("study: --%s %q: want a name, not a path", name, c.String(name))
		}
	}
	file, cases, err := study.Load(c.Args().First(), c.StringSlice("set"))
	if err != nil {
		return exitcode.With(exitcode.Usage, err)
	}
	if only := c.String("only"); only != "" && !slices.ContainsFunc(cases, func(x *study.Case) bool { return x.Label == only }) {
		return usage("study: --only %q: no case is called so; --dry-run lists them", only)
	}
	l := chooseStudyLauncher(ctx, file, cases)
	if c.Bool("dry-run") {
		return study.WriteDryRun(stdout, file, cases, predict, l)
	}
	var baseline *study.Baseline
	if name := c.String("gate"); name != "" {
		if baseline, err = study.LoadBaseline(ctx, study.Baselines, name); err != nil {
			return err
		}
	}
	folder, resumed, err := studyFolder(c, file)
	if err != nil {
		return err
	}
	defer folder.Close()
	if resumed && len(c.StringSlice("set")) > 0 {
		fmt.Fprintf(stderr, "pipetrain: %s goes on as it began: --set is for a new study\n", folder.Path)
	} else if !resumed {
		if err := folder.Prepare(file); err != nil {
			return err
		}
	}
	// What runs is what the folder says, at the first start too.
	if file, cases, err = study.Load(folder.File(study.FileName), nil); err != nil {
		return exitcode.With(exitcode.Usage, err)
	}
	return conductStudy(ctx, c, study.Options{Study: file, Cases: cases, Folder: folder, Launcher: l, Baseline: baseline}, stdout, stderr)
}

// conductStudy runs the study in its folder and tells how it ended.
func conductStudy(ctx context.Context, c *cli.Command, o study.Options, stdout, stderr io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	o.Binary, o.Env, o.Command, o.Only, o.Predict = self, os.Environ(), os.Args, c.String("only"), predict
	o.Version, o.Commit, _ = record.BuildInfo(version)
	o.Out = stdout
	if c.Bool("quiet") || c.Bool("json") {
		o.Out = io.Discard
	}
	fmt.Fprintf(o.Out, "study %s in %s: %d cases × %d, %s (%s)\n", o.Study.Name, o.Folder.Path, len(o.Cases), o.Study.Repeats, o.Launcher.Kind, o.Launcher.Why)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1)
	defer stop()
	end, err := study.Run(ctx, o)
	if err != nil {
		return err
	}
	if name := c.String("save-baseline"); name != "" {
		if end.Code != exitcode.Finished && end.Code != exitcode.Regressed {
			fmt.Fprintf(stderr, "pipetrain: no baseline is saved: the study ended with %v\n", end.Code)
		} else if dir, err := study.SaveBaseline(study.Baselines, name, o.Folder, self, end); err != nil {
			return err
		} else {
			fmt.Fprintf(o.Out, "baseline %s: %s\n", name, dir)
		}
	}
	page, err := report.WriteStudy(o.Folder.Path)
	if err != nil {
		return err
	}
	return tellStudy(c, page, o.Folder.Path, end, stdout)
}

// tellStudy prints how a study ended, and returns its exit code as an error.
func tellStudy(c *cli.Command, page, folder string, end study.End, stdout io.Writer) error {
	switch {
	case c.Bool("json"):
		if err := printJSON(stdout, struct {
			study.End
			Folder string `json:"folder"`
			Report string `json:"report"`
		}{end, folder, page}); err != nil {
			return err
		}
	case c.Bool("quiet") && end.Code == exitcode.Finished:
	default:
		if err := study.WriteEndText(stdout, folder, page, end); err != nil {
			return err
		}
	}
	return gateError(end.Code)
}

// studyFolder makes the study's folder, or takes the one to go on with.
func studyFolder(c *cli.Command, file *study.File) (f *study.Folder, resumed bool, err error) {
	out, now := c.String("out"), time.Now()
	old := ""
	switch {
	case c.Bool("resume") && out != "":
		old = out
	case c.Bool("resume"):
		if old = study.Newest(study.Root, file.Name, 0, now); old == "" {
			return nil, false, exitcode.Errorf(exitcode.Environment, "--resume: %s has no study %s that has not come to its end; name its folder with --out", study.Root, file.Name)
		}
	case c.Bool("auto-resume") && out != "":
		if _, err := os.Stat(filepath.Join(out, study.FileName)); err == nil {
			old = out
		}
	case c.Bool("auto-resume"):
		old = study.Newest(study.Root, file.Name, 24*time.Hour, now)
	}
	if old != "" {
		f, err = study.OldFolder(old)
		return f, true, err
	}
	if out != "" {
		if out, err = filepath.Abs(out); err != nil {
			return nil, false, err
		}
	}
	root, err := filepath.Abs(study.Root)
	if err != nil {
		return nil, false, err
	}
	f, err = study.NewFolder(root, out, file.Name, now)
	return f, false, err
}

// chooseStudyLauncher looks at where this process runs.
func chooseStudyLauncher(ctx context.Context, file *study.File, cases []*study.Case) study.Launcher {
	lib := ""
	for _, x := range cases {
		if x.Spec != nil {
			lib = x.Spec.Transport.LibMPI
			break
		}
	}
	_, err := exec.LookPath("sbatch")
	return study.ChooseLauncher(ctx, file.Launch.Kind, os.Getenv("SLURM_JOB_ID"), err == nil, slurm.Tools{Conf: os.Getenv("SLURM_CONF")}, os.Geteuid() == 0, lib)
}

// predict asks the planner for one case of a study.
func predict(spec *jobs.Spec) (study.Estimate, error) {
	var e study.Estimate
	source, err := costs.Named(spec)
	if err != nil {
		return e, exitcode.With(exitcode.Usage, err)
	}
	ops, err := scratchOps(spec)
	if err != nil {
		return e, err
	}
	defer ops.Close()
	p, err := plan.Make(spec, plan.Options{Source: source, Ops: ops, Alone: true})
	if err != nil {
		return e, exitcode.With(exitcode.Usage, err)
	}
	m, err := model.New(spec.ModelConfig())
	if err != nil {
		return e, err
	}
	for _, pass := range []model.Pass{model.PassForward, model.PassInput, model.PassWeight} {
		e.FLOPs += m.FLOPs(pass, m.Shape(spec.Train.Batch))
	}
	e.StepSeconds, e.Makespan, e.Bubble, e.PeakBytes, e.Source = p.StepTime, p.Makespan, p.Bubble, p.Peak(), p.Costs
	return e, nil
}
