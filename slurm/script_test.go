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

func spec(t testing.TB, sets ...string) *jobs.Spec {
	t.Helper()
	s, err := jobs.Parse("job.toml", []byte("name = \"scaling\"\n[model]\nlayers = 8\ndim = 32\nheads = 4\nseq = 16\n[data]\nkind = \"synthetic\"\n[train]\nsteps = 10\nbatch = 8\n[parallel]\nstages = 4\n[optimizer]\nlr = 0.001\n[schedule]\nkind = \"1f1b\"\nmicrobatches = 4\n"), sets, "/jobs")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func launch(mpi string) Launch {
	return Launch{Binary: "/opt/bin/pipetrain", Job: "/jobs/my job's.toml", Sets: []string{"train.steps=5"}, Out: "/scratch/u/run", Choice: Choice{Launcher: "srun", MPI: mpi}}
}

var scripts = []struct {
	name   string
	sets   []string
	launch func() Launch
}{
	{"plain", nil, func() Launch { return launch("pmix") }},
	{"full", []string{"slurm.partition=gpu", "slurm.nodes=2", "slurm.gpus_per_node=2", `slurm.time="04:00:00"`, "slurm.account=phys", "device.threads=8",
		"slurm.qos=high", `slurm.constraint=a100&nvlink`, "slurm.reservation=week", `slurm.dependency="afterok:12"`, "slurm.signal_before=5m",
		`slurm.modules=["gcc/12", "mpich/4"]`, `slurm.environment=["UCX_TLS=rc,self", "GREETING=it's $HOME"]`, `slurm.options=["--exclusive", "--mem=0", "--comment=two words"]`},
		func() Launch { return launch("pmi2") }},
	{"array", []string{`slurm.array="0-9%2"`, "slurm.container=/images/a b.sif", `slurm.container_options=["--nv"]`, "slurm.nodes=1", "slurm.max_restarts=0"},
		func() Launch { l := launch("pmix"); l.Sets = []string{"seed=%a"}; return l }},
	{"container", []string{"slurm.container=/images/it's", "slurm.container_tool=charliecloud", `slurm.container_options=["--bind=/scratch"]`, "slurm.requeue=false"},
		func() Launch { return launch("pmi2") }},
	{"mpirun", []string{"slurm.gpus_per_node=2", "slurm.requeue=false", "slurm.signal_before=0s"},
		func() Launch {
			l := launch("")
			l.Launcher, l.Mpirun = "mpirun", []string{"/opt/my mpi/bin/mpirun", "-n", "4", "--bind-to", "none"}
			return l
		}},
}

func TestScript(t *testing.T) {
	for _, c := range scripts {
		t.Run(c.name, func(t *testing.T) {
			got, err := Script(spec(t, c.sets...), c.launch())
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", c.name+".golden")
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
			if _, err := exec.LookPath("shellcheck"); err != nil {
				t.Log("shellcheck is not installed: scripts/install-test-deps.sh")
				return
			}
			check = exec.Command("shellcheck", "-s", "bash", "-")
			check.Stdin = strings.NewReader(got)
			if out, err := check.CombinedOutput(); err != nil {
				t.Errorf("shellcheck: %s", out)
			}
		})
	}
}

func TestScriptRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		sets   []string
		change func(*Launch)
		want   string
	}{
		"GPUs shared":          {[]string{"slurm.nodes=1", "slurm.gpus_per_node=2"}, nil, "use 2 nodes"},
		"unknown wire-up":      {nil, func(l *Launch) { l.MPI = "none" }, "pmi2"},
		"unknown launcher":     {nil, func(l *Launch) { l.Launcher = "prun" }, "mpirun"},
		"mpirun without words": {nil, func(l *Launch) { l.Launcher = "mpirun" }, "command line"},
		"line break":           {nil, func(l *Launch) { l.Job = "/j\nrm -rf x" }, "line break"},
		"line break in a set":  {nil, func(l *Launch) { l.Sets = []string{"name=a\n#SBATCH --x"} }, "line break"},
		"relative":             {nil, func(l *Launch) { l.Out = "runs/x" }, "absolute"},
		"backslash":            {nil, func(l *Launch) { l.Out = `/a\b` }, "backslash"},
		"%a without array":     {nil, func(l *Launch) { l.Sets = []string{"seed=%a"} }, "slurm.array"},
	} {
		t.Run(name, func(t *testing.T) {
			l := launch("pmix")
			if c.change != nil {
				c.change(&l)
			}
			if got, err := Script(spec(t, c.sets...), l); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, script %q", err, got)
			}
		})
	}
}

func TestSignalSeconds(t *testing.T) {
	for time, want := range map[string]int{"": 120, "UNLIMITED": 120, "4": 60, "1": 15, "0:30": 7, "01:00:00": 120, "1-0": 120, "0-00:02": 30} {
		if got := signalSeconds(spec(t, `slurm.time="`+time+`"`).Slurm); got != want {
			t.Errorf("%q: %d, want %d", time, got, want)
		}
	}
}
