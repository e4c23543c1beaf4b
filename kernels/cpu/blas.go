package cpu

import "fmt"

// openBLAS finds who multiplies matrices.
func openBLAS(name string, vec *vecKernels) (sgemmer, error) {
	switch name {
	case "", "auto", "go":
		return ownBLAS{&vec.gemm}, nil
	}
	return nil, fmt.Errorf("cpu: BLAS %q is unknown", name)
}
