// Package record writes what a run leaves: its folder with the resolved
// job, the environment, a line of metrics a step, the trace and the summary.
//
//	runs/NAME-20260102-150405/
//	  run.lock           held while the run lives
//	  job.toml           the job as resolved
//	  environment.json
//	  metrics.jsonl      a line a step
//	  logs/              a log a rank
//	  checkpoints/
//	  trace.json         Chrome trace events, opens in https://ui.perfetto.dev
//	  summary.json
//
// A file is either appended to, or replaced as a whole: written beside, synced
// and renamed, so that a reader never sees half of it.
package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pipetrain/pipetrain/durable"
)

// Names in the run folder.
const (
	LockName        = "run.lock"
	JobName         = "job.toml"
	EnvironmentName = "environment.json"
	MetricsName     = "metrics.jsonl"
	TraceName       = "trace.json"
	SummaryName     = "summary.json"
	LogsName        = "logs"
	CheckpointsName = "checkpoints"
)

// Folder is a run's folder. The one made by Create or CreateNamed holds its lock
// until Close or until the process dies.
type Folder struct {
	Path string
	// Resumed says that it holds an earlier part of this run.
	Resumed bool
	// Note is not empty when the file system has no locks, so that a second run
	// in the same folder would not be refused: log it.
	Note string

	lock *os.File // of a joined folder: open, not taken
	text string   // what the lock's holder wrote into it
}

// Create makes the run folder dir, or takes the one of an earlier run when
// resume is set. Every refusal is one line that says what to do: another live
// run holds it, it has a run in it already, there is nothing to resume, it
// cannot be written.
func Create(dir string, resume bool) (*Folder, error) {
	_, err := os.Lstat(dir)
	isNew := errors.Is(err, os.ErrNotExist)
	if isNew && resume {
		return nil, fmt.Errorf("run folder %s: nothing to resume, it does not exist", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, folderError(dir, err)
	}
	f, err := take(dir, resume)
	if err != nil && isNew {
		// Leave nothing behind where nothing was; fails when somebody put a file in it.
		_ = os.Remove(filepath.Join(dir, LockName))
		_ = os.Remove(dir)
	}
	return f, err
}

// CreateNamed makes a new folder in root: NAME-YYYYMMDD-HHMMSS, with -2, -3, …
// when several runs start within a second.
func CreateNamed(root, name string, now time.Time) (*Folder, error) {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, folderError(root, err)
	}
	base := filepath.Join(root, fileName(name)+"-"+now.Format("20060102-150405"))
	for n := 1; n < 10_000; n++ {
		dir := base
		if n > 1 {
			dir = fmt.Sprintf("%s-%d", base, n)
		}
		// Mkdir, not MkdirAll: of two runs that start at once one gets each name.
		err := os.Mkdir(dir, 0o755)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return nil, folderError(dir, err)
		}
		f, err := take(dir, false)
		if err != nil {
			_ = os.Remove(filepath.Join(dir, LockName))
			_ = os.Remove(dir)
		}
		return f, err
	}
	return nil, fmt.Errorf("run folder %s-2 … exist already: remove old runs or name one with --out", base)
}

// Join opens the folder of a run that another process holds: for the ranks
// beside the one that created it.
func Join(dir string) (*Folder, error) {
	if err := isFolder(dir); err != nil {
		return nil, folderError(dir, err)
	}
	f := &Folder{Path: dir}
	return f, f.join()
}

// take locks an existing folder and checks what is in it.
func take(dir string, resume bool) (*Folder, error) {
	f := &Folder{Path: dir, Resumed: resume}
	if err := isFolder(dir); err != nil {
		return nil, folderError(dir, err)
	}
	if err := f.acquire(); err != nil {
		return nil, err
	}
	old := previousRun(dir)
	switch {
	case old != "" && !resume:
		f.Close()
		return nil, fmt.Errorf("run folder %s holds a run already (%s): continue it with --resume or choose another folder with --out", dir, old)
	case old == "" && resume:
		f.Close()
		return nil, fmt.Errorf("run folder %s: nothing to resume, it holds no run", dir)
	}
	if resume {
		durable.Sweep(dir)
	}
	return f, nil
}

func isFolder(dir string) error {
	st, err := os.Stat(dir)
	if err == nil && !st.IsDir() {
		err = syscall.ENOTDIR
	}
	return err
}

// previousRun returns the name of a file that only a run leaves, or "".
func previousRun(dir string) string {
	for _, name := range []string{JobName, MetricsName, SummaryName, EnvironmentName, CheckpointsName} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return name
		}
	}
	return ""
}

// folderError says in one line what is wrong with a run folder and what to do.
func folderError(dir string, err error) error {
	var what string
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		what = "it, or a folder above it, is a file: choose another with --out"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		what = "no space left on its file system: free some or choose another with --out"
	case errors.Is(err, syscall.EROFS):
		what = "its file system is read-only: choose another with --out"
	case errors.Is(err, os.ErrPermission):
		what = "no permission to write there: choose another with --out"
	case errors.Is(err, os.ErrNotExist):
		what = "it does not exist"
	default:
		return fmt.Errorf("run folder %s: %w", dir, err)
	}
	return &refusalError{fmt.Sprintf("run folder %s cannot be used: %s", dir, what), err}
}

// refusalError keeps the cause without repeating it in the text.
type refusalError struct {
	text  string
	cause error
}

func (r *refusalError) Error() string { return r.text }
func (r *refusalError) Unwrap() error { return r.cause }

// fileName makes a job's name fit for a folder's name.
func fileName(name string) string {
	s := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '-'
	}, name)
	s = strings.TrimLeft(s, ".-")
	if len(s) > 100 {
		s = s[:100]
	}
	if s == "" {
		return "run"
	}
	return s
}

// File returns the path of a file in the folder.
func (f *Folder) File(name string) string { return filepath.Join(f.Path, name) }

// Checkpoints returns the folder of checkpoints (which need not exist yet).
func (f *Folder) Checkpoints() string { return f.File(CheckpointsName) }

// RankLog opens a rank's log for appending; a resumed run's log goes on.
func (f *Folder) RankLog(rank int) (*os.File, error) {
	if err := os.MkdirAll(f.File(LogsName), 0o755); err != nil {
		return nil, folderError(f.Path, err)
	}
	l, err := os.OpenFile(filepath.Join(f.File(LogsName), fmt.Sprintf("rank-%d.log", rank)), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, folderError(f.Path, err)
	}
	return l, nil
}

// WriteJob writes the resolved job's text; variables says whether it holds such for the ranks.
func (f *Folder) WriteJob(text []byte, variables bool) error {
	if err := f.Held(); err != nil {
		return err
	}
	return WriteJob(f.File(JobName), text, variables)
}

// write replaces a file of the folder, while that is this run's.
func (f *Folder) write(name string, content []byte) error {
	if err := f.Held(); err != nil {
		return err
	}
	return WriteFile(f.File(name), content)
}

// Close gives up the lock. The folder stays as it is.
func (f *Folder) Close() error {
	if f.lock == nil {
		return nil
	}
	l := f.lock
	f.lock = nil
	return l.Close()
}
