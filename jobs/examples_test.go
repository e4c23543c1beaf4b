package jobs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/schedule"
)

// Every example loads, resolves and makes a schedule that passes its check.
func TestExamples(t *testing.T) {
	corpus := filepath.Join(t.TempDir(), "corpus.txt")
	if err := os.WriteFile(corpus, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob("examples/*.toml")
	if err != nil || len(paths) < 11 {
		t.Fatalf("%d examples (%v)", len(paths), err)
	}
	// Large jobs, for devices and launchers that not every version has.
	paths = append(paths, "testdata/rehearse.toml", "testdata/slurm.toml")
	for _, path := range paths {
		base := strings.TrimSuffix(filepath.Base(path), ".toml")
		t.Run(base, func(t *testing.T) {
			s, err := Load(path, []string{"data.path=" + corpus})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(s.Name, base) {
				t.Errorf("the job is called %q", s.Name)
			}
			roundTrip(t, s)
			plan, err := s.BuildSchedule()
			if err != nil {
				t.Fatal(err)
			}
			if err := schedule.Check(plan); err != nil {
				t.Error(err)
			}
			if plan.Ranks*s.Parallel.Replicas*s.Parallel.Tensor != s.World() {
				t.Errorf("a schedule of %d ranks in a world of %d", plan.Ranks, s.World())
			}
		})
	}
}

// The demo's corpus lies where the Makefile writes it: build/ of the project.
func TestDemoPath(t *testing.T) {
	_, err := Load("examples/demo.toml", nil)
	root, abs := filepath.Abs("..")
	if abs != nil {
		t.Fatal(abs)
	}
	if want := filepath.Join(root, "build", "go-source.txt"); err != nil && !strings.Contains(err.Error(), `data.path: "`+want+`" does not exist`) {
		t.Errorf("%v, want the path %s", err, want)
	}
	s, err := Load("examples/demo.toml", []string{"data.kind=synthetic"})
	if err != nil {
		t.Fatal(err)
	}
	if s.Parallel.Stages != 4 || s.Schedule.Kind != "1f1b" || s.Schedule.BackwardP2 == "fused" {
		t.Errorf("the demo is 4 stages of 1F1B with 2BP, not %+v", s.Schedule)
	}
}
