package slurm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What the script says of a requeue that came to nothing, or that Slurm itself interrupts.
func TestRequeueSays(t *testing.T) {
	for does, want := range map[string]string{
		"exit 0":             "goes back into the queue",
		"echo held; exit 1":  "could not be requeued (held): pipetrain requeue",
		"exit 3":             "could not be requeued (scontrol ended with code 3): pipetrain requeue",
		"kill -TERM $$":      "is ended by Slurm, which puts a preempted job back itself",
		"kill -KILL $$":      "is ended by Slurm, which puts a preempted job back itself",
		"kill $PPID; exit 1": "is ended by Slurm, which puts a preempted job back itself",
	} {
		n := newNode(t)
		if err := os.WriteFile(filepath.Join(n.bin, "scontrol"), []byte("#!/bin/bash\n"+does+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		l := launch("pmix")
		l.Out = filepath.Join(n.dir, "run")
		code, said := n.run(mustScript(t, spec(t), l), "", "RECORDS=4", "CODE=4", "RUN="+l.Out)
		if code != 4 || !strings.Contains(said, want) || strings.Contains(said, "()") {
			t.Errorf("%s: code %d, want %q:\n%s", does, code, want, said)
		}
	}
}
