package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipetrain/pipetrain/collectives/local"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/launcher"
	"github.com/pipetrain/pipetrain/record"
)

// runOptions are the command line of a run.
type runOptions struct {
	job            string
	sets           []string
	out            string
	resume, quiet  bool
	auto           bool // resume where out has a checkpoint, else start afresh
	stdout, stderr io.Writer
}

// start runs a job: as a rank where a launcher started this process, else by
// starting the ranks.
func start(ctx context.Context, o runOptions) error {
	world := launcher.Detect(os.Environ())
	if world.Problem != "" {
		return exitcode.With(exitcode.Environment, fmt.Errorf("%s", world.Problem))
	}
	spec, err := jobs.Load(o.job, o.sets)
	if err != nil {
		err = exitcode.With(exitcode.Usage, err)
		recordEarly(o, world, err)
		if world.Rank > 0 { // rank 0 read the same file
			err = giveWay(err)
		}
		return err
	}
	if err := checkDevice(spec, world); err != nil {
		recordEarly(o, world, err)
		return lateWord(world, err)
	}
	if (o.resume || o.auto) && o.out == "" {
		return exitcode.With(exitcode.Usage, fmt.Errorf("--resume and --auto-resume need --out DIR, the folder of the run to continue"))
	}
	if world.IsRank() {
		return beRank(ctx, o, spec, world)
	}
	return launch(ctx, o, spec)
}

// recordEarly leaves the word of a rank that fails before there is a run folder of its own:
// a batch script has made it, and would not know else why the ranks came to nothing.
func recordEarly(o runOptions, world launcher.World, err error) {
	if !o.auto || o.out == "" || !world.IsRank() || record.InUse(o.out) {
		return
	}
	if info, e := os.Stat(o.out); e != nil || !info.IsDir() {
		return
	}
	// Without a record the launcher's code has to tell: nothing else can be done here.
	_, _ = exitcode.WriteFirst(o.out, exitcode.Record{Code: exitcode.Of(err), Rank: world.Rank, Reason: err.Error(), Launcher: string(world.Launcher)})
}

// giveWay is how other ranks than 0 end for a mistake that rank 0 sees too and tells:
// later, since a launcher ends the whole world with the first rank that fails.
func giveWay(err error) error {
	ended(300 * time.Millisecond)
	return &reported{err}
}

// lateWord delays the word of a rank above 0 about its own host: where all ranks say
// the same, rank 0's ends the world first.
func lateWord(w launcher.World, err error) error {
	if w.Rank > 0 && ended(300*time.Millisecond) {
		return &reported{err}
	}
	return err
}

// ended waits, less long where the launcher ends this rank: a rank that dies of the signal
// would hide the code of the one that failed, since srun returns the highest.
func ended(within time.Duration) bool {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	defer signal.Stop(term)
	select {
	case <-term:
		return true
	case <-time.After(within):
		return false
	}
}

// launch starts the ranks of a job on this host and owns them to the end.
func launch(ctx context.Context, o runOptions, spec *jobs.Spec) error {
	if spec.Transport.Kind == "mpi" {
		return exitcode.With(exitcode.Usage, fmt.Errorf("the job asks for transport.kind = \"mpi\": start it with mpirun -n %d pipetrain %s, or use --set transport.kind=local", spec.World(), o.job))
	}
	// From here to the launcher's own handling a signal must not leave a half-made folder behind.
	early := make(chan os.Signal, 1)
	signal.Notify(early, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(early)

	folder, err := openFolder(&o, spec)
	if err != nil {
		return err
	}
	defer folder.Close()
	say := o.stdout
	if o.quiet {
		say = io.Discard
	}
	if err := settle(spec, folder, say); err != nil {
		return err
	}
	if err := folder.WriteJob(spec.Resolved()); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	if err := exitcode.Clear(folder.Path); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	self, err := os.Executable()
	if err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	args := []string{"--out", folder.Path}
	if o.resume {
		args = append(args, "--resume")
	}
	if o.quiet {
		args = append(args, "--quiet")
	}
	select {
	case s := <-early:
		return exitcode.With(exitcode.Interrupted, fmt.Errorf("%v before the ranks were started", s))
	default:
	}
	err = launcher.Run(ctx, launcher.Config{
		Binary: self, Args: append(args, folder.File(record.JobName)), Ranks: spec.World(), Env: os.Environ(),
		RunDir: folder.Path, Home: folder.Home, Segment: local.Create, StartTimeout: spec.Run.StartTimeout, Threads: spec.Device.Threads,
		Bind:   launcher.Bind(spec.Device.Bind),
		Logger: consoleLog(o.stderr), Stdout: o.stdout, Stderr: o.stderr,
	})
	if err != nil {
		ensureSummary(folder, spec, err)
		return fmt.Errorf("%w (run folder %s)", err, folder.Path)
	}
	return nil
}

// openFolder makes or reopens the run folder, whose lock this process then holds.
// With o.auto it decides o.resume.
func openFolder(o *runOptions, spec *jobs.Spec) (*record.Folder, error) {
	var f *record.Folder
	var err error
	switch {
	case o.out == "":
		f, err = record.CreateNamed(spec.Run.Dir, spec.Name, time.Now())
	case o.auto:
		o.resume = o.resume || hasCheckpoint(o.out)
		if f, err = record.Create(o.out, o.resume); err != nil && !o.resume {
			// What a start left that ended before its first checkpoint is written anew.
			if again, err2 := record.Create(o.out, true); err2 == nil {
				f, err = again, nil
			}
		}
	default:
		f, err = record.Create(o.out, o.resume)
	}
	if err != nil {
		return nil, exitcode.With(exitcode.Environment, err)
	}
	return f, nil
}

// hasCheckpoint says whether a run folder has a checkpoint, sound or not: one that
// is damaged is for the resume to refuse, not a reason to start afresh.
func hasCheckpoint(dir string) bool {
	entries, _ := os.ReadDir(filepath.Join(dir, record.CheckpointsName))
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return strings.HasPrefix(e.Name(), "step-") && !strings.HasSuffix(e.Name(), ".tmp")
	})
}

// ensureSummary leaves a summary where the ranks ended before they wrote one.
func ensureSummary(f *record.Folder, spec *jobs.Spec, err error) {
	if old, readErr := record.ReadSummary(f.File(record.SummaryName)); readErr == nil && old.ExitCode == int(exitcode.Of(err)) {
		return
	}
	s := baseSummary(spec)
	s.Status, s.ExitCode, s.Error = statusOf(err), int(exitcode.Of(err)), err.Error()
	_ = f.WriteSummary(s) // what went wrong is being reported already
}

func consoleLog(w io.Writer) zerolog.Logger {
	return zerolog.New(zerolog.ConsoleWriter{Out: w, TimeFormat: time.TimeOnly, NoColor: os.Getenv("NO_COLOR") != "" || !isTerminal(w)}).Level(zerolog.InfoLevel).With().Timestamp().Logger()
}
