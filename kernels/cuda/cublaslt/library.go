// Package cublaslt binds the matrix products of NVIDIA's cublasLt, loaded at run
// time. Matrices are row-major here; the library's own order is by columns, in which the
// same memory is the transposed matrix.
package cublaslt

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"
)

// Names are the sonames that are looked for, newest first.
var Names = []string{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"}

// ErrNoLibrary says that no cublasLt could be loaded.
var ErrNoLibrary = errors.New("cublasLt could not be loaded")

// Library is a loaded cublasLt with a handle for the current context's card.
type Library struct {
	path   string
	handle uintptr
	fn     functions
}

type functions struct {
	version, create, destroy                           uintptr
	descCreate, descDestroy, descSet                   uintptr
	layoutCreate, layoutDestroy                        uintptr
	preferenceCreate, preferenceDestroy, preferenceSet uintptr
	heuristic, matmul                                  uintptr
}

func (f *functions) table() map[string]*uintptr {
	return map[string]*uintptr{
		"cublasLtGetVersion": &f.version, "cublasLtCreate": &f.create, "cublasLtDestroy": &f.destroy,
		"cublasLtMatmulDescCreate": &f.descCreate, "cublasLtMatmulDescDestroy": &f.descDestroy,
		"cublasLtMatmulDescSetAttribute": &f.descSet,
		"cublasLtMatrixLayoutCreate":     &f.layoutCreate, "cublasLtMatrixLayoutDestroy": &f.layoutDestroy,
		"cublasLtMatmulPreferenceCreate": &f.preferenceCreate, "cublasLtMatmulPreferenceDestroy": &f.preferenceDestroy,
		"cublasLtMatmulPreferenceSetAttribute": &f.preferenceSet,
		"cublasLtMatmulAlgoGetHeuristic":       &f.heuristic, "cublasLtMatmul": &f.matmul,
	}
}

// Open loads cublasLt and makes a handle; a context must be current. path is a
// soname or a file; empty means the first of Names that is found.
func Open(path string) (*Library, error) {
	l, err := Find(path)
	if err != nil {
		return nil, err
	}
	return l, check("cublasLtCreate", call(l.fn.create, uintptr(unsafe.Pointer(&l.handle))))
}

// Find loads cublasLt as Open does, for its Path and Version alone: no context is needed.
func Find(path string) (*Library, error) {
	names := Names
	if path != "" {
		names = []string{path}
	}
	var handle uintptr
	var errs []string
	l := &Library{}
	for _, name := range names {
		h, err := load(name)
		if err == nil {
			handle, l.path = h, name
			break
		}
		errs = append(errs, strings.TrimSpace(err.Error()))
	}
	if handle == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoLibrary, strings.Join(errs, "; "))
	}
	for name, p := range l.fn.table() {
		var err error
		if *p, err = symbol(handle, name); err != nil {
			return nil, fmt.Errorf("%s has no %s: it is no cublasLt", l.path, name)
		}
	}
	return l, nil
}

// Close frees the handle.
func (l *Library) Close() error { return check("cublasLtDestroy", call(l.fn.destroy, l.handle)) }

// Path is the name or file that was loaded.
func (l *Library) Path() string { return l.path }

// Version is the library's version, "12.4.5".
func (l *Library) Version() string {
	v := int(call(l.fn.version))
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
}

// Status is a cublasStatus_t.
type Status int32

// NotSupported: no kernel of the library does this product.
const NotSupported Status = 15

var statusNames = map[Status]string{
	1: "CUBLAS_STATUS_NOT_INITIALIZED", 3: "CUBLAS_STATUS_ALLOC_FAILED", 7: "CUBLAS_STATUS_INVALID_VALUE",
	8: "CUBLAS_STATUS_ARCH_MISMATCH", 11: "CUBLAS_STATUS_MAPPING_ERROR", 13: "CUBLAS_STATUS_EXECUTION_FAILED",
	14: "CUBLAS_STATUS_INTERNAL_ERROR", NotSupported: "CUBLAS_STATUS_NOT_SUPPORTED", 16: "CUBLAS_STATUS_LICENSE_ERROR",
}

func (s Status) Error() string {
	if n := statusNames[s]; n != "" {
		return n
	}
	return fmt.Sprintf("cublasStatus_t %d", int32(s))
}

func check(name string, r uintptr) error {
	if s := Status(int32(r)); s != 0 {
		return fmt.Errorf("%s: %w", name, s)
	}
	return nil
}
