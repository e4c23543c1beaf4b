package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/checkpoint"
	"github.com/pipetrain/pipetrain/exitcode"
)

// slowJob goes on until it is ended.
const slowJob = `
name = "slow"
[model]
kind = "transformer"
layers = 4
dim = 64
heads = 4
seq = 64
[data]
kind = "text"
path = "corpus.txt"
[train]
steps = 1000000
batch = 16
[optimizer]
kind = "sgd"
lr = 1e-3
[parallel]
stages = 4
[schedule]
kind = "1f1b"
microbatches = 4
[device]
kind = "cpu"
threads = 1
blas = "go"
[checkpoint]
every = 5
`

// started waits until a run has done some steps.
func started(t testing.TB, dir string, steps int) {
	t.Helper()
	waitFor(t, fmt.Sprintf("step %d", steps), func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
		return err == nil && strings.Count(string(b), "\n") >= steps
	})
}

// Ctrl-C ends a run in every phase with a documented code and nothing left.
func TestInterrupted(t *testing.T) {
	job := writeJob(t, slowJob)
	phases := map[string]func(t testing.TB, out string){
		"at once":  func(testing.TB, string) { time.Sleep(2 * time.Millisecond) },
		"starting": func(testing.TB, string) { time.Sleep(25 * time.Millisecond) },
		"ranks joining": func(t testing.TB, out string) {
			waitFor(t, "logs", func() bool { _, err := os.Stat(filepath.Join(out, "logs")); return err == nil })
		},
		"first step": func(t testing.TB, out string) { started(t, out, 1) },
		"training":   func(t testing.TB, out string) { started(t, out, 7) },
	}
	for name, wait := range phases {
		t.Run(name, func(t *testing.T) {
			before := sharedMemory(t)
			out := filepath.Join(t.TempDir(), "run")
			p := begin(t, pipetrainPath, "--quiet", "--out", out, job)
			wait(t, out)
			// As a terminal does: to the whole foreground process group.
			if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			e := p.wait()
			switch exitcode.Code(e.code) {
			case exitcode.Stopped, exitcode.Interrupted:
			default:
				t.Errorf("Ctrl-C: %v", e)
			}
			nothingLeft(t, before)
			if name == "training" {
				if exitcode.Code(e.code) != exitcode.Stopped {
					t.Errorf("a run in full swing saves and stops: %v", e)
				}
				n := len(losses(t, out))
				c, _, err := checkpoint.Open(filepath.Join(out, "checkpoints"), checkpoint.Want{})
				if err != nil || c.Manifest.Step != n {
					t.Errorf("stopped after %d steps with a checkpoint of %+v, %v", n, c, err)
				}
			}
		})
	}
}

// The end of the terminal ends no run under nohup.
func TestNohup(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run")
	p := begin(t, "env", "--ignore-signal=HUP", pipetrainPath, "--quiet", "--out", out, writeJob(t, slowJob))
	started(t, out, 3)
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM} {
		if err := p.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	e := p.wait()
	if rec, err := exitcode.Read(out); err != nil || e.code != int(exitcode.Stopped) || !strings.Contains(rec.Reason, "SIGTERM") {
		t.Errorf("record %+v, %v: %v", rec, err, e)
	}
}

// A run asked to stop by SIGTERM under mpirun saves and ends with the same code.
func TestStoppedUnderMPI(t *testing.T) {
	job := writeJob(t, slowJob)
	for family := range mpiruns {
		t.Run(family, func(t *testing.T) {
			before := sharedMemory(t)
			out := filepath.Join(t.TempDir(), "run")
			p := begin(t, append(mpirun(t, family, 4), "--quiet", "--out", out, job)...)
			started(t, out, 3)
			for _, pid := range processes(t, false)[:1] {
				if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
					t.Fatal(err)
				}
			}
			e := p.wait()
			if e.code != int(exitcode.Stopped) {
				t.Errorf("asked to stop: %v", e)
			}
			if rec, err := exitcode.Read(out); err != nil || rec.Code != exitcode.Stopped {
				t.Errorf("exit record %+v, %v", rec, err)
			}
			nothingLeft(t, before)
		})
	}
}

