package local

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	futexWaitOp = 0
	futexWakeOp = 1
)

// futexSleep sleeps while *addr is val, at most d.
func futexSleep(addr *uint32, val uint32, d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_, _, _ = syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(addr)), futexWaitOp, uintptr(val), uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// futexWake wakes all who sleep on addr.
func futexWake(addr *uint32) {
	_, _, _ = syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(addr)), futexWakeOp, 1<<30, 0, 0, 0)
}

// yield gives the core to another process that wants it.
func yield() { _, _, _ = syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// readMemory copies len(dst) bytes at addr in process pid.
func readMemory(pid int, dst []byte, addr uint64) error {
	for len(dst) > 0 {
		to := unix.Iovec{Base: &dst[0]}
		to.SetLen(len(dst))
		from := unix.RemoteIovec{Base: uintptr(addr), Len: len(dst)}
		n, err := unix.ProcessVMReadv(pid, []unix.Iovec{to}, []unix.RemoteIovec{from}, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n <= 0 {
			return unix.EFAULT
		}
		dst, addr = dst[n:], addr+uint64(n)
	}
	return nil
}

// allowReading lets peers of the same user read this process where Yama
// (ptrace_scope 1) would only allow its ancestors to.
func allowReading() {
	const anyProcess = ^uintptr(0)
	_ = unix.Prctl(unix.PR_SET_PTRACER, anyProcess, 0, 0, 0)
}

// processStart returns the start time of a living process in clock ticks, and
// false when it is gone or a zombie.
func processStart(pid int) (uint64, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	// The name, in brackets, may hold blanks and brackets itself.
	s := string(b)
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return 0, false
	}
	t, err := strconv.ParseUint(f[19], 10, 64)
	return t, err == nil
}

// Create makes the segment of a world of this many ranks: an anonymous file
// (memfd) that has no name to be taken or left behind, and goes with the last
// process that holds it. The launcher passes it to every rank as an inherited
// file (exec.Cmd.ExtraFiles); the rank calls Join.
func Create(size int) (*os.File, error) {
	if size < 1 || size > MaxRanks {
		return nil, fmt.Errorf("local: a world of %d ranks: want 1 to %d on one host", size, MaxRanks)
	}
	fd, err := unix.MemfdCreate("pipetrain-local", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("local: no shared memory: memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "pipetrain-local")
	s := &segment{size: size, ring: ringBytesFor(size)}
	total := segmentBytes(size, s.ring)
	if err := f.Truncate(int64(total)); err != nil {
		f.Close()
		return nil, fmt.Errorf("local: no shared memory of %d MiB: %w", total>>20, err)
	}
	s.mem = make([]byte, headerBytes)
	s.format()
	if _, err := f.WriteAt(s.mem, 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("local: cannot write to shared memory: %w", err)
	}
	return f, nil
}

// mapSegment maps the file of Create into this process.
func mapSegment(file *os.File, size int) (*segment, error) {
	head := make([]uint64, headerBytes/8)
	hb := unsafe.Slice((*byte)(unsafe.Pointer(&head[0])), headerBytes)
	if _, err := file.ReadAt(hb, 0); err != nil {
		return nil, fmt.Errorf("local: cannot read the inherited segment (%s): %w", file.Name(), err)
	}
	ring, err := checkHeader(hb, size)
	if err != nil {
		return nil, err
	}
	total := segmentBytes(size, ring)
	if st, err := file.Stat(); err == nil && st.Size() < int64(total) {
		return nil, fmt.Errorf("local: the segment is cut short: %d of %d bytes", st.Size(), total)
	}
	mem, err := unix.Mmap(int(file.Fd()), 0, total, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("local: mapping %d MiB of shared memory: %w", total>>20, err)
	}
	return &segment{mem: mem, size: size, ring: ring}, nil
}

func (s *segment) unmap() {
	if s.keep == nil { // else the ranks of this process share it
		_ = unix.Munmap(s.mem)
		s.mem = nil
	}
}
