package study

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pipetrain/pipetrain/durable"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
)

// Names in a study's folder, and beside it.
const (
	FileName    = "study.toml" // the study as it runs
	JobName     = "job.toml"   // the keys that its job file gives, paths absolute
	LockName    = "study.lock"
	EndName     = "study.json" // how it ended; not there while it runs
	RunsName    = "runs"
	PointsCSV   = "points.csv"
	SummaryCSV  = "summary.csv"
	HistoryName = "history.jsonl" // beside the folders: a line a night, case and metric
	Root        = "studies"
	Baselines   = "baselines"
)

// End is study.json.
type End struct {
	Code     exitcode.Code `json:"exit_code"`
	Status   string        `json:"status"`
	Ended    time.Time     `json:"ended"`
	Command  []string      `json:"command"`
	Version  string        `json:"version"`
	Commit   string        `json:"commit"`
	Host     string        `json:"host"`
	Gate     string        `json:"gate,omitempty"` // the baseline's name
	Findings []Finding     `json:"findings,omitempty"`
	Notes    []string      `json:"notes,omitempty"`
}

// Folder is a study's folder, held by this process.
type Folder struct {
	Path string
	lock *os.File
}

// NewFolder makes a folder NAME-YYYYMMDD-HHMMSS in root, or dir where it is given.
func NewFolder(root, dir, name string, now time.Time) (*Folder, error) {
	if dir == "" {
		base := filepath.Join(root, name+"-"+now.Format("20060102-150405"))
		dir = base
		for n := 2; ; n++ {
			if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
				break
			}
			dir = fmt.Sprintf("%s-%d", base, n)
		}
	} else if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		return nil, exitcode.Errorf(exitcode.Environment, "%s is not empty: give --resume to go on with the study in it, or another folder", dir)
	}
	if err := os.MkdirAll(filepath.Join(dir, RunsName), 0o755); err != nil {
		return nil, exitcode.With(exitcode.Environment, err)
	}
	return hold(dir)
}

// OldFolder takes the folder of a study that is to go on.
func OldFolder(dir string) (*Folder, error) {
	if _, err := os.Stat(filepath.Join(dir, FileName)); err != nil {
		return nil, exitcode.Errorf(exitcode.Environment, "%s holds no study to go on with: it has no %s", dir, FileName)
	}
	return hold(dir)
}

// Newest returns the newest folder of the study in root that has not come to its end; younger than age,
// where age is not 0. Empty: there is none.
func Newest(root, name string, age time.Duration, now time.Time) string {
	found, _ := filepath.Glob(filepath.Join(root, name+"-[0-9]*")) // a name has no pattern in it
	slices.Sort(found)
	slices.Reverse(found)
	for _, dir := range found {
		info, err := os.Stat(filepath.Join(dir, FileName))
		if err != nil || age > 0 && now.Sub(info.ModTime()) > age {
			continue
		}
		if e, err := ReadEnd(dir); err != nil || e.Code == exitcode.Incomplete || e.Code == exitcode.Stopped {
			return dir
		}
	}
	return ""
}

