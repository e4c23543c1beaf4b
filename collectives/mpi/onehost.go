package mpi

import "strings"

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
	return choose(settings...)
}
