package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
)

// A run that is frozen as a whole (^Z, scontrol suspend, a virtual machine that is paused) for longer than
// run.stall_timeout goes on when it is thawed.
func TestFrozen(t *testing.T) {
	for name, command := range launchers() {
		t.Run(name, func(t *testing.T) {
			before := sharedMemory(t)
			job := writeJob(t, slowJob)
			out := filepath.Join(t.TempDir(), "run")
			p := begin(t, append(command(t), "--quiet", "--out", out, "--set", "run.stall_timeout=1s", job)...)
			started(t, out, 3)
			all := processes(t, true)
			for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
				for _, pid := range all {
					if err := syscall.Kill(pid, s); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(2500 * time.Millisecond)
			}
			steps := len(losses(t, out))
			started(t, out, steps+1)
			for _, pid := range processes(t, false)[:1] {
				if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
					t.Fatal(err)
				}
			}
			if e := p.wait(); e.code != int(exitcode.Stopped) {
				t.Errorf("frozen for 2.5 s: %v", e)
			}
			nothingLeft(t, before)
		})
	}
}

// A rank that is stopped for ever ends the run with 5, by the word of another, and no rank crashes over messages that
// are still on their way into memory that it has given back.
func TestStalledOrderly(t *testing.T) {
	for name, command := range launchers() {
		t.Run(name, func(t *testing.T) {
			for range rounds(t) {
				before := sharedMemory(t)
				job := writeJob(t, slowJob)
				out := filepath.Join(t.TempDir(), "run")
				// Large messages, so that some are on their way at any time.
				p := begin(t, append(command(t), "--quiet", "--out", out, "--set", "run.stall_timeout=1s", "--set", "model.seq=512", job)...)
				started(t, out, 2)
				ranks := processes(t, false)
				if err := syscall.Kill(ranks[1], syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				waitFor(t, "the others' end", func() bool { _, err := exitcode.Read(out); return err == nil })
				_ = syscall.Kill(ranks[1], syscall.SIGCONT) // it may have been ended
				e := p.wait()
				rec, err := exitcode.Read(out)
				if err != nil || rec.Code != exitcode.Stalled || rec.Signal != "" {
					t.Errorf("exit record %+v, %v: %v", rec, err, e)
				}
				if strings.Contains(e.stderr, "goroutine ") { // of a panic or a signal, the library's own words aside
					t.Fatalf("a rank crashed: %v", e)
				}
				nothingLeft(t, before)
			}
		})
	}
}
