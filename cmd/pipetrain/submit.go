package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v3"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/launcher"
	"github.com/pipetrain/pipetrain/manage"
)

func submitCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name: "submit", Usage: "hand a job to Slurm as a batch script made from its [slurm] table", ArgsUsage: "JOB.toml",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "set", Usage: "override a key of the job: `KEY=VALUE`; %a is the number of an array's task"},
			&cli.StringFlag{Name: "out", Usage: "run folder `DIR`, with script and logs (default: a new one in run.dir)"},
			&cli.StringFlag{Name: "mpi", Usage: "`KIND` for srun --mpi: short for --set slurm.mpi=KIND"},
			&cli.BoolFlag{Name: "dry-run", Usage: "print the script and submit nothing"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			job, self, err := jobAndSelf(c)
			if err != nil {
				return err
			}
			sets := c.StringSlice("set")
			if mpi := c.String("mpi"); mpi != "" {
				sets = append(sets, "slurm.mpi="+mpi)
			}
			return manage.Submission{Job: job, Sets: sets, Out: c.String("out"), Binary: self, DryRun: c.Bool("dry-run")}.Submit(ctx, slurmTools(), stdout)
		},
	}
}

func scriptCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name: "script", Usage: "the line that starts a job with mpirun, for sites without Slurm", ArgsUsage: "JOB.toml",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "set", Usage: "override a key of the job: `KEY=VALUE`"},
			&cli.StringFlag{Name: "out", Usage: "run folder `DIR`; the line can then be run again and goes on"},
			&cli.StringFlag{Name: "mpi", Usage: "whose mpirun: openmpi or mpich (default: of transport.libmpi, else the one found here)"},
			&cli.StringFlag{Name: "hosts", Usage: "a `LIST` of hosts, node[1-3,7],login; the ranks are shared out over them"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			job, self, err := jobAndSelf(c)
			if err != nil {
				return err
			}
			line := manage.Line{Job: job, Sets: c.StringSlice("set"), Out: c.String("out"), MPI: c.String("mpi"), Hosts: c.String("hosts"), Binary: self}
			words, err := line.Words(ctx, slurmTools())
			if err != nil {
				return exitcode.With(exitcode.Usage, err)
			}
			_, err = fmt.Fprintln(stdout, launcher.Shell(words))
			return err
		},
	}
}

// jobAndSelf returns a command's only argument, a job file, and this program's own path.
func jobAndSelf(c *cli.Command) (job, self string, err error) {
	if c.Args().Len() != 1 {
		return "", "", exitcode.Errorf(exitcode.Usage, "%s: want one job file, got %d arguments", c.Name, c.Args().Len())
	}
	if self, err = os.Executable(); err != nil {
		return "", "", exitcode.With(exitcode.Environment, err)
	}
	return c.Args().First(), self, nil
}
