package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/slurm"
)

// A run is what the commands for runs are given: a folder, a job of Slurm, or both.
type aRun struct {
	dir   string // empty: only Slurm knows of it
	job   string // "12", "12_3"; empty: not Slurm's
	tasks bool   // dir is of an array, and holds a run folder a task
}

func (r aRun) String() string {
	if r.job == "" {
		return r.dir
	}
	return "job " + r.job
}

var jobNumber = regexp.MustCompile(`^\d+(_\d+)?$`)

// findRun reads RUN: a run folder, or the number of a job. A folder of that name comes first.
func findRun(ctx context.Context, arg string, tools slurm.Tools) (aRun, error) {
	if _, err := os.Stat(arg); err != nil {
		if !jobNumber.MatchString(arg) {
			if errors.Is(err, fs.ErrNotExist) {
				return aRun{}, exitcode.Errorf(exitcode.Usage, "%s: there is no such run folder, and it is no number of a job", arg)
			}
			return aRun{}, exitcode.With(exitcode.Usage, err)
		}
		return runOfJob(ctx, arg, tools)
	}
	dir, err := filepath.Abs(arg)
	if err != nil {
		return aRun{}, err
	}
	r := aRun{dir: dir}
	switch t, err := readTicket(dir); {
	case err == nil:
		r.job, r.tasks = t.Job, t.Array != ""
		return r, nil
	case !errors.Is(err, fs.ErrNotExist):
		return r, exitcode.With(exitcode.Environment, err)
	}
	if n, isTask := strings.CutPrefix(filepath.Base(dir), "task-"); isTask {
		if t, err := readTicket(filepath.Dir(dir)); err == nil && t.Array != "" {
			r.job = t.Job + "_" + n
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
func runOfJob(ctx context.Context, id string, tools slurm.Tools) (aRun, error) {
	whole, task, isTask := strings.Cut(id, "_")
	r := aRun{job: id}
	place := func(dir string, t ticket) aRun {
		r.dir, r.tasks = dir, t.Array != ""
		if own, err := readTicket(filepath.Join(dir, "task-"+task)); isTask && (t.Array != "" || err == nil && own.Job == id) {
			r.dir, r.tasks = filepath.Join(dir, "task-"+task), false
		}
		return r
	}
	script, _, err := tools.Script(ctx, id)
	if err == nil {
		if dir := filepath.Dir(script); filepath.Base(script) == batchName {
			if t, err := readTicket(dir); err == nil {
				return place(dir, t), nil
			}
			if isTask { // the one task of an array that was submitted again
				if t, err := readTicket(filepath.Join(dir, "task-"+task)); err == nil {
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
		if t, err := readTicket(filepath.Dir(f)); err == nil && (t.Job == whole || t.Job == id) {
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

// holder is the process that holds a run folder: the embedded launcher, or rank 0 under another.
type holder struct {
	pid   int
	host  string
	here  bool // on this host
	alive bool // this host's process has the folder's lock open
}

var lockText = regexp.MustCompile(`^pid (\d+) on (\S+) since`)

// holderOf reads who holds a run folder. A number in a file is no proof: another process may have it
// by now, so that one has to have the very lock open.
func holderOf(dir string) (holder, error) {
	lock := filepath.Join(dir, record.LockName)
	b, err := os.ReadFile(lock)
	if err != nil {
		return holder{}, err
	}
	m := lockText.FindSubmatch(b)
	if m == nil {
		return holder{}, fmt.Errorf("%s does not say who holds the run", lock)
	}
	h := holder{host: string(m[2])}
	if h.pid, err = strconv.Atoi(string(m[1])); err != nil {
		return h, err
	}
	if host, err := os.Hostname(); err != nil || host != h.host {
		return h, nil
	}
	h.here = true
	want, err := os.Stat(lock)
	if err != nil {
		return h, err
	}
	fds := fmt.Sprintf("/proc/%d/fd", h.pid)
	entries, err := os.ReadDir(fds)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return h, nil
	}
	if err != nil {
		return h, fmt.Errorf("pid %d is another user's: %w", h.pid, err)
	}
	for _, e := range entries {
		if got, err := os.Stat(filepath.Join(fds, e.Name())); err == nil && os.SameFile(got, want) {
			h.alive = true
			break
		}
	}
	return h, nil
}

// lastMetrics reads the newest whole line of a run's metrics; false before the first.
func lastMetrics(dir string) (record.Metrics, bool) {
	var m record.Metrics
	f, err := os.Open(filepath.Join(dir, record.MetricsName))
	if err != nil {
		return m, false
	}
	defer f.Close()
	const tail = 64 << 10 // a line is a few hundred bytes
	st, err := f.Stat()
	if err != nil {
		return m, false
	}
	if _, err := f.Seek(max(0, st.Size()-tail), io.SeekStart); err != nil {
		return m, false
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return m, false
	}
	lines := strings.Split(string(b), "\n")
	for _, line := range slices.Backward(lines[:len(lines)-1]) { // what follows the last line break is torn
		if m.UnmarshalJSON([]byte(line)) == nil {
			return m, true
		}
	}
	return m, false
}

// newestCheckpoint returns the step of the newest checkpoint, -1 without one.
func newestCheckpoint(dir string) int {
	newest := -1
	entries, _ := os.ReadDir(filepath.Join(dir, record.CheckpointsName))
	for _, e := range entries {
		if n, err := strconv.Atoi(strings.TrimPrefix(e.Name(), "step-")); err == nil {
			newest = max(newest, n)
		}
	}
	return newest
}
