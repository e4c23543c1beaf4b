package launcher

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A foreign launcher kills all ranks as soon as it learns that one has died, and it learns
// that from a socket which the kernel closes long before it reports the death: another rank's
// death can overtake the first one's. What cannot be overtaken is the order in which a dying
// process's descriptors close, from the lowest number up. So each rank holds a pipe below its
// launcher's socket, its guard the other end: whose pipe closes first, died first.

// pmiFD is the variable with the number of the socket to the process manager (Hydra's
// wire protocol, PMI-1 and PMI-2), which the MPI library looks for there.
const pmiFD = "PMI_FD"

// OpenLifeline opens this process's lifeline, for its whole life, and returns the descriptor
// by which a guard finds it, see Guarded. It is to be called before the MPI library is loaded:
// it may move the process manager's socket out of the way.
func OpenLifeline() (fd int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return 0, os.NewSyscallError("pipe2", err)
	}
	place, err := strconv.Atoi(os.Getenv(pmiFD))
	if err != nil || place < 0 || place > p[1] {
		return p[0], nil
	}
	moved, err := unix.FcntlInt(uintptr(place), unix.F_DUPFD, p[1]+1)
	if err != nil { // a number that is no descriptor: the MPI library will say so
		return p[0], nil
	}
	// The library reads C's environment, which Setenv writes too.
	if err := os.Setenv(pmiFD, strconv.Itoa(moved)); err != nil {
		unix.Close(moved)
		return p[0], err
	}
	if err := unix.Dup3(p[1], place, unix.O_CLOEXEC); err != nil {
		return p[0], os.NewSyscallError("dup3", err)
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
