//go:build !((linux || darwin) && (amd64 || arm64))

package cpu

import "fmt"

type dynamicLibrary struct{}

func dnnlVersion(*dynamicLibrary) (string, error)     { return "", nil }
func mklVersion(*dynamicLibrary) (string, error)      { return "", nil }
func blisVersion(*dynamicLibrary) (string, error)     { return "", nil }
func openblasVersion(*dynamicLibrary) (string, error) { return "", nil }

func openLibrary(l blasLibrary, _ []string) (sgemmer, error) {
	return nil, fmt.Errorf("cpu: BLAS %s: libraries cannot be loaded on this platform; choose \"go\"", l.name)
}
