package mpi

import (
	"os"
	"unsafe"

	"github.com/ebitengine/purego"
)

// oneHost spares a world on one host the search for networks: Open MPI loads and
// tries UCX, libfabric and PSM before it settles for shared memory, which takes half of
// MPI_Init with 8 ranks on 2 cores (0.43 s against 0.22 s for a C program). Its own
// point-to-point layer, ob1, needs none of them. What the user chose stands, and so does
// the choice where messages may be memory of GPUs, which UCX moves better. It returns what it set.
func (c Config) oneHost(lib *library) string {
	const name, value = "OMPI_MCA_pml", "ob1"
	l := c.Launch
	if lib.name != openMPI().name || c.Devices || l.Size < 2 || l.LocalSize != l.Size {
		return ""
	}
	// Of the library's own choices this one rules the others out, and is excluded by each of them.
	for _, set := range []string{name, "OMPI_MCA_mtl", "OMPI_MCA_btl"} {
		if os.Getenv(set) != "" {
			return ""
		}
	}
	// Go's environment is a copy; the library reads C's.
	setenv, err := purego.Dlsym(purego.RTLD_DEFAULT, "setenv")
	if err != nil || setenv == 0 {
		return ""
	}
	n, v := append([]byte(name), 0), append([]byte(value), 0)
	purego.SyscallN(setenv, uintptr(unsafe.Pointer(&n[0])), uintptr(unsafe.Pointer(&v[0])), 1)
	return name + "=" + value
}
