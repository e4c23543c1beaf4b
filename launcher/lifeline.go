package launcher

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A foreign launcher kills all ranks as soon as it learns that one has died, and it learns
// that from a socket which the kernel closes long before it reports the death: another rank's
// death can overtake the first one's. What cannot be overtaken is the order in which the kernel closes
// the descriptors of a dying process: it queues all, and works through that from the last one
// on (task_work_run, since Linux 4.3; pidfds need 5.3). So each rank holds a pipe at a high number, above
// the sockets of its launcher and its MPI library, and its guard holds the other end: whose pipe
// closes first, died first.

// lifelineBelow bounds the number, since the kernel's table of descriptors grows with it.
const lifelineBelow = 4096

// OpenLifeline opens this process's lifeline, for its whole life, and returns the descriptor
// by which a guard finds it, see Guarded.
func OpenLifeline() (fd int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return 0, os.NewSyscallError("pipe2", err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, os.NewSyscallError("getrlimit", err)
	}
	high := int(min(limit.Cur, lifelineBelow)) - 1
	if _, err := unix.FcntlInt(uintptr(p[1]), unix.F_DUPFD_CLOEXEC, high); err != nil {
		return p[0], nil // taken, with all above it: the one that there is will do
	}
	unix.Close(p[1])
	return p[0], nil
}

// openLifeline opens the guard's end of a rank's lifeline.
func openLifeline(r Guarded) (int, error) {
	if r.Lifeline <= 0 {
		return -1, unix.EBADF
	}
	return unix.Open(fmt.Sprintf("/proc/%d/fd/%d", r.PID, r.Lifeline), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}
