package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// checkMemfd makes a piece of nameless shared memory, as the local transport does.
func checkMemfd(_ context.Context, _ *Host) []Finding {
	return []Finding{tryMemfd(unix.MemfdCreate, 64<<20)}
}

func tryMemfd(create func(name string, flags int) (int, error), bytes int64) Finding {
	fix := "allow memfd_create (a container's seccomp profile may forbid it), or use transport.kind = \"mpi\""
	fd, err := create("pipetrain-doctor", unix.MFD_CLOEXEC)
	if err != nil {
		return fails(fix, "memfd_create: %v: the local transport cannot run", err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, bytes); err != nil {
		return fails("raise the limit on file size (ulimit -f unlimited)", "a memfd of %s: %v", size(bytes), err)
	}
	mem, err := unix.Mmap(fd, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fails("raise the limit on address space (ulimit -v unlimited)", "mapping a memfd of %s: %v", size(bytes), err)
	}
	defer unix.Munmap(mem)
	const word = "pipetrain"
	copy(mem[len(mem)-len(word):], word)
	back := make([]byte, len(word))
	if _, err := unix.Pread(fd, back, bytes-int64(len(word))); err != nil || string(back) != word {
		return fails(fix, "what was written to a memfd reads back as %q (%v)", back, err)
	}
	return ok("shared memory without a name works (%s written and read)", size(bytes))
}

// checkDirectCopy reads another process's memory, as the local transport does
// for large messages; without it they go through a ring, copied twice.
func checkDirectCopy(ctx context.Context, h *Host) []Finding {
	ring := "large messages go through shared memory instead, copied twice"
	pid, stop, err := sleeper(ctx)
	if err != nil {
		return []Finding{warn("", "not checked: %v", err)}
	}
	defer stop()
	if err := readPeer(pid); err != nil {
		fix := "allow it (containers: --cap-add=SYS_PTRACE, or a seccomp profile with process_vm_readv)"
		return []Finding{warn(fix, "process_vm_readv: %v: %s", err, ring)}
	}
	// This process is the child's parent, whom Yama's mode 1 still lets read; ranks are siblings.
	switch scope := h.read("/proc/sys/kernel/yama/ptrace_scope"); scope {
	case "2", "3":
		return []Finding{warn("as root: sysctl kernel.yama.ptrace_scope=1", "kernel.yama.ptrace_scope is %s: only root reads other processes; %s", scope, ring)}
	case "1":
		return []Finding{ok("a child's memory reads back; siblings allow each other (kernel.yama.ptrace_scope is 1)")}
	}
	return []Finding{ok("another process's memory reads back")}
}

// sleeper starts a process to read from.
func sleeper(ctx context.Context) (pid int, stop func(), err error) {
	cmd := exec.CommandContext(ctx, "sleep", "60")
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	return cmd.Process.Pid, func() { cmd.Process.Kill(); cmd.Wait() }, nil
}

// readPeer copies the first bytes of a program that another process has mapped
// and compares them with what is known to be there: ELF's mark.
func readPeer(pid int) error {
	addr, err := programAddress(pid)
	if err != nil {
		return err
	}
	buf := make([]byte, 4)
	local := []unix.Iovec{{Base: &buf[0], Len: uint64(len(buf))}}
	n, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: addr, Len: len(buf)}}, 0)
	if err != nil {
		return err
	}
	if n != len(buf) || string(buf) != "\x7fELF" {
		return fmt.Errorf("%d bytes %q came instead of a program's beginning", n, buf)
	}
	return nil
}

// programAddress returns where a process has mapped the start of its program.
func programAddress(pid int) (uintptr, error) {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return 0, err
	}
	// The child exists before it has replaced itself by its program.
	for range 100 {
		f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
		if err != nil {
			return 0, err
		}
		addr, err := mappingOf(f, exe)
		f.Close()
		if err == nil {
			return addr, nil
		}
		time.Sleep(time.Millisecond)
		if exe, err = os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("process %d shows no mapping of its program", pid)
}

var errNoMapping = errors.New("no such mapping")

// mappingOf finds the mapping of a file's first page in the text of /proc/PID/maps.
func mappingOf(maps io.Reader, file string) (uintptr, error) {
	scan := bufio.NewScanner(maps)
	for scan.Scan() {
		// 55d0-55d2 r--p 00000000 fe:00 1234 /usr/bin/sleep
		fields := strings.Fields(scan.Text())
		if len(fields) < 6 || fields[5] != file || strings.Trim(fields[2], "0") != "" || !strings.HasPrefix(fields[1], "r") {
			continue
		}
		start, _, _ := strings.Cut(fields[0], "-")
		addr, err := strconv.ParseUint(start, 16, 64)
		return uintptr(addr), err
	}
	return 0, errNoMapping
}
