package launcher

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
)

// A rank that the kernel really ends for want of memory, in a memory group of 128 MiB.
func TestOutOfMemory(t *testing.T) {
	group := memoryGroup(t, 128<<20)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &started{t: t, dir: t.TempDir(), segment: segmentName(t), lines: make(chan string, 1000)}
	s.cmd = exec.Command("/bin/sh", "-c", "echo $$ > "+group+"/cgroup.procs && exec "+self)
	s.cmd.Env = append(os.Environ(), testMode+"=launcher", "LAUNCHER_TEST_SEGMENT="+s.segment, testConfig+"="+asJSON(settings{
		Binary: self, Ranks: 2, RunDir: s.dir, StartTimeout: 20 * time.Second,
		Env: append(os.Environ(), testMode+"=rank", testScript+"=*: joined; wait | 1: joined; train 3; eat")}))
	errs, _ := s.cmd.StderrPipe()
	s.reading.Go(func() { s.collect(errs) })
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.end(exitcode.OutOfMemory)
	r, _ := exitcode.Read(s.dir)
	if r.Rank != 1 || r.Signal != "SIGKILL" || !strings.Contains(r.Reason, "OOM killer") {
		t.Errorf("record %+v", r)
	}
}

// memoryGroup makes a memory cgroup, version 1 or 2, or skips where it may not.
func memoryGroup(t *testing.T, limit int64) string {
	t.Helper()
	for root, file := range map[string]string{"/sys/fs/cgroup/memory": "memory.limit_in_bytes", "/sys/fs/cgroup": "memory.max"} {
		dir := filepath.Join(root, fmt.Sprintf("pipetrain-test-%d", os.Getpid()))
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil || os.Mkdir(dir, 0o755) != nil {
			continue
		}
		if os.WriteFile(filepath.Join(dir, file), []byte(fmt.Sprint(limit)), 0o644) != nil {
			os.Remove(dir)
			continue
		}
		os.WriteFile(filepath.Join(dir, "memory.swap.max"), []byte("0"), 0o644)
		t.Cleanup(func() {
			for range 50 { // the kernel lets go of a group a little after its last process
				if os.Remove(dir) == nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
		return dir
	}
	t.Skip("no memory cgroup can be made here (it takes root and a writable /sys/fs/cgroup)")
	return ""
}

func TestOOMCounters(t *testing.T) {
	f := filepath.Join(t.TempDir(), "memory.events")
	if err := os.WriteFile(f, []byte("low 0\noom 3\noom_kill 2\noom_group_kill 9\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if n := oomCount(f); n != 2 {
		t.Errorf("oom_kill = %d, want 2", n)
	}
	o := oomWatch{files: []string{f}, before: map[string]int64{f: 2}, since: bootClock()}
	if e := o.evidence(1); e != "" {
		t.Errorf("nothing happened, evidence %q", e)
	}
	o.before[f] = 1
	if e := o.evidence(1); !strings.Contains(e, "rose by 1") {
		t.Errorf("evidence %q", e)
	}
}