// Every mistake gets one clear line and its exit code before anything starts.
func TestBadInput(t *testing.T) {
	good := writeJob(t, tinyJob)
	dir := filepath.Dir(good)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	held := filepath.Join(t.TempDir(), "held")
	mustRun(t, "--quiet", "--out", held, "--set", "train.steps=2", good)
	file := write("file", "x")

	cases := map[string]struct {
		args []string
		code exitcode.Code
		want []string
	}{
		"no arguments":       {nil, exitcode.Usage, []string{"job file"}},
		"empty job":          {[]string{write("empty.toml", "")}, exitcode.Usage, []string{"empty.toml"}},
		"binary job":         {[]string{pipetrainPath}, exitcode.Usage, []string{"pipetrain"}},
		"missing job":        {[]string{filepath.Join(dir, "nosuch.toml")}, exitcode.Usage, []string{"nosuch.toml"}},
		"job is a folder":    {[]string{dir}, exitcode.Usage, []string{dir}},
		"NaN as rate":        {[]string{"--set", "optimizer.lr=nan", good}, exitcode.Usage, []string{"optimizer.lr"}},
		"huge numbers":       {[]string{"--set", "model.dim=1000000000000", "--set", "train.batch=99999999999", good}, exitcode.Usage, []string{"model.dim", "train.batch"}},
		"missing data":       {[]string{"--set", "data.path=/nosuch/corpus", good}, exitcode.Usage, []string{"/nosuch/corpus"}},
		"unknown flag":       {[]string{"--nosuch", good}, exitcode.Usage, []string{"nosuch"}},
		"out is a file":      {[]string{"--out", file, good}, exitcode.Environment, []string{file}},
		"out below a file":   {[]string{"--out", filepath.Join(file, "run"), good}, exitcode.Environment, []string{file}},
		"read-only out":      {[]string{"--out", "/proc/run", good}, exitcode.Environment, []string{"/proc/run"}},
		"a run is in there":  {[]string{"--out", held, good}, exitcode.Environment, []string{held, "--resume"}},
		"nothing to resume":  {[]string{"--out", filepath.Join(dir, "new"), "--resume", good}, exitcode.Environment, []string{"resume"}},
		"resume without out": {[]string{"--resume", good}, exitcode.Usage, []string{"--out"}},
		"no such BLAS":       {[]string{"--set", "device.blas=/nosuch/libblas.so", "--out", filepath.Join(dir, "noblas"), good}, exitcode.Environment, []string{"/nosuch/libblas.so"}},
		"no CUDA":            {[]string{"--set", "device.kind=cuda", "--out", filepath.Join(dir, "nocuda"), good}, exitcode.Environment, []string{"cuda"}},
		"mpi without mpirun": {[]string{"--set", "transport.kind=mpi", "--out", filepath.Join(dir, "nompi"), good}, exitcode.Usage, []string{"mpirun -n 4"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := sharedMemory(t)
			e := pipetrain(t, c.args...)
			if e.code != int(c.code) {
				t.Errorf("want %v, got %v", c.code, e)
			}
			for _, want := range c.want {
				if !strings.Contains(e.stderr, want) {
					t.Errorf("the message lacks %q: %v", want, e)
				}
			}
			if strings.Contains(e.stderr, "goroutine ") {
				t.Errorf("a panic: %v", e)
			}
			nothingLeft(t, before)
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
		t.Error("a refused run left its folder behind")
	}
}

// A folder in which a run is going on is refused, by the pid that holds it.
func TestStartedTwice(t *testing.T) {
	job := writeJob(t, slowJob)
	out := filepath.Join(t.TempDir(), "run")
	p := begin(t, pipetrainPath, "--quiet", "--out", out, job)
	started(t, out, 1)
	for _, args := range [][]string{{"--out", out, job}, {"--out", out, "--resume", job}} {
		e := pipetrain(t, args...)
		if e.code != int(exitcode.Environment) || !strings.Contains(e.stderr, strconv.Itoa(p.cmd.Process.Pid)) {
			t.Errorf("%v beside a living run: %v", args, e)
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if e := p.wait(); e.code != int(exitcode.Stopped) {
		t.Errorf("the first run: %v", e)
	}
}

// Numbers that run away end the run with the place where they did.
func TestNumerics(t *testing.T) {
	job := writeJob(t, tinyJob)
	out := filepath.Join(t.TempDir(), "run")
	e := pipetrain(t, "--quiet", "--out", out, "--set", "optimizer.kind=sgd", "--set", "optimizer.lr=1000", "--set", "optimizer.clip=0", job)
	if e.code != int(exitcode.Numerics) || !strings.Contains(e.stderr, "optimizer.lr") {
		t.Errorf("a learning rate of 1000: %v", e)
	}
}

// The library of another MPI would make every rank a world of its own: refused once, with
// the names of both and the line to use.
func TestSilentSingleton(t *testing.T) {
	job := writeJob(t, tinyJob)
	for family, other := range map[string][]string{
		"openmpi": {"libmpich.so.12", "Open MPI's mpirun", "mpiexec -n 4 pipetrain"},
		"mpich":   {"libmpi.so.40", "MPICH's mpiexec", "mpirun"},
	} {
		t.Run(family, func(t *testing.T) {
			for f := range mpiruns {
				mpirun(t, f, 1) // both have to be there
			}
			before := sharedMemory(t)
			out := filepath.Join(t.TempDir(), "run")
			e := begin(t, append(mpirun(t, family, 4), "--quiet", "--out", out, "--set", "transport.libmpi="+other[0], job)...).wait()
			if e.code != int(exitcode.Environment) {
				t.Errorf("want %v, got %v", exitcode.Environment, e)
			}
			for _, want := range append(other, "started 4 ranks", "formed a world of 1", "Run instead") {
				if !strings.Contains(e.stderr, want) {
					t.Errorf("the message lacks %q: %v", want, e)
				}
			}
			if n := strings.Count(e.stderr, "Run instead"); n != 1 {
				t.Errorf("said %d times: %v", n, e)
			}
			if _, err := os.Stat(out); err == nil {
				t.Error("a run folder was made")
			}
			nothingLeft(t, before)
		})
	}
}

// Mistakes that every rank of an MPI world sees are said once, with the fix.
func TestBadWorld(t *testing.T) {
	job := writeJob(t, tinyJob)
	for family := range mpiruns {
		for name, c := range map[string]struct {
			args []string
			want string
		}{
			"too few ranks":   {nil, "-n 4"},
			"local transport": {[]string{"--set", "parallel.stages=2", "--set", "transport.kind=local"}, `use "auto" or "mpi"`},
			"bad job":         {[]string{"--set", "model.heads=7"}, "heads: 7 does not divide"},
		} {
			t.Run(family+"/"+name, func(t *testing.T) {
				before := sharedMemory(t)
				out := filepath.Join(t.TempDir(), "run")
				args := append(append(mpirun(t, family, 2), "--quiet", "--out", out), c.args...)
				e := begin(t, append(args, job)...).wait()
				if e.code != int(exitcode.Usage) {
					t.Errorf("want %v, got %v", exitcode.Usage, e)
				}
				if n := strings.Count(e.stderr, c.want); n != 1 {
					t.Errorf("%q is said %d times: %v", c.want, n, e)
				}
				if _, err := os.Stat(out); err == nil {
					t.Error("a run folder was made")
				}
				nothingLeft(t, before)
			})
		}
	}
}
