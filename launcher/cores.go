package launcher

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/exitcode"
)

// Bind says whether ranks get cores of their own.
type Bind string

const (
	BindAuto Bind = "auto" // cores of their own where there are at least as many cores as ranks
	BindNone Bind = "none" // all ranks may run on all cores
)

// coreShare is what one rank gets.
type coreShare struct {
	cpus    []int // bound to these; nil: not bound
	threads int
}

// shareCores splits cpus over the ranks: neighbours to the same rank, so that
// hyper-threads of a core and cores of a socket stay together.
func shareCores(cpus []int, ranks int, bind Bind, threads int) ([]coreShare, error) {
	switch bind {
	case "", BindAuto, BindNone:
	default:
		return nil, exitcode.Errorf(exitcode.Usage, "launcher: bind %q is unknown; %q or %q", bind, BindAuto, BindNone)
	}
	shares := make([]coreShare, ranks)
	for i := range shares {
		shares[i].threads = max(1, len(cpus)/ranks)
		if bind != BindNone && len(cpus) >= ranks {
			shares[i].cpus = cpus[i*len(cpus)/ranks : (i+1)*len(cpus)/ranks]
			shares[i].threads = len(shares[i].cpus)
		}
		if threads > 0 {
			shares[i].threads = threads
		}
	}
	return shares, nil
}

// apply sets the calling thread's cores, which a process started from it inherits.
func (s coreShare) apply() {
	if s.cpus == nil {
		return
	}
	var set unix.CPUSet
	for _, c := range s.cpus {
		set.Set(c)
	}
	// A rank that is not bound is slower at worst: not worth failing for.
	_ = unix.SchedSetaffinity(0, &set)
}

// availableCPUs are the CPUs this process may use, ordered by socket, core and
// thread.
func availableCPUs() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil
	}
	var cpus []int
	for c := 0; c < len(set)*64; c++ {
		if set.IsSet(c) {
			cpus = append(cpus, c)
		}
	}
	place := map[int][2]int{}
	for _, c := range cpus {
		place[c] = [2]int{topology(c, "physical_package_id"), topology(c, "core_id")}
	}
	slices.SortStableFunc(cpus, func(a, b int) int {
		pa, pb := place[a], place[b]
		return slices.Compare(pa[:], pb[:])
	})
	return cpus
}

func topology(cpu int, what string) int {
	b, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/%s", cpu, what))
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n
}
