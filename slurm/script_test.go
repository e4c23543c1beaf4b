package slurm

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/jobs"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func spec(t *testing.T, sets ...string) *jobs.Spec {
	t.Helper()
	s, err := jobs.Parse("job.toml", []byte("name = \"scaling\"\n[model]\nlayers = 8\ndim = 32\nheads = 4\nseq = 16\n[data]\nkind = \"synthetic\"\n[train]\nsteps = 10\nbatch = 8\n[parallel]\nstages = 4\n[optimizer]\nlr = 0.001\n[schedule]\nkind = \"1f1b\"\nmicrobatches = 4\n"), sets, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestScript(t *testing.T) {
	l := Launch{Binary: "/opt/bin/pipetrain", Job: "/jobs/my job's.toml", Sets: []string{"train.steps=5"}, Out: "/scratch/u/run", MPI: "pmix"}
	s := spec(t, "slurm.partition=gpu", "slurm.nodes=2", "slurm.gpus_per_node=2", `slurm.time="04:00:00"`, "slurm.account=phys", "device.threads=8")
	got, err := Script(s, l)
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "script.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the script is\n%s\nwant\n%s", got, want)
	}
	check := exec.Command("bash", "-n")
	check.Stdin = strings.NewReader(got)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("bash does not read it: %v\n%s", err, out)
	}
}

func TestScriptRefuses(t *testing.T) {
	l := Launch{Binary: "/bin/p", Job: "/j", Out: "/o", MPI: "pmix"}
	for name, c := range map[string]struct {
		sets   []string
		change func(*Launch)
		want   string
	}{
		"GPUs shared":         {[]string{"slurm.nodes=1", "slurm.gpus_per_node=2"}, nil, "use 2 nodes"},
		"unknown wire-up":     {nil, func(l *Launch) { l.MPI = "none" }, "pmi2"},
		"line break":          {nil, func(l *Launch) { l.Job = "/j\nrm -rf x" }, "line break"},
		"space in the folder": {nil, func(l *Launch) { l.Out = "/my runs" }, "--output"},
	} {
		t.Run(name, func(t *testing.T) {
			l := l
			if c.change != nil {
				c.change(&l)
			}
			if got, err := Script(spec(t, c.sets...), l); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, script %q", err, got)
			}
		})
	}
}
