package study

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/record"
)

// Options are what a study needs to run.
type Options struct {
	Study    *File
	Cases    []*Case // as Load returned them
	Folder   *Folder
	Binary   string   // this program
	Env      []string // of the runs
	Command  []string // that started the study
	Version  string
	Commit   string
	Launcher Launcher
	Baseline *Baseline // nil: no gate
	// Predict asks the planner.
	Predict func(*jobs.Spec) (Estimate, error)
	Only    string    // label of the one case to run; empty: all
	Out     io.Writer // a line a run
}

// runner is a study under way.
type runner struct {
	o         Options
	points    *Points
	all       []Point
	tried     map[string][]Point // by task, of this call and before
	here      map[string]int     // attempts of this call
	seconds   map[string][]float64
	estimates map[string]Estimate
	losses    *lossChecks
	began     time.Time
	notes     []string
	skipped   bool // the budget was used up
}

// Run performs what the study still lacks, judges it and writes its results. The end has the exit code; the
// error is of what kept the study from going on.
func Run(ctx context.Context, o Options) (End, error) {
	r := &runner{o: o, tried: map[string][]Point{}, here: map[string]int{}, seconds: map[string][]float64{}, estimates: map[string]Estimate{}, losses: newLossChecks(), began: time.Now()}
	end := End{Command: o.Command, Version: o.Version, Commit: o.Commit}
	end.Host, _ = os.Hostname()
	if err := os.Remove(o.Folder.File(EndName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return end, exitcode.With(exitcode.Environment, err)
	}
	points, all, err := OpenPoints(o.Folder.Path)
	if err != nil {
		return end, exitcode.With(exitcode.Environment, err)
	}
	defer points.Close()
	r.points = points
	for _, p := range all {
		r.remember(p)
	}
	possible, err := r.prepare()
	if err != nil {
		return end, err
	}
	if err := r.perform(ctx, possible); err != nil {
		return end, err
	}
	return r.finish(ctx, end)
}

// prepare notes impossible cases, asks the planner, and returns the cases to run.
func (r *runner) prepare() ([]*Case, error) {
	var possible []*Case
	for _, c := range r.o.Cases {
		if r.o.Only != "" && c.Label != r.o.Only {
			continue
		}
		if c.Spec == nil {
			if len(r.tried[taskKey(c.ID, 0, Candidate, 0)]) == 0 {
				p := r.newPoint(task{c: c, binary: Candidate}, 1)
				p.Status, p.Reason = Impossible, c.Why
				if err := r.add(p); err != nil {
					return nil, err
				}
			}
			continue
		}
		e, err := r.o.Predict(c.Spec)
		if err != nil {
			return nil, fmt.Errorf("case %q: %w", c.Label, err)
		}
		r.estimates[c.ID] = e
		possible = append(possible, c)
	}
	if len(possible) == 0 && r.o.Only != "" {
		return nil, exitcode.Errorf(exitcode.Usage, "--only %q: no case that can run is called so; --dry-run lists them", r.o.Only)
	}
	return possible, r.writeEstimates()
}

// perform runs warm-ups and rounds, and the rounds that a gate asks for besides.
func (r *runner) perform(ctx context.Context, possible []*Case) error {
	f, control := r.o.Study, r.o.Baseline != nil
	tasks := append(f.warmups(possible, control), f.tasks(possible, 1, f.Repeats, control)...)
	if err := r.runAll(ctx, tasks); err != nil || !control || ctx.Err() != nil || r.skipped {
		return err
	}
	if again := r.suspects(possible); len(again) > 0 {
		r.say("%d cases may be slower: as many runs again", len(again))
		return r.runAll(ctx, f.tasks(again, f.Repeats+1, 2*f.Repeats, true))
	}
	return nil
}

func (r *runner) runAll(ctx context.Context, tasks []task) error {
	if r.o.Launcher.Kind == "sbatch" {
		return r.runQueue(ctx, tasks)
	}
	for n, t := range tasks {
		if err := r.runTask(ctx, t, fmt.Sprintf("[%d/%d]", n+1, len(tasks))); err != nil || ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// runTask makes attempts until one finished, or no further one would help.
func (r *runner) runTask(ctx context.Context, t task, place string) error {
	if err := r.adopt(t); err != nil {
		return err
	}
	for ctx.Err() == nil && !r.done(t) {
		attempt := len(r.tried[t.key()]) + 1
		if seconds, _ := r.expected(t.c); r.o.Study.Budget > 0 && time.Since(r.began).Seconds()+seconds > r.o.Study.Budget.Seconds() {
			r.skipped = true
			p := r.newPoint(t, attempt)
			p.Status, p.Reason = Skipped, fmt.Sprintf("the budget of %v has no room for a run of %.0f s", r.o.Study.Budget, seconds)
			return r.add(p)
		}
		p, err := r.attempt(ctx, t, attempt)
		if err != nil {
			return err
		}
		r.here[t.key()]++
		if err := r.add(p); err != nil {
			return err
		}
		r.tell(place, t, p)
		if p.Status != Finished && (!mayPass(p) || r.here[t.key()] > r.o.Study.Retries) {
			return nil
		}
	}
	return nil
}

// done says whether the task needs no further attempt.
func (r *runner) done(t task) bool {
	return slices.ContainsFunc(r.tried[t.key()], func(p Point) bool { return p.Status == Finished })
}

// mayPass says whether the next attempt may end otherwise.
func mayPass(p Point) bool {
	switch {
	case p.Status == Lost:
		return true
	case p.Status != Failed:
		return false
	}
	code := exitcode.Code(p.ExitCode)
	return code == exitcode.RankLost || code == exitcode.Stalled || code == exitcode.Interrupted
}

// adopt takes what an earlier call of the study left of the task: a run that ended while nobody watched, or
// one that was cut off.
func (r *runner) adopt(t task) error {
	for {
		attempt := len(r.tried[t.key()]) + 1
		dir := r.o.Folder.File(t.folder(attempt))
		if _, err := os.Stat(dir); err != nil {
			return nil
		}
		if record.InUse(dir) {
			return exitcode.Errorf(exitcode.Environment, "%s is still in use by a run of this study: end it, then --resume", dir)
		}
		p := r.newPoint(t, attempt)
		if _, err := exitcode.Read(dir); err == nil {
			p = r.collect(t, attempt, p)
		} else {
			p.Status, p.Reason = Lost, "the study was ended while it ran"
		}
		if err := r.add(p); err != nil {
			return err
		}
	}
}

// newPoint returns a point of the task without figures.
func (r *runner) newPoint(t task, attempt int) Point {
	p := NewPoint()
	p.Case, p.Label, p.Round, p.Attempt, p.Binary, p.Warmup = t.c.ID, t.c.Label, t.round, attempt, t.binary, t.warm > 0
	p.Order, p.Keys, p.Ranks = len(r.all)+1, t.c.Keys, t.c.Ranks()
	p.Folder = t.folder(attempt)
	return p
}

// binary returns the program of a task.
func (r *runner) binary(t task) string {
	if t.binary == Control {
		return r.o.Baseline.Binary()
	}
	return r.o.Binary
}

// attempt starts one run and waits for its end.
func (r *runner) attempt(ctx context.Context, t task, attempt int) (Point, error) {
	p := r.newPoint(t, attempt)
	dir := r.o.Folder.File(p.Folder)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return p, exitcode.With(exitcode.Environment, err)
	}
	l, err := r.o.Launcher.commandOf(r.binary(t), dir, r.o.Folder.File(JobName), t.c)
	if err != nil {
		return p, err
	}
	o, err := runCommand(ctx, l.argv, r.o.Env, dir+".log", r.timeout(t.c), l.death)
	if err != nil {
		return p, exitcode.With(exitcode.Environment, fmt.Errorf("starting %s: %w", l.argv[0], err))
	}
	p.Started, p.Seconds = o.started, Number(o.seconds)
	p = r.collect(t, attempt, p)
	p.Command = shellLine(l.argv, r.o.Folder.Path)
	switch {
	case o.stopped:
		p.Status, p.Reason = Cancelled, "the study was asked to stop"
	case o.timedOut:
		p.Status, p.Reason = TimedOut, fmt.Sprintf("it ran longer than %v", r.timeout(t.c).Round(time.Second))
	case p.Status != Finished && (p.ExitCode <= 0 || p.Reason == ""):
		// No exit record: refused before there was a folder, or started by something that failed first.
		p.ExitCode, p.Reason = o.code, o.said
	case p.Status == Finished && o.code != 0:
		p.Status, p.ExitCode, p.Reason = Failed, o.code, o.said
	}
	return p, nil
}

// collect reads the run folder of an attempt into its point, and removes what is large.
func (r *runner) collect(t task, attempt int, base Point) Point {
	dir := r.o.Folder.File(base.Folder)
	p, err := ReadRun(dir)
	p.Case, p.Label, p.Round, p.Attempt, p.Binary, p.Warmup = base.Case, base.Label, base.Round, attempt, base.Binary, base.Warmup
	p.Order, p.Keys, p.Ranks, p.Folder = base.Order, base.Keys, base.Ranks, base.Folder
	if base.Seconds.Known() {
		p.Queued = 0
		if !p.Started.IsZero() {
			p.Queued = Number(max(0, p.Started.Sub(base.Started).Seconds()))
		}
		p.Started, p.Seconds = base.Started, base.Seconds
	} else if s, e := record.ReadSummary(filepath.Join(dir, record.SummaryName)); e == nil {
		p.Seconds = Number(s.SecondsTotal)
	}
	if err != nil {
		p.Status, p.Reason = Failed, err.Error()
	}
	if p.Status == Finished && t.warm == 0 {
		if wrong := r.losses.check(t, &p); wrong != "" {
			p.Status, p.Reason = Failed, "loss: "+wrong
		}
	}
	_ = os.RemoveAll(filepath.Join(dir, record.CheckpointsName)) // only room is lost
	if t.round > 1 || t.warm > 0 {
		_ = os.Remove(filepath.Join(dir, record.TraceName)) // the first round's stays
	}
	return p
}

// add writes a point and remembers it.
func (r *runner) add(p Point) error {
	if err := r.points.Append(p); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	r.remember(p)
	return nil
}

func (r *runner) remember(p Point) {
	warm := 0
	if p.Warmup { // its number is in the folder's name
		_, _ = fmt.Sscanf(filepath.Base(p.Folder), "warmup%d", &warm)
	}
	key := taskKey(p.Case, p.Round, p.Binary, warm)
	r.all = append(r.all, p)
	if p.Status != Skipped { // nothing was tried
		r.tried[key] = append(r.tried[key], p)
	}
	if p.Counts() {
		if p.Seconds.Known() {
			r.seconds[p.Case] = append(r.seconds[p.Case], float64(p.Seconds))
		}
		r.losses.know(p)
	}
}

func (r *runner) say(format string, args ...any) { fmt.Fprintf(r.o.Out, format+"\n", args...) }

// tell prints a line of an attempt.
func (r *runner) tell(place string, t task, p Point) {
	what := fmt.Sprintf("round %d", t.round)
	if t.warm > 0 {
		what = "warm-up"
	}
	if t.binary == Control {
		what += ", control"
	}
	if p.Status == Finished {
		r.say("%s %s, %s: %s a step, %.1f s", place, t.c.Label, what, secondsText(float64(p.StepSeconds)), float64(p.Seconds))
		return
	}
	r.say("%s %s, %s: %s: %s", place, t.c.Label, what, p.Status, strings.TrimSpace(p.Reason))
}

func secondsText(s float64) string { return scaleFor(s, "sec").format(s) + "s" }
