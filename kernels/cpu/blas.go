package cpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// blasLibrary is a kind of BLAS that may be on the machine.
type blasLibrary struct {
	name string
	// files are sonames for the system's loader; patterns are paths where
	// installers put it without telling the loader, newest last.
	files, patterns []string
	// env is set for C, where the user has not set it, before the library is loaded.
	env map[string]string
	// after runs once the library is loaded and returns its version.
	after func(lib *dynamicLibrary) (version string, err error)
	// before may add to env what depends on the processor.
	before func() map[string]string
	// symbol is the entry to call; "sgemm_" unless said otherwise.
	symbol string
}

// oneThread keeps every runtime that a BLAS may bring from starting threads:
// the device shares a product out itself (see sgemmer). These overrule the
// user's settings, which are meant for programs that leave it to the library.
var oneThread = map[string]string{
	"OMP_NUM_THREADS":      "1",
	"OPENBLAS_NUM_THREADS": "1",
	"GOTO_NUM_THREADS":     "1",
	"BLIS_NUM_THREADS":     "1",
	"MKL_NUM_THREADS":      "1",
	// Without these MKL picks its threading by what else is loaded.
	"MKL_THREADING_LAYER": "SEQUENTIAL",
	"MKL_INTERFACE_LAYER": "LP64,GNU",
}

// blasLibraries are tried by "auto", where it wants one, in this order. It is fixed, not measured:
// ranks of one job must all multiply with the same library, or their results
// would differ by what ran on a host in the moment of the measurement.
var blasLibraries = []blasLibrary{
	{
		name:     "onednn",
		files:    []string{"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so", "libdnnl.dylib"},
		patterns: []string{"/opt/intel/oneapi/dnnl/*/lib/libdnnl.so*", "/opt/intel/oneapi/dnnl/*/cpu_gomp/lib/libdnnl.so*"},
		symbol:   "dnnl_sgemm",
		after:    dnnlVersion,
	},
	{
		name:     "mkl",
		files:    []string{"libmkl_rt.so.3", "libmkl_rt.so.2", "libmkl_rt.so.1", "libmkl_rt.so", "libmkl_rt.dylib"},
		patterns: []string{"/opt/intel/oneapi/mkl/*/lib/libmkl_rt.so*", "/opt/intel/oneapi/mkl/*/lib/intel64/libmkl_rt.so*", "/opt/intel/mkl/lib/intel64/libmkl_rt.so*"},
		// Without it results depend on the alignment of the operands.
		env:   map[string]string{"MKL_CBWR": "AUTO,STRICT"},
		after: mklVersion,
	},
	{
		name:     "blis",
		files:    []string{"libblis.so.4", "libblis-mt.so.5", "libblis.so.5", "libblis.so.3", "libblis.so", "libblis.dylib"},
		patterns: []string{"/opt/AMD/aocl/*/gcc/lib/libblis*.so*", "/opt/AMD/aocl/*/lib/libblis*.so*"},
		after:    blisVersion,
	},
	{
		name:     "openblas",
		files:    []string{"libopenblas.so.0", "libopenblas.so", "libopenblasp.so.0", "libopenblas.dylib"},
		patterns: []string{"/opt/OpenBLAS/lib/libopenblas.so*", "/opt/homebrew/opt/openblas/lib/libopenblas.dylib"},
		before:   openblasCore,
		after:    openblasVersion,
	},
}

// openblasCore asks for the AVX-512 kernels, which releases older than the
// processor do not choose by themselves.
func openblasCore() map[string]string {
	if hasAVX512() {
		return map[string]string{"OPENBLAS_CORETYPE": "SKYLAKEX"}
	}
	return nil
}

// BLASNames lists what Options.BLAS takes besides a path.
func BLASNames() []string {
	names := []string{"auto"}
	for _, l := range blasLibraries {
		names = append(names, l.name)
	}
	return append(names, "go")
}

// openBLAS finds who multiplies matrices.
func openBLAS(name string, vec *vecKernels) (sgemmer, error) {
	switch {
	case name == "go":
		return ownBLAS{&vec.gemm}, nil
	case name == "" || name == "auto":
		return autoBLAS(vec), nil
	case strings.ContainsRune(name, filepath.Separator):
		return openLibrary(kindOf(name), []string{name})
	}
	for _, l := range blasLibraries {
		if l.name == name {
			return openLibrary(l, l.places())
		}
	}
	return nil, fmt.Errorf("cpu: BLAS %q is unknown: want %s, or the path of a library that has sgemm_", name, strings.Join(BLASNames(), ", "))
}

// autoBLAS prefers the own kernels where they are in assembly. They run at 88 to 97 %
// of the fastest library measured, and what libraries cannot promise: the same
// bits whatever is installed on a host and for every number of threads. Elsewhere
// the first library found, and plain Go when there is none.
func autoBLAS(vec *vecKernels) sgemmer {
	if vec.gemm.fast {
		return ownBLAS{&vec.gemm}
	}
	for _, l := range blasLibraries {
		if b, err := openLibrary(l, l.places()); err == nil {
			return b
		}
	}
	return ownBLAS{&vec.gemm}
}

// places lists what to hand to the loader, in order.
func (l blasLibrary) places() []string {
	list := append([]string(nil), l.files...)
	for _, p := range l.patterns {
		found, _ := filepath.Glob(p)
		for i := len(found) - 1; i >= 0; i-- { // sorted: the newest is last
			if _, err := os.Stat(found[i]); err == nil {
				list = append(list, found[i])
			}
		}
	}
	return list
}

// kindOf is the library that a path seems to be, by its file name.
func kindOf(path string) blasLibrary {
	base := filepath.Base(path)
	for _, l := range blasLibraries {
		for _, f := range l.files {
			stem, _, _ := strings.Cut(f, ".")
			if strings.HasPrefix(base, stem) {
				return l
			}
		}
	}
	return blasLibrary{name: base}
}
