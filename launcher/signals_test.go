package launcher

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/exitcode"
)

// started is a launcher in a process of its own.
type started struct {
	t       *testing.T
	cmd     *exec.Cmd
	dir     string
	segment string
	stdout  io.Closer
	lines   chan string // of its stdout
	reading sync.WaitGroup
	mu      sync.Mutex
	all     strings.Builder // what it printed, both streams
}

// startLauncher starts it in a session of its own, on a terminal where tty is given.
func startLauncher(t *testing.T, ranks int, script string, tty *os.File, change func(*Config)) *started {
	t.Helper()
	return startLauncherWith(t, "--default-signal", ranks, script, tty, change)
}

// startLauncherWith sets its dispositions by an option of env. Those that this process inherited (nohup
// ignores HUP, & in a script INT and QUIT) are not the test's.
func startLauncherWith(t *testing.T, signals string, ranks int, script string, tty *os.File, change func(*Config)) *started {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &started{t: t, dir: t.TempDir(), segment: segmentName(t), lines: make(chan string, 1000)}
	cfg := Config{Binary: self, Ranks: ranks, RunDir: s.dir, StartTimeout: 20 * time.Second,
		Env: append(os.Environ(), testMode+"=rank", testScript+"="+script)}
	if change != nil {
		change(&cfg)
	}
	b, err := json.Marshal(settings{cfg.Binary, cfg.Ranks, cfg.Env, cfg.RunDir, cfg.StartTimeout, cfg.StopTimeout})
	if err != nil {
		t.Fatal(err)
	}
	s.cmd = exec.Command("env", signals, self)
	s.cmd.Env = append(os.Environ(), testMode+"=launcher", testConfig+"="+string(b), "LAUNCHER_TEST_SEGMENT="+s.segment)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if tty != nil {
		s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = tty, tty, tty
		s.cmd.SysProcAttr.Setctty = true
	} else {
		out, _ := s.cmd.StdoutPipe()
		s.stdout = out
		errs, _ := s.cmd.StderrPipe()
		s.reading.Go(func() { s.collect(out) })
		s.reading.Go(func() { s.collect(errs) })
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.cmd.Process.Kill() })
	return s
}

func (s *started) collect(r io.Reader) {
	in := bufio.NewScanner(r)
	for in.Scan() {
		s.mu.Lock()
		s.all.WriteString(in.Text() + "\n")
		s.mu.Unlock()
		select {
		case s.lines <- strings.TrimSuffix(in.Text(), "\r"):
		default:
		}
	}
}

func (s *started) printed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// await waits until each rank has printed the line.
func (s *started) await(line string, ranks int) {
	s.t.Helper()
	deadline := time.After(30 * time.Second)
	for ranks > 0 {
		select {
		case l := <-s.lines:
			if strings.HasSuffix(l, line) {
				ranks--
			}
		case <-deadline:
			s.t.Fatalf("%q was not printed %d times more:\n%s", line, ranks, s.printed())
		}
	}
}

// awaitText waits until the text was printed somewhere.
func (s *started) awaitText(text string) {
	s.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(s.printed(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("%q was not printed:\n%s", text, s.printed())
		}
	}
}

func (s *started) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// end waits for the launcher's end and checks what it leaves.
func (s *started) end(want exitcode.Code) {
	s.t.Helper()
	hang := time.AfterFunc(30*time.Second, func() { s.cmd.Process.Kill() })
	defer hang.Stop()
	s.reading.Wait() // before Wait, which closes the pipes
	s.cmd.Wait()
	if got := s.cmd.ProcessState.ExitCode(); got != int(want) {
		s.t.Errorf("%v, want code %v:\n%s", s.cmd.ProcessState, want, s.printed())
	}
	if r, err := exitcode.Read(s.dir); err != nil || r.Code != want {
		s.t.Errorf("record %+v, %v", r, err)
	}
	nothingLeft(s.t, s.dir, s.segment)
}

