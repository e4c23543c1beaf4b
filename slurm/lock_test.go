package slurm

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/record"
)

// A second job in a run folder that has one changes nothing there.
func TestSecondJob(t *testing.T) {
	first, second := newNode(t), newNode(t)
	l := launch("pmix")
	l.Out = filepath.Join(first.dir, "run")
	script := mustScript(t, spec(t), l)
	type end struct {
		code int
		said string
	}
	done := make(chan end)
	go func() {
		code, said := first.run(script, "", "RUN="+l.Out, "RECORDS=7", "CODE=7", "WAITS=1")
		done <- end{code, said}
	}()
	for range 1000 {
		if exists(filepath.Join(first.dir, "runs")) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	before := contents(t, l.Out)
	code, said := second.run(script, "", "RUN="+l.Out, "RECORDS=4", "CODE=4")
	if code != 3 || !strings.Contains(said, "has the run folder") || second.read("srun") != "" || second.read("scontrol") != "" {
		t.Errorf("the second ended with %d: %s", code, said)
	}
	if after := contents(t, l.Out); after != before {
		t.Errorf("the folder had\n%sand now\n%s", before, after)
	}
	if err := os.WriteFile(filepath.Join(first.dir, "enough"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if e := <-done; e.code != 7 {
		t.Errorf("the first ended with %d: %s", e.code, e.said)
	}
	// The folder is free again.
	if code, said := second.run(script, "", "RUN="+l.Out, "RECORDS=0"); code != 0 {
		t.Errorf("code %d: %s", code, said)
	}
}

// A run outside of Slurm has the folder; what it left behind holds nothing.
func TestJobBesideRun(t *testing.T) {
	n := newNode(t)
	l := launch("pmix")
	l.Out = filepath.Join(n.dir, "run")
	script := mustScript(t, spec(t), l)
	if err := os.Mkdir(l.Out, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(l.Out, record.LockName))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	release := time.AfterFunc(time.Second, func() { lock.Close() }) // it was only ending
	defer release.Stop()
	if code, said := n.run(script, "", "RUN="+l.Out, "RECORDS=0"); code != 0 {
		t.Errorf("code %d: %s", code, said)
	}
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// contents lists a folder's files with what is in them.
func contents(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, _ := os.ReadFile(filepath.Join(dir, e.Name()))
		all.WriteString(e.Name() + ": " + string(b) + "\n")
	}
	return all.String()
}
