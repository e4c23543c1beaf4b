package launcher

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/exitcode"
)

// Bind says whether ranks get cores of their own.
type Bind string

const (
	// BindAuto gives cores of their own to ranks that are started here, where there are at least
	// as many cores as ranks. Ranks of another launcher stay where it put them.
	BindAuto  Bind = "auto"
	BindCores Bind = "cores" // cores of their own, whoever started the ranks
	BindNUMA  Bind = "numa"  // the cores of one NUMA node, shared with the ranks there
	BindNone  Bind = "none"  // all ranks may run on all cores
)

// coreShare is what one rank gets.
type coreShare struct {
	cpus    []int // bound to these; nil: not bound
	threads int
}

// shareCores splits cpus over the ranks: neighbours to the same rank, so that
// hyper-threads of a core and cores of a socket stay together.
func shareCores(cpus []int, ranks int, bind Bind, threads int) ([]coreShare, error) {
	return shareOf(cpus, ranks, bind, threads, numaNode)
}

// shareOf is shareCores on a machine whose CPUs are on the NUMA nodes that node tells.
func shareOf(cpus []int, ranks int, bind Bind, threads int, node func(cpu int) int) ([]coreShare, error) {
	switch bind {
	case "", BindAuto, BindCores, BindNone:
	case BindNUMA:
		return shareNUMA(cpus, ranks, threads, node), nil
	default:
		return nil, exitcode.Errorf(exitcode.Usage, "launcher: bind %q is unknown; %q, %q, %q or %q", bind, BindAuto, BindCores, BindNUMA, BindNone)
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

// shareNUMA gives each rank the cores of one NUMA node, neighbours the same one.
func shareNUMA(cpus []int, ranks, threads int, node func(cpu int) int) []coreShare {
	on := map[int][]int{}
	for _, c := range cpus {
		on[node(c)] = append(on[node(c)], c)
	}
	nodes := slices.Sorted(maps.Keys(on))
	shares := make([]coreShare, ranks)
	there := map[int]int{} // ranks by node
	at := func(i int) int { return nodes[i*len(nodes)/ranks] }
	for i := range shares {
		if len(nodes) > 0 {
			there[at(i)]++
		}
	}
	for i := range shares {
		shares[i].threads = max(1, threads)
		if len(nodes) == 0 {
			continue
		}
		shares[i].cpus = on[at(i)]
		if threads == 0 {
			shares[i].threads = max(1, len(on[at(i)])/there[at(i)])
		}
	}
	return shares
}

// BindSelf binds this process, a rank of another launcher, to its share of the CPUs that it
// may use, which must be those of all ranks of its host. Where bind leaves the rank where it is
// nothing is done.
func BindSelf(bind Bind, localRank, localSize int) error {
	if bind == "" || bind == BindAuto || bind == BindNone {
		return nil
	}
	all := availableCPUs()
	shares, err := shareCores(all, localSize, bind, 0)
	if err != nil {
		return err
	}
	s := shares[localRank]
	if s.cpus == nil {
		return exitcode.Errorf(exitcode.Environment, "device.bind = %q: %d CPUs are fewer than the %d ranks of this host; \"numa\" or \"none\" let ranks share them", bind, len(all), localSize)
	}
	var set unix.CPUSet
	for _, c := range s.cpus {
		set.Set(c)
	}
	// Threads that are there already have their own; a new one inherits from the one that makes it.
	for again := true; again; {
		again = false
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return exitcode.With(exitcode.Environment, err)
		}
		for _, t := range tasks {
			tid, _ := strconv.Atoi(t.Name())
			var has unix.CPUSet
			if unix.SchedGetaffinity(tid, &has) != nil || has == set {
				continue
			}
			if err := unix.SchedSetaffinity(tid, &set); err != nil && err != unix.ESRCH {
				return exitcode.Errorf(exitcode.Environment, "device.bind = %q: CPUs %v: %v", bind, s.cpus, err)
			}
			again = true
		}
	}
	return nil
}

// numaNode is the NUMA node of a CPU, 0 where the kernel knows of none.
func numaNode(cpu int) int {
	found, _ := filepath.Glob(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/node[0-9]*", cpu))
	if len(found) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimPrefix(filepath.Base(found[0]), "node"))
	return n
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
