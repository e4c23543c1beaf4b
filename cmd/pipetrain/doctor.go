package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/collectives/local"
	"github.com/pipetrain/pipetrain/collectives/mpi"
	"github.com/pipetrain/pipetrain/doctor"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/launcher"
	"github.com/pipetrain/pipetrain/process"
)

// gatherLimit is how long rank 0 waits for the others' reports, whose checks may take longer.
const gatherLimit = 3 * time.Minute

// probeFlag makes a process a rank of the doctor's own little world.
const probeFlag = "probe-mpi"

func doctorCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name: "doctor", Usage: "what is found on this machine, what would fail there, and the mend",
		ArgsUsage: "[JOB.toml]",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "set", Usage: "override a key of the job: `KEY=VALUE`"},
			&cli.StringFlag{Name: "out", Usage: "look at `DIR` as the place of runs"},
			&cli.BoolFlag{Name: "json", Usage: "one JSON object (over several ranks an array)"},
			&cli.StringFlag{Name: probeFlag, Hidden: true},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			world := launcher.Detect(os.Environ())
			join := func(library string) func() (collectives.Transport, error) {
				return func() (collectives.Transport, error) {
					return mpi.Init(mpi.Config{LibMPI: library, Launch: launchOf(world), FinalizeLimit: finalizeLimit})
				}
			}
			if lib := c.String(probeFlag); lib != "" {
				if err := doctor.MPIRank(ctx, stdout, join(lib)); err != nil {
					return &exitcode.ReportedError{Err: exitcode.With(exitcode.Environment, err)}
				}
				return nil
			}
			return examine(ctx, c, stdout, world, join)
		},
	}
}

func examine(ctx context.Context, c *cli.Command, stdout io.Writer, world launcher.World, join func(string) func() (collectives.Transport, error)) error {
	self, err := os.Executable()
	if err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	h := &doctor.Host{Env: os.Environ(), RunDir: c.String("out")}
	library := ""
	if c.Args().Len() > 0 {
		if h.Job, err = jobs.Load(c.Args().First(), c.StringSlice("set")); err != nil {
			return exitcode.With(exitcode.Usage, err)
		}
		library = h.Job.Transport.LibMPI
	}
	if h.RunDir == "" {
		h.RunDir = jobs.Default().Run.Dir
		if h.Job != nil {
			h.RunDir = h.Job.Run.Dir
		}
	}
	var joined collectives.Transport
	var refused error
	h.Backends = doctor.Backends{
		Device: func(kind string) (kernels.Device, error) {
			spec := jobs.Default()
			if h.Job != nil {
				spec = *h.Job
			}
			spec.Device.Kind = kind
			if err := checkDevice(&spec, world); err != nil {
				return nil, err
			}
			return openDevice(&spec, world)
		},
		CUDA: describeCUDA,
		World: func(ranks int) ([]collectives.Transport, error) {
			return local.NewWorldWith(ranks, local.Options{Processes: true}), nil
		},
		Join: func() (t collectives.Transport, err error) {
			if refused = wireUp(world, library); refused == nil {
				joined, refused = join(library)()
			}
			return joined, refused
		},
		MPIRank: func(library string) []string { return []string{self, "doctor", "--" + probeFlag, library} },
	}
	report := doctor.Run(ctx, h, doctor.Checks())
	reports := []doctor.Report{report}
	switch {
	case joined != nil:
		defer joined.Close()
		limited, cancel := context.WithTimeout(ctx, gatherLimit)
		defer cancel()
		// All are here before anyone leaves, so that closing can be bounded.
		defer func() { _ = collectives.World(joined).Barrier(limited) }()
		if reports, err = doctor.Gather(limited, joined, report); err != nil {
			// Some rank is not there: each tells what it found itself.
			reports = []doctor.Report{report}
		}
	case world.IsRank() && world.Rank > 0:
		// Nothing joins this rank to the others. Rank 0 has most likely found the same, and says it.
		reports = nil
		if misfit := (*mpi.Misfit)(nil); !process.EndedWithin(3*time.Second) && !errors.As(refused, &misfit) {
			fmt.Fprintf(os.Stderr, "pipetrain: doctor: rank %d on %s: %v\n", world.Rank, report.Host, refused)
		}
	}
	worst := doctor.OK
	for _, r := range reports {
		worst = max(worst, r.Worst)
	}
	switch {
	case len(reports) == 0: // rank 0 speaks for all
	case c.Bool("json"):
		var v any = reports[0]
		if len(reports) > 1 {
			v = reports
		}
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		err = e.Encode(v)
	default:
		err = doctor.WriteAll(stdout, reports, doctor.Style{Width: width(stdout), Color: isTerminal(stdout) && os.Getenv("NO_COLOR") == "", All: true})
	}
	if err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	if worst == doctor.Fails || joined == nil && report.Worst == doctor.Fails {
		return &exitcode.ReportedError{Err: exitcode.With(exitcode.Environment, fmt.Errorf("the doctor found what would fail"))}
	}
	return nil
}
