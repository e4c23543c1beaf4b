package study

import (
	"fmt"
	"path/filepath"
	"slices"
)

// samples returns the counted values of a metric of a case, run by one of the binaries.
func samples(points []Point, id, binary string, m Metric) []float64 {
	var v []float64
	for i := range points {
		p := &points[i]
		if p.Case == id && p.Binary == binary && p.Counts() {
			if x := m.of(p); x.Known() {
				v = append(v, float64(x))
			}
		}
	}
	return v
}

// metrics of the gate.
func (r *runner) gateMetrics() []Metric {
	var out []Metric
	for _, name := range r.o.Study.Gate.Metrics {
		if m, ok := MetricOf(name); ok {
			out = append(out, m)
		}
	}
	return out
}

// judged says whether the gate is for the case.
func (r *runner) judged(c *Case) bool {
	only := r.o.Study.Gate.Cases
	return (len(only) == 0 || slices.Contains(only, c.Label)) && (r.o.Only == "" || c.Label == r.o.Only)
}

// suspects are the cases that may be slower and of which more runs would tell.
func (r *runner) suspects(cases []*Case) []*Case {
	var out []*Case
	for _, c := range cases {
		if !r.judged(c) {
			continue
		}
		for _, m := range r.gateMetrics() {
			a, b := samples(r.all, c.ID, Candidate, m), samples(r.all, c.ID, Control, m)
			if len(a) > 0 && len(b) > 0 && judgeMetric(c.Label, m, a, b, r.o.Study.Gate.Threshold).suspect {
				out = append(out, c)
				break
			}
		}
	}
	return out
}

// judge compares every case with the control, with the history where the control could not run, and the
// control with what is stored of it.
func (r *runner) judge() []Finding {
	var out []Finding
	threshold := r.o.Study.Gate.Threshold
	nights := r.history()
	for _, c := range r.o.Cases {
		if !r.judged(c) || c.Spec == nil {
			continue
		}
		for _, m := range r.gateMetrics() {
			candidate, control := samples(r.all, c.ID, Candidate, m), samples(r.all, c.ID, Control, m)
			stored := samples(r.o.Baseline.Points, c.ID, Candidate, m)
			if len(candidate) == 0 && r.ran(c, Candidate) {
				continue // it finished, and has no such figure: a rehearsal's loss
			}
			f := judgeMetric(c.Label, m, candidate, control, threshold)
			switch {
			case len(candidate) == 0:
				f.Verdict, f.Why = r.absent(c)
			case len(control) == 0:
				f = r.judgeAlone(c, m, candidate, nights, threshold)
			case len(stored) == 0 || m.Exact:
			case f.Verdict == Same || f.Verdict == Unclear:
				moved := judgeMetric(c.Label, m, control, stored, threshold)
				if moved.Verdict == Slower || moved.Verdict == Faster {
					f.Verdict = Machine
					f.Why = fmt.Sprintf("the control itself is %s than when it was saved: × %.3f, p = %.3f", moved.Verdict, float64(moved.Ratio), float64(moved.P))
				}
			}
			out = append(out, f)
		}
	}
	if len(r.o.Study.Gate.Cases) == 0 && r.o.Only == "" {
		out = append(out, r.gone()...)
	}
	return out
}

// ran says whether a run of the case finished.
func (r *runner) ran(c *Case, binary string) bool {
	return slices.ContainsFunc(r.all, func(p Point) bool { return p.Case == c.ID && p.Binary == binary && p.Counts() })
}

// absent says why a case has no run.
func (r *runner) absent(c *Case) (Verdict, string) {
	for _, p := range slices.Backward(r.all) {
		if p.Case == c.ID && p.Binary == Candidate && !p.Warmup {
			if p.Status == Skipped {
				return Missing, p.Reason
			}
			return Broken, string(p.Status) + ": " + p.Reason
		}
	}
	return Missing, "it was not run"
}

// judgeAlone judges a case whose control did not run, against past nights.
func (r *runner) judgeAlone(c *Case, m Metric, candidate []float64, nights map[string][]float64, threshold float64) Finding {
	why := "the control did not run"
	for _, p := range slices.Backward(r.all) {
		if p.Case == c.ID && p.Binary == Control && p.Status != Finished {
			why = "the control did not run (" + p.Reason + ")"
			break
		}
	}
	past := nights[c.ID+" "+m.Name]
	f := Finding{Case: c.Label, Metric: m.Name, Unit: m.Unit, Old: median(past), New: median(candidate)}
	if m.Exact {
		var last []float64
		if len(past) > 0 {
			last = past[len(past)-1:]
		}
		f.take(JudgeExact(candidate, last, m.Name == "peak_bytes"))
		if len(last) == 0 {
			f.Verdict = New
		}
		f.Why = why + "; against last night"
		return f
	}
	if m.Higher {
		f.take(JudgeHistory(inverse(candidate), inverse(past), threshold))
		f.Ratio = 1 / f.Ratio
	} else {
		f.take(JudgeHistory(candidate, past, threshold))
	}
	f.Why = fmt.Sprintf("%s; against %d past nights", why, len(past))
	return f
}

// gone are the baseline's cases that the study no longer has.
func (r *runner) gone() []Finding {
	var out []Finding
	for _, p := range r.o.Baseline.Points {
		if !p.Counts() || slices.ContainsFunc(r.o.Cases, func(c *Case) bool { return c.ID == p.Case || c.Label == p.Label }) ||
			slices.ContainsFunc(out, func(f Finding) bool { return f.Case == p.Label }) {
			continue
		}
		out = append(out, Finding{Case: p.Label, Metric: "step_seconds", Unit: "sec/step", Verdict: Missing, Ratio: Unknown, Lo: Unknown, Hi: Unknown, P: Unknown,
			Least: Unknown, Old: Unknown, New: Unknown, Why: "the baseline has it, the study does not: save a new baseline"})
	}
	return out
}

// historyPath is beside the study's folder.
func (r *runner) historyPath() string {
	return filepath.Join(filepath.Dir(r.o.Folder.Path), HistoryName)
}

// history returns the medians of past nights by case and metric, oldest first.
func (r *runner) history() map[string][]float64 {
	out := map[string][]float64{}
	nights, err := ReadHistory(r.historyPath())
	if err != nil {
		r.notes = append(r.notes, err.Error())
	}
	for _, n := range nights {
		if n.Night != filepath.Base(r.o.Folder.Path) && n.Study == r.o.Study.Name {
			out[n.Case+" "+n.Metric] = append(out[n.Case+" "+n.Metric], float64(n.Median))
		}
	}
	return out
}
