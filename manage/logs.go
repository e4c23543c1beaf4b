package manage

import (
	"bytes"
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
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/slurm"
)

// LogOptions say which logs are shown and how much of them.
type LogOptions struct {
	Rank   int  // everything of this rank; below 0: the batch script's log and rank 0's output
	Lines  int  // only so many last lines of each file; below 0: all
	Follow bool // go on until the run is over or the context ends
}

// Logs copies to w what the run's batch script and its ranks have written.
func (r Run) Logs(ctx context.Context, o LogOptions, tools slurm.Tools, w io.Writer) error {
	if r.Tasks {
		return exitcode.Errorf(exitcode.Usage, "%s is an array: name a task, such as %s or %s", r, filepath.Join(r.Dir, "task-0"), r.Job+"_0")
	}
	l := &logs{w: w, dir: r.Dir, patterns: patternsOf(r, o.Rank), lines: o.Lines, read: map[string]int64{}}
	if o.Follow {
		return l.follow(ctx, func() bool { return isOver(ctx, r, tools) })
	}
	if err := l.show(); err != nil {
		return err
	}
	if l.last != "" {
		return nil
	}
	if report, err := r.Status(ctx, tools); err == nil && report.States[0].Note != "" {
		return exitcode.Errorf(exitcode.Environment, "%s: there is no log: %s", r, report.States[0].Note)
	}
	return exitcode.Errorf(exitcode.Environment, "%s: there is no log yet: pipetrain status says where the run is", r)
}

// patternsOf names the files to show.
func patternsOf(r Run, rank int) []string {
	switch {
	case rank >= 0:
		return []string{fmt.Sprintf("rank-%d.*", rank)}
	case r.Job == "":
		return []string{"rank-0.*"}
	}
	return []string{"slurm-*.log", "rank-0.*.out"}
}

// isOver says whether nothing will be added to the logs.
func isOver(ctx context.Context, r Run, tools slurm.Tools) bool {
	if r.Job == "" {
		h, err := holderOf(r.Dir)
		return err == nil && h.here && !h.alive
	}
	known, err := tools.Jobs(ctx, r.Job)
	if errors.Is(err, slurm.ErrUnknownJob) {
		return true
	}
	return err == nil && !slices.ContainsFunc(known, slurm.Job.Active)
}

// logs copies files that grow.
type logs struct {
	w        io.Writer
	dir      string
	patterns []string
	lines    int              // of each file at first; -1: all
	read     map[string]int64 // bytes shown of each file
	last     string           // file shown last
}

// files returns those there are, the batch script's first.
func (l *logs) files() []string {
	// The log of an array's task lies with those of the others.
	where := filepath.Join(globEscape(l.dir), record.LogsName)
	array := filepath.Join(globEscape(filepath.Dir(l.dir)), record.LogsName)
	var all []string
	for _, p := range l.patterns {
		found, _ := filepath.Glob(filepath.Join(where, p))
		if n, isTask := strings.CutPrefix(filepath.Base(l.dir), "task-"); isTask && strings.HasPrefix(p, "slurm") {
			of, _ := filepath.Glob(filepath.Join(array, "slurm-*_"+n+".log"))
			found = append(found, of...)
		}
		slices.Sort(found)
		all = append(all, found...)
	}
	return all
}

// show prints what is new in each file.
func (l *logs) show() error {
	files := l.files()
	for _, f := range files {
		b, err := l.news(f)
		if err != nil {
			return exitcode.With(exitcode.Environment, err)
		}
		if len(b) == 0 {
			continue
		}
		if len(files) > 1 && l.last != f {
			between := ""
			if l.last != "" {
				between = "\n"
			}
			if _, err := fmt.Fprintf(l.w, "%s==> %s <==\n", between, filepath.Base(f)); err != nil {
				return err
			}
		}
		l.last = f
		if _, err := l.w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// news returns what a file has beyond what was shown, in whole lines while it is being written.
func (l *logs) news(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	from, seen := l.read[path]
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	l.read[path] = from + int64(len(b))
	if !seen && l.lines >= 0 {
		b = lastLines(b, l.lines)
	}
	return b, nil
}

func lastLines(b []byte, n int) []byte {
	end := len(bytes.TrimSuffix(b, []byte("\n")))
	for range n {
		i := bytes.LastIndexByte(b[:end], '\n')
		if i < 0 {
			return b
		}
		end = i
	}
	if n == 0 {
		return nil
	}
	return b[end+1:]
}

// follow goes on until the run is over, or ctx is: the way to leave it.
func (l *logs) follow(ctx context.Context, over func() bool) error {
	for i := 0; ; i++ {
		// Asked before the last look, so that nothing of the end is missed. Slurm is asked seldom.
		done := i%6 == 5 && over()
		if err := l.show(); err != nil || done {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(500 * time.Millisecond):
		}
	}
}
