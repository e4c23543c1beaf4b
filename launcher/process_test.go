package launcher

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/exitcode"
)

// A rank that died before the launcher ended the others is named, however late the
// launcher hears of it, and not the peer that complained first.
func TestDeadBeforeTheOthersWereKilled(t *testing.T) {
	w := &world{host: "h", events: make(chan event, 8), oom: oomWatch{}}
	for i := range 2 {
		cmd := exec.Command("sleep", "60")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.ranks = append(w.ranks, &process{rank: i, pid: cmd.Process.Pid, stderr: &capture{}})
		t.Cleanup(func() { cmd.Process.Kill() })
	}
	survivor, dead := w.ranks[0], w.ranks[1]
	if err := syscall.Kill(dead.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, dead.pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if dead.alive() || !survivor.alive() {
		t.Fatalf("alive: the dead %v, the survivor %v", dead.alive(), survivor.alive())
	}
	survivor.report = &message{verb: verbFailed, n: int64(exitcode.RankLost), text: "rank 1 was lost", time: time.Now()}
	w.kill()
	for _, p := range w.ranks { // what wait reports, late
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(p.pid, &status, 0, nil); err != nil {
			t.Fatal(err)
		}
		p.exited, p.status, p.ended = true, status, time.Now()
	}
	f := w.culprit()
	if f == nil || f.Rank != 1 || f.Signal != syscall.SIGKILL || !strings.Contains(f.Error(), "SIGKILL") {
		t.Errorf("named: %v", f)
	}
}
