package study

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
)

// finish judges, writes the tables and the history, and decides the exit code.
func (r *runner) finish(ctx context.Context, end End) (End, error) {
	summaries := r.summarise()
	end.Code = exitcode.Finished
	if len(r.missing()) > 0 {
		end.Code = exitcode.Incomplete
	}
	if r.o.Baseline != nil {
		end.Gate = r.o.Baseline.Name
		end.Findings = r.judge()
		if code := Code(end.Findings); code == exitcode.Regressed || end.Code == exitcode.Finished {
			end.Code = code
		}
	}
	if ctx.Err() != nil {
		end.Code = exitcode.Stopped
	}
	end.Status, end.Ended, end.Notes = end.Code.Name(), time.Now(), r.notes
	if err := r.writeTables(summaries); err != nil {
		return end, exitcode.With(exitcode.Environment, err)
	}
	if ctx.Err() == nil {
		if err := appendHistory(r.historyPath(), r.nights(summaries, end)); err != nil {
			return end, exitcode.With(exitcode.Environment, err)
		}
	}
	return end, r.o.Folder.WriteEnd(end)
}

// missing are the cases that lack a run of the candidate.
func (r *runner) missing() []*Case {
	var out []*Case
	for _, c := range r.o.Cases {
		if c.Spec == nil || r.o.Only != "" && c.Label != r.o.Only {
			continue
		}
		n := 0
		for _, p := range r.all {
			if p.Case == c.ID && p.Binary == Candidate && p.Counts() {
				n++
			}
		}
		if n < r.o.Study.Repeats {
			out = append(out, c)
		}
	}
	return out
}

// nights returns tonight's lines of the history.
func (r *runner) nights(all []Summary, end End) []Night {
	var out []Night
	for _, s := range all {
		if s.Binary != Candidate || s.N == 0 {
			continue
		}
		for _, m := range r.gateMetrics() {
			v := samples(r.all, s.Case, Candidate, m)
			if len(v) == 0 {
				continue
			}
			n := Night{Study: r.o.Study.Name, Night: filepath.Base(r.o.Folder.Path), Time: end.Ended, Case: s.Case, Label: s.Label, Metric: m.Name, Unit: m.Unit,
				Median: median(v), Lo: Number(slices.Min(v)), Hi: Number(slices.Max(v)), N: len(v), Version: end.Version, Commit: end.Commit, Host: end.Host}
			if m.Name == "step_seconds" {
				n.Lo, n.Hi, n.Level = Number(s.Interval.Lo), Number(s.Interval.Hi), s.Interval.Level
			}
			for _, f := range end.Findings {
				if f.Case == s.Label && f.Metric == m.Name {
					n.Verdict = f.Verdict
				}
			}
			out = append(out, n)
		}
	}
	return out
}