func (s *started) pids() (pids []int) {
	files, _ := filepath.Glob(filepath.Join(s.dir, "pid-*"))
	for _, f := range files {
		b, _ := os.ReadFile(f)
		if pid, err := strconv.Atoi(string(b)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestSignals(t *testing.T) {
	const (
		INT  = syscall.SIGINT
		TERM = syscall.SIGTERM
	)
	for _, c := range []struct {
		name   string
		script string
		await  string // printed by all 3 ranks before the signals
		sends  []syscall.Signal
		code   exitcode.Code
		says   string
		change func(*Config)
	}{
		{"Ctrl-C while starting", "*: print up; hang", "up", []syscall.Signal{INT}, 130, "nothing to save", nil},
		{"Ctrl-C while joining", "*: ready; print up; hang", "up", []syscall.Signal{INT}, 130, "interrupted by SIGINT", nil},
		{"Ctrl-C in the first step", "*: joined; print up; wait", "up", []syscall.Signal{INT}, 130, "nothing to save", nil},
		{"Ctrl-C in a run", "*: joined; train 100000", "stepping", []syscall.Signal{INT}, 7, "stopped by SIGINT after step", nil},
		{"Ctrl-C when nearly done", "*: joined; train 2; print up; sleep 300; done", "up", []syscall.Signal{INT}, 0, "", nil},
		{"Ctrl-C when some are done", "*: joined; done; print up | 1: joined; step 3; print up; sleep 500; done", "up", []syscall.Signal{INT}, 0, "", nil},
		{"Ctrl-C twice", "*: joined; step 1; print up; hang", "up", []syscall.Signal{INT, INT}, 130, "second request", nil},
		{"Ctrl-C twice while starting, deaf", "*: deaf; print up; hang", "up", []syscall.Signal{INT, INT}, 130, "interrupted", nil},
		{"TERM in a run", "*: joined; train 100000", "stepping", []syscall.Signal{TERM}, 7, "stopped by SIGTERM", nil},
		{"HUP in a run", "*: joined; train 100000", "stepping", []syscall.Signal{syscall.SIGHUP}, 7, "stopped by SIGHUP", nil},
		{"USR1 in a run", "*: joined; train 100000", "stepping", []syscall.Signal{syscall.SIGUSR1}, 7, "stopped after step", nil},
		{"USR2 in a run", "*: joined; train 100000", "stepping", []syscall.Signal{syscall.SIGUSR2}, 7, "stopped after step", nil},
		{"TERM to deaf ranks", "*: deaf; joined; step 1; print up; hang", "up", []syscall.Signal{TERM}, 130, "did not stop", func(c *Config) { c.StopTimeout = 500 * time.Millisecond }},
		{"TERM twice at once, as from Slurm", "*: deaf; joined; step 1; print up; hang", "up", []syscall.Signal{TERM, TERM}, 130, "did not stop", func(c *Config) { c.StopTimeout = 500 * time.Millisecond }},
		{"TERM to ranks without a handler", "*: default-term; joined; step 1; print up; hang", "up", []syscall.Signal{TERM}, 130, "interrupted by SIGTERM", nil},
		{"QUIT shows stacks", "*: joined; step 1; print up; hang", "up", []syscall.Signal{syscall.SIGQUIT}, 1, "SIGQUIT: quit", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := startLauncher(t, 3, c.script, nil, c.change)
			s.await(c.await, 3)
			for i, sig := range c.sends {
				s.signal(sig)
				if i < len(c.sends)-1 { // two Ctrl-C at once are one to the kernel
					s.awaitText(`"signal":"` + signalName(sig))
				}
			}
			s.end(c.code)
			if !strings.Contains(s.printed(), c.says) {
				t.Errorf("%q is not in\n%s", c.says, s.printed())
			}
		})
	}
}

// Under nohup the end of the terminal ends nothing.
func TestNohup(t *testing.T) {
	s := startLauncherWith(t, "--ignore-signal=HUP", 2, "*: joined; train 100000", nil, nil)
	s.await("stepping", 2)
	s.signal(syscall.SIGHUP)
	s.signal(syscall.SIGTERM)
	s.end(exitcode.Stopped)
	if !strings.Contains(s.printed(), "stopped by SIGTERM") {
		t.Error(s.printed())
	}
}

// A signal that came before Run had set itself up is heeded, not lost.
func TestSignalBeforeRun(t *testing.T) {
	r := runScript(t, 2, "*: print up; hang", func(c *Config) {
		c.Signals = make(chan os.Signal, 1)
		c.Signals <- syscall.SIGINT
	})
	if r.code != exitcode.Interrupted {
		t.Errorf("ended with %v: %v", r.code, r.err)
	}
}

// However the launcher dies, its ranks go too, and at any moment of their life.
func TestLauncherKilled(t *testing.T) {
	for _, script := range []string{"*: print up; hang", "*: joined; print up; deaf; train 100000", "*: joined; grandchild; print up; wait"} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			s := startLauncher(t, 3, script, nil, nil)
			s.await("up", 3)
			s.signal(syscall.SIGKILL)
			s.cmd.Wait()
			pids := s.pids()
			deadline := time.Now().Add(5 * time.Second)
			for {
				left := 0
				for _, pid := range pids {
					if st := kernelState(pid); st != 0 && st != 'Z' && st != 'X' && !isSleep(pid) {
						left++
					}
				}
				if left == 0 {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("%d of %v are still there", left, pids)
				}
				time.Sleep(10 * time.Millisecond)
			}
			for _, pid := range pids {
				if isSleep(pid) { // a grandchild: only a living launcher ends those
					syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		})
	}
}

func isSleep(pid int) bool {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return string(b) == "sleep\n"
}

// ^Z stops the ranks with the launcher, fg continues all.
func TestStopAndContinue(t *testing.T) {
	s := startLauncher(t, 2, "*: joined; step 1; print up; wait", nil, nil)
	s.await("up", 2)
	s.signal(syscall.SIGTSTP)
	states := func() (st string) {
		for _, pid := range append(s.pids(), s.cmd.Process.Pid) {
			st += string(kernelState(pid))
		}
		return st
	}
	until := func(ok func(string) bool) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); !ok(states()); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("states %s", states())
			}
		}
	}
	until(func(st string) bool { return st == "TTT" })
	s.signal(syscall.SIGCONT)
	until(func(st string) bool { return !strings.Contains(st, "T") })
	s.signal(syscall.SIGINT)
	s.awaitText(`"signal":"SIGINT"`)
	s.signal(syscall.SIGTERM)
	s.end(exitcode.Interrupted)
}

