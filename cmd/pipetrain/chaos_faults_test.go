package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/exitcode"
)

// fault is one kind of what can befall a run.
type fault struct {
	name string
	// codes are those that the run may end with beside 0, by launcher, "" for those not named; records those of exit.json.
	codes   map[string][]int
	records []exitcode.Code
	args    []string
	disk    string // the run folder is on a file system of its own, with these mount options
	loud    bool   // it writes for people
	only    string // the launcher under which it makes sense: mpirun itself waits for its readers
	damages bool   // checkpoints may be lost
	strike  func(t testing.TB, c *chaosCase)
	heal    func(t testing.TB, c *chaosCase)
}

var (
	// Of a run that lost a rank. Interrupted: the fault came before a step, by way of a signal.
	lostCodes = map[string][]int{"": {4}, "openmpi": {137, 4, 1}, "mpich": {9, 4}}
	envCodes  = map[string][]int{"": {3}, "mpich": {3}, "openmpi": {3}}
)

var faults = []fault{
	{name: "a rank is killed", codes: lostCodes, records: []exitcode.Code{exitcode.RankLost},
		strike: func(t testing.TB, c *chaosCase) { c.signal(t, syscall.SIGKILL) }},
	{name: "a rank stands still for a while",
		strike: func(t testing.TB, c *chaosCase) {
			c.signal(t, syscall.SIGSTOP)
			time.Sleep(time.Duration(c.r.IntN(1000)) * time.Millisecond)
			c.thaw()
		}},
	{name: "a rank stands still", codes: map[string][]int{"": {5, 4}, "openmpi": {5, 4, 137}, "mpich": {5, 4, 9}}, records: []exitcode.Code{exitcode.Stalled, exitcode.RankLost},
		args: []string{"--set", "run.stall_timeout=1s", "--set", "run.start_timeout=3s"},
		strike: func(t testing.TB, c *chaosCase) {
			c.signal(t, syscall.SIGSTOP)
			select {
			case <-c.p.done:
			case <-time.After(10 * time.Second): // under mpirun, a rank that stops before it meets the others is nobody's to notice
				c.thaw()
			}
		}},
	{name: "all stand still for a while", args: []string{"--set", "run.stall_timeout=1s"},
		strike: func(t testing.TB, c *chaosCase) {
			for _, pid := range processes(t, true) {
				if syscall.Kill(pid, syscall.SIGSTOP) == nil {
					c.stopped = append(c.stopped, pid)
				}
			}
			time.Sleep(2 * time.Second)
			c.thaw()
		}},
	{name: "the launcher is asked to stop", codes: map[string][]int{"": {7, 130, 143}, "openmpi": {7, 1, 130, 143}, "mpich": {7, 130, 143}}, records: []exitcode.Code{exitcode.Stopped, exitcode.Interrupted},
		strike: func(t testing.TB, c *chaosCase) { _ = c.p.cmd.Process.Signal(syscall.SIGTERM) }},
	{name: "the launcher is killed", codes: map[string][]int{"": {137}}, records: []exitcode.Code{exitcode.RankLost, exitcode.Stopped, exitcode.Interrupted},
		strike: func(t testing.TB, c *chaosCase) { _ = c.p.cmd.Process.Kill() }},
	{name: "a rank is asked to stop", codes: map[string][]int{"": {7, 4}, "openmpi": {7, 138, 4, 1}, "mpich": {7, 10, 4}}, records: []exitcode.Code{exitcode.Stopped, exitcode.RankLost, exitcode.Interrupted},
		strike: func(t testing.TB, c *chaosCase) { c.signal(t, syscall.SIGUSR1) }},
	{name: "the disk is full", codes: envCodes, records: []exitcode.Code{exitcode.Environment}, disk: "size=6m",
		strike: func(t testing.TB, c *chaosCase) { fillUp(t, filepath.Join(c.root, "full")) },
		heal: func(t testing.TB, c *chaosCase) {
			if err := os.Remove(filepath.Join(c.root, "full")); err != nil {
				t.Fatal(err)
			}
		}},
	{name: "the file system turns read-only", codes: envCodes, records: []exitcode.Code{exitcode.Environment}, disk: "size=64m",
		strike: func(t testing.TB, c *chaosCase) { remount(t, c.root, unix.MS_RDONLY) },
		heal:   func(t testing.TB, c *chaosCase) { remount(t, c.root, 0) }},
	{name: "nobody reads the output", loud: true,
		strike: func(t testing.TB, c *chaosCase) { close(c.deaf) }, only: "local"},
	{name: "the folder is moved", codes: envCodes, records: []exitcode.Code{exitcode.Environment},
		strike: func(t testing.TB, c *chaosCase) {
			if moved := c.out + "-moved"; os.Rename(c.out, moved) == nil { // else it is not there yet
				c.out = moved
			}
		}},
	{name: "a rank is killed, and a checkpoint is cut", codes: lostCodes, records: []exitcode.Code{exitcode.RankLost}, damages: true,
		strike: func(t testing.TB, c *chaosCase) { c.signal(t, syscall.SIGKILL) },
		heal:   cutCheckpoint},
}

// signal sends a signal to one rank, if there is one.
func (c *chaosCase) signal(t testing.TB, s syscall.Signal) {
	ranks := processes(t, false)
	if len(ranks) == 0 {
		return
	}
	pid := ranks[c.r.IntN(len(ranks))]
	if syscall.Kill(pid, s) == nil && s == syscall.SIGSTOP {
		c.stopped = append(c.stopped, pid)
	}
}

func (c *chaosCase) thaw() {
	for _, pid := range c.stopped {
		_ = syscall.Kill(pid, syscall.SIGCONT) // ended meanwhile, perhaps
	}
}

// remount changes the flags of a mount; while files are open for writing the kernel refuses to make it read-only, so that is
// tried for a while.
func remount(t testing.TB, dir string, flags uintptr) {
	t.Helper()
	for range 100 {
		if unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|flags, "") == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	if flags == 0 {
		t.Fatalf("%s stays read-only", dir)
	}
}

// cutCheckpoint shortens a file of the newest checkpoint, where there is an older one to go on from.
func cutCheckpoint(t testing.TB, c *chaosCase) {
	dirs, err := filepath.Glob(filepath.Join(c.out, "checkpoints", "step-????????"))
	if err != nil {
		t.Fatal(err)
	}
	if len(dirs) < 2 {
		return
	}
	files, err := filepath.Glob(filepath.Join(dirs[len(dirs)-1], "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v has no files: %v", dirs, err)
	}
	file := files[c.r.IntN(len(files))]
	st, err := os.Stat(file)
	if err == nil {
		err = os.Truncate(file, st.Size()*int64(c.r.IntN(100))/100)
	}
	if err != nil {
		t.Fatal(err)
	}
}
