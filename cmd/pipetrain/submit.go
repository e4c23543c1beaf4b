package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/slurm"
)

func submitCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name: "submit", Usage: "hand a job to Slurm as a batch script made from its [slurm] table", ArgsUsage: "JOB.toml",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "set", Usage: "override a key of the job: `KEY=VALUE`"},
			&cli.StringFlag{Name: "out", Usage: "folder `DIR` of the script, its log and the run (default: a new one in run.dir)"},
			&cli.StringFlag{Name: "mpi", Value: "pmix", Usage: "`KIND` for srun --mpi: pmix for Open MPI, pmi2 for MPICH"},
			&cli.BoolFlag{Name: "dry-run", Usage: "print the script and submit nothing"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Len() != 1 {
				return exitcode.Errorf(exitcode.Usage, "submit: want one job file, got %d arguments", c.Args().Len())
			}
			return submit(ctx, c, stdout)
		},
	}
}

func submit(ctx context.Context, c *cli.Command, stdout io.Writer) error {
	spec, err := jobs.Load(c.Args().First(), c.StringSlice("set"))
	if err != nil {
		return exitcode.With(exitcode.Usage, err)
	}
	out := c.String("out")
	if out == "" {
		out = filepath.Join(spec.Run.Dir, spec.Name+"-"+time.Now().Format("20060102-150405"))
	}
	self, err1 := os.Executable()
	job, err2 := filepath.Abs(c.Args().First())
	out, err3 := filepath.Abs(out)
	if err := errors.Join(err1, err2, err3); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	script, err := slurm.Script(spec, slurm.Launch{Binary: self, Job: job, Sets: c.StringSlice("set"), Out: out, MPI: c.String("mpi")})
	if err != nil {
		return exitcode.With(exitcode.Usage, err)
	}
	if c.Bool("dry-run") {
		_, err := io.WriteString(stdout, script)
		return err
	}
	sbatch, err := exec.LookPath("sbatch")
	if err != nil {
		return exitcode.Errorf(exitcode.Environment, "sbatch is not in PATH: this machine does not submit to Slurm; see the script with --dry-run")
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	file := filepath.Join(out, "job.sbatch")
	if err := os.WriteFile(file, []byte(script), 0o644); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	var said strings.Builder
	cmd := exec.CommandContext(ctx, sbatch, "--parsable", file)
	cmd.Stderr = &said
	id, err := cmd.Output()
	if err != nil {
		return exitcode.Errorf(exitcode.Environment, "sbatch refused the job: %s (script %s)", strings.Join(strings.Fields(said.String()), " "), file)
	}
	fmt.Fprintf(stdout, "submitted batch job %s: script, log and run are in %s\n", strings.TrimSpace(string(id)), out)
	return nil
}
