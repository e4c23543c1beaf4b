package record

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A run whose folder was moved does not take what stands at the old name for its own.
func TestHeld(t *testing.T) {
	root := t.TempDir()
	dir, moved := filepath.Join(root, "run"), filepath.Join(root, "moved")
	first, err := Create(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	joined, err := Join(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer joined.Close()
	for _, f := range []*Folder{first, joined} {
		if err := f.Held(); err != nil || f.Home() != dir {
			t.Fatalf("held: %v, at %s", err, f.Home())
		}
	}
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	lost := func(want ...string) {
		t.Helper()
		for _, f := range []*Folder{first, joined} {
			for what, err := range map[string]error{
				"Held": f.Held(), "WriteJob": f.WriteJob([]byte("x"), true), "WriteSummary": f.WriteSummary(Summary{}),
				"WriteEnvironment": f.WriteEnvironment(Environment{}),
			} {
				for _, w := range append(want, dir, moved, "--resume") {
					if err == nil || !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "\n") {
						t.Errorf("%s of a moved folder: %v, want one line with %q", what, err, w)
					}
				}
			}
			if _, err := f.CreateTrace(); err == nil {
				t.Error("a trace of a moved folder was begun")
			}
			if f.Home() != moved {
				t.Errorf("moved to %q", f.Home())
			}
		}
	}
	lost("is gone")
	second, err := Create(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	lost("is another run's")
	if second.Held() != nil || second.Home() != dir {
		t.Errorf("the second run has lost its folder: %v", second.Held())
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the second run's folder has %v, %v", entries, err)
	}

	// A file system that numbers files anew: the text is the holder's, so it is ours.
	b, err := os.ReadFile(filepath.Join(dir, LockName))
	if err == nil {
		err = os.Remove(filepath.Join(dir, LockName))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, LockName), b, 0o644)
	}
	if err != nil || second.Held() != nil {
		t.Errorf("the same text under another number: %v, %v", err, second.Held())
	}
	if err := os.RemoveAll(moved); err != nil {
		t.Fatal(err)
	}
	if first.Held() == nil || first.Home() != "" {
		t.Errorf("a removed folder is at %q", first.Home())
	}
}
