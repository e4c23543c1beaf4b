package launcher

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/exitcode"
)

// The manager's socket is descriptor 3 of a rank; slowSockets moves it above so many pairs of
// sockets, which the kernel closes after it.
const slowSockets = "LAUNCHER_TEST_SOCKETS"

// playLifeline is a rank that tells its lifeline, and waits.
func playLifeline() int {
	n, _ := strconv.Atoi(os.Getenv(slowSockets))
	for range n {
		if _, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); err != nil {
			break // as many as this machine allows
		}
	}
	if n > 0 {
		if _, err := unix.Dup(3); err != nil {
			return 1
		}
		unix.Close(3)
	}
	fd, err := OpenLifeline()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(fd)
	io.Copy(io.Discard, os.Stdin)
	return 0
}

// managed starts a rank with its process manager's socket, of which it returns the other end.
func managed(t *testing.T, sockets int) (cmd *exec.Cmd, manager *os.File, lifeline int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	manager, theirs := os.NewFile(uintptr(pair[0]), "manager"), os.NewFile(uintptr(pair[1]), "rank")
	defer theirs.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(self)
	cmd.Env = append(os.Environ(), testMode+"=lifeline", slowSockets+"="+strconv.Itoa(sockets))
	cmd.ExtraFiles = []*os.File{theirs}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait(); manager.Close() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if n, _ := fmt.Sscan(line, &lifeline); n != 1 {
		t.Fatalf("the rank said %q, %v", line, err)
	}
	return cmd, manager, lifeline
}

// The lifeline lies above what a rank opens, and closes with the rank.
func TestLifelineIsHigh(t *testing.T) {
	cmd, manager, lifeline := managed(t, 0)
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", cmd.Process.Pid))
	highest, pipe := 0, ""
	for _, fd := range fds {
		n, _ := strconv.Atoi(filepath.Base(fd))
		highest = max(highest, n)
	}
	pipe, _ = os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", cmd.Process.Pid, highest))
	if l, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", cmd.Process.Pid, lifeline)); l != pipe || !strings.HasPrefix(l, "pipe:") || highest < 200 {
		t.Errorf("descriptor %d is %s, the lifeline %d is %s", highest, pipe, lifeline, l)
	}
	end, err := openLifeline(Guarded{PID: cmd.Process.Pid, Lifeline: lifeline})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(end)
	poll := func(ms int) int16 {
		p := []unix.PollFd{{Fd: int32(end)}}
		unix.Poll(p, ms)
		return p[0].Revents
	}
	if got := poll(0); got != 0 {
		t.Errorf("the lifeline of a living rank: events %x", got)
	}
	cmd.Process.Kill()
	if got := poll(30000); got != unix.POLLHUP {
		t.Errorf("the lifeline of a killed rank: events %x", got)
	}
	manager.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := manager.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the manager's end after the rank's death: %v", err)
	}
}

// A process manager that kills the others at the first closed socket, and is done with them
// before the kernel is done with the first: the first is named.
func TestGuardNamesTheFirstToClose(t *testing.T) {
	dir := t.TempDir()
	c := GuardConfig{RunDir: dir, Launcher: Hydra, Grace: time.Minute}
	var ranks []*exec.Cmd
	var managers []*os.File
	for i := range 4 {
		sockets := 0
		if i == 2 {
			sockets = 1900
		}
		cmd, manager, lifeline := managed(t, sockets)
		ranks, managers = append(ranks, cmd), append(managers, manager)
		c.Ranks = append(c.Ranks, Guarded{Rank: i, PID: cmd.Process.Pid, Lifeline: lifeline})
	}
	watching(t, c)
	killed := make(chan bool)
	go func() {
		managers[2].Read(make([]byte, 1))
		for _, i := range []int{3, 1, 0} {
			ranks[i].Process.Kill()
		}
		close(killed)
	}()
	syscall.Kill(ranks[2].Process.Pid, syscall.SIGKILL)
	<-killed
	for _, i := range []int{0, 1, 3, 2} {
		ranks[i].Wait()
	}
	eventually(t, "the guard's end", func() bool { return guardOf(dir) == 0 })
	if r, err := exitcode.Read(dir); err != nil || r.Code != exitcode.RankLost || r.Rank != 2 || r.PID != ranks[2].Process.Pid {
		t.Errorf("record %+v, %v", r, err)
	}
}
