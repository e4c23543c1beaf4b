package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/exitcode"
)

// Limits of the shell that leave no room for the ranks are the machine's fault, and are told.
func TestUlimit(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("another user without processes of its own needs root")
	}
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Skip(err)
	}
	// The other user can reach no folder of this test's.
	dir, err := os.MkdirTemp("", "pipetrain-ulimit-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile(pipetrainPath)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pipetrain"), self, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ limit, want string }{{"-u 20", "ulimit -u"}, {"-u 60", "ulimit -u"}, {"-v 1900000", "ulimit -v"}, {"-u 150", ""}} {
		job := filepath.Join(dir, "job.toml")
		if err := os.WriteFile(job, []byte(strings.Replace(tinyJob, "kind = \"text\"\npath = \"corpus.txt\"", "kind = \"synthetic\"", 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(dir, "run")
		e := begin(t, "setpriv", "--reuid=64123", "--regid=64123", "--clear-groups", "bash", "-c",
			"ulimit "+c.limit+` && exec "$@"`, "bash", filepath.Join(dir, "pipetrain"), "--quiet", "--set", "train.steps=2", "--out", out, job).wait()
		if c.want == "" && e.code == 0 {
			continue
		}
		if e.code != int(exitcode.Environment) || !strings.Contains(e.stderr, c.want) || strings.Count(e.stderr, "\n") != 1 {
			t.Errorf("ulimit %s: %v", c.limit, e)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("ulimit %s: a folder is left", c.limit)
		}
	}
}
