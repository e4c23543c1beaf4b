package manage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/slurm"
)

// State is what is known of one run.
type State struct {
	Run   string `json:"run"` // folder
	Name  string `json:"name"`
	Ranks int    `json:"ranks"`
	// State is "pending", "running", "completing", … as Slurm says while a job of Slurm lives; else the name of
	// the exit code, "running", "lost" where nobody was left to say how it ended, "new" before the start.
	State    string     `json:"state"`
	Job      *slurm.Job `json:"job,omitempty"`
	Restarts int        `json:"restarts"` // by Slurm
	Where    string     `json:"where,omitempty"`
	Note     string     `json:"note,omitempty"` // what may be wrong

	Step            int              `json:"step"`
	StepsAsked      int              `json:"steps_asked"`
	Loss            *float64         `json:"loss,omitempty"` // absent before the first step, and where it is not finite
	TokensPerSecond float64          `json:"tokens_per_second"`
	Updated         time.Time        `json:"updated,omitzero"` // of the metrics
	Checkpoint      int              `json:"checkpoint"`       // step of the newest, -1 without one
	End             *exitcode.Record `json:"end,omitempty"`
}

// Report is the state of a run, or of every task of an array.
type Report struct {
	Run    Run
	States []State
}

// Status says where the run is. Where Slurm cannot be asked, the report is what the run
// folder tells, and the error says why it is no more.
func (r Run) Status(ctx context.Context, tools slurm.Tools) (Report, error) {
	all, err := r.states(ctx, tools)
	if err != nil {
		all, _ = Run{Dir: r.Dir, Tasks: r.Tasks}.states(ctx, tools) // asks no one
	}
	return Report{r, all}, err
}

func (r Run) states(ctx context.Context, tools slurm.Tools) ([]State, error) {
	var known []slurm.Job
	if r.Job != "" {
		var err error
		if known, err = jobsOf(ctx, r.Job, tools); err != nil {
			return nil, err
		}
	}
	if !r.Tasks {
		var j *slurm.Job
		if len(known) > 0 {
			j = &known[0]
		}
		s := stateOf(r.Dir, j)
		if j != nil && j.Active() {
			_, s.Restarts, _ = tools.Script(ctx, r.Job) // an older Slurm may not count
		}
		return []State{s}, nil
	}
	var all []State
	for _, dir := range taskFolders(r.Dir) {
		task := strings.TrimPrefix(filepath.Base(dir), "task-")
		own := r.Job + "_" + task
		if t, err := readTicket(ctx, dir, tools); err == nil { // it was submitted again by itself
			own = t.Job
			if again, err := jobsOf(ctx, own, tools); err == nil {
				known = append(known, again...)
			}
		}
		var j *slurm.Job
		if i := slices.IndexFunc(known, func(k slurm.Job) bool { return k.ID == own }); i >= 0 {
			j = &known[i]
		}
		all = append(all, stateOf(dir, j))
	}
	for i, j := range known { // those that wait have no folder yet
		task := strings.TrimPrefix(j.ID, r.Job+"_")
		if task == j.ID {
			continue
		}
		if _, err := os.Stat(filepath.Join(r.Dir, "task-"+task)); err != nil {
			all = append(all, stateOf(filepath.Join(r.Dir, "task-"+task), &known[i]))
		}
	}
	return all, nil
}

// jobsOf asks Slurm, and where it has forgotten the job the accounting. None is no error.
func jobsOf(ctx context.Context, id string, tools slurm.Tools) ([]slurm.Job, error) {
	known, err := tools.Jobs(ctx, id)
	if errors.Is(err, slurm.ErrUnknownJob) {
		if known, err = tools.Ended(ctx, id); err != nil {
			return nil, nil // sites without accounting are many
		}
	}
	return known, err
}

// stateOf reads a run folder, which need not exist.
func stateOf(dir string, j *slurm.Job) State {
	s := State{Run: dir, Job: j, Checkpoint: newestCheckpoint(dir)}
	for _, name := range []string{record.JobName, submittedName} {
		spec, err := jobs.Load(filepath.Join(dir, name), nil)
		if err == nil {
			s.Name, s.Ranks, s.StepsAsked = spec.Name, spec.World(), spec.Train.Steps
			break
		}
	}
	if m, ok := LastMetrics(dir); ok {
		s.Step, s.TokensPerSecond = m.Step, m.TokensPerSecond
		if !math.IsNaN(m.Loss) && !math.IsInf(m.Loss, 0) {
			s.Loss = &m.Loss
		}
		if st, err := os.Stat(filepath.Join(dir, record.MetricsName)); err == nil {
			s.Updated = st.ModTime()
		}
	}
	if rec, err := exitcode.Read(dir); err == nil {
		s.End = &rec
	}
	h, held := holderOf(dir)
	switch {
	case j != nil && j.Active():
		s.State = strings.ToLower(j.State)
		if j.State == "RUNNING" {
			s.Where = j.Nodes
		} else {
			s.Where = j.Reason
		}
	case held == nil && h.alive:
		s.State, s.Where = "running", fmt.Sprintf("pid %d on %s", h.pid, h.host)
		s.End = nil // of an earlier start
	case s.End != nil:
		s.State = s.End.Name
	case j != nil:
		s.State = strings.ToLower(j.State)
	case held == nil && !h.here:
		s.State, s.Where = "unknown", fmt.Sprintf("pid %d on %s, which can be asked there only", h.pid, h.host)
	case held == nil:
		s.State = "lost"
	default:
		s.State = "new"
	}
	s.Note = unseen(s)
	if j != nil && j.Active() && j.State == "RUNNING" {
		s.End = nil // the script removes the record of an earlier start, though not at once
	}
	return s
}

// unseen says that a job has run on nodes which do not see the run folder: it has left nothing there.
func unseen(s State) string {
	j := s.Job
	if j == nil || j.Nodes == "" || j.Nodes == "None assigned" || j.Active() && (j.State != "RUNNING" || strings.HasPrefix(j.Elapsed, "0:")) {
		return "" // it was on no node, or is not there long enough for the file systems of clusters
	}
	l := &logs{dir: s.Run, patterns: []string{"slurm-*.log", "rank-*"}}
	if s.End != nil || !s.Updated.IsZero() || len(l.files()) > 0 {
		return ""
	}
	return fmt.Sprintf("%s wrote nothing to this folder and may not see it: submit with --out on a file system that all nodes share", j.Nodes)
}

// LastMetrics reads the newest whole line of a run's metrics; false before the first.
func LastMetrics(dir string) (record.Metrics, bool) {
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
