package main

import (
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/checkpoint"
	"github.com/pipetrain/pipetrain/exitcode"
)

// rounds is how many ranks are killed under each launcher: scripts/soak-kills.sh asks for more.
func rounds(t testing.TB) int {
	t.Helper()
	s := os.Getenv("PIPETRAIN_KILLS")
	if s == "" {
		return 2
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("PIPETRAIN_KILLS=%q: want a number of kills", s)
	}
	return n
}

// moments makes the choice of moments and victims, another one for each soak.
func moments(t testing.TB) *rand.Rand {
	seed := int64(1)
	if os.Getenv("PIPETRAIN_KILLS") != "" {
		seed = time.Now().UnixNano()
	}
	t.Logf("seed %d", seed)
	return rand.New(rand.NewSource(seed))
}

// A killed rank ends the whole job at once, under every launcher: exit record
// and message name it, nothing is left, the checkpoints before are whole.
func TestKilledRank(t *testing.T) {
	job := writeJob(t, slowJob)
	for name, command := range launchers() {
		t.Run(name, func(t *testing.T) {
			r := moments(t)
			for range rounds(t) {
				before := sharedMemory(t)
				out := filepath.Join(t.TempDir(), "run")
				p := begin(t, append(command(t), "--quiet", "--out", out, job)...)
				started(t, out, 6)
				time.Sleep(time.Duration(r.Intn(300)) * time.Millisecond)
				victims := processes(t, false)
				if len(victims) != 4 {
					t.Fatalf("%d ranks are running", len(victims))
				}
				victim := victims[r.Intn(4)]
				if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				killed := time.Now()
				e := p.wait()
				if e.code == 0 {
					t.Fatalf("the job succeeded: %v", e)
				}
				// Open MPI's mpirun takes up to 5 s of its own to clean up.
				if took := time.Since(killed); name == "local" && took > 5*time.Second || took > 15*time.Second {
					t.Errorf("the job outlived its rank by %v", took)
				}
				nothingLeft(t, before)
				rec, err := exitcode.Read(out)
				if err != nil || rec.Code != exitcode.RankLost || rec.PID != victim || rec.Signal != "SIGKILL" {
					t.Errorf("exit record %+v, %v; killed was %d", rec, err, victim)
				}
				if name == "local" {
					if e.code != int(exitcode.RankLost) || !strings.Contains(e.stderr, "SIGKILL") || !strings.Contains(e.stderr, strconv.Itoa(victim)) {
						t.Errorf("rank %d killed: %v", victim, e)
					}
				}
				whole(t, out)
			}
		})
	}
}

// slurmKills kills a rank under srun of both wire-ups and in batch jobs, on any of two nodes.
func slurmKills(t *testing.T, _ string) {
	job := writeJob(t, slowJob)
	for name, way := range map[string]struct {
		args []string // before the program
		sets []string // of a batch job
	}{
		"srun pmix":     {args: []string{"srun", "-K1", "--mpi=pmix", "-N2", "-n4"}},
		"srun pmi2":     {args: []string{"srun", "-K1", "--mpi=pmi2", "-N2", "-n4"}},
		"sbatch":        {sets: []string{"slurm.nodes=2"}},
		"sbatch mpirun": {sets: []string{"slurm.nodes=2", "slurm.launcher=mpirun"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inTurn(t)
			r := moments(t)
			n := rounds(t)
			if os.Getenv("PIPETRAIN_KILLS") == "" {
				n = 1 // they take Slurm's 5 s each
			}
			for range n {
				out := filepath.Join(t.TempDir(), "run")
				var end func() // waits for what started the ranks
				if way.args != nil {
					p := begin(t, append(way.args, pipetrainPath, "--quiet", "--out", out, job)...)
					end = func() {
						if e := p.wait(); e.code == 0 {
							t.Errorf("srun succeeded: %v", e)
						}
					}
				} else {
					for again := 0; ; again++ {
						args := []string{"--out", out, "--set", "slurm.requeue=false"}
						for _, set := range way.sets {
							args = append(args, "--set", set)
						}
						id := submitted(t, append(args, job)...)
						end = func() { jobEnds(t, id, out) }
						rec, lost := startLost(t, out, 6)
						if !lost || again == 2 {
							break
						}
						// Now and then ranks of Open MPI crash in MPI_Init on a busy machine; nothing puts this job back.
						t.Logf("a start was lost, again: %+v", rec)
						end()
						out = filepath.Join(t.TempDir(), "again")
					}
				}
				started(t, out, 6)
				time.Sleep(time.Duration(r.Intn(300)) * time.Millisecond)
				killOne(t, r, out)
				end()
				whole(t, out)
			}
		})
	}
}

