package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/slurm"
)

// trains waits until a job has done more steps than before.
func trains(t testing.TB, run string, beyond int) int {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		m, ok := lastMetrics(run)
		if _, err := os.Stat(filepath.Join(run, exitcode.File)); ok && m.Step > beyond && err != nil {
			return m.Step
		}
	}
	t.Fatalf("%s does not get beyond step %d:\n%s", run, beyond, jobLogs(run))
	return 0
}

// Preempted by a more urgent job, put back by an operator, put back by its user: the end is that of a
// run that nobody stopped.
func slurmPreempted(t *testing.T, job string) {
	long := []string{"--set", "train.steps=600", "--set", "checkpoint.every=5000"}
	dir := t.TempDir()
	ref := filepath.Join(dir, "ref")
	mustRun(t, append(long, "--quiet", "--out", ref, job)...)

	out := filepath.Join(dir, "run")
	// Alone on these nodes: what is preempted there is this job.
	id := submitted(t, append(long, "--set", "slurm.nodes=2", "--set", `slurm.options=["--exclusive", "--nodelist=node[7-8]"]`, "--out", out, job)...)
	step := 0
	for _, again := range []func(){
		func() {
			slurmTool(t, "sbatch", "-p", "urgent", "--exclusive", "-w", "node7", "-o", "/dev/null", "--wrap", "sleep 1")
		},
		func() { mustRun(t, "requeue", id) },
		func() { slurmTool(t, "scontrol", "requeue", id) },
	} {
		trains(t, out, step)
		again()
		waitFor(t, "the end of a start", func() bool {
			_, err := os.Stat(filepath.Join(out, exitcode.File))
			return err == nil && jobState(t, id) != "RUNNING"
		})
		if m, ok := lastMetrics(out); ok {
			step = m.Step // each start gets further
		}
	}
	jobEnds(t, id, out)
	rec, err := exitcode.Read(out)
	if err != nil || rec.Code != exitcode.Finished {
		t.Fatalf("exit record %+v, %v\n%s", rec, err, jobLogs(out))
	}
	if logs := jobLogs(out); !strings.Contains(logs, "start 4") {
		t.Errorf("fewer than four starts:\n%s", logs)
	}
	if !slices.Equal(losses(t, out), losses(t, ref)) {
		t.Error("other losses than those of a run that was not stopped")
	}
	if !maps.EqualFunc(weights(t, out), weights(t, ref), bytes.Equal) {
		t.Error("other weights than those of a run that was not stopped")
	}
}

// A task of an array goes back into the queue by itself.
func slurmArray(t *testing.T, job string) {
	out := filepath.Join(t.TempDir(), "run")
	id := submitted(t, "--set", "train.steps=400", "--set", "slurm.nodes=1", "--set", "slurm.array=1-2", "--set", "seed=%a", "--out", out, job)
	one, two := filepath.Join(out, "task-1"), filepath.Join(out, "task-2")
	trains(t, one, 0)
	mustRun(t, "requeue", id+"_1")
	for i, run := range []string{one, two} {
		waitFor(t, "the end of "+run, func() bool { rec, err := exitcode.Read(run); return err == nil && rec.Code == exitcode.Finished })
		if n := len(losses(t, run)); n != 400 {
			t.Errorf("task %d: %d steps", i+1, n)
		}
		log := mustRun(t, "logs", run).stdout
		if strings.Contains(log, "start 2") != (i == 0) {
			t.Errorf("task %d was started otherwise than once, or twice:\n%s", i+1, log)
		}
	}
	if slices.Equal(losses(t, one), losses(t, two)) {
		t.Error("both tasks have the same seed")
	}
	waitFor(t, "both tasks to be finished", func() bool { return strings.Count(mustRun(t, "status", id).stdout, "finished") == 2 })
}

