package main

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/record"
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
	data    bool   // it needs a text of its own
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
	{name: "the checkpoints' file system turns read-only", codes: envCodes, records: []exitcode.Code{exitcode.Environment},
		strike: func(t testing.TB, c *chaosCase) {
			c.readOnly = readOnly(t, filepath.Join(c.out, record.CheckpointsName))
		},
		heal: func(t testing.TB, c *chaosCase) {
			if c.readOnly {
				if err := unix.Unmount(filepath.Join(c.out, record.CheckpointsName), unix.MNT_DETACH); err != nil {
					t.Fatal(err)
				}
			}
		}},
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
	{name: "a rank is killed, and the metrics end in half a line", codes: lostCodes, records: []exitcode.Code{exitcode.RankLost},
		strike: func(t testing.TB, c *chaosCase) { c.signal(t, syscall.SIGKILL) }, heal: tearMetrics},
	{name: "the launcher is interrupted twice", codes: map[string][]int{"": {7, 130}}, records: []exitcode.Code{exitcode.Stopped, exitcode.Interrupted}, only: "local",
		strike: func(t testing.TB, c *chaosCase) {
			_ = c.p.cmd.Process.Signal(syscall.SIGINT)
			time.Sleep(time.Duration(c.r.IntN(200)) * time.Millisecond)
			_ = c.p.cmd.Process.Signal(syscall.SIGINT)
		}},
	{name: "the folder is removed", codes: envCodes, records: []exitcode.Code{exitcode.Environment}, damages: true,
		strike: func(t testing.TB, c *chaosCase) {
			if gone := c.out + "-gone"; os.Rename(c.out, gone) == nil {
				_ = os.RemoveAll(gone) // the run may write there meanwhile
			}
		}},
	{name: "the text is cut", codes: envCodes, records: []exitcode.Code{exitcode.Environment}, data: true,
		strike: func(t testing.TB, c *chaosCase) {
			if err := os.Truncate(c.text(), 1<<10); err != nil {
				t.Fatal(err)
			}
		},
		heal: func(t testing.TB, c *chaosCase) {
			// The same job again: its text is that of the sources.
			c.job = writeJob(t, chaosJob)
		}},
	{name: "a rank has no memory left", codes: map[string][]int{"": {8}, "openmpi": {137}, "mpich": {9}}, records: []exitcode.Code{exitcode.OutOfMemory},
		strike: limitMemory, heal: func(t testing.TB, c *chaosCase) {
			for range 100 { // the kernel lets go of a group a little after its last process
				if c.group == "" || os.Remove(c.group) == nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
			t.Errorf("%s is left", c.group)
		}},
}

// limitMemory puts a rank into a control group of its own, in which it can have nothing more.
func limitMemory(t testing.TB, c *chaosCase) {
	ranks := processes(t, false)
	if len(ranks) == 0 {
		return
	}
	pid := []byte(strconv.Itoa(ranks[c.r.IntN(len(ranks))]))
	for root, file := range map[string]string{"/sys/fs/cgroup/memory": "memory.limit_in_bytes", "/sys/fs/cgroup": "memory.max"} {
		dir := filepath.Join(root, "pipetrain-chaos-"+strconv.Itoa(os.Getpid()))
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil || os.Mkdir(dir, 0o755) != nil {
			continue
		}
		c.group = dir
		err := os.WriteFile(filepath.Join(dir, file), []byte("262144"), 0o644)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "cgroup.procs"), pid, 0o644)
		}
		if err != nil {
			t.Logf("no limit of memory: %v", err) // the rank has ended, perhaps
		}
		return
	}
	t.Log("no memory cgroup can be made here")
}

// tearMetrics ends the metrics as a machine does that loses power in the middle of a line.
func tearMetrics(t testing.TB, c *chaosCase) {
	f, err := os.OpenFile(filepath.Join(c.out, record.MetricsName), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return // it had none yet
	}
	defer f.Close()
	if _, err := f.WriteString(`{"step":1000,"lo`); err != nil {
		t.Fatal(err)
	}
}

// text is the file that the run trains on.
func (c *chaosCase) text() string { return filepath.Join(filepath.Dir(c.job), "corpus.txt") }

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

// readOnly mounts a folder over itself and makes that read-only, as soon as no file there is open for writing: the kernel
// refuses it before. It says whether there is a mount now.
func readOnly(t testing.TB, dir string) bool {
	t.Helper()
	if unix.Mount(dir, dir, "", unix.MS_BIND, "") != nil {
		return false // the run has not made it yet
	}
	for range 100 {
		if unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "") == nil {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("%s was always being written", dir)
	return true
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
