//go:build linux && (amd64 || arm64)

package driver

import "github.com/ebitengine/purego"

// load opens a shared library by soname or path. It is never closed: the driver
// starts threads of its own, which do not survive that.
func load(path string) (uintptr, error) {
	return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
}

func symbol(lib uintptr, name string) (uintptr, error) { return purego.Dlsym(lib, name) }

//go:uintptrescapes
func syscall(fn uintptr, args ...uintptr) Result {
	r, _, _ := purego.SyscallN(fn, args...)
	return Result(int32(r))
}
