package transporttest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Process is one process of a test's world.
type Process struct {
	Cmd    *exec.Cmd
	Output bytes.Buffer
	Err    error // of Cmd.Wait
}

// Processes starts the commands together and waits for all of them. None
// outlives the test: the context kills those that are left, and the kernel
// does when the test binary itself dies.
func Processes(ctx context.Context, cmds []*exec.Cmd) []*Process {
	procs := make([]*Process, len(cmds))
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The kernel's "kill with the parent" means the parent's thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for i, c := range cmds {
			p := &Process{Cmd: c}
			procs[i] = p
			c.Stdout, c.Stderr = &p.Output, &p.Output
			dieWithParent(c)
			p.Err = c.Start()
		}
		var group sync.WaitGroup
		for _, p := range procs {
			if p.Err != nil {
				continue
			}
			group.Go(func() {
				ended := make(chan struct{})
				go func() {
					select {
					case <-ctx.Done():
						_ = p.Cmd.Process.Kill()
					case <-ended:
					}
				}()
				p.Err = p.Cmd.Wait()
				close(ended)
			})
		}
		group.Wait()
	}()
	<-done
	return procs
}

// Self is a command that runs this test binary again as a rank: its TestMain
// looks at the variables.
func Self(t testing.TB, env ...string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe)
	c.Env = append(os.Environ(), env...)
	c.WaitDelay = 2 * time.Second
	return c
}

// Check reports processes that failed.
func Check(t testing.TB, procs []*Process) {
	t.Helper()
	for i, p := range procs {
		if p.Err != nil {
			t.Errorf("process %d: %v\n%s", i, p.Err, p.Output.String())
		}
	}
}

// Number reads an integer variable of a rank started by a test.
func Number(name string) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		panic(fmt.Sprintf("%s=%q: %v", name, os.Getenv(name), err))
	}
	return n
}
