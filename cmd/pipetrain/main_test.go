package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/collectives/transporttest"
	"github.com/pipetrain/pipetrain/record"
)

// The tests here run the real program: real ranks, real launchers, real data.

// pipetrainPath is the program as a user builds it.
var pipetrainPath string

func TestMain(m *testing.M) {
	flag.Parse()
	// What is parallel here waits for Slurm; what computes takes turns (see inTurn).
	if err := flag.Set("test.parallel", "64"); err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "pipetrain-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	pipetrainPath = filepath.Join(dir, "pipetrain")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", pipetrainPath)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if transporttest.Race { // then it is the program that is looked at, in which the ranks are
		build.Env = append(os.Environ(), "CGO_ENABLED=1")
		build.Args = append(build.Args, "-race")
	}
	build.Args = append(build.Args, ".")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building pipetrain: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// tinyJob trains in well under a second.
const tinyJob = `
name = "tiny"
seed = 3
[model]
kind = "transformer"
layers = 4
dim = 32
heads = 4
kv_heads = 2
ffn = 64
seq = 32
[data]
kind = "text"
path = "corpus.txt"
[train]
steps = 12
batch = 8
[optimizer]
kind = "adamw"
lr = 3e-3
warmup = 2
clip = 1.0
[parallel]
stages = 4
[schedule]
kind = "1f1b"
microbatches = 8
backward_p2 = "cooldown"
concat = 1
[device]
kind = "cpu"
threads = 1
blas = "go"
[checkpoint]
every = 4
keep = 0
`

// writeJob puts a job and its corpus, this package's own source text, into a folder.
func writeJob(t testing.TB, text string) string {
	t.Helper()
	dir := t.TempDir()
	var corpus []byte
	sources, err := filepath.Glob("*.go")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources to train on: %v", err)
	}
	for _, s := range sources {
		b, err := os.ReadFile(s)
		if err != nil {
			t.Fatal(err)
		}
		corpus = append(corpus, b...)
	}
	if err := os.WriteFile(filepath.Join(dir, "corpus.txt"), corpus, 0o644); err != nil {
		t.Fatal(err)
	}
	job := filepath.Join(dir, "job.toml")
	if err := os.WriteFile(job, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return job
}

// ending is how a program ended.
type ending struct {
	code           int
	stdout, stderr string
	took           time.Duration
}

func (e ending) String() string {
	return fmt.Sprintf("exit code %d after %v\nstdout:\n%s\nstderr:\n%s", e.code, e.took, e.stdout, e.stderr)
}

// program is one that was started and that the test ends at the latest.
type program struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	start          time.Time
	done           chan struct{}
	end            ending
}

// begin starts a program. It and all that it starts carry a mark in their
// environment, by which nothing left behind is found.
func begin(t testing.TB, args ...string) *program {
	t.Helper()
	return beginWithin(t, 90*time.Second, args...)
}

// beginWithin is begin for a program that may take longer, or not so long.
func beginWithin(t testing.TB, limit time.Duration, args ...string) *program {
	t.Helper()
	return beginWith(t, limit, func(*exec.Cmd) {}, args...)
}

// beginWith is beginWithin for a program of which change sets more.
func beginWith(t testing.TB, limit time.Duration, change func(*exec.Cmd), args ...string) *program {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	p := &program{cmd: exec.CommandContext(ctx, args[0], args[1:]...), start: time.Now(), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.Env = append(os.Environ(), mark(t), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.cmd.WaitDelay = 5 * time.Second
	change(p.cmd)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer cancel()
		err := p.cmd.Wait()
		p.end = ending{stdout: p.stdout.String(), stderr: p.stderr.String(), took: time.Since(p.start)}
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			p.end.code = exit.ExitCode()
			if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
				p.end.code = 128 + int(s.Signal())
			}
		} else if err != nil {
			p.end.code = -1
			p.end.stderr += err.Error()
		}
		close(p.done)
	}()
	t.Cleanup(func() {
		// A guard outlives its ranks by a moment, and may write to a folder that the test removes.
		for end := time.Now().Add(10 * time.Second); len(processes(t, true)) > 0 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		}
	})
	return p
}

func (p *program) wait() ending {
	<-p.done
	return p.end
}

// pipetrain runs the program to its end.
func pipetrain(t testing.TB, args ...string) ending {
	t.Helper()
	return begin(t, append([]string{pipetrainPath}, args...)...).wait()
}

// mustRun runs it and wants success.
func mustRun(t testing.TB, args ...string) ending {
	t.Helper()
	e := pipetrain(t, args...)
	if e.code != 0 {
		t.Fatalf("pipetrain %s: %v", strings.Join(args, " "), e)
	}
	return e
}

func mark(t testing.TB) string { return "PIPETRAIN_TEST_MARK=" + t.Name() + strconv.Itoa(os.Getpid()) }

// ranks returns the pids of the living processes of this test's programs that
// are ranks (or, with all, any).
func processes(t testing.TB, all bool) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err != nil || !bytes.Contains(env, []byte(mark(t)+"\x00")) {
			continue
		}
		// A zombie has no command line: it is dead, though not yet reaped.
		cmdline, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || len(cmdline) == 0 {
			continue
		}
		isRank := bytes.Contains(env, []byte("PIPETRAIN_RANK=")) || bytes.Contains(env, []byte("OMPI_COMM_WORLD_RANK=")) || bytes.Contains(env, []byte("PMI_RANK="))
		if all || isRank && bytes.HasPrefix(cmdline, []byte(pipetrainPath)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// nothingLeft waits a moment for the end of what the test started, then looks.
func nothingLeft(t testing.TB, shmBefore map[string]bool) {
	t.Helper()
	var left []int
	for range 30 {
		if left = processes(t, true); len(left) == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if len(left) > 0 {
		t.Errorf("processes left behind: %v", left)
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	for name := range sharedMemory(t) {
		if !shmBefore[name] && strings.Contains(name, "pipetrain") {
			t.Errorf("/dev/shm/%s was left behind", name)
		}
	}
}

func sharedMemory(t testing.TB) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	entries, err := os.ReadDir("/dev/shm")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names[e.Name()] = true
	}
	return names
}

// losses reads a run's metrics.
func losses(t testing.TB, dir string) []float64 {
	t.Helper()
	lines, err := record.ReadMetrics(filepath.Join(dir, record.MetricsName))
	if err != nil {
		t.Fatal(err)
	}
	var out []float64
	for i, m := range lines {
		if m.Step != i+1 {
			t.Fatalf("line %d of the metrics is of step %d", i+1, m.Step)
		}
		out = append(out, m.Loss)
	}
	return out
}

// waitFor polls until ok or a minute has gone.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waiting for %s took more than three minutes", what)
		}
	}
}

// mpiruns are the launchers of both MPI families.
var mpiruns = map[string][]string{
	"openmpi": {"mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n"},
	"mpich":   {"mpirun.mpich", "-n"},
}

// mpirun returns the start of a command line with n ranks, or skips the test.
func mpirun(t testing.TB, family string, n int) []string {
	t.Helper()
	args := mpiruns[family]
	if _, err := exec.LookPath(args[0]); err != nil {
		t.Skipf("%s is not installed: apt-get install openmpi-bin mpich", args[0])
	}
	return append(append([]string{}, args...), strconv.Itoa(n), pipetrainPath)
}
