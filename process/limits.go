package process

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/exitcode"
)

const (
	// tasksOfProcess are the threads that a rank or a launcher has beside those that compute. (Go's runtime
	// ends a process with code 2 where it cannot have one.)
	tasksOfProcess = 14
	// leastAddressSpace is what Go's runtime and the threads of a small job reserve, of which little is used.
	leastAddressSpace = 2 << 30
)

// checkAddressSpace refuses a limit of the shell under which processes of pipetrain would end without
// a word of their own. It comes first of all: every thread takes of that space.
func checkAddressSpace() error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &l); err == nil && l.Cur < leastAddressSpace {
		return exitcode.Errorf(exitcode.Environment, "a process may have %d MiB of address space here (ulimit -v), and needs %d MiB or more, of which it uses little: raise the limit",
			l.Cur>>20, leastAddressSpace>>20)
	}
	return nil
}

// checkTasks does the same for the limit of a user's processes, before this one starts so many, with so
// many threads that compute in each.
func checkTasks(processes, threads int) error {
	var l unix.Rlimit
	const many = 1 << 14 // looking at all processes takes time
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &l); err != nil || l.Cur > many {
		return nil
	}
	tasks, bound := tasksOf("/proc")
	if need := processes * (tasksOfProcess + threads); bound && uint64(tasks+need) > l.Cur {
		return exitcode.Errorf(exitcode.Environment, "you may have %d processes and threads here (ulimit -u) and have %d, and %d processes with %d computing threads each need some %d more: raise the limit, or use fewer ranks or device.threads",
			l.Cur, tasks, processes, threads, need)
	}
	return nil
}

// tasksOf counts the processes and threads of this user; bound says whether the limit holds for this process.
func tasksOf(proc string) (tasks int, bound bool) {
	const mayExceed = 1<<21 | 1<<24 // CAP_SYS_ADMIN, CAP_SYS_RESOURCE
	own := status(filepath.Join(proc, "self"))
	if capabilities, err := strconv.ParseUint(own["CapEff"], 16, 64); err != nil || capabilities&mayExceed != 0 {
		return 0, false
	}
	all, _ := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	for _, dir := range all {
		if s := status(dir); s["Uid"] == own["Uid"] {
			n, _ := strconv.Atoi(s["Threads"])
			tasks += n
		}
	}
	return tasks, true
}

// status reads the first word of each line of a process's status.
func status(dir string) map[string]string {
	s := map[string]string{}
	f, err := os.Open(filepath.Join(dir, "status"))
	if err != nil {
		return s
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		name, rest, _ := strings.Cut(in.Text(), ":")
		var value string
		fmt.Sscan(rest, &value)
		s[name] = value
	}
	return s
}
