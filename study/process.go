package study

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// outcome is how a command ended.
type outcome struct {
	code     int
	timedOut bool
	stopped  bool // the study was asked to stop
	started  time.Time
	seconds  float64
	said     string // the last line of its stderr
}

// patience between asking a command to end and killing it.
const patience = 10 * time.Second

// runCommand runs a command in a process group of its own, which does not outlive this process: the kernel
// sends it `death` when this process dies, however that happens. Its output goes to log.
func runCommand(ctx context.Context, argv, env []string, log string, timeout time.Duration, death syscall.Signal) (outcome, error) {
	o := outcome{started: time.Now()}
	f, err := os.Create(log)
	if err != nil {
		return o, err
	}
	defer f.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Env = f, f, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: death}
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		// The death signal is for the end of the thread that starts the command: it has to stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return o, err
	}
	var limit <-chan time.Time
	if timeout > 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		limit = t.C
	}
	var kill <-chan time.Time
	end := func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended just now
		kill = time.After(patience)
	}
	done := ctx.Done()
	for {
		select {
		case err = <-ended:
			o.seconds = time.Since(o.started).Seconds()
			o.said = lastLine(f)
			return o, o.take(err)
		case <-limit:
			o.timedOut, limit = true, nil
			end()
		case <-done:
			o.stopped, done = true, nil
			end()
		case <-kill:
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the group may be gone
		}
	}
}

// take reads the exit code; an error that is none of the command's own is returned.
func (o *outcome) take(err error) error {
	exit := (*exec.ExitError)(nil)
	switch {
	case err == nil:
	case errors.As(err, &exit):
		o.code = exit.ExitCode()
		if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
			o.code = 128 + int(s.Signal())
		}
	default:
		return err
	}
	return nil
}

// lastLine returns the last line of a log that is not empty.
func lastLine(f *os.File) string {
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	b, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-4096), 4096))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.TrimPrefix(strings.TrimSpace(lines[len(lines)-1]), "pipetrain: ")
}
