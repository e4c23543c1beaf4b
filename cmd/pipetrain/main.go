// Command pipetrain trains a neural network as a pipeline of ranks with 2-stage
// backpropagation. Alone it starts the ranks of a job itself; started by
// mpirun or srun it is one of them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/launcher"
	"github.com/pipetrain/pipetrain/process"
	"github.com/pipetrain/pipetrain/progress"
	"github.com/pipetrain/pipetrain/schedule"
)

// version is set by the build (-ldflags -X main.version=…).
var version = "dev"

func main() {
	if len(os.Args) > 1 && os.Args[1] == launcher.GuardCommand {
		if err := launcher.BeGuard(os.Stdin); err != nil {
			os.Exit(int(exitcode.Unexpected))
		}
		return
	}
	os.Exit(run(os.Args, os.Stdout, os.Stderr))
}

// run is main with its streams as values. It returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	app := command(stdout, stderr)
	err := app.Run(context.Background(), args)
	if err == nil {
		return 0
	}
	tell(stderr, err)
	return int(exitcode.Of(err))
}

// tell says what went wrong, unless it was said.
func tell(stderr io.Writer, err error) {
	if said := (*exitcode.ReportedError)(nil); errors.As(err, &said) {
		return
	}
	if wrong := (*jobs.MistakesError)(nil); errors.As(err, &wrong) {
		fmt.Fprintln(stderr, wrong) // lines that begin with file:line, as editors read them
		return
	}
	fmt.Fprintf(stderr, "pipetrain: %v\n", err)
}

func command(stdout, stderr io.Writer) *cli.Command {
	setFlag := &cli.StringSliceFlag{Name: "set", Usage: "override a key of the job: `KEY=VALUE` (may be repeated)"}
	app := &cli.Command{
		Name:      "pipetrain",
		Usage:     "train a neural network as a pipeline of ranks with 2-stage backpropagation",
		UsageText: "pipetrain [options] JOB.toml\nmpirun -n N pipetrain [options] JOB.toml\npipetrain COMMAND [options] …",
		Version:   version,
		Writer:    stdout,
		ErrWriter: stderr,
		// A value such as a list holds commas.
		DisableSliceFlagSeparator: true,
		Suggest:                   true,
		ExitErrHandler:            func(context.Context, *cli.Command, error) {},
		OnUsageError: func(_ context.Context, _ *cli.Command, err error, _ bool) error {
			return exitcode.With(exitcode.Usage, fmt.Errorf("%w (see pipetrain --help)", err))
		},
		Flags: []cli.Flag{
			setFlag,
			&cli.StringFlag{Name: "out", Usage: "run folder `DIR` (default: a new one in the job's run.dir)"},
			&cli.BoolFlag{Name: "resume", Usage: "continue the run in --out from its newest checkpoint"},
			&cli.BoolFlag{Name: "auto-resume", Usage: "continue the run in --out where it has a checkpoint, else start it: for scripts that start again"},
			&cli.BoolFlag{Name: "quiet", Usage: "no progress line, no drawing"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Len() != 1 {
				if c.Args().Len() == 0 {
					_ = cli.ShowAppHelp(c)
				}
				return exitcode.With(exitcode.Usage, fmt.Errorf("want one job file, got %d arguments (see pipetrain --help)", c.Args().Len()))
			}
			return start(ctx, process.Options{
				Job: c.Args().First(), Sets: c.StringSlice("set"), Out: c.String("out"),
				Resume: c.Bool("resume"), Auto: c.Bool("auto-resume"), Quiet: c.Bool("quiet"),
			}, stdout, stderr)
		},
		Commands: []*cli.Command{
			planCommand(stdout, stderr), dataCommand(stdout, stderr), checkpointCommand(stdout), metricsCommand(stdout), profileCommand(stdout, stderr), scheduleCommand(stdout), doctorCommand(stdout), submitCommand(stdout),
			statusCommand(stdout, stderr), logsCommand(stdout), cancelCommand(stdout), requeueCommand(stdout), scriptCommand(stdout),
			studyCommand(stdout, stderr), reportCommand(stdout), compareCommand(stdout)},
	}
	// The commands do not take this from the program: --set KEY=["a", "b"] is one value.
	for _, c := range app.Commands {
		c.DisableSliceFlagSeparator = true
	}
	return app
}

// start runs a job, with what this program knows of its surroundings. What a run writes for people
// does not decide how it ends: nobody may read it.
func start(ctx context.Context, o process.Options, stdout, stderr io.Writer) (err error) {
	if o.Binary, err = os.Executable(); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	o.Stdout, o.Stderr = progress.NewStream(stdout), progress.NewStream(stderr)
	o.Args, o.Env, o.Version, o.Logger, o.Backends = os.Args, os.Environ(), version, consoleLog(o.Stderr, colors(stderr)), backends
	o.Draw = schedule.DrawOptions{Width: min(width(stdout), 160), Color: colors(stdout)}
	if err = process.Start(ctx, o); err != nil {
		tell(o.Stderr, err)
		err = &exitcode.ReportedError{Err: err}
	}
	end := time.Now().Add(lastWords)
	o.Stdout.Flush(time.Until(end))
	o.Stderr.Flush(time.Until(end))
	return err
}

// lastWords is what a reader gets to take the end of what a run writes.
const lastWords = time.Second