// The real Ctrl-C: the terminal sends SIGINT to its foreground group, which
// must not hold the ranks; and rank 0 has the terminal itself.
func TestTerminal(t *testing.T) {
	master, tty := openTerminal(t)
	s := startLauncher(t, 2, "*: print up; joined; train 100000", tty, nil)
	tty.Close()
	s.reading.Go(func() { s.collect(master) })
	s.await("stepping", 2)
	if to, err := os.Readlink(fmt.Sprintf("/proc/%s/fd/1", mustRead(t, filepath.Join(s.dir, "pid-0")))); err != nil || !strings.HasPrefix(to, "/dev/pts/") {
		t.Errorf("stdout of rank 0 is %s, %v; want the terminal", to, err)
	}
	master.Write([]byte{3})
	s.end(exitcode.Stopped)
	if !strings.Contains(s.printed(), "\x1b[K[rank 1] up") {
		t.Errorf("a line of rank 1 does not clear the progress line first: %q", s.printed())
	}
}

func mustRead(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func openTerminal(t *testing.T) (master, tty *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, tty
}

// A reader of the output that goes away does not end the run.
func TestOutputClosed(t *testing.T) {
	s := startLauncher(t, 2, "*: joined; print up; sleep 300; print more; print more; train 3; done", nil, nil)
	s.await("up", 2)
	s.stdout.Close()
	s.end(exitcode.Finished)
}