// What a cluster refuses, and one that is not there, is told in one line with what to correct.
func slurmRefuses(t *testing.T, job string) {
	conf, err := os.ReadFile(os.Getenv("SLURM_CONF"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	broken := func(name, old, new string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.Replace(string(conf), old, new, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		return "SLURM_CONF=" + path
	}
	for _, c := range []struct{ set, env, want string }{
		{"slurm.partition=nosuch", "", "partition nosuch is unknown, there are batch, urgent; correct slurm.partition"},
		{"slurm.constraint=nosuch", "", "correct slurm.constraint"},
		{"slurm.reservation=nosuch", "", "correct slurm.reservation"},
		{"slurm.gpus_per_node=9", "", "slurm.gpus_per_node"},
		{`slurm.options=["--nosuch=1"]`, "", "correct slurm.options"},
		{"slurm.mpi=pmi9", "", "srun has pmix"},
		{"seed=1", broken("controller", "SlurmctldPort=16806", "SlurmctldPort=16899"), "cannot reach Slurm's controller"},
		{"seed=1", broken("munge", "munge/socket", "munge/none"), "systemctl start munge"},
		{"seed=1", "SLURM_CONF=/nosuch", "SLURM_CONF=/nosuch cannot be read"},
	} {
		out := filepath.Join(dir, "out")
		args := []string{pipetrainPath, "submit", "--set", c.set, "--out", out, job}
		if c.env != "" {
			args = append([]string{"env", c.env}, args...)
		}
		e := begin(t, args...).wait()
		if e.code == 0 || strings.Count(e.stderr, "\n") != 1 || !strings.Contains(e.stderr, c.want) {
			t.Errorf("%s %s: %v", c.set, c.env, e)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%s %s left a folder", c.set, c.env)
		}
	}
	for _, list := range []string{"node[01-03,07],x", "n[8-11]", "n[098-101]", "r[1-2]n[0-1]"} {
		got, err := slurm.ExpandHosts(list)
		if want := strings.Fields(slurmTool(t, "scontrol", "show", "hostnames", list)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v %v, scontrol says %v", list, got, err, want)
		}
	}
}

// A job that gets nowhere gives up, and its user may start it again, or cancel it.
func slurmGivesUp(t *testing.T, job string) {
	out := filepath.Join(t.TempDir(), "run")
	id := submitted(t, "--set", "train.steps=1000000", "--set", "checkpoint.every=2000000", "--set", "slurm.nodes=1", "--set", "slurm.max_restarts=0", "--out", out, job)
	start := func(n string) {
		waitFor(t, "start "+n, func() bool { return strings.Contains(jobLogs(out), "start "+n) && jobState(t, id) == "RUNNING" })
		// A rank that is killed before the guard watches it leaves no record.
		waitFor(t, "the ranks of start "+n, func() bool {
			all, err := filepath.Glob("/proc/[0-9]*/cmdline")
			return err == nil && len(processesOf(t, out, true)) == 4 && slices.ContainsFunc(all, func(f string) bool {
				b, err := os.ReadFile(f)
				return err == nil && bytes.Contains(b, []byte("__guard")) && bytes.Contains(b, []byte(out))
			})
		})
		time.Sleep(200 * time.Millisecond)
	}
	kill := func() {
		if err := syscall.Kill(processesOf(t, out, true)[1], syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		waitFor(t, "the end of a start", func() bool { return jobState(t, id) != "RUNNING" })
	}
	start("1")
	trains(t, out, 0)
	kill() // brought the first checkpoint
	start("2")
	kill() // brought nothing
	jobEnds(t, id, out)
	if log := mustRun(t, "logs", id).stdout; !strings.Contains(log, "gives up") || strings.Contains(log, "start 3") {
		t.Errorf("the log is\n%s", log)
	}
	if rec, err := exitcode.Read(out); err != nil || rec.Code != exitcode.RankLost {
		t.Errorf("exit record %+v, %v", rec, err)
	}
	mustRun(t, "requeue", out)
	start("3")
	waitFor(t, "the step after the third start", func() bool {
		_, err := os.Stat(filepath.Join(out, exitcode.File))
		return err != nil && strings.Contains(mustRun(t, "status", out).stdout, "start 3")
	})
	trains(t, out, 0)
	mustRun(t, "cancel", id)
	jobEnds(t, id, out)
	if rec, err := exitcode.Read(out); err != nil || rec.Code != exitcode.Stopped {
		t.Errorf("exit record %+v, %v\n%s", rec, err, jobLogs(out))
	}
	if e := mustRun(t, "cancel", out); !strings.Contains(e.stdout, "is over") {
		t.Error(e)
	}
}
