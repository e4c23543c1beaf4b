package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/exitcode"
)

// A job submitted to a real Slurm runs over two nodes and has the losses of a local run.
func TestSubmit(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the test cluster needs root")
	}
	if _, err := exec.LookPath("sbatch"); err != nil {
		t.Skip("Slurm is not installed: scripts/install-test-deps.sh")
	}
	if testing.Short() {
		t.Skip("-short: no cluster")
	}
	job := writeJob(t, tinyJob)
	dir := t.TempDir()
	ref := filepath.Join(dir, "local")
	mustRun(t, "--quiet", "--out", ref, job)

	out := filepath.Join(dir, "slurm")
	script := `set -e
"$1" submit --out "$2" --set slurm.nodes=2 "$3"
for i in $(seq 600); do
  [ -n "$(squeue -h)" ] || break
  sleep 0.1
done
cat "$2"/slurm-*.log`
	t.Setenv("PIPETRAIN_CLUSTER", "6") // beside the launcher's tests, which may run at the same time
	e := begin(t, "../../scripts/cluster", "with", "--nodes", "2", "--", "bash", "-c", script, "bash", pipetrainPath, out, job).wait()
	if e.code != 0 || !strings.Contains(e.stdout, "submitted batch job") {
		t.Fatal(e)
	}
	run := filepath.Join(out, "run")
	if got, want := losses(t, run), losses(t, ref); !slices.Equal(got, want) {
		t.Errorf("losses %v, want %v: %v", got, want, e)
	}
	if rec, err := exitcode.Read(run); err != nil || rec.Code != exitcode.Finished || rec.Launcher != "srun" {
		t.Errorf("exit record %+v, %v", rec, err)
	}
	env, err := os.ReadFile(filepath.Join(run, "environment.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"node1", "node2"} {
		if !strings.Contains(string(env), node) {
			t.Errorf("no rank ran on %s: %s", node, env)
		}
	}
}

// What is wrong with a submission is said before Slurm is asked.
func TestSubmitRefuses(t *testing.T) {
	job := writeJob(t, tinyJob)
	if e := pipetrain(t, "submit", "--dry-run", job); e.code != 0 || !strings.Contains(e.stdout, "srun --mpi=pmix") {
		t.Error(e)
	}
	if e := pipetrain(t, "submit", "--dry-run", "--mpi", "none", job); e.code != int(exitcode.Usage) || !strings.Contains(e.stderr, "pmi2") {
		t.Error(e)
	}
	if e := pipetrain(t, "submit"); e.code != int(exitcode.Usage) {
		t.Error(e)
	}
	t.Setenv("PATH", "/nowhere")
	if e := pipetrain(t, "submit", "--out", filepath.Join(t.TempDir(), "x"), job); e.code != int(exitcode.Environment) || !strings.Contains(e.stderr, "sbatch is not in PATH") {
		t.Error(e)
	}
}
