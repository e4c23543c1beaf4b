// Package process is the life of a job's processes: the one that starts the ranks of a host, and
// each rank's, from what its launcher says to how it ends. What a rank does between, package rank does.
package process

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/rs/zerolog"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/launcher"
	"github.com/pipetrain/pipetrain/progress"
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/schedule"
)

// Options are the command line of a run and what this program passes on of its surroundings.
type Options struct {
	Job            string
	Sets           []string
	Out            string
	Resume, Quiet  bool
	Auto           bool // resume where Out has a checkpoint, else start afresh
	Stdout, Stderr *progress.Stream

	Args     []string // of this program, its name included
	Env      []string
	Binary   string // this program
	Version  string
	Logger   zerolog.Logger       // what starts the ranks writes to it
	Draw     schedule.DrawOptions // of the timelines at the end
	Backends Backends
}

// Backends make what ranks compute and communicate with: who starts a job knows which there are.
type Backends struct {
	// Check refuses, before anything starts, a device that no rank could open.
	Check func(*jobs.Spec, launcher.World) error
	// Device opens a rank's; Scratch one that is asked for the scratch memory of passes only.
	Device  func(*jobs.Spec, launcher.World) (kernels.Device, error)
	Scratch func(*jobs.Spec) (kernels.Device, error)
	Threads func(*jobs.Spec, launcher.World) int
	// Card names the GPU of a device, "" for others; Sharing says how ranks that have one card share it.
	Card    func(kernels.Device) string
	Sharing func(ranks int, d kernels.Device) string
	// Segment is what the ranks of one host communicate through, Transport joins a world: with the
	// segment, or nil where another launcher started the rank.
	Segment   func(ranks int) (*os.File, error)
	Transport func(context.Context, *jobs.Spec, launcher.World, *os.File) (collectives.Transport, error)
	// Same says whether every rank gets this error from Transport, Call whether it is of a failed call,
	// which may be the echo of another rank's end.
	Same, Call func(error) bool
}

// Start runs a job: as a rank where a launcher started this process, else by
// starting the ranks.
func Start(ctx context.Context, o Options) error {
	world := launcher.Detect(o.Env)
	if world.Problem != "" {
		return exitcode.With(exitcode.Environment, fmt.Errorf("%s", world.Problem))
	}
	if err := checkAddressSpace(); err != nil {
		return endEarly(o, world, hosts, err)
	}
	spec, err := jobs.Load(o.Job, o.Sets)
	if err != nil {
		return endEarly(o, world, everyRanks, exitcode.With(exitcode.Usage, err)) // rank 0 read the same file
	}
	if err := o.Backends.Check(spec, world); err != nil {
		return endEarly(o, world, hosts, err)
	}
	if (o.Resume || o.Auto) && o.Out == "" {
		return exitcode.With(exitcode.Usage, fmt.Errorf("--resume and --auto-resume need --out DIR, the folder of the run to continue"))
	}
	ranks := 1 // this one; a launcher of ours has looked already
	if !world.IsRank() {
		ranks = 1 + spec.World()
	}
	if world.Launcher != launcher.Local {
		if err := checkTasks(ranks, o.Backends.Threads(spec, launcher.World{LocalSize: max(ranks-1, world.LocalSize)})); err != nil {
			return endEarly(o, world, hosts, err)
		}
	}
	if world.IsRank() {
		return beRank(ctx, o, spec, world)
	}
	return launch(ctx, o, spec)
}

// launch starts the ranks of a job on this host and owns them to the end.
func launch(ctx context.Context, o Options, spec *jobs.Spec) error {
	if spec.Transport.Kind == "mpi" {
		return exitcode.With(exitcode.Usage, fmt.Errorf("the job asks for transport.kind = \"mpi\": start it with mpirun -n %d pipetrain %s, or use --set transport.kind=local", spec.World(), o.Job))
	}
	// From here to the launcher's own handling a signal must not leave a half-made folder behind.
	early := make(chan os.Signal, 16)
	signal.Notify(early, launcher.StopSignals()...)
	defer signal.Stop(early)

	folder, err := openFolder(&o, spec)
	if err != nil {
		return err
	}
	defer folder.Close()
	var say io.Writer = o.Stdout
	if o.Quiet {
		say = io.Discard
	}
	if err := settle(spec, folder, o.Backends.Scratch, say); err != nil {
		return err
	}
	if err := folder.WriteJob(spec.Resolved(), len(spec.Slurm.Environment) > 0); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	if err := exitcode.Clear(folder.Path); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	args := []string{"--out", folder.Path}
	if o.Resume {
		args = append(args, "--resume")
	}
	if o.Quiet {
		args = append(args, "--quiet")
	}
	select {
	case s := <-early:
		return exitcode.With(exitcode.Interrupted, fmt.Errorf("%v before the ranks were started", s))
	default:
	}
	err = launcher.Run(ctx, launcher.Config{
		Binary: o.Binary, Args: append(args, folder.File(record.JobName)), Ranks: spec.World(), Env: o.Env,
		RunDir: folder.Path, Home: folder.Home, Segment: o.Backends.Segment, HelloTimeout: spec.Run.HelloTimeout, StartTimeout: spec.Run.StartTimeout, Threads: spec.Device.Threads,
		Bind: launcher.Bind(spec.Device.Bind), Signals: early,
		Logger: o.Logger, Stdout: o.Stdout, Stderr: o.Stderr,
	})
	if err != nil {
		ensureSummary(o.Version, folder, spec, err)
		return fmt.Errorf("%w (run folder %s)", err, folder.Path)
	}
	return nil
}

// ensureSummary leaves a summary where the ranks ended before they wrote one.
func ensureSummary(version string, f *record.Folder, spec *jobs.Spec, err error) {
	if old, readErr := record.ReadSummary(f.File(record.SummaryName)); readErr == nil && old.ExitCode == int(exitcode.Of(err)) {
		return
	}
	s := baseSummary(version, spec)
	s.Status, s.ExitCode, s.Error = exitcode.Of(err).Name(), int(exitcode.Of(err)), err.Error()
	_ = f.WriteSummary(s) // what went wrong is being reported already
}
