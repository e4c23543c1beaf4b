package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/slurm"
)

func logsCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name: "logs", Usage: "what a run's batch script and its ranks have written", ArgsUsage: "RUN",
		Description: "Without --rank: the batch script's log and rank 0's output, for a run outside of Slurm rank 0's log.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on showing what is added, until the run is over"},
			&cli.IntFlag{Name: "rank", Value: -1, Usage: "everything of rank `N`"},
			&cli.IntFlag{Name: "lines", Aliases: []string{"n"}, Value: -1, Usage: "only the last `N` lines of each file"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			tools := slurm.Tools{Conf: os.Getenv("SLURM_CONF")}
			r, err := oneRun(ctx, c, tools)
			if err != nil {
				return err
			}
			if r.tasks {
				return exitcode.Errorf(exitcode.Usage, "%s is an array: name a task, such as %s or %s", r, filepath.Join(r.dir, "task-0"), r.job+"_0")
			}
			l := &logs{w: stdout, dir: r.dir, patterns: patternsOf(r, c.Int("rank")), lines: c.Int("lines"), read: map[string]int64{}}
			if c.Bool("follow") {
				ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
				defer stop()
				return l.follow(ctx, func() bool { return isOver(ctx, r, tools) })
			}
			if err := l.show(); err != nil {
				return err
			}
			if l.last == "" {
				return exitcode.Errorf(exitcode.Environment, "%s: there is no log yet: pipetrain status says where the run is", r)
			}
			return nil
		},
	}
}

// patternsOf names the files to show.
func patternsOf(r aRun, rank int) []string {
	switch {
	case rank >= 0:
		return []string{fmt.Sprintf("rank-%d.*", rank)}
	case r.job == "":
		return []string{"rank-0.*"}
	}
	return []string{"slurm-*.log", "rank-0.*.out"}
}

// isOver says whether nothing will be added to the logs.
func isOver(ctx context.Context, r aRun, tools slurm.Tools) bool {
	if r.job == "" {
		h, err := holderOf(r.dir)
		return err == nil && h.here && !h.alive
	}
	known, err := tools.Jobs(ctx, r.job)
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
