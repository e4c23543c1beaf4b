package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/record"
)

// Two runs of one job with other numbers of ranks compute the same bits; another learning rate
// differs from the step on in which it is used. compare says both, and what differs in the jobs.
func TestCompareRuns(t *testing.T) {
	job, dir := writeJob(t, tinyJob), t.TempDir()
	short := []string{"--quiet", "--set", "train.steps=3", "--set", "model.layers=4"}
	run := func(name string, sets ...string) string {
		out := filepath.Join(dir, name)
		mustRun(t, append(append(append([]string{"--out", out}, short...), sets...), job)...)
		return out
	}
	a := run("a")
	b := run("b", "--set", "parallel.stages=2")
	c := run("c", "--set", "optimizer.lr=1e-3")
	same := mustRun(t, "compare", a, b).stdout
	for _, want := range []string{"the same bits in all 3 steps", "parallel.stages", "4 → 2", "peak_bytes", "step_seconds"} {
		if !strings.Contains(same, want) {
			t.Errorf("compare does not say %q:\n%s", want, same)
		}
	}
	// The first step's loss is that of the initial weights.
	if other := mustRun(t, "compare", a, c).stdout; !strings.Contains(other, "differs from step 2 on") && !strings.Contains(other, "differs from step 3 on") {
		t.Errorf("another learning rate:\n%s", other)
	}
	if e := pipetrain(t, "compare", "--gate", "--metric", "loss", a, c); e.code != 9 || !strings.Contains(e.stdout, "changed") {
		t.Errorf("gate on a loss that changed: %v", e)
	}
	if e := pipetrain(t, "compare", "--gate", "--metric", "loss", a, b); e.code != 0 {
		t.Errorf("gate on the same loss: %v", e)
	}
	if e := pipetrain(t, "compare", a, filepath.Join(dir, "none")); e.code != 2 || !strings.Contains(e.stderr, "there is no such folder") {
		t.Errorf("no such run: %v", e)
	}
	lines, err := record.ReadTimelines(a)
	if err != nil || len(lines.Measured.Ranks) != 4 || lines.Measured.Makespan <= 0 {
		t.Errorf("timelines of a run: %+v, %v", lines, err)
	}
}
