package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/slurm"
)

func cancelCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name: "cancel", Usage: "have a run save its state and stop", ArgsUsage: "RUN",
		Description: "The ranks finish their step, save and stop with exit code 7. A job that waits leaves the queue. --now does not wait for the step.",
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "now", Usage: "end it at once: what was done since the last checkpoint is lost"}},
		Action: func(ctx context.Context, c *cli.Command) error {
			tools := slurm.Tools{Conf: os.Getenv("SLURM_CONF")}
			r, err := oneRun(ctx, c, tools)
			if err != nil {
				return err
			}
			if r.job == "" {
				return cancelLocal(r.dir, c.Bool("now"), stdout)
			}
			return cancelJobs(ctx, r, c.Bool("now"), tools, stdout)
		},
	}
}

func cancelJobs(ctx context.Context, r aRun, now bool, tools slurm.Tools, stdout io.Writer) error {
	known, err := tools.Jobs(ctx, r.job)
	if errors.Is(err, slurm.ErrUnknownJob) {
		fmt.Fprintf(stdout, "job %s is over\n", r.job)
		return nil
	}
	if err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	for _, j := range known {
		said := ""
		switch {
		case !j.Active():
			said = "is over: " + j.State
		case j.State == "COMPLETING":
			said = "is ending already"
		case j.State == "RUNNING" && !now:
			err, said = tools.Stop(ctx, j.ID), "is asked to save and stop after its step; pipetrain cancel --now does not wait"
		default:
			err, said = tools.Cancel(ctx, j.ID), "is cancelled"
		}
		if err != nil {
			return exitcode.With(exitcode.Environment, err)
		}
		fmt.Fprintf(stdout, "job %s %s\n", j.ID, said)
	}
	return nil
}

// cancelLocal signals the process that holds a run's folder: once to stop after its step, a second time at once.
func cancelLocal(dir string, now bool, stdout io.Writer) error {
	h, err := holderOf(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return exitcode.Errorf(exitcode.Usage, "%s: the run has not started", dir)
	case err != nil:
		return exitcode.With(exitcode.Environment, fmt.Errorf("%s: %w", dir, err))
	case !h.here:
		return exitcode.Errorf(exitcode.Usage, "%s: the run is held by pid %d on %s: run pipetrain cancel there", dir, h.pid, h.host)
	case !h.alive:
		fmt.Fprintf(stdout, "%s: the run is over\n", dir)
		return nil
	}
	signal := func(s syscall.Signal) error {
		if err := syscall.Kill(h.pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			return exitcode.With(exitcode.Environment, fmt.Errorf("%s: pid %d: %w", dir, h.pid, err))
		}
		return nil
	}
	if err := signal(syscall.SIGTERM); err != nil {
		return err
	}
	if !now {
		fmt.Fprintf(stdout, "pid %d is asked to save and stop after its step; pipetrain cancel --now does not wait\n", h.pid)
		return nil
	}
	// Our launcher ends its ranks at the second signal. A rank under another launcher
	// would only be asked again, and has to be killed.
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		for range 30 {
			time.Sleep(100 * time.Millisecond)
			if h, err := holderOf(dir); err != nil || !h.alive {
				fmt.Fprintf(stdout, "%s: the run has ended\n", dir)
				return nil
			}
			if s == syscall.SIGTERM {
				if err := signal(s); err != nil {
					return err
				}
			}
		}
		if h, err := holderOf(dir); err == nil && h.alive && s == syscall.SIGTERM {
			if err := signal(syscall.SIGKILL); err != nil {
				return err
			}
		}
	}
	return exitcode.Errorf(exitcode.Environment, "%s: pid %d does not end", dir, h.pid)
}

func requeueCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name: "requeue", Usage: "put a run back into Slurm's queue, to go on from its newest checkpoint", ArgsUsage: "RUN",
		Description: "A running job saves first. One that Slurm has forgotten is submitted again, by the script in the run folder. Restarts without progress are counted anew.",
		Action: func(ctx context.Context, c *cli.Command) error {
			tools := slurm.Tools{Conf: os.Getenv("SLURM_CONF")}
			r, err := oneRun(ctx, c, tools)
			if err != nil {
				return err
			}
			if r.job == "" {
				return exitcode.Errorf(exitcode.Usage, "%s was not submitted to Slurm: continue it with pipetrain --resume --out %[1]s %[1]s/job.toml", r.dir)
			}
			return requeue(ctx, r, tools, stdout)
		},
	}
}

// requeue starts again what has ended unfinished, or a whole array's tasks that have.
func requeue(ctx context.Context, r aRun, tools slurm.Tools, stdout io.Writer) error {
	if r.tasks {
		folders := taskFolders(r.dir)
		if len(folders) == 0 {
			return exitcode.Errorf(exitcode.Usage, "%s: no task of the array has started", r)
		}
		begun := 0
		for _, dir := range folders {
			if rec, err := exitcode.Read(dir); err != nil || rec.Code == exitcode.Finished {
				continue // finished, or still on its way
			}
			one, err := findRun(ctx, dir, tools)
			if err == nil {
				err = requeue(ctx, one, tools, stdout)
			}
			if err != nil {
				return err
			}
			begun++
		}
		if begun == 0 {
			return exitcode.Errorf(exitcode.Usage, "%s: every task that has started has finished or is on its way", r)
		}
		return nil
	}
	if rec, err := exitcode.Read(r.dir); err == nil && rec.Code == exitcode.Finished {
		return exitcode.Errorf(exitcode.Usage, "%s has finished: nothing is left to do", r)
	}
	if err := forgetRestarts(r.dir); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	known, err := tools.Jobs(ctx, r.job)
	if err != nil && !errors.Is(err, slurm.ErrUnknownJob) {
		return exitcode.With(exitcode.Environment, err)
	}
	script := filepath.Join(r.dir, batchName)
	task := ""
	if whole, n, isTask := strings.Cut(r.job, "_"); isTask && whole != "" {
		task, script = n, filepath.Join(filepath.Dir(r.dir), batchName)
	}
	switch {
	case len(known) > 0 && known[0].State == "PENDING":
		if known[0].Reason == "JobHeldUser" || known[0].Reason == "JobHeldAdmin" {
			return exitcode.Errorf(exitcode.Usage, "job %s is held: scontrol release %[1]s lets it start", r.job)
		}
		fmt.Fprintf(stdout, "job %s waits in the queue already (%s)\n", r.job, known[0].Reason)
		return nil
	case len(known) > 0 && known[0].State == "RUNNING" && requeuesItself(script):
		if err := tools.SaveAndRequeue(ctx, r.job); err != nil {
			return exitcode.With(exitcode.Environment, err)
		}
		fmt.Fprintf(stdout, "job %s is asked to save after its step and to go back into the queue\n", r.job)
		return nil
	}
	if len(known) > 0 {
		why := tools.Requeue(ctx, r.job)
		if why == nil {
			fmt.Fprintf(stdout, "job %s is back in the queue\n", r.job)
			return nil
		}
		if known[0].Active() {
			return exitcode.With(exitcode.Environment, why)
		}
	}
	// Slurm has forgotten it, or was told never to start it again.
	var more []string
	if task != "" {
		more = []string{"--array=" + task}
	}
	id, err := tools.Submit(ctx, script, more...)
	if err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	if task != "" {
		id += "_" + task
	}
	if err := writeTicket(r.dir, ticket{Job: id, Submitted: time.Now()}); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	fmt.Fprintf(stdout, "job %s is submitted again as %s\n", r.job, id)
	return nil
}

// requeuesItself says whether a batch script was made to.
func requeuesItself(script string) bool {
	b, err := os.ReadFile(script)
	return err == nil && strings.Contains(string(b), "\n#SBATCH --requeue\n")
}
