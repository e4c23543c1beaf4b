//go:build (linux || darwin) && (amd64 || arm64)

package cpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// dynamicLibrary is a library loaded into the process. It is never unloaded:
// OpenMP runtimes do not survive it.
type dynamicLibrary struct {
	handle uintptr
	path   string
}

// call calls a function of integer and pointer arguments, 0 when it is not there.
func (l *dynamicLibrary) call(symbol string, args ...uintptr) (uintptr, bool) {
	fn, err := purego.Dlsym(l.handle, symbol)
	if err != nil {
		return 0, false
	}
	r, _, _ := purego.SyscallN(fn, args...)
	return r, true
}

// setenvC sets variables for C, which has its own copy of the environment: the
// processes that this one starts do not see them.
func setenvC(env map[string]string, overwrite bool) error {
	fn, err := purego.Dlsym(purego.RTLD_DEFAULT, "setenv")
	if err != nil {
		return fmt.Errorf("setenv: %w", err)
	}
	replace := uintptr(0)
	if overwrite {
		replace = 1
	}
	for k, v := range env {
		key, value := cString(k), cString(v)
		purego.SyscallN(fn, uintptr(unsafe.Pointer(key)), uintptr(unsafe.Pointer(value)), replace)
		runtime.KeepAlive(key)
		runtime.KeepAlive(value)
	}
	return nil
}

func cString(s string) *byte {
	b := append([]byte(s), 0)
	return &b[0]
}

// goString copies a C string.
func goString(addr uintptr) string {
	if addr == 0 {
		return ""
	}
	p := pointer(addr)
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}

// openLibrary loads the first of places that is there and exports a product.
func openLibrary(l blasLibrary, places []string) (sgemmer, error) {
	if err := setenvC(oneThread, true); err != nil {
		return nil, fmt.Errorf("cpu: %s: %w", l.name, err)
	}
	if err := setenvC(l.env, false); err != nil {
		return nil, fmt.Errorf("cpu: %s: %w", l.name, err)
	}
	if l.before != nil {
		if err := setenvC(l.before(), false); err != nil {
			return nil, fmt.Errorf("cpu: %s: %w", l.name, err)
		}
	}
	var tried []error
	for _, path := range places {
		handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
		if err != nil {
			tried = append(tried, fmt.Errorf("%s: %w", path, err))
			continue
		}
		b, err := bind(l, &dynamicLibrary{handle, path})
		if err != nil {
			tried = append(tried, fmt.Errorf("%s: %w", path, err))
			continue
		}
		return b, nil
	}
	return nil, fmt.Errorf("cpu: BLAS %s was not found; install it, or choose another (%s); tried:\n%w",
		l.name, strings.Join(BLASNames(), ", "), errors.Join(tried...))
}

func bind(l blasLibrary, lib *dynamicLibrary) (sgemmer, error) {
	var version string
	if l.after != nil {
		v, err := l.after(lib)
		if err != nil {
			return nil, err
		}
		version = v
	}
	d := description{l.name, loadedFrom(lib.path), version}
	if l.symbol == "dnnl_sgemm" {
		return bindDNNL(d, lib)
	}
	fn, err := purego.Dlsym(lib.handle, "sgemm_")
	if err != nil {
		return nil, err
	}
	return &fortranBLAS{description: d, fn: fn, setThreads: lateOMP(lib)}, nil
}

// loadedFrom is the file that the loader found for a soname, the soname itself
// where the kernel does not tell.
func loadedFrom(soname string) string {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil || strings.Contains(soname, "/") {
		return soname
	}
	stem, _, _ := strings.Cut(soname, ".")
	for line := range strings.Lines(string(maps)) {
		if i := strings.IndexByte(line, '/'); i >= 0 {
			if path := strings.TrimSpace(line[i:]); strings.HasPrefix(filepath.Base(path), stem) {
				return path
			}
		}
	}
	return soname
}

// description is what Info says of a library.
type description struct{ name, path, version string }

// grain is a multiple of the tiles of the libraries' kernels for AVX2 and AVX-512.
func (description) grain() (rows, cols int) { return 48, 48 }

func (d description) info() map[string]string {
	return map[string]string{"blas": d.name, "blas_path": d.path, "blas_version": d.version}
}

// lateOMP returns omp_set_num_threads when OpenMP would start several threads all
// the same: its runtime was in the process (MPI, another BLAS) before
// OMP_NUM_THREADS was set. The setting belongs to one OS thread, so it is made before each call.
func lateOMP(lib *dynamicLibrary) uintptr {
	n, ok := lib.call("omp_get_max_threads")
	if !ok || n == 1 {
		return 0
	}
	fn, err := purego.Dlsym(lib.handle, "omp_set_num_threads")
	if err != nil {
		return 0
	}
	return fn
}

func setOMP(fn uintptr) (done func()) {
	if fn == 0 {
		return func() {}
	}
	runtime.LockOSThread()
	purego.SyscallN(fn, 1)
	return runtime.UnlockOSThread
}

// fortranBLAS calls sgemm_ of the reference interface: pointers only, column-major.
type fortranBLAS struct {
	description
	fn         uintptr
	setThreads uintptr
}

