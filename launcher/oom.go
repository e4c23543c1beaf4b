package launcher

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// oomWatch remembers how many processes the kernel had killed for want of
// memory when the world started: a SIGKILL looks the same whoever sent it.
type oomWatch struct {
	files  []string // files with an oom_kill counter that count for our ranks
	before map[string]int64
	since  time.Duration // kernel clock at the start
}

func watchOOM() oomWatch {
	o := oomWatch{files: oomCounters(), before: map[string]int64{}, since: bootClock()}
	for _, f := range o.files {
		o.before[f] = oomCount(f)
	}
	return o
}

// evidence says whether the kernel ended this process for want of memory, in
// the words of a verdict; empty where nothing speaks for it.
func (o oomWatch) evidence(pid int) string {
	if oomLog(pid, o.since) {
		return "the kernel's OOM killer ended it"
	}
	for _, f := range o.files {
		if n := oomCount(f); n > o.before[f] {
			return fmt.Sprintf("the kernel's OOM killer came meanwhile (oom_kill in %s rose by %d)", f, n-o.before[f])
		}
	}
	return ""
}

// oomCounters are the counters of the memory cgroups that hold this process and
// so its ranks: version 1 or 2.
func oomCounters() (files []string) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	for _, line := range strings.Split(string(b), "\n") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 {
			continue
		}
		var root, name string
		switch {
		case parts[1] == "":
			root, name = "/sys/fs/cgroup", "memory.events"
		case strings.Contains(","+parts[1]+",", ",memory,"):
			root, name = "/sys/fs/cgroup/memory", "memory.oom_control"
		default:
			continue
		}
		// Version 1 counts in the group that hit its own limit, which may be a parent;
		// inside a container the path as the host sees it is not there at all.
		for dir := parts[2]; ; dir = filepath.Dir(dir) {
			f := filepath.Join(root, dir, name)
			if _, err := os.Stat(f); err == nil {
				files = append(files, f)
			}
			if dir == "/" || dir == "." {
				break
			}
		}
	}
	return files
}

func oomCount(file string) int64 {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(b), "\n") {
		if value, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.ParseInt(value, 10, 64)
			return n
		}
	}
	return 0
}

var killedProcess = regexp.MustCompile(`[Kk]illed process (\d+)`)

// oomLog looks in the kernel's log, where it may be read, for this process's end.
func oomLog(pid int, since time.Duration) bool {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	buf := make([]byte, 8192)
	for range 100_000 { // the log is a ring; its end is EAGAIN
		n, err := unix.Read(fd, buf)
		if err == unix.EPIPE { // overwritten while we read
			continue
		}
		if err != nil || n == 0 {
			return false
		}
		// "6,339,5140900,-;Memory cgroup out of memory: Killed process 123 (x) …"
		head, text, _ := bytes.Cut(buf[:n], []byte(";"))
		fields := bytes.Split(head, []byte(","))
		if len(fields) < 3 {
			continue
		}
		us, _ := strconv.ParseInt(string(fields[2]), 10, 64)
		if time.Duration(us)*time.Microsecond < since-10*time.Second {
			continue
		}
		if m := killedProcess.FindSubmatch(text); m != nil && string(m[1]) == strconv.Itoa(pid) {
			return true
		}
	}
	return false
}

// bootClock is the clock of the kernel's log.
func bootClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// panicIsLimit says whether a message of the runtime is about a limit of the user's or the host's.
func panicIsLimit(line string) bool {
	return strings.Contains(line, "pthread_create failed") || strings.Contains(line, "newosproc") || strings.Contains(line, "failed to reserve")
}

// panicIsMemory says whether a message of the Go runtime is about memory.
func panicIsMemory(line string) bool {
	return strings.Contains(line, "out of memory") || strings.Contains(line, "cannot allocate memory")
}
