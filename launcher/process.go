package launcher

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/exitcode"
)

// process is one rank as its launcher sees it. The event loop owns all fields
// but mu and what it guards.
type process struct {
	rank    int
	pid     int // 0: not started
	began   time.Time
	state   *os.File
	stderr  *capture
	hello   bool
	ready   bool
	joined  bool
	done    bool
	stopped bool // said that it saved and stops
	step    int64
	report  *message // its own word on why it failed

	exited bool
	status syscall.WaitStatus
	ended  time.Time
	killed bool // by this launcher, so its end says nothing

	mu     sync.Mutex
	reaped bool // its pid may belong to somebody else
}

// event is what the loop waits for: a line from a rank, or its end.
type event struct {
	p      *process
	msg    *message
	status syscall.WaitStatus
	time   time.Time
}

// start starts rank i. The error says why it could not be.
func (w *world) start(k *keeper, i int, segment *os.File, cores coreShare) error {
	p := w.ranks[i]
	ours, theirs, err := socketPair()
	if err != nil {
		return w.startError(i, err)
	}
	defer theirs.Close()

	cmd := exec.Command(w.cfg.Binary, w.cfg.Args...)
	cmd.Dir = w.cfg.Dir
	cmd.Env = w.environ(i, cores)
	cmd.ExtraFiles = []*os.File{segment, theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL, // no rank outlives its launcher
		// A group of its own: the terminal's Ctrl-C reaches the launcher alone,
		// which decides, and what a rank starts can be ended with it.
		Setpgid: true,
	}
	streams, err := w.relay.attach(cmd, p)
	if err == nil {
		k.do(func() {
			cores.apply()
			err = cmd.Start()
		})
		for _, f := range streams {
			f.Close()
		}
	}
	if err != nil {
		ours.Close()
		return w.startError(i, err)
	}
	p.pid, p.state, p.began = cmd.Process.Pid, ours, time.Now()
	stateRead := make(chan struct{})
	go w.read(p, stateRead)
	go w.wait(p, cmd.Process, stateRead)
	w.log().Debug().Int("rank", i).Int("pid", p.pid).Ints("cores", cores.cpus).Msg("rank started")
	return nil
}

func (w *world) startError(i int, err error) error {
	code := exitcode.Of(err)
	if code == exitcode.Unexpected {
		code = exitcode.Environment
	}
	return exitcode.With(code, fmt.Errorf("rank %d could not be started on %s: %w", i, w.host, err))
}

// environ is the environment of rank i: what the caller gave, minus what an
// outer launcher or an earlier world left, plus this rank's place.
func (w *world) environ(i int, cores coreShare) []string {
	env := make([]string, 0, len(w.cfg.Env)+16)
	have := map[string]bool{}
	for _, kv := range w.cfg.Env {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "PIPETRAIN_") && ownVariables[name] {
			continue
		}
		have[name] = true
		env = append(env, kv)
	}
	set := func(name string, value any) { env = append(env, fmt.Sprintf("%s=%v", name, value)) }
	set(EnvRank, i)
	set(EnvSize, w.cfg.Ranks)
	set(EnvLocalRank, i)
	set(EnvLocalSize, w.cfg.Ranks)
	set(EnvThreads, cores.threads)
	set(EnvStateFD, stateFD)
	set(EnvLauncherPID, os.Getpid())
	if w.cfg.RunDir != "" {
		set(EnvRunDir, w.cfg.RunDir)
	}
	if w.cfg.Segment != nil {
		set(EnvSegmentFD, segmentFD)
	}
	// BLAS libraries read these once, when they are loaded. The user's own win.
	for _, name := range []string{"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"} {
		if !have[name] {
			set(name, cores.threads)
		}
	}
	if cores.cpus != nil && !have["GOMAXPROCS"] {
		// One more than the cores: what drives the transport must not wait until
		// a long compute call gives its processor back.
		set("GOMAXPROCS", len(cores.cpus)+1)
	}
	return env
}

var ownVariables = map[string]bool{EnvRank: true, EnvSize: true, EnvLocalRank: true, EnvLocalSize: true,
	EnvRunDir: true, EnvThreads: true, EnvSegmentFD: true, EnvStateFD: true, EnvLauncherPID: true}

func socketPair() (ours, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "state"), os.NewFile(uintptr(fds[1]), "rank-state"), nil
}

// read turns the rank's lines into events until it closes its end.
func (w *world) read(p *process, done chan<- struct{}) {
	defer close(done)
	in := bufio.NewScanner(p.state)
	in.Buffer(nil, 16*maxText)
	for in.Scan() {
		m, err := parseMessage(in.Text())
		if err != nil {
			w.log().Warn().Int("rank", p.rank).Err(err).Msg("line from a rank ignored")
			continue
		}
		w.events <- event{p: p, msg: &m, time: time.Now()}
	}
}

// wait reports the rank's end, after what it said last.
func (w *world) wait(p *process, proc *os.Process, stateRead <-chan struct{}) {
	for {
		// WNOWAIT leaves the zombie, and with it the pid and the group's number, ours.
		err := unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	ended := time.Now()
	p.mu.Lock()
	syscall.Kill(-p.pid, syscall.SIGKILL) // whatever the rank itself had started
	state, err := proc.Wait()
	p.reaped = true
	p.mu.Unlock()
	var status syscall.WaitStatus
	if err == nil {
		status = state.Sys().(syscall.WaitStatus)
	}
	last := time.NewTimer(drainTimeout)
	defer last.Stop()
	for _, c := range []<-chan struct{}{stateRead, p.stderr.done} {
		select {
		case <-c:
		case <-last.C:
		}
	}
	w.events <- event{p: p, status: status, time: ended}
}

// signal sends sig to the rank, or to its whole group.
func (p *process) signal(sig syscall.Signal, group bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == 0 || p.reaped {
		return
	}
	pid := p.pid
	if group {
		pid = -pid
	}
	syscall.Kill(pid, sig)
}

// alive says whether the process still runs, as the kernel sees it now.
func (p *process) alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == 0 || p.reaped {
		return false
	}
	var info unix.Siginfo
	for {
		// WNOHANG leaves info as it is where there is no end to report.
		err := unix.Waitid(unix.P_PID, p.pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		if err != unix.EINTR {
			return err == nil && info.Signo == 0
		}
	}
}

// kernelState is the letter of /proc/PID/stat ('T' stopped, 'D' in the kernel), 0 if unknown.
func kernelState(pid int) byte {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// The name in brackets may hold anything, brackets too.
	i := strings.LastIndexByte(string(b), ')')
	if i < 0 || i+2 >= len(b) {
		return 0
	}
	return b[i+2]
}
