package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/checkpoint"
	"github.com/pipetrain/pipetrain/exitcode"
)

// A living run's folder is moved, and another run started at its name: the first ends with 3 at its next
// save, and leaves the second's files alone.
func TestMovedFolder(t *testing.T) {
	for name, command := range launchers() {
		t.Run(name, func(t *testing.T) {
			job := writeJob(t, slowJob)
			before := sharedMemory(t)
			out, moved := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "moved")
			first := begin(t, append(command(t), "--quiet", "--out", out, job)...)
			started(t, out, 6)
			if err := os.Rename(out, moved); err != nil {
				t.Fatal(err)
			}
			// It saves nothing by itself: each checkpoint in its folder but that of step 0 is another's.
			const own = "checkpoint.every=0"
			e := begin(t, append(command(t), "--quiet", "--out", out, "--set", own, "--set", "train.steps=100", job)...).wait()
			if e.code != 0 {
				t.Errorf("the second run: %v", e)
			}
			e = first.wait()
			if name == "local" && e.code != int(exitcode.Environment) || e.code == 0 || !strings.Contains(e.stderr, moved) {
				t.Errorf("the first run: %v", e)
			}
			nothingLeft(t, before)
			if rec, err := exitcode.Read(out); err != nil || rec.Code != exitcode.Finished {
				t.Errorf("the second run's record is %+v, %v", rec, err)
			}
			if rec, err := exitcode.Read(moved); err != nil || rec.Code != exitcode.Environment {
				t.Errorf("the first run's record is %+v, %v", rec, err)
			}
			if n := len(losses(t, out)); n != 100 {
				t.Errorf("the second run's metrics have %d steps", n)
			}
			steps, err := os.ReadDir(filepath.Join(out, "checkpoints"))
			if err != nil || len(steps) != 2 || steps[0].Name() != checkpoint.StepDir(0) || steps[1].Name() != checkpoint.StepDir(100) {
				t.Errorf("the second run's checkpoints are %v, %v", steps, err)
			}
			whole(t, moved)
		})
	}
}

// launchers are the ways to start four ranks on this host.
func launchers() map[string]func(t testing.TB) []string {
	m := map[string]func(t testing.TB) []string{"local": func(testing.TB) []string { return []string{pipetrainPath} }}
	for family := range mpiruns {
		m[family] = func(t testing.TB) []string { return mpirun(t, family, 4) }
	}
	return m
}