// sgemm computes Cᵀ = op(B)ᵀ·op(A)ᵀ, which is C = op(A)·op(B) read by columns.
func (f *fortranBLAS) sgemm(w *workerScratch, p *product) {
	if f.setThreads != 0 {
		defer setOMP(f.setThreads)()
	}
	// Sizes are 64 bits wide with small values, little-endian: right for both the
	// LP64 and the ILP64 build of a library.
	a := &w.fortran
	a.transA, a.transB = flag(p.transA), flag(p.transB)
	a.m, a.n, a.k = int64(p.m), int64(p.n), int64(p.k)
	a.lda, a.ldb, a.ldc = int64(p.lda), int64(p.ldb), int64(p.ldc)
	a.alpha, a.beta = p.alpha, p.beta
	purego.SyscallN(f.fn, uintptr(unsafe.Pointer(&a.transB)), uintptr(unsafe.Pointer(&a.transA)),
		uintptr(unsafe.Pointer(&a.n)), uintptr(unsafe.Pointer(&a.m)), uintptr(unsafe.Pointer(&a.k)),
		uintptr(unsafe.Pointer(&a.alpha)), uintptr(p.b), uintptr(unsafe.Pointer(&a.ldb)),
		uintptr(p.a), uintptr(unsafe.Pointer(&a.lda)), uintptr(unsafe.Pointer(&a.beta)),
		uintptr(p.c), uintptr(unsafe.Pointer(&a.ldc)), 1, 1)
}

func flag(transposed bool) byte {
	if transposed {
		return 'T'
	}
	return 'N'
}

// dnnlBLAS calls dnnl_sgemm: row-major, scalars by value.
type dnnlBLAS struct {
	description
	fn func(transA, transB byte, m, n, k int64, alpha float32, a unsafe.Pointer, lda int64,
		b unsafe.Pointer, ldb int64, beta float32, c unsafe.Pointer, ldc int64) int32
	setThreads uintptr
}

func bindDNNL(d description, lib *dynamicLibrary) (sgemmer, error) {
	fn, err := purego.Dlsym(lib.handle, "dnnl_sgemm")
	if err != nil {
		return nil, err
	}
	b := &dnnlBLAS{description: d, setThreads: lateOMP(lib)}
	// SyscallN has no place for floats by value beside integers; the registered
	// function costs 0.7 µs a call.
	purego.RegisterFunc(&b.fn, fn)
	return b, nil
}

func (b *dnnlBLAS) sgemm(_ *workerScratch, p *product) {
	if b.setThreads != 0 {
		defer setOMP(b.setThreads)()
	}
	if s := b.fn(flag(p.transA), flag(p.transB), int64(p.m), int64(p.n), int64(p.k), p.alpha, p.a, int64(p.lda),
		p.b, int64(p.ldb), p.beta, p.c, int64(p.ldc)); s != 0 {
		panic(fmt.Sprintf("cpu: dnnl_sgemm of m %d, n %d, k %d: status %d", p.m, p.n, p.k, s))
	}
}

func dnnlVersion(lib *dynamicLibrary) (string, error) {
	v, ok := lib.call("dnnl_version")
	if !ok {
		return "", errors.New("no dnnl_version: not oneDNN")
	}
	p := (*[3]int32)(pointer(v))
	return fmt.Sprintf("%d.%d.%d", p[0], p[1], p[2]), nil
}

func mklVersion(lib *dynamicLibrary) (string, error) {
	if _, ok := lib.call("MKL_Set_Num_Threads", 1); !ok {
		return "", errors.New("no MKL_Set_Num_Threads: not MKL")
	}
	buf := make([]byte, 256)
	lib.call("MKL_Get_Version_String", uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
	return strings.TrimSpace(goString(uintptr(unsafe.Pointer(&buf[0])))), nil
}

func openblasVersion(lib *dynamicLibrary) (string, error) {
	if _, ok := lib.call("openblas_set_num_threads", 1); !ok {
		return "", errors.New("no openblas_set_num_threads: not OpenBLAS")
	}
	v, _ := lib.call("openblas_get_config")
	core, _ := lib.call("openblas_get_corename")
	return strings.TrimSpace(goString(v)) + " on " + goString(core), nil
}

// blisVersion also repairs the choice of kernels: BLIS 0.x knows only the
// processors of its time and takes its AVX2 kernels on newer ones that have AVX-512.
func blisVersion(lib *dynamicLibrary) (string, error) {
	v, ok := lib.call("bli_info_get_version_str")
	if !ok {
		return "", errors.New("no bli_info_get_version_str: not BLIS")
	}
	version := goString(v)
	// In 0.x architecture 0 is skx, the AVX-512 one. The variable is read at the
	// first question for the architecture, so this still comes in time.
	if strings.HasPrefix(version, "0.") && hasAVX512() {
		if err := setenvC(map[string]string{"BLIS_ARCH_TYPE": "0"}, false); err != nil {
			return "", err
		}
	}
	lib.call("bli_thread_set_num_threads", 1)
	if id, ok := lib.call("bli_arch_query_id"); ok {
		if name, ok := lib.call("bli_arch_string", id); ok {
			version += " (" + goString(name) + " kernels)"
		} else {
			version += " (architecture " + strconv.Itoa(int(id)) + ")"
		}
	}
	return version, nil
}
