package mpi

import (
	"bytes"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigactions are the handlers of all signals, as the kernel's own structures,
// which are never looked into.
type sigactions [65][64]byte

// saveSignals reads every handler: MPICH over UCX replaces Go's for SIGSEGV and
// others in MPI_Init, after which a nil dereference that Go would turn into a
// panic kills the process, and a SIGUSR1 can end it.
func saveSignals() *sigactions {
	s := &sigactions{}
	for sig := 1; sig <= 64; sig++ {
		_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&s[sig])), 8, 0, 0)
	}
	return s
}

// restore puts back what has changed and returns those signals.
func (s *sigactions) restore() (changed []int) {
	now := saveSignals()
	for sig := 1; sig <= 64; sig++ {
		if sig == int(unix.SIGKILL) || sig == int(unix.SIGSTOP) || bytes.Equal(now[sig][:], s[sig][:]) {
			continue
		}
		if _, _, e := syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&s[sig])), 0, 8, 0, 0); e == 0 {
			changed = append(changed, sig)
		}
	}
	return changed
}

// nap sleeps d without the Go timer, whose resolution on a busy process is a
// millisecond.
func nap(d int64) {
	ts := unix.NsecToTimespec(d)
	_, _, _ = syscall.Syscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// sharpen lets this thread's sleeps end on time; the default slack is 50 µs.
func sharpen() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) }

// yield gives the core to another process that wants it.
func yield() { _, _, _ = syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
