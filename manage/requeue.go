package manage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/slurm"
)

// Requeue starts again what has ended unfinished, or a whole array's tasks that have. A running
// job saves first. Restarts without progress are counted anew. What was done is told on w.
func (r Run) Requeue(ctx context.Context, tools slurm.Tools, w io.Writer) error {
	if r.Job == "" {
		return exitcode.Errorf(exitcode.Usage, "%s was not submitted to Slurm: continue it with pipetrain --resume --out %[1]s %[1]s/job.toml", r.Dir)
	}
	if r.Tasks {
		return r.requeueTasks(ctx, tools, w)
	}
	if rec, err := exitcode.Read(r.Dir); err == nil && rec.Code == exitcode.Finished {
		return exitcode.Errorf(exitcode.Usage, "%s has finished: nothing is left to do", r)
	}
	if err := forgetRestarts(r.Dir); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	known, err := tools.Jobs(ctx, r.Job)
	if err != nil && !errors.Is(err, slurm.ErrUnknownJob) {
		return exitcode.With(exitcode.Environment, err)
	}
	script := filepath.Join(r.Dir, batchName)
	task := ""
	if whole, n, isTask := strings.Cut(r.Job, "_"); isTask && whole != "" {
		task, script = n, filepath.Join(filepath.Dir(r.Dir), batchName)
	}
	if len(known) > 0 {
		if done, err := putBack(ctx, r.Job, known[0], requeuesItself(script), tools, w); done || err != nil {
			return err
		}
	}
	// Slurm has forgotten it, or was told never to start it again.
	return r.submitAgain(ctx, script, task, tools, w)
}

// requeueTasks starts an array's tasks again that have ended unfinished.
func (r Run) requeueTasks(ctx context.Context, tools slurm.Tools, w io.Writer) error {
	folders := taskFolders(r.Dir)
	if len(folders) == 0 {
		return exitcode.Errorf(exitcode.Usage, "%s: no task of the array has started", r)
	}
	begun := 0
	for _, dir := range folders {
		if rec, err := exitcode.Read(dir); err != nil || rec.Code == exitcode.Finished {
			continue // finished, or still on its way
		}
		one, err := Find(ctx, dir, tools)
		if err == nil {
			err = one.Requeue(ctx, tools, w)
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

// putBack has a job that Slurm knows go back into the queue, if it does not wait there anyway. done is
// false, without an error, where Slurm will not start this one again.
func putBack(ctx context.Context, id string, known slurm.Job, itself bool, tools slurm.Tools, w io.Writer) (done bool, err error) {
	switch {
	case known.State == "PENDING":
		if known.Reason == "JobHeldUser" || known.Reason == "JobHeldAdmin" {
			return false, exitcode.Errorf(exitcode.Usage, "job %s is held: scontrol release %[1]s lets it start", id)
		}
		fmt.Fprintf(w, "job %s waits in the queue already (%s)\n", id, known.Reason)
		return true, nil
	case known.State == "RUNNING" && itself:
		if err := tools.SaveAndRequeue(ctx, id); err != nil {
			return false, exitcode.With(exitcode.Environment, err)
		}
		fmt.Fprintf(w, "job %s is asked to save after its step and to go back into the queue\n", id)
		return true, nil
	}
	why := tools.Requeue(ctx, id)
	if why == nil {
		fmt.Fprintf(w, "job %s is back in the queue\n", id)
		return true, nil
	}
	if known.Active() {
		return false, exitcode.With(exitcode.Environment, why)
	}
	return false, nil
}

// submitAgain hands the run's script to Slurm once more, as a job of its own.
func (r Run) submitAgain(ctx context.Context, script, task string, tools slurm.Tools, w io.Writer) error {
	var more []string
	if task != "" {
		more = []string{"--array=" + task}
	}
	c, err := claimFolder(r.Dir, false)
	if err != nil {
		return err
	}
	defer c.release()
	id, err := c.handOver(ctx, script, ticket{Task: task}, tools, more...)
	if err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	fmt.Fprintf(w, "job %s is submitted again as %s\n", r.Job, id)
	return nil
}

// requeuesItself says whether a batch script was made to.
func requeuesItself(script string) bool {
	b, err := os.ReadFile(script)
	return err == nil && strings.Contains(string(b), "\n#SBATCH --requeue\n")
}
