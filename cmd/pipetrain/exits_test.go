package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/record"
)

// The exit table, code by code, under every launcher: what the shell sees and what the record says.

// exitCause is one way for a run to end.
type exitCause struct {
	name string
	job  string // tinyJob or slowJob
	sets []string
	disk string // where the run folder is, if not the test's own
	// limit is put before the launcher: the ranks inherit what it sets.
	limit []string
	// act brings it about once the ranks are running; nil: it comes by itself. tell ends the launcher
	// as its user would.
	act func(t testing.TB, ranks []int, tell func())

	code   exitcode.Code
	signal string   // in the record
	rank   bool     // the record names a rank
	lost   bool     // a record may be missing
	gone   []string // launchers that leave nobody to write one
	// codes are those that the launcher makes of it, where they are others than code.
	codes map[string][]int
}

// exitCauses has all but 130, whose ways differ (see TestInterrupted).
func exitCauses(disk string) []exitCause {
	signal := func(s syscall.Signal) func(testing.TB, []int, func()) {
		return func(t testing.TB, ranks []int, _ func()) {
			t.Helper()
			if err := syscall.Kill(ranks[2], s); err != nil {
				t.Error(err)
			}
		}
	}
	// srun's code is the highest, and it may end ranks before they are far enough to give theirs.
	early := func(c exitcode.Code) map[string][]int {
		return map[string][]int{"srun pmix": {int(c), 143}, "srun pmi2": {int(c), 143}}
	}
	return []exitCause{
		{name: "finished", job: tinyJob, sets: []string{"train.steps=2", "checkpoint.every=0"}, code: exitcode.Finished},
		{name: "crash", job: slowJob, act: signal(syscall.SIGSEGV), code: exitcode.Unexpected, rank: true,
			codes: map[string][]int{"openmpi": {2}, "mpich": {2, 9}, "srun pmix": {137, 143}, "srun pmi2": {137, 143}}},
		{name: "bad job", job: tinyJob, sets: []string{"model.heads=7"}, code: exitcode.Usage, lost: true,
			codes: early(exitcode.Usage)},
		{name: "no such library", job: tinyJob, sets: []string{"device.blas=/nosuch/libblas.so"}, code: exitcode.Environment, lost: true,
			codes: early(exitcode.Environment)},
		{name: "full disk", job: tinyJob, sets: []string{"checkpoint.every=2", "train.steps=200"}, disk: disk, code: exitcode.Environment, rank: true, lost: true,
			codes: map[string][]int{"srun pmi2": {137}}},
		{name: "killed", job: slowJob, act: signal(syscall.SIGKILL), code: exitcode.RankLost, rank: true, signal: "SIGKILL",
			codes: map[string][]int{"openmpi": {137}, "mpich": {9}, "srun pmix": {137, 143}, "srun pmi2": {137, 143}}},
		{name: "stalled", job: slowJob, sets: []string{"run.stall_timeout=2s"}, act: signal(syscall.SIGSTOP), code: exitcode.Stalled, rank: true,
			codes: map[string][]int{"srun pmi2": {137}}},
		{name: "numerics", job: tinyJob, sets: []string{"optimizer.kind=sgd", "optimizer.lr=1000", "optimizer.clip=0"}, code: exitcode.Numerics, rank: true,
			codes: map[string][]int{"srun pmi2": {137}}},
		{name: "stopped", job: slowJob, act: signal(syscall.SIGUSR1), code: exitcode.Stopped},
		{name: "launcher told", job: slowJob, act: func(_ testing.TB, _ []int, tell func()) { tell() }, code: exitcode.Stopped,
			gone: []string{"srun pmix", "srun pmi2"}, codes: map[string][]int{"openmpi": {1}, "srun pmix": {137, 143}, "srun pmi2": {137, 143}}},
		{name: "out of memory", job: tinyJob, sets: []string{"model.dim=8192", "model.ffn=32768"}, limit: []string{"prlimit", "--as=6442450944"},
			code: exitcode.OutOfMemory, rank: true, codes: map[string][]int{"srun pmi2": {137}}},
	}
}

// run brings a run to its end by a cause. start starts it, with the arguments after the program's name, and
// returns what waits for its end and tells how that looks from outside, and what asks the launcher to end.
func (c exitCause) run(t *testing.T, way string, start func(t *testing.T, out string, args []string) (wait func() ending, tell func())) {
	t.Helper()
	parent := t.TempDir()
	if c.disk != "" {
		var err error
		if parent, err = os.MkdirTemp(c.disk, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(parent) })
	}
	job := writeJob(t, c.job)
	var out string
	var e ending
	for try := range 3 {
		out = filepath.Join(parent, "run"+strconv.Itoa(try))
		args := []string{"--out", out}
		for _, set := range c.sets {
			args = append(args, "--set", set)
		}
		wait, tell := start(t, out, append(args, job))
		if c.act != nil {
			waitFor(t, "step 3, or an end", func() bool {
				m, _ := os.ReadFile(filepath.Join(out, record.MetricsName))
				_, err := exitcode.Read(out)
				return bytes.Count(m, []byte("\n")) >= 3 || err == nil
			})
			var ranks []int
			waitFor(t, "the ranks", func() bool {
				_, err := exitcode.Read(out)
				ranks = processesOf(t, out, true)
				return len(ranks) >= 4 || err == nil
			})
			if len(ranks) >= 4 {
				c.act(t, ranks[len(ranks)-4:], tell) // the embedded launcher, which is no rank, is the eldest
			}
		}
		if e = wait(); !strings.HasPrefix(way, "s") || !c.neverStarted(out) {
			break
		}
		// Several jobs that start at once on this machine: Open MPI may crash. Users' jobs go back into the queue.
		t.Logf("try %d: the ranks did not come up: %v", try, e)
	}
	if t.Failed() {
		return
	}
	defer func() {
		if t.Failed() {
			t.Log(jobLogs(out))
		}
	}()
	want := []int{int(c.code)}
	if codes := c.codes[way]; codes != nil {
		want = codes
	}
	if !slices.Contains(want, e.code) {
		t.Errorf("seen from outside: %d, want %v: %v", e.code, want, e)
	}
	if c.code != exitcode.Finished && c.code != exitcode.Stopped && e.stdout+e.stderr == "" {
		t.Error("without a word")
	}
	c.recorded(t, out, way)
}

