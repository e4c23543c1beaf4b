package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/exitcode"
)

// An asynchronous run has the same bits over every transport, and stopped and resumed.
// That they are the right ones is tested beside the engine.
func TestAsynchronousRuns(t *testing.T) {
	text := strings.Replace(tinyJob, "clip = 1.0\n", "", 1)
	text = strings.Replace(text, "backward_p2 = \"cooldown\"\n", "", 1)
	job := writeJob(t, text)
	for _, kind := range []string{"pipedream", "pipedream-2bw"} {
		dir := t.TempDir()
		whole := filepath.Join(dir, "whole")
		args := []string{"--quiet", "--set", "schedule.kind=" + kind, job}
		mustRun(t, append([]string{"--out", whole}, args...)...)
		want, wantWeights := losses(t, whole), weights(t, whole)
		same := func(t *testing.T, out string) {
			t.Helper()
			if got := losses(t, out); !slices.Equal(got, want) {
				t.Errorf("losses %v, want %v", got, want)
			}
			got := weights(t, out)
			for name, w := range wantWeights {
				if string(got[name]) != string(w) {
					t.Errorf("%s differs", name)
				}
			}
		}
		if want[11] >= want[0] {
			t.Errorf("%s does not learn: %v", kind, want)
		}
		t.Run(kind+"/resumed", func(t *testing.T) {
			out := filepath.Join(dir, "resumed")
			mustRun(t, append([]string{"--out", out}, args...)...)
			if err := os.RemoveAll(filepath.Join(out, "checkpoints", "step-00000012")); err != nil {
				t.Fatal(err)
			}
			mustRun(t, append([]string{"--out", out, "--resume"}, args...)...)
			same(t, out)
		})
		for family := range mpiruns {
			t.Run(kind+"/"+family, func(t *testing.T) {
				out := filepath.Join(dir, family)
				if e := begin(t, append(append(mpirun(t, family, 4), "--out", out), args...)...).wait(); e.code != 0 {
					t.Fatal(e)
				}
				same(t, out)
			})
		}
	}
	// What such a run cannot do is said before it starts.
	for set, want := range map[string]string{
		"optimizer.clip=1": "optimizer.clip: 1 needs the gradient norm over all stages",
		"model.tied=true":  "model.tied: the gradients of embedding and head must be added",
	} {
		e := pipetrain(t, "--set", "schedule.kind=pipedream", "--set", set, job)
		if e.code != int(exitcode.Usage) || !strings.Contains(e.stderr, want) {
			t.Errorf("%s: %v, want %q", set, e, want)
		}
	}
}
