package study

import (
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"

	"github.com/pipetrain/pipetrain/exitcode"
)

// Finding is the verdict of one case in one metric.
type Finding struct {
	Case    string  `json:"case"`
	Metric  string  `json:"metric"`
	Unit    string  `json:"unit"`
	Verdict Verdict `json:"verdict"`
	// Ratio is new over old, with the 95 % interval.
	Ratio   Number `json:"ratio"`
	Lo      Number `json:"ratio_low"`
	Hi      Number `json:"ratio_high"`
	P       Number `json:"p"`
	N       int    `json:"n"`     // runs
	M       int    `json:"n_old"` // runs of the other side
	Least   Number `json:"least_found"`
	Old     Number `json:"old"` // medians
	New     Number `json:"new"`
	Why     string `json:"why,omitempty"`
	suspect bool   // as many runs again should be made
}

// seedOf makes the seed of a case's bootstrap.
func seedOf(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}

// judgeMetric compares two samples of a metric.
func judgeMetric(label string, m Metric, new, old []float64, threshold float64) Finding {
	f := Finding{Case: label, Metric: m.Name, Unit: m.Unit, Old: median(old), New: median(new)}
	var j Judgement
	switch {
	case m.Exact:
		j = JudgeExact(new, old, m.Name == "peak_bytes")
	case m.Higher: // the rule is for what should be small
		j = Judge(inverse(new), inverse(old), threshold, seedOf(label+m.Name))
	default:
		j = Judge(new, old, threshold, seedOf(label+m.Name))
	}
	f.take(j)
	if m.Higher {
		f.Ratio, f.Lo, f.Hi = 1/f.Ratio, 1/f.Hi, 1/f.Lo
	}
	return f
}

func (f *Finding) take(j Judgement) {
	f.Verdict, f.Ratio, f.Lo, f.Hi, f.P = j.Verdict, Number(j.Ratio), Number(j.Interval.Lo), Number(j.Interval.Hi), Number(j.P)
	f.N, f.M, f.Least, f.suspect = j.N, j.M, Number(j.Least), j.Suspect
}

func inverse(v []float64) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = 1 / x
	}
	return out
}

// metricsOf returns the metrics named; of Go benchmarks, whose units are not ours, one a unit.
func metricsOf(units, names []string) ([]Metric, error) {
	var out []Metric
	for _, n := range names {
		m, ok := MetricOf(n)
		if !ok {
			i := slices.Index(units, n)
			if i < 0 {
				return nil, exitcode.Errorf(exitcode.Usage, "--metric %s: there is no such metric; there are %s, and of these results the units %s", n, MetricNames(), strings.Join(units, ", "))
			}
			m = metricOfUnit(n)
		}
		out = append(out, m)
	}
	if len(names) > 0 {
		return out, nil
	}
	for _, u := range units {
		out = append(out, metricOfUnit(u))
	}
	return out, nil
}

func metricOfUnit(unit string) Metric {
	for _, m := range Metrics {
		if m.Unit == unit {
			return m
		}
	}
	// Rates are better when higher: "B/s", "tokens/sec". The time of an operation is "sec/op".
	top, bottom, _ := strings.Cut(unit, "/")
	return Metric{Name: unit, Unit: unit, Higher: top != "sec" && (bottom == "s" || bottom == "sec") || strings.HasSuffix(unit, "FLOPS")}
}

// Comparison is one side against another, as tables and verdicts.
type Comparison struct {
	Old, New *Results
	Metrics  []Metric
	Findings []Finding
}

// Compare judges the new side against the old one. The two were not run in the same rounds, so a
// difference may be the machine's: that is what a study's gate is for.
func Compare(old, new *Results, metrics []string, threshold float64) (*Comparison, error) {
	units := slices.Clone(old.units)
	for _, u := range new.units {
		if !slices.Contains(units, u) {
			units = append(units, u)
		}
	}
	ms, err := metricsOf(units, metrics)
	if err != nil {
		return nil, err
	}
	c := &Comparison{Old: old, New: new, Metrics: ms}
	cases := slices.Clone(old.cases)
	for _, s := range new.cases {
		if !slices.Contains(cases, s) {
			cases = append(cases, s)
		}
	}
	for _, label := range cases {
		for _, m := range ms {
			a, b := new.Sample(label, m.Unit), old.Sample(label, m.Unit)
			if len(a) == 0 && len(b) == 0 {
				continue
			}
			f := judgeMetric(label, m, a, b, threshold)
			switch {
			case len(a) == 0 && new.failed[label] > 0:
				f.Verdict, f.Why = Broken, "no run of it finished"
			case len(b) == 0:
				f.Verdict, f.Why = New, "the old side does not have it"
			}
			c.Findings = append(c.Findings, f)
		}
	}
	return c, nil
}

// Units returns the units of the metrics compared.
func (c *Comparison) Units() []string {
	var u []string
	for _, m := range c.Metrics {
		u = append(u, m.Unit)
	}
	return u
}

// Code is the exit code of verdicts: 9 wins over 10.
func Code(findings []Finding) exitcode.Code {
	code := exitcode.Finished
	for _, f := range findings {
		if f.Verdict.Regressed() {
			return exitcode.Regressed
		}
		if f.Verdict.Incomplete() {
			code = exitcode.Incomplete
		}
	}
	return code
}

// WriteFindings prints the verdicts that are not "same", a line each, and a line that counts all.
func WriteFindings(w io.Writer, findings []Finding) error {
	count := map[Verdict]int{}
	var order []Verdict
	for _, f := range findings {
		if count[f.Verdict] == 0 {
			order = append(order, f.Verdict)
		}
		count[f.Verdict]++
		if f.Verdict != Same {
			if _, err := fmt.Fprintln(w, f.Text()); err != nil {
				return err
			}
		}
	}
	var parts []string
	for _, v := range order {
		parts = append(parts, fmt.Sprintf("%d %s", count[v], v))
	}
	_, err := fmt.Fprintf(w, "verdicts: %s\n", strings.Join(parts, ", "))
	return err
}

// Text is the finding on a line: "slower  1F1B, 4 stages: step_seconds × 1.102 (95 %: 1.09 to 1.11, p = 0.008, n = 5 + 5)".
func (f Finding) Text() string {
	s := fmt.Sprintf("%-8s %s: %s", f.Verdict, f.Case, f.Metric)
	if f.Ratio.Known() {
		s += fmt.Sprintf(" × %.4g", float64(f.Ratio))
	}
	var more []string
	if f.Lo.Known() && f.Hi.Known() {
		more = append(more, fmt.Sprintf("95 %%: %.4g to %.4g", float64(f.Lo), float64(f.Hi)))
	}
	if f.P.Known() {
		more = append(more, fmt.Sprintf("p = %.3f", float64(f.P)))
	}
	if f.N > 0 && f.M > 0 {
		more = append(more, fmt.Sprintf("n = %d + %d", f.N, f.M))
	}
	if f.Verdict == Unclear && f.Least.Known() {
		more = append(more, fmt.Sprintf("least change found: %.0f %%", 100*float64(f.Least)))
	}
	if f.Why != "" {
		more = append(more, f.Why)
	}
	if len(more) > 0 {
		s += " (" + strings.Join(more, "; ") + ")"
	}
	return s
}
