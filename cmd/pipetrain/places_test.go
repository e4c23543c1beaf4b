package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/exitcode"
)

// A folder that cannot be written to is told once, with its name, by submit and under every
// mpirun, and a full home directory harms no run that is elsewhere.
func TestBadPlaces(t *testing.T) {
	job := writeJob(t, tinyJob)
	full := smallDisk(t, "size=64k")
	fillUp(t, filepath.Join(full, "full"))
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	places := map[string]struct{ out, want string }{
		"full": {filepath.Join(full, "run"), "no space left"}, "no folder can be made": {"/proc/run", "/proc/run"}, "below a file": {filepath.Join(file, "run"), "choose another with --out"},
	}
	for name, p := range places {
		t.Run("submit/"+name, func(t *testing.T) {
			e := pipetrain(t, "submit", "--out", p.out, job)
			if e.code != int(exitcode.Environment) || strings.Count(e.stderr, "\n") != 1 || !strings.Contains(e.stderr, p.want) || !strings.Contains(e.stderr, p.out) {
				t.Error(e)
			}
			if _, err := os.Stat(p.out); err == nil {
				t.Error("a folder is left")
			}
		})
		for family := range mpiruns {
			t.Run(family+"/"+name, func(t *testing.T) {
				before := sharedMemory(t)
				line := append(mpirun(t, family, 4), "--quiet", "--out", p.out, job)
				e := begin(t, line...).wait()
				if strings.Contains(e.stdout, "Segmentation fault") { // one of some 30 under load: MPICH, while its ranks end
					t.Logf("again: %v", e)
					e = begin(t, line...).wait()
				}
				if e.code != int(exitcode.Environment) || strings.Count(e.stderr, p.out) != 1 || !strings.Contains(e.stderr, p.want) {
					t.Error(e)
				}
				nothingLeft(t, before)
			})
		}
	}
	for family := range mpiruns {
		t.Run(family+"/full home", func(t *testing.T) {
			args := append([]string{"env", "HOME=" + full}, mpirun(t, family, 4)...)
			if e := begin(t, append(args, "--quiet", "--set", "train.steps=2", "--out", filepath.Join(t.TempDir(), "run"), job)...).wait(); e.code != 0 {
				t.Error(e)
			}
		})
	}
}
