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
		Name: "doctor", Usage: "what this machine has, what would fail on it, and how to fix that",
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

// examine performs the checks, as a rank together with all others of its world, and writes what they found.
func examine(ctx context.Context, c *cli.Command, stdout io.Writer, world launcher.World, join func(string) func() (collectives.Transport, error)) error {
	h, err := examined(c)
	if err != nil {
		return err
	}
	m := &meeting{world: world}
	if err := m.handIn(h, join); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	own := doctor.Run(ctx, h, doctor.Checks())
	reports := []doctor.Report{own}
	if m.joined != nil {
		limited, cancel := context.WithTimeout(ctx, gatherLimit)
		defer cancel()
		defer m.leave(limited)
		if all, err := doctor.Gather(limited, m.joined, own); err == nil {
			reports = all
		} // else some rank is not there, and each tells what it found itself
	} else if world.IsRank() && world.Rank > 0 {
		m.giveWay(own)
		reports = nil
	}
	worst := doctor.OK
	for _, r := range reports {
		worst = max(worst, r.Worst)
	}
	if err := writeReports(stdout, reports, c.Bool("json")); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	if worst == doctor.Fails || m.joined == nil && own.Worst == doctor.Fails {
		return &exitcode.ReportedError{Err: exitcode.With(exitcode.Environment, fmt.Errorf("the doctor found what would fail"))}
	}
	return nil
}

// examined is this machine with the job that it is to do, if one was given.
func examined(c *cli.Command) (*doctor.Host, error) {
	h := &doctor.Host{Env: os.Environ(), RunDir: c.String("out")}
	spec := jobs.Default()
	if c.Args().Len() > 0 {
		job, err := jobs.Load(c.Args().First(), c.StringSlice("set"))
		if err != nil {
			return nil, exitcode.With(exitcode.Usage, err)
		}
		h.Job, spec = job, *job
	}
	if h.RunDir == "" {
		h.RunDir = spec.Run.Dir
	}
	return h, nil
}

// meeting is how a rank under examination met those of its world.
type meeting struct {
	world   launcher.World
	joined  collectives.Transport // nil: it did not
	refused error                 // why
}

// handIn gives the doctor what only the backends can do.
func (m *meeting) handIn(h *doctor.Host, join func(string) func() (collectives.Transport, error)) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	spec := jobs.Default()
	if h.Job != nil {
		spec = *h.Job
	}
	h.Backends = doctor.Backends{
		Device: func(kind string) (kernels.Device, error) {
			spec := spec
			spec.Device.Kind = kind
			if err := checkDevice(&spec, m.world); err != nil {
				return nil, err
			}
			return openDevice(&spec, m.world)
		},
		CUDA: describeCUDA,
		World: func(ranks int) ([]collectives.Transport, error) {
			return local.NewWorldWith(ranks, local.Options{Processes: true}), nil
		},
		Join: func() (collectives.Transport, error) {
			if m.refused = wireUp(m.world, spec.Transport.LibMPI); m.refused == nil {
				m.joined, m.refused = join(spec.Transport.LibMPI)()
			}
			return m.joined, m.refused
		},
		MPIRank: func(library string) []string { return []string{self, "doctor", "--" + probeFlag, library} },
	}
	return nil
}

// leave closes the transport when all ranks are there to do so, so that it can be bounded.
func (m *meeting) leave(limited context.Context) {
	_ = collectives.World(m.joined).Barrier(limited)
	m.joined.Close()
}

// giveWay leaves the word to rank 0, from which nothing joins this rank: it has most likely found the same.
func (m *meeting) giveWay(own doctor.Report) {
	if misfit := (*mpi.MisfitError)(nil); !process.EndedWithin(3*time.Second) && !errors.As(m.refused, &misfit) {
		fmt.Fprintf(os.Stderr, "pipetrain: doctor: rank %d on %s: %v\n", m.world.Rank, own.Host, m.refused)
	}
}

// writeReports writes those of all ranks, as a table or as JSON; of none, nothing.
func writeReports(stdout io.Writer, reports []doctor.Report, asJSON bool) error {
	switch {
	case len(reports) == 0: // rank 0 speaks for all
		return nil
	case asJSON:
		var v any = reports[0]
		if len(reports) > 1 {
			v = reports
		}
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	return doctor.WriteAll(stdout, reports, doctor.Style{Width: width(stdout), Color: isTerminal(stdout) && os.Getenv("NO_COLOR") == "", All: true})
}
