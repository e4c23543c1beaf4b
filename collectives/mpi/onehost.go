package mpi

import (
	"os"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// A setting is a variable of the environment that a library reads in MPI_Init.
type setting struct {
	name, value string
	unless      []string // variables of the user by which it is left out
}

// oneHost spares a world on one host the search for networks, which takes most of MPI_Init.
//
// Open MPI loads and tries UCX, libfabric and PSM before it settles for shared memory; its own
// point-to-point layer, ob1, needs none of them (8 ranks on 2 cores, a C program: 0.43 s
// become 0.22 s). MPICH over UCX opens every interface. Worse, the processes of a host exchange
// their addresses in shared memory and spin at barriers without yielding, where they share
// cores against those they wait for; told that they are not local to each other, they ask the
// launcher, asleep, and UCX moves the messages in shared memory all the same (MPI_Init takes
// 108 ms then, not 274). Both use hwloc, whose plugins look for X displays and OpenCL and bring 30 MB of Unicode along.
//
// What the user chose stands, and so do the libraries' choices where messages may be
// memory of GPUs. It returns what it set.
func (c Config) oneHost(lib *library) string {
	l := c.Launch
	if c.Devices || l.Size < 2 || l.LocalSize != l.Size || l.LocalRank < 0 {
		return ""
	}
	var settings []setting
	switch {
	case lib.name == openMPI().name:
		// Of the library's own choices this one rules the others out, and is excluded by each of them.
		settings = []setting{{"OMPI_MCA_pml", "ob1", []string{"OMPI_MCA_mtl", "OMPI_MCA_btl"}}}
	case lib.name == mpich().name && strings.Contains(lib.about, "ch4:ucx"):
		settings = []setting{
			{"UCX_TLS", "sm,self", []string{"UCX_NET_DEVICES"}},
			{"MPIR_CVAR_NOLOCAL", "1", []string{"MPIR_CVAR_NO_LOCAL", "MPIR_CVAR_ODD_EVEN_CLIQUES", "MPIR_CVAR_NUM_CLIQUES"}},
		}
	default:
		return ""
	}
	settings = append(settings, setting{"HWLOC_PLUGINS_PATH", "/nonexistent", []string{"HWLOC_COMPONENTS", "HWLOC_PLUGINS_BLACKLIST"}})
	// Go's environment is a copy; the library reads C's.
	setenv, err := purego.Dlsym(purego.RTLD_DEFAULT, "setenv")
	if err != nil || setenv == 0 {
		return ""
	}
	var done []string
	for _, s := range settings {
		if s.chosen() {
			continue
		}
		n, v := append([]byte(s.name), 0), append([]byte(s.value), 0)
		purego.SyscallN(setenv, uintptr(unsafe.Pointer(&n[0])), uintptr(unsafe.Pointer(&v[0])), 1)
		done = append(done, s.name+"="+s.value)
	}
	return strings.Join(done, " ")
}

// chosen says whether the user has set this or what stands against it.
func (s setting) chosen() bool {
	for _, name := range append(s.unless, s.name) {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}
