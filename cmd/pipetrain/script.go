package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/launcher"
	"github.com/pipetrain/pipetrain/slurm"
)

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
			if c.Args().Len() != 1 {
				return exitcode.Errorf(exitcode.Usage, "script: want one job file, got %d arguments", c.Args().Len())
			}
			words, err := mpirunLine(ctx, c.Args().First(), c.StringSlice("set"), c.String("out"), c.String("mpi"), c.String("hosts"))
			if err != nil {
				return exitcode.With(exitcode.Usage, err)
			}
			_, err = fmt.Fprintln(stdout, launcher.Shell(words))
			return err
		},
	}
}

func mpirunLine(ctx context.Context, job string, sets []string, out, mpi, hosts string) ([]string, error) {
	spec, err := jobs.Load(job, sets)
	if err != nil {
		return nil, err
	}
	if spec.Transport.Kind == "local" {
		return nil, fmt.Errorf("transport.kind = \"local\" joins ranks that pipetrain starts itself, without mpirun: use \"auto\" or \"mpi\"")
	}
	// The same rules as in a batch script, but for what is srun's.
	spec.Slurm.Launcher, spec.Slurm.MPI = "mpirun", "auto"
	switch mpi {
	case "":
	case "openmpi":
		spec.Transport.LibMPI = "libmpi.so.40"
	case "mpich":
		spec.Transport.LibMPI = "libmpi.so.12"
	default:
		return nil, fmt.Errorf("--mpi %s: want openmpi or mpich (and its kin: Intel, Cray, MVAPICH)", mpi)
	}
	names, err := slurm.ExpandHosts(hosts)
	if err != nil {
		return nil, fmt.Errorf("--hosts: %w", err)
	}
	perHost := 0
	if len(names) > 0 {
		if len(names) > spec.World() {
			return nil, fmt.Errorf("--hosts: %d hosts for %d ranks leave some without work", len(names), spec.World())
		}
		perHost = (spec.World() + len(names) - 1) / len(names)
		spec.Slurm.Nodes = len(names)
	}
	choice, err := chooseLauncher(ctx, spec, slurm.Tools{Conf: os.Getenv("SLURM_CONF")})
	if err != nil {
		return nil, err
	}
	words := choice.Mpirun
	switch {
	case len(names) == 0:
	case choice.Family == slurm.MPICH:
		words = slices.Insert(words, 1, "-hosts", strings.Join(names, ","))
	default:
		for i := range names {
			names[i] += fmt.Sprintf(":%d", perHost)
		}
		words = slices.Insert(words, 1, "--host", strings.Join(names, ","))
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if job, err = filepath.Abs(job); err != nil {
		return nil, err
	}
	words = append(words, self)
	if out != "" {
		if out, err = filepath.Abs(out); err != nil {
			return nil, err
		}
		words = append(words, "--auto-resume", "--out", out)
	}
	for _, s := range sets {
		words = append(words, "--set", s)
	}
	return append(words, job), nil
}