// killOne kills one of a run's four ranks, waits until no process of the run is left on
// any node, and reads the record.
func killOne(t testing.TB, r *rand.Rand, out string) {
	t.Helper()
	victims := processesOf(t, out, true)
	if len(victims) != 4 {
		t.Fatalf("ranks %v are running\n%s", victims, jobLogs(out))
	}
	victim := victims[r.Intn(4)]
	node, pid := hostOf(t, victim), namespacePID(t, victim)
	if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	// Slurm kills what does not heed its SIGTERM after KillWait, 5 s here; a loaded machine takes longer.
	var left []int
	var over time.Duration
	// None is left when none was seen for a while: between two commands of the script there is none either.
	for seen := killed; (len(left) > 0 || time.Since(seen) < 300*time.Millisecond) && time.Since(killed) < 30*time.Second; time.Sleep(20 * time.Millisecond) {
		if left = processesOf(t, out, false); len(left) > 0 {
			seen = time.Now()
			over = seen.Sub(killed)
		}
	}
	if len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	t.Logf("over after %v", over.Round(time.Millisecond))
	rec, err := exitcode.Read(out)
	if err != nil || rec.Code != exitcode.RankLost || rec.PID != pid || rec.Host != node || rec.Signal != "SIGKILL" {
		t.Errorf("exit record %+v, %v; killed was %d on %s\n%s", rec, err, pid, node, jobLogs(out))
	}
}

// whole checks that a killed run's newest checkpoint can be loaded.
func whole(t testing.TB, out string) {
	t.Helper()
	c, skipped, err := checkpoint.Open(filepath.Join(out, "checkpoints"), checkpoint.Want{})
	// A save that the kill cut short has a name of its own, which the next start removes.
	skipped = slices.DeleteFunc(skipped, func(s checkpoint.Skipped) bool { return strings.HasSuffix(s.Path, ".tmp") })
	if err != nil || c.Manifest.Step < 5 || len(skipped) > 0 {
		t.Errorf("no checkpoint to go on from: %v, skipped %v", err, skipped)
	}
	if err == nil {
		c.Close()
	}
}

// processesOf returns the living processes with the run's folder in their command line: with ranks, those of ranks only.
func processesOf(t testing.TB, out string, ranks bool) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		b, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(b, []byte(out)) {
			continue
		}
		if ranks && (!bytes.HasPrefix(b, []byte(pipetrainPath)) || bytes.Contains(b, []byte("__guard"))) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// hostOf is the name of the host as the process sees it.
func hostOf(t testing.TB, pid int) string {
	t.Helper()
	out, err := exec.Command("nsenter", "-t", strconv.Itoa(pid), "-u", "hostname").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// namespacePID is the process's number as it sees itself.
func namespacePID(t testing.TB, pid int) int {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok {
			f := strings.Fields(numbers)
			n, err := strconv.Atoi(f[len(f)-1])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("process %d has no NSpid", pid)
	return 0
}

// startLost waits until a run has done steps, or has ended before that.
func startLost(t *testing.T, out string, steps int) (rec exitcode.Record, lost bool) {
	t.Helper()
	waitFor(t, fmt.Sprintf("step %d, or the end, of %s", steps, out), func() bool {
		if b, err := os.ReadFile(filepath.Join(out, "metrics.jsonl")); err == nil && strings.Count(string(b), "\n") >= steps {
			return true
		}
		var err error
		rec, err = exitcode.Read(out)
		lost = err == nil
		return lost
	})
	return rec, lost
}
