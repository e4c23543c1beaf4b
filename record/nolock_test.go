package record

import (
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestNoLocks: a file system that knows no locks (Lustre mounted without flock)
// answers ENOSYS, here by the kernel on this thread (seccomp). The run goes on
// and says what it cannot promise.
func TestNoLocks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		filter := []unix.SockFilter{
			{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the system call's number
			{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FLOCK, Jf: 1},
			{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(syscall.ENOSYS)},
			{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		}
		prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
		}
		if err != nil {
			t.Logf("no seccomp here: %v", err)
			return
		}
		f, err := Create(dir, false)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		if !strings.Contains(f.Note, "no locks") || !strings.Contains(f.Note, dir) {
			t.Errorf("note %q", f.Note)
		}
	}()
	<-done
}
