package launcher

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/exitcode"
)

const (
	// guardGrace is longer than launchers take to end the ranks themselves.
	guardGrace = 3 * time.Second
	// guardLook is how often a guard looks for the failure of a rank elsewhere.
	guardLook = 4 * time.Second
	// exitGrace is how long the status of a dead rank is waited for: it can be read
	// from the zombie, or (Linux 6.15) once that is reaped.
	exitGrace = 2 * time.Second
	// lifelineGrace is how long the death of the rank whose lifeline closed first is waited for, to
	// learn its signal: the kernel has more of its files to close, and a GPU's memory to free.
	lifelineGrace = 4 * time.Second
)

// watch is a guard's view of its ranks.
type watch struct {
	c     GuardConfig
	heard *heard
	oom   oomWatch
	host  string
	fds   map[int]int // pidfd by index of the rank; those that live

	folder os.FileInfo // the run folder's, so that another run's in its place is told apart; nil: unknown

	dying []dying     // in the order of their deaths
	dead  map[int]int // pidfd by index of the rank; those that died
}

// dying is a rank, by index, that has died or whose lifeline has closed.
type dying struct {
	rank  int
	since time.Time
}

// lifeline marks an event of a rank's lifeline, beside its index.
const lifeline = 1 << 30

func newWatch(c GuardConfig, h *heard) *watch {
	if c.Grace <= 0 {
		c.Grace = guardGrace
	}
	w := &watch{c: c, heard: h, oom: watchOOM(), fds: map[int]int{}, dead: map[int]int{}}
	w.host, _ = os.Hostname()
	w.folder, _ = os.Stat(c.RunDir)
	return w
}

// run returns when no rank of this host is left.
func (w *watch) run() error {
	// Slurm's step signals reach every process of the step.
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGQUIT)
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	defer unix.Close(ep)
	// All lifelines first: a death in the middle of this is then seen by its order too.
	lines := map[int]int{}
	for i, r := range w.c.Ranks {
		if fd, err := openLifeline(r); err == nil {
			lines[i] = fd
			if err := add(ep, fd, lifeline|i); err != nil {
				return err
			}
		}
	}
	for i, r := range w.c.Ranks {
		fd, err := unix.PidfdOpen(r.PID, 0)
		if err == unix.ESRCH {
			w.noticed(i)
			w.dead[i] = -1
			continue
		}
		if err != nil { // before Linux 5.3
			return os.NewSyscallError("pidfd_open", err)
		}
		if err := add(ep, fd, i); err != nil {
			return err
		}
		w.fds[i] = fd
	}
	w.settle()
	var end time.Time // when those that are left are ended; zero: the run has not failed
	events := make([]unix.EpollEvent, 64)
	for len(w.fds) > 0 {
		wait := guardLook
		if !end.IsZero() {
			wait = max(0, time.Until(end))
		}
		if len(w.dying) > 0 {
			wait = min(wait, lifelineGrace/10)
		}
		// Events come in the order of the deaths, however late this process is woken.
		n, err := unix.EpollWait(ep, events, int(wait.Milliseconds())+1)
		if err != nil && err != unix.EINTR {
			return os.NewSyscallError("epoll_wait", err)
		}
		for _, e := range events[:max(0, n)] {
			i := int(e.Fd)
			if i&lifeline != 0 {
				i &^= lifeline
				unix.Close(lines[i])
			} else {
				w.dead[i] = w.fds[i]
				delete(w.fds, i)
			}
			w.noticed(i)
		}
		w.settle()
		switch {
		case end.IsZero() && w.failed():
			end = time.Now().Add(w.c.Grace)
		case !end.IsZero() && time.Now().After(end):
			for _, fd := range w.fds {
				_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // dead already, at worst
			}
			end = time.Now().Add(time.Second)
		}
	}
	return nil
}

func add(ep, fd, data int) error {
	// A pipe's end without events asked for still tells that the other one has closed.
	var events uint32
	if data&lifeline == 0 {
		events = unix.EPOLLIN
	}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(data)}))
}

// noticed puts a rank, by index, behind those that died before it.
func (w *watch) noticed(i int) {
	if !slices.ContainsFunc(w.dying, func(d dying) bool { return d.rank == i }) {
		w.dying = append(w.dying, dying{i, time.Now()})
	}
}

