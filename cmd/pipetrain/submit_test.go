package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/exitcode"
)

// What is wrong with a submission is said before Slurm is asked.
func TestSubmitRefuses(t *testing.T) {
	job := writeJob(t, tinyJob)
	if e := pipetrain(t, "submit", "--dry-run", "--out", "/scratch/run", job); e.code != 0 || !strings.Contains(e.stdout, "srun -K1 --mpi=pmi") || !strings.Contains(e.stdout, "/scratch/run/submitted.toml") {
		t.Error(e)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--mpi", "none"}, "one world a rank"},
		{[]string{"--set", "seed=%a"}, "slurm.array"},
		{[]string{"--set", "seed=%ax", "--set", "slurm.array=3-9"}, "seed"},
		{[]string{"--set", "transport.kind=local"}, "transport.kind"},
		{[]string{"--set", "slurm.launcher=mpirun", "--mpi", "pmix"}, "leave one out"},
		{[]string{job}, "2 arguments"},
	} {
		if e := pipetrain(t, append(append([]string{"submit", "--dry-run"}, c.args...), job)...); e.code != int(exitcode.Usage) || !strings.Contains(e.stderr, c.want) {
			t.Errorf("%v: %v", c.args, e)
		}
	}
	if e := pipetrain(t, "submit", "--dry-run", "--set", "seed=1%a", "--set", "slurm.array=3-9", job); e.code != 0 || !strings.Contains(e.stdout, `--set 'seed=1'"$SLURM_ARRAY_TASK_ID"''`) {
		t.Error(e)
	}
	out := filepath.Join(t.TempDir(), "x")
	t.Setenv("PATH", "/nowhere")
	if e := pipetrain(t, "submit", "--out", out, job); e.code != int(exitcode.Environment) || !strings.Contains(e.stderr, "sbatch is not in PATH") || strings.Count(e.stderr, "\n") != 1 {
		t.Error(e)
	}
	if left, _ := filepath.Glob(out); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
