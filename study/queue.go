package study

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/slurm"
)

// queued is a run that was handed to Slurm as a job of its own.
type queued struct {
	t       task
	attempt int
	job     string
	at      time.Time
	place   string
	unseen  int // how often Slurm did not know it
}

// Waits between two questions to Slurm: one question is for all jobs.
const (
	firstWait = 2 * time.Second
	lastWait  = 10 * time.Minute
	unseenMax = 3
)

// jobOf returns the job of Slurm that a run's folder was handed to, empty where there is none. submit keeps
// it in slurm.json; a number that sbatch never told is looked for by the script.
func (r *runner) jobOf(ctx context.Context, dir string) (id string, at time.Time, err error) {
	b, err := os.ReadFile(filepath.Join(dir, "slurm.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", at, nil
	}
	var ticket struct {
		Job       string    `json:"job"`
		Submitted time.Time `json:"submitted"`
	}
	if err == nil {
		err = json.Unmarshal(b, &ticket)
	}
	if err != nil || ticket.Job != "" {
		return ticket.Job, ticket.Submitted, err
	}
	id, err = r.o.Launcher.Tools.JobOf(ctx, filepath.Join(dir, "job.sbatch"))
	if errors.Is(err, slurm.ErrUnknownJob) {
		return "", at, nil
	}
	return id, ticket.Submitted, err
}

// runQueue performs tasks as jobs of Slurm, at most max_jobs of them in the queue. A study that ends early
// leaves them there: the next call collects them.
func (r *runner) runQueue(ctx context.Context, tasks []task) error {
	live := []*queued{}
	next, wait := 0, firstWait
	for ctx.Err() == nil && (next < len(tasks) || len(live) > 0) {
		full := false
		for len(live) < r.o.Study.Launch.MaxJobs && next < len(tasks) && !full {
			q, err := r.submit(ctx, tasks[next], fmt.Sprintf("[%d/%d]", next+1, len(tasks)))
			switch {
			case errors.Is(err, errFull):
				full = true // of jobs, by the cluster's limits: wait for one to end
				if len(live) == 0 {
					r.say("%v; trying again", err)
				}
			case err != nil:
				return err
			case q != nil:
				live = append(live, q)
				wait = firstWait
				next++
			default:
				next++
			}
		}
		if len(live) == 0 && next >= len(tasks) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		left, err := r.collectEnded(ctx, live)
		if err != nil {
			return err
		}
		if len(left) < len(live) {
			wait = firstWait
		} else {
			wait = min(2*wait, lastWait)
		}
		live = left
	}
	return nil
}

// errFull says that Slurm takes no further job of this user now.
var errFull = errors.New("slurm takes no further job now")

var submittedLine = regexp.MustCompile(`(?m)^submitted job (\d+)`)

// submit hands a task to Slurm, or takes the job that an earlier call handed over; nil where the task
// needs none.
func (r *runner) submit(ctx context.Context, t task, place string) (*queued, error) {
	attempt := len(r.tried[t.key()]) + 1
	if r.done(t) {
		return nil, nil
	}
	p := r.newPoint(t, attempt)
	dir := r.o.Folder.File(p.Folder)
	if job, at, err := r.jobOf(ctx, dir); err != nil {
		return nil, exitcode.With(exitcode.Environment, err)
	} else if job != "" {
		return &queued{t: t, attempt: attempt, job: job, at: at, place: place}, nil
	}
	if err := r.adopt(t); err != nil || r.done(t) {
		return nil, err
	}
	if attempt = len(r.tried[t.key()]) + 1; attempt > p.Attempt {
		p = r.newPoint(t, attempt)
		dir = r.o.Folder.File(p.Folder)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, exitcode.With(exitcode.Environment, err)
	}
	args := []string{"submit", "--out", dir}
	for _, s := range t.c.Sets {
		args = append(args, "--set", s)
	}
	if r.o.Study.Budget > 0 { // nights must not pile up
		ends := r.began.Add(r.o.Study.Budget).Format("2006-01-02T15:04:05")
		options := []any{"--deadline=" + ends}
		for _, o := range t.c.Spec.Slurm.Options {
			options = append(options, o)
		}
		args = append(args, "--set", "slurm.options="+tomlText(options))
	}
	cmd := exec.CommandContext(ctx, r.binary(t), append(args, r.o.Folder.File(JobName))...)
	cmd.Env = r.o.Env
	out, err := cmd.CombinedOutput()
	if m := submittedLine.FindSubmatch(out); err == nil && m != nil {
		job := string(m[1])
		r.say("%s %s, round %d: job %s", place, t.c.Label, t.round, job)
		return &queued{t: t, attempt: attempt, job: job, at: time.Now(), place: place}, nil
	}
	said := strings.Join(strings.Fields(string(out)), " ")
	if ctx.Err() != nil {
		return nil, nil
	}
	if full.MatchString(said) {
		return nil, fmt.Errorf("%w: %s", errFull, said)
	}
	p.Status, p.Reason, p.ExitCode = Failed, said, int(exitcode.Environment)
	_ = os.RemoveAll(dir) // holds at most a script that nobody runs
	return nil, r.add(p)
}

// full recognises Slurm's words for a queue that takes no more of a user or an account.
var full = regexp.MustCompile(`(?i)job violates accounting/QOS policy|QOSMaxSubmitJob|AssocMaxSubmitJob|maximum number of jobs|Resource temporarily unavailable|submission limit|Job submit limit`)

// collectEnded asks Slurm once for all jobs and makes points of those that have ended.
func (r *runner) collectEnded(ctx context.Context, live []*queued) (left []*queued, err error) {
	ids := make([]string, len(live))
	for i, q := range live {
		ids[i] = q.job
	}
	known, err := r.o.Launcher.Tools.Jobs(ctx, strings.Join(ids, ","))
	if err != nil && !errors.Is(err, slurm.ErrUnknownJob) {
		if ctx.Err() == nil {
			r.say("squeue: %v; asking again", err) // the controller restarts, say
		}
		return live, nil
	}
	for _, q := range live {
		i := slices.IndexFunc(known, func(j slurm.Job) bool { return j.ID == q.job })
		if i >= 0 && known[i].Active() {
			q.unseen = 0
			left = append(left, q)
			continue
		}
		job := slurm.Job{}
		if i >= 0 {
			job = known[i]
		} else if q.unseen++; q.unseen < unseenMax && !hasRecord(r.o.Folder.File(q.t.folder(q.attempt))) {
			left = append(left, q) // the word of its end may be on its way
			continue
		} else if ended, err := r.o.Launcher.Tools.Ended(ctx, q.job); err == nil {
			job = ended[0]
		}
		again, err := r.end(q, job)
		if err != nil {
			return left, err
		}
		if again {
			next, err := r.submit(ctx, q.t, q.place)
			if err != nil && !errors.Is(err, errFull) {
				return left, err
			}
			if next != nil {
				left = append(left, next)
			}
		}
	}
	return left, nil
}

func hasRecord(dir string) bool {
	_, err := exitcode.Read(dir)
	return err == nil
}

// end makes the point of a job that is over; again: the task should be tried once more.
func (r *runner) end(q *queued, job slurm.Job) (again bool, err error) {
	p := r.newPoint(q.t, q.attempt)
	p = r.collect(q.t, q.attempt, p)
	p.JobID = q.job
	if p.Started.IsZero() {
		p.Started = q.at
	} else {
		p.Queued = Number(max(0, p.Started.Sub(q.at).Seconds()))
	}
	lost := false
	if p.Status != Finished {
		lost = blame(&p, job)
	}
	r.here[q.t.key()]++
	if err := r.add(p); err != nil {
		return false, err
	}
	r.tell(q.place, q.t, p)
	return p.Status != Finished && (lost || mayPass(p)) && r.here[q.t.key()] <= r.o.Study.Retries, nil
}

// blame says in the point how Slurm ended a job, where it did; lost: through no fault of the run's.
func blame(p *Point, job slurm.Job) (lost bool) {
	say := func(s Status, why string) {
		p.Status = s
		if p.Reason != "" {
			why += "; " + p.Reason
		}
		p.Reason = "job " + p.JobID + " " + why
	}
	switch job.State {
	case "TIMEOUT", "DEADLINE":
		say(TimedOut, "ran into its time limit ("+job.Limit+")")
	case "CANCELLED":
		say(Cancelled, "was cancelled")
	case "NODE_FAIL", "BOOT_FAIL":
		say(Failed, "lost a node ("+job.Nodes+")")
		return true
	case "PREEMPTED":
		say(Failed, "was preempted")
		return true
	case "OUT_OF_MEMORY":
		say(Failed, "ran out of memory")
	case "":
		if p.ExitCode < 0 {
			say(Lost, "is not known to Slurm any more, and the run left no exit record")
		}
	default:
		if p.ExitCode < 0 {
			say(Failed, "ended as "+job.State)
		}
	}
	return false
}