// hold locks the folder: the lock ends with the process, however that dies.
func hold(dir string) (*Folder, error) {
	l, err := os.OpenFile(filepath.Join(dir, LockName), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, exitcode.With(exitcode.Environment, err)
	}
	if err := syscall.Flock(int(l.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		b, _ := io.ReadAll(io.LimitReader(l, 200)) // who it is, where it was written already
		l.Close()
		return nil, exitcode.Errorf(exitcode.Environment, "%s is in use by %s: wait for its end, or choose another folder with --out", dir, strings.TrimSpace(string(b)))
	}
	host, _ := os.Hostname()
	if err := l.Truncate(0); err == nil {
		_, err = l.WriteAt(fmt.Appendf(nil, "pid %d on %s since %s\n", os.Getpid(), host, time.Now().Format(time.RFC3339)), 0)
		if err != nil {
			l.Close()
			return nil, exitcode.With(exitcode.Environment, err)
		}
	}
	return &Folder{Path: dir, lock: l}, nil
}

// Close gives up the lock.
func (f *Folder) Close() error { return f.lock.Close() }

// File returns the path of a file in the folder.
func (f *Folder) File(name string) string { return filepath.Join(f.Path, name) }

// Prepare writes the study and its job as they will run.
func (f *Folder) Prepare(s *File) error {
	given, err := readGiven(s.Job)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(f.File(JobName), givenText(given, filepath.Dir(s.Job), s.jobName())); err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	return exitcode.With(exitcode.Environment, durable.WriteFile(f.File(FileName), s.Text()))
}

func (s *File) jobName() string { return strings.TrimSuffix(filepath.Base(s.Job), ".toml") }

// givenText writes the keys of a job file, one a line, with paths made absolute.
func givenText(given map[string]any, dir, name string) []byte {
	var b bytes.Buffer
	if _, ok := given["name"]; !ok {
		fmt.Fprintf(&b, "name = %s\n", tomlText(name))
	}
	for _, k := range slices.Sorted(maps.Keys(given)) {
		v := given[k]
		if text, ok := v.(string); ok && jobs.IsPath(k, text) && !filepath.IsAbs(text) {
			v = filepath.Join(dir, text)
		}
		fmt.Fprintf(&b, "%s = %s\n", k, tomlText(v))
	}
	return b.Bytes()
}

// Text writes the study as TOML with every key, paths absolute; its job is the job.toml beside it.
func (s *File) Text() []byte {
	var b bytes.Buffer
	list := func(v []string) string {
		var all []any
		for _, x := range v {
			all = append(all, x)
		}
		return tomlText(all)
	}
	fmt.Fprintf(&b, "name = %s\njob = %s\nrepeats = %d\norder = %s\nseed = %d\nwarmup_runs = %d\nbudget = %q\ntimeout = %q\nretries = %d\nimpossible = %s\n",
		tomlText(s.Name), tomlText(JobName), s.Repeats, tomlText(s.Order), s.Seed, s.WarmupRuns, s.Budget, s.Timeout, s.Retries, tomlText(s.Impossible))
	b.WriteString("\n[set]\n")
	for _, x := range s.Set {
		fmt.Fprintf(&b, "%s = %s\n", x.Key, tomlText(s.place(x.Key, x.Value, x.Line > 0)))
	}
	for _, a := range s.Axes {
		b.WriteString("\n[[axis]]\n")
		if len(a.Labels) > 0 {
			fmt.Fprintf(&b, "label = %s\n", list(a.Labels))
		}
		for _, k := range a.Keys {
			var all []any
			for _, v := range a.Values[k] {
				all = append(all, s.place(k, v, true))
			}
			fmt.Fprintf(&b, "%s = %s\n", k, tomlText(all))
		}
	}
	for _, e := range s.Excludes {
		b.WriteString("\n[[exclude]]\n")
		for _, k := range slices.Sorted(maps.Keys(e.Keys)) {
			fmt.Fprintf(&b, "%s = %s\n", k, tomlText(e.Keys[k]))
		}
	}
	fmt.Fprintf(&b, "\n[scaling]\nkind = %s\ngrow = %s\nbase = %s\n", tomlText(s.Scaling.Kind), list(s.Scaling.Grow), tomlText(s.Scaling.Base))
	fmt.Fprintf(&b, "\n[launch]\nkind = %s\nmax_jobs = %d\n", tomlText(s.Launch.Kind), s.Launch.MaxJobs)
	fmt.Fprintf(&b, "\n[gate]\nmetrics = %s\nthreshold = %s\ncases = %s\n", list(s.Gate.Metrics), tomlText(s.Gate.Threshold), list(s.Gate.Cases))
	return b.Bytes()
}

// WriteEnd writes study.json.
func (f *Folder) WriteEnd(e End) error {
	b, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	return exitcode.With(exitcode.Environment, durable.WriteFile(f.File(EndName), append(b, '\n')))
}

// ReadEnd reads how a study ended; fs.ErrNotExist where it did not.
func ReadEnd(dir string) (End, error) {
	var e End
	b, err := os.ReadFile(filepath.Join(dir, EndName))
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(b, &e); err != nil {
		return e, fmt.Errorf("%s: %w", filepath.Join(dir, EndName), err)
	}
	return e, nil
}
