package launcher

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
)

// guarded starts n processes and a guard for them.
func guarded(t *testing.T, n int, grace time.Duration) (dir string, ranks []*exec.Cmd, g *Guard, guardPID int) {
	t.Helper()
	dir = t.TempDir()
	c := GuardConfig{RunDir: dir, Launcher: Hydra, Grace: grace}
	for i := range n {
		cmd := exec.Command("sh", "-c", "read line; exit ${line:-0}")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
		ranks = append(ranks, cmd)
		c.Ranks = append(c.Ranks, Guarded{Rank: 10 + i, PID: cmd.Process.Pid})
	}
	g, guardPID = watching(t, c)
	return dir, ranks, g, guardPID
}

// watching starts a guard, and returns once it watches all ranks.
func watching(t *testing.T, c GuardConfig) (g *Guard, pid int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if g, err = StartGuard(self, os.Environ(), c); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the guard to watch", func() bool {
		pid = guardOf(c.RunDir)
		fds, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/*")
		watching := 0
		for _, fd := range fds {
			if l, _ := os.Readlink(fd); strings.Contains(l, "pidfd") {
				watching++
			}
		}
		return watching >= len(c.Ranks) // Go's runtime may hold one for itself
	})
	time.Sleep(20 * time.Millisecond) // from the last pidfd into epoll
	return g, pid
}

// guardOf finds the living guard of a run folder.
func guardOf(dir string) int {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range all {
		if b, _ := os.ReadFile(f); strings.HasSuffix(string(b), "\x00"+GuardCommand+"\x00"+dir+"\x00") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			return pid
		}
	}
	return 0
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 30 s for %s", what)
		}
	}
}

// The rank that died first is named by signal, though the guard slept meanwhile
// and all were dead and buried when it woke.
func TestGuardNamesTheFirst(t *testing.T) {
	dir, ranks, g, pid := guarded(t, 3, time.Minute)
	g.Step(57)
	time.Sleep(50 * time.Millisecond)
	syscall.Kill(pid, syscall.SIGSTOP)
	for _, i := range []int{2, 0, 1} {
		ranks[i].Process.Kill()
		ranks[i].Wait()
	}
	syscall.Kill(pid, syscall.SIGCONT)
	eventually(t, "the guard's end", func() bool { return guardOf(dir) == 0 })
	r, err := exitcode.Read(dir)
	if err != nil || r.Code != exitcode.RankLost || r.Rank != 12 || r.PID != ranks[2].Process.Pid || r.Launcher != "hydra" || r.Step != 57 {
		t.Fatalf("record %+v, %v", r, err)
	}
	// The status of a reaped process is there from Linux 6.15 on.
	if r.Signal != "SIGKILL" && !strings.Contains(r.Reason, "without a word") {
		t.Errorf("record %+v", r)
	}
}

// Ranks that outlive a lost one are ended; signals to all processes leave the guard at work.
func TestGuardEndsTheOthers(t *testing.T) {
	dir, ranks, _, pid := guarded(t, 3, 100*time.Millisecond)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGINT, syscall.SIGHUP} {
		syscall.Kill(pid, s)
	}
	ranks[1].Process.Signal(syscall.SIGKILL)
	ranks[1].Wait()
	for _, i := range []int{0, 2} {
		ranks[i].Wait()
		if s := ranks[i].ProcessState.Sys().(syscall.WaitStatus); s.Signal() != syscall.SIGKILL {
			t.Errorf("rank %d ended with %v", i, ranks[i].ProcessState)
		}
	}
	eventually(t, "the guard's end", func() bool { return guardOf(dir) == 0 })
	if r, err := exitcode.Read(dir); err != nil || r.Rank != 11 || r.Code != exitcode.RankLost {
		t.Errorf("record %+v, %v", r, err)
	}
}

// What a rank wrote itself stays, and an orderly end is nobody's failure.
func TestGuardLeavesRecords(t *testing.T) {
	dir, ranks, _, _ := guarded(t, 2, 50*time.Millisecond)
	if err := exitcode.Write(dir, exitcode.Record{Code: exitcode.Finished, Rank: exitcode.NoRank}); err != nil {
		t.Fatal(err)
	}
	ranks[0].Process.Kill()
	ranks[0].Wait()
	time.Sleep(200 * time.Millisecond)
	if guardOf(dir) == 0 || syscall.Kill(ranks[1].Process.Pid, 0) != nil {
		t.Error("a rank of a finished run was ended")
	}
	ranks[1].Process.Kill()
	ranks[1].Wait()
	eventually(t, "the guard's end", func() bool { return guardOf(dir) == 0 })
	if r, err := exitcode.Read(dir); err != nil || r.Code != exitcode.Finished {
		t.Errorf("record %+v, %v", r, err)
	}
}

// A world that was asked to stop and then killed by its launcher lost no rank.
func TestGuardAsked(t *testing.T) {
	dir, ranks, g, _ := guarded(t, 1, time.Minute)
	if _, err := exitcode.Read(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	g.Asked(syscall.SIGTERM)
	time.Sleep(100 * time.Millisecond)
	ranks[0].Process.Kill()
	ranks[0].Wait()
	eventually(t, "the guard's end", func() bool { return guardOf(dir) == 0 })
	if r, err := exitcode.Read(dir); err != nil || r.Code != exitcode.Interrupted || r.Rank != exitcode.NoRank || !strings.Contains(r.Reason, "SIGTERM") {
		t.Errorf("record %+v, %v", r, err)
	}
}