// settle writes the record of the rank that died first, as soon as its end is known.
func (w *watch) settle() {
	for len(w.dying) > 0 {
		d := w.dying[0]
		fd, ended := w.dead[d.rank]
		switch {
		case ended:
			w.died(d.rank, fd)
			if fd >= 0 {
				unix.Close(fd)
			}
			delete(w.dead, d.rank)
		case time.Since(d.since) < lifelineGrace && len(w.fds) > 0:
			return
		default: // it is dying all the same, and was the first
			if fd, alive := w.fds[d.rank]; alive {
				w.died(d.rank, fd)
			}
		}
		w.dying = w.dying[1:]
	}
}

// failed says whether the run has ended in a way that leaves no rank anything to do.
func (w *watch) failed() bool {
	if !w.held() {
		return false
	}
	r, err := exitcode.Read(w.c.RunDir)
	return err == nil && r.Code != exitcode.Finished && r.Code != exitcode.Stopped
}

// held says whether the run folder's name is still that of the run's folder.
func (w *watch) held() bool {
	now, err := os.Stat(w.c.RunDir)
	return err != nil || w.folder == nil || os.SameFile(now, w.folder)
}

// died writes the record of a rank's death, unless there is one: every orderly
// end writes it before the first rank leaves.
func (w *watch) died(i, fd int) {
	if _, err := os.Stat(exitcode.Path(w.c.RunDir)); err == nil || !w.held() {
		return
	}
	w.heard.mu.Lock()
	asked, step := w.heard.asked, w.heard.step
	w.heard.mu.Unlock()
	p := w.c.Ranks[i]
	r := exitcode.Record{Code: exitcode.RankLost, Rank: p.Rank, Host: w.host, PID: p.PID, Time: time.Now(), Step: step, Launcher: string(w.c.Launcher)}
	what := "ended without a word"
	if status, ok := endOf(p.PID, fd); ok {
		switch {
		case status.Signaled():
			r.Signal = signalName(status.Signal())
			what = fmt.Sprintf("was killed by signal %d (%s)", int(status.Signal()), r.Signal)
			if status.Signal() == syscall.SIGKILL {
				if evidence := w.oom.evidence(p.PID); evidence != "" {
					r.Code = exitcode.OutOfMemory
					what += "; " + evidence
				}
			}
		case status.ExitStatus() == 0:
			what = "ended with exit code 0 before its work was done"
		case status.ExitStatus() == 2: // as the Go runtime ends a panic; a bad job ends before there is a run folder
			r.Code = exitcode.Unexpected
			what = "crashed with exit code 2"
		default:
			what = "ended with exit code " + exitcode.Code(status.ExitStatus()).String()
			if c := exitcode.Code(status.ExitStatus()); c.Known() {
				r.Code = c
			}
		}
	} else if oomLog(p.PID, w.oom.since) { // it died before this guard could watch it
		r.Code, r.Signal = exitcode.OutOfMemory, signalName(syscall.SIGKILL)
		what = "was killed by signal 9 (SIGKILL); the kernel's OOM killer ended it"
	}
	r.Reason = fmt.Sprintf("rank %d (pid %d on host %s) %s", p.Rank, p.PID, w.host, what)
	if asked != "" {
		r.Code, r.Rank = exitcode.Interrupted, exitcode.NoRank
		r.Reason = fmt.Sprintf("asked to stop by %s, and ended before it was done: %s", asked, r.Reason)
	}
	if step > 0 {
		r.Reason += fmt.Sprintf(" after step %d", step)
	}
	// A run folder that cannot be written is beyond help, and nobody listens here.
	_, _ = exitcode.WriteFirst(w.c.RunDir, r)
}

// endOf is the wait status of a dead process that is not our child.
func endOf(pid, fd int) (syscall.WaitStatus, bool) {
	if fd < 0 {
		return 0, false
	}
	for end := time.Now().Add(exitGrace); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
		if err := unix.IoctlPidfdInfo(fd, &info); err == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0 {
			return syscall.WaitStatus(uint32(info.Exit_code)), true
		}
		// Before it is reaped, and on older kernels only then.
		if status, ok := zombieStatus(pid); ok {
			return status, true
		}
	}
	return 0, false
}

// zombieStatus reads the last field of /proc/PID/stat, the wait status of a zombie.
func zombieStatus(pid int) (syscall.WaitStatus, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	text := string(b)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	// The state is field 3, the status field 52.
	if len(fields) < 50 || fields[0] != "Z" {
		return 0, false
	}
	n, err := strconv.Atoi(fields[49])
	return syscall.WaitStatus(uint32(n)), err == nil
}
