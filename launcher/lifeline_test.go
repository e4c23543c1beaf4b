package launcher

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/exitcode"
)

// slowSockets is how many pairs of sockets the kernel has to close for a rank that is slow to die.
const slowSockets = "LAUNCHER_TEST_SOCKETS"

// playLifeline is a rank that tells its lifeline and its process manager's descriptor, and waits.
func playLifeline() int {
	fd, err := OpenLifeline()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	n, _ := strconv.Atoi(os.Getenv(slowSockets))
	for range n {
		if _, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); err != nil {
			break // as many as this machine allows
		}
	}
	fmt.Println(fd, os.Getenv(pmiFD))
	io.Copy(io.Discard, os.Stdin)
	return 0
}

// managed starts a rank with its process manager's socket, of which it returns the other end.
func managed(t *testing.T, sockets int) (cmd *exec.Cmd, manager *os.File, lifeline, pmi int) {
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
	cmd.Env = append(os.Environ(), testMode+"=lifeline", pmiFD+"=3", slowSockets+"="+strconv.Itoa(sockets))
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
	if n, _ := fmt.Sscan(line, &lifeline, &pmi); n != 2 {
		t.Fatalf("the rank said %q, %v", line, err)
	}
	return cmd, manager, lifeline, pmi
}

// The process manager's socket makes room for the lifeline below it, and works where it is now.
func TestLifelineBelowTheManager(t *testing.T) {
	cmd, manager, lifeline, pmi := managed(t, 0)
	if pmi <= 3 || lifeline <= 3 || pmi == lifeline {
		t.Errorf("lifeline %d, %s=%d", lifeline, pmiFD, pmi)
	}
	at := func(fd int) string {
		l, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", cmd.Process.Pid, fd))
		return l
	}
	if !strings.HasPrefix(at(3), "pipe:") || at(3) != at(lifeline) || !strings.HasPrefix(at(pmi), "socket:") {
		t.Errorf("3 is %s, the lifeline %s, the manager's %s", at(3), at(lifeline), at(pmi))
	}
	cmd.Process.Kill()
	manager.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := manager.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the socket's other end after the rank's death: %v", err)
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
			sockets = 9000
		}
		cmd, manager, lifeline, _ := managed(t, sockets)
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
