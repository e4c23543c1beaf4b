package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/record"
)

// stopped is a pipe that is full and that nobody reads.
func stopped(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	if err := w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = w.Write(make([]byte, 4096))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return w
}

// gone is a pipe whose reader is gone.
func gone(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	t.Cleanup(func() { w.Close() })
	return w
}

func full(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// What a run writes for people does not decide how it ends: nobody may read it.
func TestNobodyReads(t *testing.T) {
	job := writeJob(t, tinyJob)
	for name, stream := range map[string]func(*testing.T) *os.File{"stopped": stopped, "gone": gone, "full": full} {
		for _, end := range []exitcode.Code{exitcode.Finished, exitcode.Stopped, exitcode.Usage} {
			t.Run(name+"/"+end.Name(), func(t *testing.T) {
				out := filepath.Join(t.TempDir(), "run")
				cmd := exec.Command(pipetrainPath, "--out", out, job)
				switch end {
				case exitcode.Stopped:
					cmd.Args = append(cmd.Args, "--set", "train.steps=1000000")
				case exitcode.Usage:
					cmd.Args = append(cmd.Args, "--set", "train.steps=none")
				}
				cmd.Stdout = stream(t)
				cmd.Stderr = cmd.Stdout
				cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				kill := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
				defer kill.Stop()
				if end == exitcode.Stopped {
					trains(t, out, 5)
					if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
						t.Error(err)
					}
				}
				_ = cmd.Wait()
				if code := cmd.ProcessState.ExitCode(); code != int(end) {
					t.Errorf("%v, want %v", cmd.ProcessState, end)
				}
				if end == exitcode.Usage {
					return
				}
				if rec, err := exitcode.Read(out); err != nil || rec.Code != end {
					t.Errorf("exit record %+v, %v", rec, err)
				}
				if s, err := record.ReadSummary(filepath.Join(out, record.SummaryName)); err != nil || s.ExitCode != int(end) {
					t.Errorf("summary %+v, %v", s, err)
				}
			})
		}
	}
}
