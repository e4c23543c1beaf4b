package costs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/schedule"
)

// samplesOf makes the ops that a run of these costs would measure.
func samplesOf(t *testing.T, c schedule.Costs, sets ...string) []Sample {
	t.Helper()
	s, err := parse(t, sets...).BuildSchedule()
	if err != nil {
		t.Fatal(err)
	}
	if s, err = schedule.Lower(s); err != nil {
		t.Fatal(err)
	}
	line, err := schedule.Simulate(s, c)
	if err != nil {
		t.Fatal(err)
	}
	var out []Sample
	for step := range 3 {
		for _, e := range line.Events {
			out = append(out, Sample{step, e.Op, e.Start, e.End})
		}
	}
	return out
}

// A profile gives back the times it was made of, and the plan made of it is the run's simulation.
func TestProfile(t *testing.T) {
	truth := schedule.StageCosts{F: []float64{.1, .2, .3, .4}, I: []float64{.2, .1, .2, .1}, W: []float64{.3, .3, .1, .1}, WExtra: []float64{.2, .1, .05, .05},
		B: []float64{.45, .3, .25, .15}, SendF: []float64{.01, .02, .03, 0}, SendB: []float64{0, .04, .05, .06}}
	p, err := NewProfile(parse(t), 4, "cpu", [][]Sample{
		samplesOf(t, truth, "schedule.backward_p2=lagged"),
		samplesOf(t, truth, "schedule.backward_p2=cooldown", "schedule.concat=all"),
		samplesOf(t, truth, "schedule.backward_p2=fused"),
	}, []float64{.5, .7, .6})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "p.json")
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if p, err = ReadProfile(path); err != nil {
		t.Fatal(err)
	}
	for _, sets := range [][]string{{"schedule.backward_p2=cooldown", "schedule.concat=all"}, {"schedule.backward_p2=fused"}, {"schedule.kind=gpipe", "schedule.backward_p2=end"}} {
		s, err := parse(t, sets...).BuildSchedule()
		if err != nil {
			t.Fatal(err)
		}
		times := p.Of(workOf(t, parse(t, sets...), 4))
		got, err := schedule.Simulate(s, times)
		if err != nil {
			t.Fatal(err)
		}
		want, err := schedule.Simulate(s, truth)
		if err != nil {
			t.Fatal(err)
		}
		if !near(got.Makespan(), want.Makespan()) || times.StageUpdate(1) != .6 {
			t.Errorf("%v: makespan %v instead of %v, update %v", sets, got.Makespan(), want.Makespan(), times.StageUpdate(1))
		}
	}
	// Another cut keeps the work: two stages of the model take what four did.
	two := p.Of(workOf(t, parse(t, "parallel.stages=2"), 2))
	sum := 0.0
	for stage := range 2 {
		sum += two.Compute(schedule.Op{Stage: stage, Kind: schedule.Forward})
	}
	// The micro-batches of the job in 2 ranks are as large: 16 sequences over 8.
	if !near(sum, 1.0) {
		t.Errorf("forward takes %v in two stages and 1 in four", sum)
	}
	for _, other := range []string{"train.precision=bf16", "model.norm=layernorm", "model.activation=gelu"} {
		if err := p.Fits(parse(t, other)); err == nil || !strings.Contains(err.Error(), "measure again") {
			t.Errorf("%s: %v", other, err)
		}
	}
	if err := p.Fits(parse(t, "model.dim=128")); err == nil {
		t.Error("the profile of another model was taken")
	}
}

func TestProfileMistakes(t *testing.T) {
	good := `{"format":"pipetrain-profile","version":2,"name":"x","device":"cpu","layers":[{"name":"a"},{"name":"b"},{"name":"c"}],"batch":1,"seq":8,"stages":[{"first":0,"end":3,"f":1,"i":1,"w":1}]}`
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "p.json")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if _, err := ReadProfile(write(good)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{"pipetrain-profile", "other", "no profile of pipetrain"},
		{`"version":2`, `"version":3`, "of version 3, this program reads version 2"},
		{`"version":2,"name":"x","device":"cpu","layers":[{"name":"a"},{"name":"b"},{"name":"c"}]`, `"version":1,"name":"x","device":"cpu","layers":1,"dim":8`, "of version 1, this program reads version 2: measure again"},
		{`[{"name":"a"},{"name":"b"},{"name":"c"}]`, `[]`, "no stages, layers"},
		{`"layers":[{"name":"a"}`, `"layers":[7`, "cannot unmarshal"},
		{`"f":1`, `"f":0`, "was not seen performing F"},
		{`"w":1`, `"w":0`, "either B or I and W"},
		{`"f":1`, `"f":-1`, "has the time -1"},
		{`"end":3`, `"end":2`, "end at layer 2 of 3"},
		{`"first":0`, `"first":1`, "stage 0 has layers 1"},
		{`}]}`, `}]`, "unexpected end"},
		{`"seq":8`, `"seq":0`, "no stages, layers or micro-batch"},
	} {
		_, err := ReadProfile(write(strings.Replace(good, c.old, c.new, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s for %s: want %q, got %v", c.new, c.old, c.want, err)
		}
	}
}
