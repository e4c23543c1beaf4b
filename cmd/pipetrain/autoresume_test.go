package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/record"
)

// One command line serves the first start and every later one.
func TestAutoResume(t *testing.T) {
	job := writeJob(t, tinyJob)
	dir := t.TempDir()
	ref := filepath.Join(dir, "ref")
	mustRun(t, "--quiet", "--out", ref, job)
	want := losses(t, ref)

	launch := map[string][]string{"local": {pipetrainPath}}
	for family := range mpiruns {
		launch[family] = mpirun(t, family, 4)
	}
	for name, command := range launch {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(dir, name)
			// A start that ended before its first checkpoint left this.
			if err := os.MkdirAll(filepath.Join(out, "checkpoints", "step-00000000.tmp"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(out, "metrics.jsonl"), []byte("{\"st"), 0o644); err != nil {
				t.Fatal(err)
			}
			line := append(slices.Clone(command), "--quiet", "--auto-resume", "--out", out)
			for _, lost := range []string{"step-00000012", "none"} {
				if e := begin(t, append(line, job)...).wait(); e.code != 0 {
					t.Fatal(e)
				}
				if got := losses(t, out); !slices.Equal(got, want) {
					t.Fatalf("losses %v, want %v", got, want)
				}
				if err := os.RemoveAll(filepath.Join(out, "checkpoints", lost)); err != nil {
					t.Fatal(err)
				}
			}
			// The second start did not train from the first step again.
			sum, err := record.ReadSummary(filepath.Join(out, record.SummaryName))
			if err != nil || sum.ResumedAt != 8 {
				t.Errorf("resumed at %d, %v", sum.ResumedAt, err)
			}
		})
	}

	// A checkpoint that does not load is no reason to start afresh.
	out := filepath.Join(dir, "local")
	manifests, err := filepath.Glob(filepath.Join(out, "checkpoints", "step-*", "manifest.json"))
	if err != nil || len(manifests) == 0 {
		t.Fatal(err, manifests)
	}
	for _, m := range manifests {
		if err := os.WriteFile(m, []byte("{}"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if e := pipetrain(t, "--quiet", "--auto-resume", "--out", out, job); e.code == 0 || !strings.Contains(e.stderr, "manifest") {
		t.Error(e)
	}
	if n := len(losses(t, out)); n != len(want) {
		t.Errorf("%d steps are left of the run", n)
	}
	if e := pipetrain(t, "--auto-resume", job); e.code != int(exitcode.Usage) || !strings.Contains(e.stderr, "--out") {
		t.Error(e)
	}
}
