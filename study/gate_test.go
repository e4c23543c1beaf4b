package study

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// gateRunner returns a runner of the study in axes with five runs a case of candidate and control, whose step times are
// those of its arguments; a case whose time is 0 has no run.
func gateRunner(t *testing.T, candidate, control, stored func(label string) float64) *runner {
	t.Helper()
	f, cases, err := Load(writeStudy(t, axes), nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "night-2")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r := &runner{o: Options{Study: f, Cases: cases, Folder: &Folder{Path: dir}, Baseline: &Baseline{Name: "main"}}}
	add := func(to *[]Point, c *Case, binary string, base float64) {
		for i := 1; base > 0 && i <= 5; i++ {
			p := NewPoint()
			p.Case, p.Label, p.Round, p.Binary, p.Status = c.ID, c.Label, i, binary, Finished
			p.StepSeconds, p.PeakBytes, p.LossLast = Number(base*(1+float64(i)/1000)), 1000, 2.5
			*to = append(*to, p)
		}
	}
	for _, c := range cases {
		add(&r.all, c, Candidate, candidate(c.Label))
		add(&r.all, c, Control, control(c.Label))
		add(&r.o.Baseline.Points, c, Candidate, stored(c.Label))
	}
	return r
}

func always(x float64) func(string) float64 { return func(string) float64 { return x } }

// count returns how many findings have the verdict in the metric.
func count(all []Finding, metric string, v Verdict) (n int) {
	for _, f := range all {
		if f.Metric == metric && f.Verdict == v {
			n++
		}
	}
	return n
}

func TestGateVerdicts(t *testing.T) {
	// The code is as it was: eight cases are the same, in time, memory and loss.
	same := gateRunner(t, always(1), always(1), always(1)).judge()
	if count(same, "step_seconds", Same) != 8 || count(same, "peak_bytes", Same) != 8 || count(same, "loss", Same) != 8 || Code(same) != 0 {
		t.Errorf("%+v", same)
	}
	// One case is 10 % slower, and suspect: as many rounds again are for it alone.
	slow := func(label string) float64 {
		if label == "stages 2, ZB-H1" {
			return 1.1
		}
		return 1
	}
	r := gateRunner(t, slow, always(1), always(1))
	if got := r.judge(); count(got, "step_seconds", Slower) != 1 || Code(got) != 9 {
		t.Errorf("%+v", got)
	}
	if again := r.suspects(r.o.Cases); len(again) != 1 || again[0].Label != "stages 2, ZB-H1" {
		t.Errorf("suspects %+v", again)
	}
	// Both moved against what is stored: the machine, and no alarm.
	if got := gateRunner(t, always(1.3), always(1.3), always(1)).judge(); count(got, "step_seconds", Machine) != 8 || Code(got) != 0 {
		t.Errorf("%+v", got)
	}
	// A case without a run is missing, also where another one regressed: then 9 wins.
	absent := func(label string) float64 {
		if label == "stages 4, 1F1B" {
			return 0
		}
		return 1
	}
	if got := gateRunner(t, absent, always(1), always(1)).judge(); count(got, "step_seconds", Missing) != 1 || Code(got) != 10 {
		t.Errorf("%+v", got)
	}
	both := func(label string) float64 { return absent(label) * slow(label) }
	if got := gateRunner(t, both, always(1), always(1)).judge(); Code(got) != 9 {
		t.Errorf("%+v", got)
	}
	// A case that the study no longer has is missing.
	r = gateRunner(t, always(1), always(1), always(1))
	gone := r.o.Baseline.Points[0]
	gone.Case, gone.Label = "0000", "stages 32"
	r.o.Baseline.Points = append(r.o.Baseline.Points, gone)
	if got := r.judge(); count(got, "step_seconds", Missing) != 1 || Code(got) != 10 {
		t.Errorf("%+v", got)
	}
}

// Without a control the nights before are what there is, from ten on.
func TestGateByHistory(t *testing.T) {
	for nights, want := range map[int]Verdict{9: New, 12: Slower} {
		r := gateRunner(t, always(1.2), always(0), always(0))
		var past []Night
		for i := range nights {
			for _, c := range r.o.Cases {
				past = append(past, Night{Study: "night", Night: fmt.Sprintf("night-%d", 10+i), Time: time.Unix(int64(i), 0), Case: c.ID, Metric: "step_seconds", Median: Number(1 + float64(i%3)/1000)})
			}
		}
		if err := appendHistory(r.historyPath(), past); err != nil {
			t.Fatal(err)
		}
		if got := r.judge(); count(got, "step_seconds", want) != 8 {
			t.Errorf("after %d nights: %+v", nights, got[0])
		}
	}
}
