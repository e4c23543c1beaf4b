package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/progress"
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/slurm"
)

func statusCommand(stdout, stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "where a run is: in the queue, at which step, how it ended", ArgsUsage: "RUN",
		Description: "RUN is a run folder or the number of a job of Slurm (12, or 12_3 for one task of an array).",
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "one JSON object on standard output"}},
		Action: func(ctx context.Context, c *cli.Command) error {
			tools := slurm.Tools{Conf: os.Getenv("SLURM_CONF")}
			r, err := oneRun(ctx, c, tools)
			if err != nil {
				return err
			}
			all, err := statusOfRun(ctx, r, tools)
			if err != nil {
				// The run folder has much to say without Slurm.
				fmt.Fprintf(stderr, "pipetrain: the queue cannot be asked: %v\n", err)
				if all, err = statusOfRun(ctx, aRun{dir: r.dir, tasks: r.tasks}, tools); err != nil {
					return exitcode.With(exitcode.Environment, err)
				}
			}
			switch {
			case c.Bool("json") && r.tasks:
				return printJSON(stdout, struct {
					Run   string  `json:"run"`
					Tasks []state `json:"tasks"`
				}{r.dir, all})
			case c.Bool("json"):
				return printJSON(stdout, all[0])
			case r.tasks:
				return showTasks(stdout, r, all)
			}
			return show(stdout, all[0])
		},
	}
}

// oneRun reads a command's only argument.
func oneRun(ctx context.Context, c *cli.Command, tools slurm.Tools) (aRun, error) {
	if c.Args().Len() != 1 {
		return aRun{}, exitcode.Errorf(exitcode.Usage, "%s: want one run, its folder or its number in Slurm, got %d arguments", c.Name, c.Args().Len())
	}
	return findRun(ctx, c.Args().First(), tools)
}

// state is what is known of one run.
type state struct {
	Run   string `json:"run"` // folder
	Name  string `json:"name"`
	Ranks int    `json:"ranks"`
	// State is "pending", "running", "completing", … as Slurm says while a job of Slurm lives; else the name of
	// the exit code, "running", "lost" where nobody was left to say how it ended, "new" before the start.
	State    string     `json:"state"`
	Job      *slurm.Job `json:"job,omitempty"`
	Restarts int        `json:"restarts"` // by Slurm
	Where    string     `json:"where,omitempty"`

	Step            int              `json:"step"`
	StepsAsked      int              `json:"steps_asked"`
	Loss            *float64         `json:"loss,omitempty"` // absent before the first step, and where it is not finite
	TokensPerSecond float64          `json:"tokens_per_second"`
	Updated         time.Time        `json:"updated,omitzero"` // of the metrics
	Checkpoint      int              `json:"checkpoint"`       // step of the newest, -1 without one
	End             *exitcode.Record `json:"end,omitempty"`
}

// statusOfRun returns the state of a run, or of all tasks of an array.
func statusOfRun(ctx context.Context, r aRun, tools slurm.Tools) ([]state, error) {
	var known []slurm.Job
	if r.job != "" {
		var err error
		if known, err = jobsOf(ctx, r.job, tools); err != nil {
			return nil, err
		}
	}
	if !r.tasks {
		var j *slurm.Job
		if len(known) > 0 {
			j = &known[0]
		}
		s := stateOf(r.dir, j)
		if j != nil && j.Active() {
			_, s.Restarts, _ = tools.Script(ctx, r.job) // an older Slurm may not count
		}
		return []state{s}, nil
	}
	var all []state
	for _, dir := range taskFolders(r.dir) {
		task := strings.TrimPrefix(filepath.Base(dir), "task-")
		own := r.job + "_" + task
		if t, err := readTicket(dir); err == nil { // it was submitted again by itself
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
		task := strings.TrimPrefix(j.ID, r.job+"_")
		if task == j.ID {
			continue
		}
		if _, err := os.Stat(filepath.Join(r.dir, "task-"+task)); err != nil {
			all = append(all, stateOf(filepath.Join(r.dir, "task-"+task), &known[i]))
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
func stateOf(dir string, j *slurm.Job) state {
	s := state{Run: dir, Job: j, Checkpoint: newestCheckpoint(dir)}
	for _, name := range []string{record.JobName, submittedName} {
		spec, err := jobs.Load(filepath.Join(dir, name), nil)
		if err == nil {
			s.Name, s.Ranks, s.StepsAsked = spec.Name, spec.World(), spec.Train.Steps
			break
		}
	}
	if m, ok := lastMetrics(dir); ok {
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
	if j != nil && j.Active() && j.State == "RUNNING" {
		s.End = nil // the script removes the record of an earlier start, though not at once
	}
	return s
}

func show(w io.Writer, s state) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(tw, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	if s.Ranks > 0 {
		line("run", "%s (%s, %d ranks)", s.Run, s.Name, s.Ranks)
	} else {
		line("run", "%s", s.Run)
	}
	where := s.Where
	if where != "" && where != "None" {
		where = " (" + where + ")"
	} else {
		where = ""
	}
	line("state", "%s%s", s.State, where)
	if j := s.Job; j != nil {
		more := ""
		if s.Restarts > 0 {
			more = fmt.Sprintf(", start %d", s.Restarts+1)
		}
		line("job", "%s: %s in %s, %s of %s%s", j.ID, j.State, j.Partition, j.Elapsed, j.Limit, more)
	}
	if s.StepsAsked > 0 {
		more := ""
		if s.Loss != nil {
			more += fmt.Sprintf(", loss %.4f", *s.Loss)
		}
		if s.Step > 0 {
			more += fmt.Sprintf(", %.0f tokens/s", s.TokensPerSecond)
		}
		if !s.Updated.IsZero() && s.End == nil {
			more += fmt.Sprintf(", %s ago", progress.Duration(time.Since(s.Updated)))
		}
		line("step", "%d of %d%s", s.Step, s.StepsAsked, more)
	}
	if s.Checkpoint >= 0 {
		line("saved", "step %d", s.Checkpoint)
	}
	if s.End != nil {
		reason := ""
		if s.End.Reason != "" {
			reason = ": " + s.End.Reason
		}
		line("ended", "%s with code %v%s", s.End.Time.Local().Format(time.DateTime), s.End.Code, reason)
	}
	return tw.Flush()
}

func showTasks(w io.Writer, r aRun, all []state) error {
	if len(all) == 0 {
		_, err := fmt.Fprintf(w, "%s: job %s has no tasks that Slurm remembers, and none has started\n", r.dir, r.job)
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "JOB\tSTATE\tSTEP\tOF\tLOSS\tSAVED\tWHERE\n")
	for _, s := range all {
		dash := func(known bool, text string) string {
			if known {
				return text
			}
			return "-"
		}
		id, loss := r.job+"_"+strings.TrimPrefix(filepath.Base(s.Run), "task-"), "-"
		if s.Job != nil {
			id = s.Job.ID
		}
		if s.Loss != nil {
			loss = fmt.Sprintf("%.4f", *s.Loss)
		}
		fmt.Fprintf(tw, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", id, s.State, s.Step, dash(s.StepsAsked > 0, fmt.Sprint(s.StepsAsked)), loss,
			dash(s.Checkpoint >= 0, fmt.Sprint(s.Checkpoint)), dash(s.Where != "" && s.Where != "None", s.Where))
	}
	return tw.Flush()
}
