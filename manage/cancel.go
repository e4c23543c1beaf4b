package manage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/slurm"
)

// Cancel has the ranks finish their step, save and stop, and a job that waits leave the
// queue. With now it does not wait for the step. What was done is told on w.
func (r Run) Cancel(ctx context.Context, now bool, tools slurm.Tools, w io.Writer) error {
	if r.Job == "" {
		return cancelLocal(r.Dir, now, w)
	}
	known, err := tools.Jobs(ctx, r.Job)
	if errors.Is(err, slurm.ErrUnknownJob) {
		fmt.Fprintf(w, "job %s is over\n", r.Job)
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
		fmt.Fprintf(w, "job %s %s\n", j.ID, said)
	}
	return nil
}

// cancelLocal signals the process that holds a run's folder: once to stop after its step, a second time at once.
func cancelLocal(dir string, now bool, w io.Writer) error {
	h, err := holderOf(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return exitcode.Errorf(exitcode.Usage, "%s: the run has not started", dir)
	case err != nil:
		return exitcode.With(exitcode.Environment, fmt.Errorf("%s: %w", dir, err))
	case !h.here:
		return exitcode.Errorf(exitcode.Usage, "%s: the run is held by pid %d on %s: run pipetrain cancel there", dir, h.pid, h.host)
	case !h.alive:
		fmt.Fprintf(w, "%s: the run is over\n", dir)
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
		fmt.Fprintf(w, "pid %d is asked to save and stop after its step; pipetrain cancel --now does not wait\n", h.pid)
		return nil
	}
	// Our launcher ends its ranks at the second signal. A rank under another launcher
	// would only be asked again, and has to be killed.
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		for range 30 {
			time.Sleep(100 * time.Millisecond)
			if h, err := holderOf(dir); err != nil || !h.alive {
				fmt.Fprintf(w, "%s: the run has ended\n", dir)
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
