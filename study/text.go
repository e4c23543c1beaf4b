package study

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
)

// WriteDryRun prints the cases, the order of the first round, what the planner expects, and node-hours.
func WriteDryRun(w io.Writer, f *File, cases []*Case, predict func(*jobs.Spec) (Estimate, error), l Launcher) error {
	var b strings.Builder
	fmt.Fprintf(&b, "study %s: %d cases × %d repeats, %s, order %s, %s\n\n", f.Name, len(cases), f.Repeats, l.Kind, f.Order, f.Job)
	var possible []*Case
	total, nodeSeconds, widest := 0.0, 0.0, 0
	source := ""
	for _, c := range cases {
		if c.Spec == nil {
			fmt.Fprintf(&b, "  %-10s %-40s impossible: %s\n", c.ID, c.Label, c.Why)
			continue
		}
		e, err := predict(c.Spec)
		if err != nil {
			return fmt.Errorf("case %q: %w", c.Label, err)
		}
		source = e.Source
		possible = append(possible, c)
		s := e.seconds(c)
		total += s * float64(f.Repeats)
		nodeSeconds += s * float64(f.Repeats*nodesOf(c.Spec))
		widest = max(widest, nodesOf(c.Spec))
		fmt.Fprintf(&b, "  %-10s %-40s %3d ranks  %8.1f s a run  %s a step  bubble %4.1f %%  %.1f MiB\n", c.ID, c.Label, c.Ranks(), s, secondsText(e.StepSeconds), 100*e.Bubble, float64(e.PeakBytes)/(1<<20))
	}
	fmt.Fprintf(&b, "\n  times from %s; a run's start is taken as %.0f s\n", source, startSeconds)
	var order []string
	for _, t := range f.tasks(possible, 1, 1, false) {
		order = append(order, t.c.Label)
	}
	fmt.Fprintf(&b, "  first round: %s\n", strings.Join(order, "; "))
	fmt.Fprintf(&b, "  all runs: %v; node-hours: %.2f as steps or runs one after the other on %d nodes (srun, mpirun, local), %.2f as jobs of their own (sbatch); twice that with --gate\n",
		(time.Duration(total) * time.Second).String(), total*float64(widest)/3600, widest, nodeSeconds/3600)
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteEndText prints how a study ended: a line a case that needs one, and where the results are.
func WriteEndText(w io.Writer, folder, page string, e End) error {
	var b strings.Builder
	if slices.ContainsFunc(e.Findings, func(f Finding) bool { return f.Verdict == Machine }) {
		b.WriteString("the machine is not as it was: controls moved against what is stored of them\n")
	}
	if len(e.Findings) > 0 {
		if err := WriteFindings(&b, e.Findings); err != nil {
			return err
		}
	}
	for _, n := range e.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	points, err := ReadPoints(folder)
	if err != nil {
		return err
	}
	for _, p := range unfinished(points) {
		fmt.Fprintf(&b, "%-8s %s, round %d: %s (%s)\n", p.Status, p.Label, p.Round, strings.TrimSpace(p.Reason), p.Folder)
	}
	switch e.Code {
	case exitcode.Stopped:
		fmt.Fprintf(&b, "stopped on request: the same command with --resume goes on\n")
	case exitcode.Finished:
	default:
		fmt.Fprintf(&b, "%s: %s\n", e.Status, e.Code.Meaning())
	}
	fmt.Fprintf(&b, "report: %s\n", page)
	_, err = io.WriteString(w, b.String())
	return err
}

// unfinished are the last attempts of runs of which none finished.
func unfinished(points []Point) []Point {
	last := map[string]Point{}
	var order []string
	for _, p := range points {
		if p.Warmup || p.Status == Impossible {
			continue
		}
		key := taskKey(p.Case, p.Round, p.Binary, 0)
		if _, ok := last[key]; !ok {
			order = append(order, key)
		}
		if last[key].Status != Finished {
			last[key] = p
		}
	}
	var out []Point
	for _, k := range order {
		if last[k].Status != Finished {
			out = append(out, last[k])
		}
	}
	return out
}