// neverStarted says that a run's ranks died before they had begun, of which they should have trained a while.
func (c exitCause) neverStarted(out string) bool {
	if c.lost && c.disk == "" || c.limit != nil {
		return false
	}
	if _, err := os.Stat(filepath.Join(out, record.MetricsName)); err == nil {
		return false
	}
	rec, err := exitcode.Read(out)
	return err != nil || rec.Code == exitcode.RankLost
}

// recorded compares a run's exit record with what caused its end.
func (c exitCause) recorded(t testing.TB, out, way string) {
	t.Helper()
	if slices.Contains(c.gone, way) {
		if rec, err := exitcode.Read(out); err == nil && rec.Code != c.code {
			t.Errorf("the record says %+v", rec)
		}
		return
	}
	var rec exitcode.Record
	var err error
	// A guard writes after the launcher has gone, now and then.
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if rec, err = exitcode.Read(out); err == nil || c.lost || time.Now().After(end) {
			break
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && c.lost && (way != "sbatch" || c.code == exitcode.Usage || c.disk != ""):
		return
	case err != nil:
		t.Error(err)
		return
	}
	// A launcher may have taken the dead rank's status away before the guard sees it.
	unseen := way != "local" && strings.Contains(rec.Reason, "without a word") && rec.Code == exitcode.RankLost
	// mpiexec may have killed another rank before the guard has seen the one that crashed.
	unseen = unseen || way == "mpich" && c.code == exitcode.Unexpected && rec.Code == exitcode.RankLost
	if !unseen && (rec.Code != c.code || rec.Signal != c.signal) || rec.Name != rec.Code.Name() || c.rank && rec.Rank == exitcode.NoRank {
		t.Errorf("the record says %+v", rec)
	}
	if (rec.Reason == "") != (c.code == exitcode.Finished) || rec.Host == "" || rec.Time.IsZero() {
		t.Errorf("the record lacks something: %+v", rec)
	}
	launcher, _, _ := strings.Cut(way, " ")
	switch launcher {
	case "mpich":
		launcher = "hydra"
	case "sbatch":
		launcher = "srun"
	}
	if rec.Launcher != launcher {
		t.Errorf("the record says that %s started the ranks, not %s", rec.Launcher, launcher)
	}
}

func TestExitCodes(t *testing.T) {
	disk := smallDisk(t, "size=2m")
	ways := map[string]func(t testing.TB) []string{"local": func(testing.TB) []string { return []string{pipetrainPath} }}
	for family := range mpiruns {
		ways[family] = func(t testing.TB) []string { return mpirun(t, family, 4) }
	}
	for way, command := range ways {
		for _, c := range exitCauses(disk) {
			t.Run(way+"/"+c.name, func(t *testing.T) {
				before := sharedMemory(t)
				c.run(t, way, func(t *testing.T, _ string, args []string) (func() ending, func()) {
					return tellable(t, slices.Concat(c.limit, command(t), []string{"--quiet"}, args))
				})
				nothingLeft(t, before)
			})
		}
	}
}

// tellable starts a launcher that SIGTERM asks to end.
func tellable(t *testing.T, args []string) (func() ending, func()) {
	p := begin(t, args...)
	return p.wait, func() {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	}
}

var scontrolExit = regexp.MustCompile(`\bExitCode=(\d+):(\d+)\b`)

// slurmExits is the same under srun of both wire-ups, and in batch jobs.
func slurmExits(t *testing.T, disk string) {
	ways := map[string][]string{
		"srun pmix": {"srun", "-K1", "--mpi=pmix", "-N2", "-n4", pipetrainPath, "--quiet"},
		"srun pmi2": {"srun", "-K1", "--mpi=pmi2", "-N2", "-n4", pipetrainPath, "--quiet"},
		"sbatch":    nil,
	}
	for way, command := range ways {
		for _, c := range exitCauses(disk) {
			t.Run(way+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				inTurn(t)
				c.run(t, way, func(t *testing.T, out string, args []string) (func() ending, func()) {
					if command != nil {
						return tellable(t, slices.Concat(c.limit, command, args))
					}
					// Slurm gives a job the limits of the shell that submitted it.
					e := begin(t, slices.Concat(c.limit, []string{pipetrainPath, "submit", "--set", "slurm.nodes=2", "--set", "slurm.requeue=false"}, args)...).wait()
					m := submittedJob.FindStringSubmatch(e.stdout)
					if m == nil {
						return func() ending { return e }, nil // refused
					}
					wait := func() ending {
						jobEnds(t, m[1], out)
						e := ending{stdout: jobLogs(out)}
						if s := scontrolExit.FindStringSubmatch(slurmTool(t, "scontrol", "show", "job", "-o", m[1])); s == nil {
							t.Error("Slurm tells no exit code")
						} else if e.code, _ = strconv.Atoi(s[1]); s[2] != "0" {
							killed, _ := strconv.Atoi(s[2])
							e.code = 128 + killed
						}
						return e
					}
					return wait, func() { slurmTool(t, "scancel", m[1]) }
				})
			})
		}
	}
}
