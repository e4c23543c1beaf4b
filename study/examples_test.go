package study

import (
	"os"
	"path/filepath"
	"testing"
)

// The studies that come with the project load, have cases, and those that need none of their own data start from
// a job that does.
func TestStudiesOfTheProject(t *testing.T) {
	corpus := filepath.Join(t.TempDir(), "corpus.txt")
	if err := os.WriteFile(corpus, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../jobs/studies/*.toml")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"rehearsed.toml": 11, "demo-strong.toml": 6, "demo-weak.toml": 6, "2bp.toml": 48, "paper.toml": 8, "nightly.toml": 3, "timelines.toml": 2}
	for _, f := range files {
		name := filepath.Base(f)
		if _, job := want[name]; !job {
			if name != "rehearsed-job.toml" && name != "paper-job.toml" {
				t.Errorf("%s is not known to this test", f)
			}
			continue
		}
		_, cases, err := Load(f, []string{"data.path=" + corpus})
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		possible := 0
		for _, c := range cases {
			if c.Spec != nil {
				possible++
			}
		}
		if len(cases) != want[name] || possible == 0 || name != "2bp.toml" && possible != len(cases) {
			t.Errorf("%s: %d cases, %d possible, want %d", name, len(cases), possible, want[name])
		}
		if name == "2bp.toml" && possible < 20 {
			t.Errorf("%s: %d cases are possible", name, possible)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("not there: %v", want)
	}
}
