package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
)

// slurmLimit has jobs reach their time limit: one that is asked before, one that Slurm ends, one whose rank heeds nothing.
// Slurm looks at limits twice a minute, so that all three wait at once.
func slurmLimit(t *testing.T, job string) {
	begun := func(name string, sets ...string) (id, out string) {
		out = filepath.Join(t.TempDir(), name)
		args := []string{"--out", out}
		for _, set := range append(sets, "train.steps=1000000", "checkpoint.every=3", "slurm.nodes=1", `slurm.time="1"`) {
			args = append(args, "--set", set)
		}
		id = submitted(t, append(args, job)...)
		trains(t, out, 7) // so that step 6 is saved
		for _, pid := range processesOf(t, out, true) {
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, pid, 15) // it only waits here
		}
		return id, out
	}
	// A minute is the shortest limit, of which Slurm's warning leaves half; those that it does not warn have it cut.
	over := func(id string) { slurmTool(t, "scontrol", "update", "JobId="+id, "EndTime=now+5") }

	asked, askedOut := begun("asked", "parallel.stages=2")
	ended, endedOut := begun("ended", "parallel.stages=1", "slurm.signal_before=0s")
	over(ended)
	unheeding := func(name string) (id, out string) {
		id, out = begun(name, "parallel.stages=2", "slurm.signal_before=0s", "slurm.requeue=false")
		holdStopped(processesOf(t, out, true)[0])
		over(id)
		return id, out
	}
	deaf, deafOut := unheeding("deaf")

	for _, c := range []struct{ id, out, says string }{{asked, askedOut, "ended with code 7 (USR1)"}, {ended, endedOut, "ended with code 7 (LIMIT)"}} {
		waitFor(t, "the end of "+c.out, func() bool { return strings.Contains(jobLogs(c.out), "goes back into the queue") })
		waitFor(t, "start 2", func() bool { return strings.Contains(jobLogs(c.out), "goes on after step ") })
		log := jobLogs(c.out)
		end := regexp.MustCompile(regexp.QuoteMeta(c.says) + `: .*after step (\d+)`).FindStringSubmatch(log)
		again := regexp.MustCompile(`start 2, .*: goes on after step (\d+)`).FindStringSubmatch(log)
		if end == nil || again == nil || end[1] != again[1] {
			t.Fatalf("the end is %q, the second start %q:\n%s", end, again, log)
		}
		step, _ := strconv.Atoi(end[1])
		trains(t, c.out, step)
		mustRun(t, "cancel", c.id)
		jobEnds(t, c.id, c.out)
		if rec, err := exitcode.Read(c.out); err != nil || rec.Code != exitcode.Stopped {
			t.Errorf("exit record %+v, %v", rec, err)
		}
		if n := len(losses(t, c.out)); n <= step { // and no step twice, and none left out
			t.Errorf("%d steps in all, %d in the first start", n, step)
		}
	}

	jobEnds(t, deaf, deafOut)
	for again := range 2 {
		if rec, err := exitcode.Read(deafOut); err != nil || rec.Code != exitcode.Stopped {
			break
		}
		t.Logf("the rank slipped through between Slurm's SIGCONT and the next SIGSTOP; again")
		deaf, deafOut = unheeding(fmt.Sprintf("deaf-%d", again+2))
		jobEnds(t, deaf, deafOut)
	}
	if state := jobState(t, deaf); state != "TIMEOUT" {
		t.Errorf("a job whose rank does not heed TERM is %s", state)
	}
	// Slurm kills the script and the guard too: mostly nobody is left to write a record, and status has Slurm's word.
	// Where srun ends a moment before the script is killed, the script says that no rank left a record.
	state := "state  timeout"
	if rec, err := exitcode.Read(deafOut); err == nil {
		t.Logf("the script was left to say: %s", rec.Reason)
		if rec.Code != exitcode.Unexpected || !strings.Contains(rec.Reason, "no rank left a record") {
			t.Errorf("exit record %+v", rec)
		}
		state = "TIMEOUT in batch"
	}
	if said := mustRun(t, "status", deafOut).stdout; !strings.Contains(said, state) {
		t.Errorf("status says %s", said)
	}
	whole(t, deafOut)
}

// holdStopped stops a process again and again until it is gone: Slurm sends SIGCONT too.
func holdStopped(pid int) {
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its priority
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, -20)
		for syscall.Kill(pid, syscall.SIGSTOP) == nil {
			time.Sleep(50 * time.Microsecond)
		}
	}()
}
