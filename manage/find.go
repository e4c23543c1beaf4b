// Package manage looks at run folders from outside and acts on the runs in them: it
// submits a job to Slurm, finds the run that a user names, tells where it is, shows its
// logs, stops it and puts it back into the queue. Nothing here trains.
package manage

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/slurm"
)

// Run is what a user names: a folder, a job of Slurm, or both.
type Run struct {
	Dir   string // empty: only Slurm knows of it
	Job   string // "12", "12_3"; empty: not Slurm's
	Tasks bool   // Dir is of an array, and holds a run folder a task
}

func (r Run) String() string {
	if r.Job == "" {
		return r.Dir
	}
	return "job " + r.Job
}

var jobNumber = regexp.MustCompile(`^\d+(_\d+)?$`)

// Find reads what a user gives for a run: its folder, or the number of a job. A folder of that name comes first.
func Find(ctx context.Context, arg string, tools slurm.Tools) (Run, error) {
	if _, err := os.Stat(arg); err != nil {
		if !jobNumber.MatchString(arg) {
			if errors.Is(err, fs.ErrNotExist) {
				return Run{}, exitcode.Errorf(exitcode.Usage, "%s: there is no such run folder, and it is no number of a job", arg)
			}
			return Run{}, exitcode.With(exitcode.Usage, err)
		}
		return runOfJob(ctx, arg, tools)
	}
	dir, err := filepath.Abs(arg)
	if err != nil {
		return Run{}, err
	}
	r := Run{Dir: dir}
	switch t, err := readTicket(ctx, dir, tools); {
	case err == nil:
		r.Job, r.Tasks = t.Job, t.Array != ""
		return r, nil
	case errors.Is(err, errNoAnswer):
		return r, nil // what the folder itself tells
	case !errors.Is(err, fs.ErrNotExist):
		return r, exitcode.With(exitcode.Environment, err)
	}
	if n, isTask := strings.CutPrefix(filepath.Base(dir), "task-"); isTask {
		if t, err := readTicket(ctx, filepath.Dir(dir), tools); err == nil && t.Array != "" {
			r.Job = t.Job + "_" + n
			return r, nil
		}
	}
	for _, name := range []string{record.LockName, record.JobName, record.MetricsName, exitcode.File} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return r, nil
		}
	}
	return r, exitcode.Errorf(exitcode.Usage, "%s holds no run", arg)
}

// runOfJob finds the folder of a job: Slurm knows the script, else the folders below runs/ are asked.
func runOfJob(ctx context.Context, id string, tools slurm.Tools) (Run, error) {
	whole, task, isTask := strings.Cut(id, "_")
	r := Run{Job: id}
	place := func(dir string, t ticket) Run {
		r.Dir, r.Tasks = dir, t.Array != ""
		if own, err := readTicket(ctx, filepath.Join(dir, "task-"+task), tools); isTask && (t.Array != "" || err == nil && own.Job == id) {
			r.Dir, r.Tasks = filepath.Join(dir, "task-"+task), false
		}
		return r
	}
	script, _, err := tools.Script(ctx, id)
	if err == nil {
		if dir := filepath.Dir(script); filepath.Base(script) == batchName {
			if t, err := readTicket(ctx, dir, tools); err == nil {
				return place(dir, t), nil
			}
			if isTask { // the one task of an array that was submitted again
				if t, err := readTicket(ctx, filepath.Join(dir, "task-"+task), tools); err == nil {
					return place(dir, t), nil
				}
			}
		}
		return r, exitcode.Errorf(exitcode.Usage, "job %s is none of pipetrain submit: its script is %s", id, script)
	}
	if !errors.Is(err, slurm.ErrUnknownJob) {
		return r, exitcode.With(exitcode.Environment, err)
	}
	found, _ := filepath.Glob(filepath.Join("runs", "*", ticketName))
	for _, f := range found {
		if t, err := readTicket(ctx, filepath.Dir(f), tools); err == nil && (t.Job == whole || t.Job == id) {
			dir, err := filepath.Abs(filepath.Dir(f))
			if err != nil {
				return r, err
			}
			return place(dir, t), nil
		}
	}
	return r, exitcode.Errorf(exitcode.Usage, "job %s: %v, and no run in runs/ is its: name the run folder", id, err)
}

// taskFolders are the run folders of an array's tasks that have started, by number.
func taskFolders(dir string) []string {
	found, _ := filepath.Glob(filepath.Join(globEscape(dir), "task-*"))
	number := func(d string) int {
		n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(d), "task-"))
		if err != nil {
			return -1
		}
		return n
	}
	found = slices.DeleteFunc(found, func(d string) bool { return number(d) < 0 })
	slices.SortFunc(found, func(a, b string) int { return number(a) - number(b) })
	return found
}
