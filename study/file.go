package study

import (
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/pipetrain/pipetrain/jobs"
)

// File is a study file: a job, axes over its keys, and how to run the cases.
type File struct {
	Path       string // as given
	Name       string
	Job        string // absolute
	Repeats    int
	Order      string // shuffled | listed | blocked
	Seed       int64
	WarmupRuns int           // a binary
	Budget     time.Duration // 0: none
	Timeout    time.Duration // of a run; 0: five times what is expected
	Retries    int           // further attempts after an end that may pass
	Impossible string        // record | refuse
	Set        []Setting     // for every case
	Axes       []Axis
	Excludes   []Exclude
	Scaling    Scaling
	Launch     Launch
	Gate       Gate

	lines []jobs.Position
	errs  []*jobs.Error
}

// Setting is a key of the job with the value that every case has.
type Setting struct {
	Key   string
	Value any
	Line  int // 0: by --set
}

// Axis is one dimension of a study: the values of its keys advance together.
type Axis struct {
	Keys   []string // sorted
	Values map[string][]any
	Labels []string // empty: made of keys and values
	Line   int
	lines  map[string]int
}

// Len is the number of points on the axis.
func (a *Axis) Len() int { return len(a.Values[a.Keys[0]]) }

// Exclude leaves out the cases in which all keys have these values.
type Exclude struct {
	Keys map[string]any // "label": any of the axes' labels
	Line int
}

// Scaling says how cases of different sizes relate.
type Scaling struct {
	Kind string   // strong | weak
	Grow []string // keys that grow with the ranks
	Base string   // label of the case that others are compared with; empty: the first with the fewest ranks
}

// Launch says how runs are started.
type Launch struct {
	Kind    string // auto | local | mpirun | srun | sbatch
	MaxJobs int    // in Slurm's queue at a time
}

// Gate says what a nightly judges.
type Gate struct {
	Metrics   []string
	Threshold float64
	Cases     []string // labels; empty: all
}

// LeastSteps is the least train.steps of a study: the first six are not counted.
const LeastSteps = 16

// defaults are a study that gives nothing but a name and a job.
func defaults(path string) *File {
	return &File{Path: path, Repeats: 5, Order: "shuffled", Seed: 1, WarmupRuns: 1, Retries: 1, Impossible: "record",
		Scaling: Scaling{Kind: "strong"}, Launch: Launch{Kind: "auto", MaxJobs: 20},
		Gate: Gate{Metrics: []string{"step_seconds", "peak_bytes", "loss"}, Threshold: DefaultThreshold}}
}

// Load reads a study file with overrides "key=value" of its own keys or of its job's. The error is
// a *jobs.MistakesError with every mistake of the file and of its cases.
func Load(path string, sets []string) (*File, []*Case, error) {
	f := defaults(path)
	text, err := os.ReadFile(path)
	if err != nil {
		what := err.Error()
		if p := (*os.PathError)(nil); errors.As(err, &p) {
			what = p.Err.Error()
		}
		return nil, nil, &jobs.MistakesError{List: []*jobs.Error{{File: path, What: what, Right: "give the path of a study file, e.g. jobs/studies/nightly.toml"}}}
	}
	var tree map[string]any
	if _, err := toml.Decode(string(text), &tree); err != nil {
		e := &jobs.Error{File: path, What: "not TOML: " + err.Error()}
		if p := (toml.ParseError{}); errors.As(err, &p) {
			e.Line, e.What = p.Position.Line, "not TOML: "+p.Message
		}
		return nil, nil, &jobs.MistakesError{List: []*jobs.Error{e}}
	}
	f.lines = jobs.Positions(string(text))
	f.decode(tree)
	f.override(sets)
	f.check()
	cases := f.cases()
	if len(f.errs) > 0 {
		slices.SortStableFunc(f.errs, func(a, b *jobs.Error) int { return a.Line - b.Line })
		return nil, nil, &jobs.MistakesError{List: f.errs}
	}
	return f, cases, nil
}

func (f *File) mistake(line int, key, what, right string) {
	f.errs = append(f.errs, &jobs.Error{File: f.Path, Line: line, Key: key, What: what, Right: right})
}

// line returns the line of a key, or of its table.
func (f *File) line(name string) int {
	for _, n := range []string{name, strings.SplitN(name, ".", 2)[0]} {
		for _, p := range f.lines {
			if p.Name == n {
				return p.Line
			}
		}
	}
	return 0
}

// keys of a study file with the field each fills; those of tables have the table in front.
func (f *File) fields() map[string]any {
	return map[string]any{"name": &f.Name, "job": &f.Job, "repeats": &f.Repeats, "order": &f.Order, "seed": &f.Seed, "warmup_runs": &f.WarmupRuns,
		"budget": &f.Budget, "timeout": &f.Timeout, "retries": &f.Retries, "impossible": &f.Impossible,
		"scaling.kind": &f.Scaling.Kind, "scaling.grow": &f.Scaling.Grow, "scaling.base": &f.Scaling.Base,
		"launch.kind": &f.Launch.Kind, "launch.max_jobs": &f.Launch.MaxJobs,
		"gate.metrics": &f.Gate.Metrics, "gate.threshold": &f.Gate.Threshold, "gate.cases": &f.Gate.Cases}
}
