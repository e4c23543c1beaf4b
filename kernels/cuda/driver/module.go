package driver

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"unsafe"
)

// Module is loaded code.
type Module struct {
	l      *Library
	handle uintptr
}

// Function is one kernel of a module.
type Function struct {
	l      *Library
	handle uintptr
	name   string
}

const (
	jitErrorLog     = 5
	jitErrorLogSize = 6

	funcMaxDynamicShared = 8
)

// LoadPTX compiles PTX for the card and loads it. The compiler's messages are in
// the error's Note.
func (c *Context) LoadPTX(ptx []byte) (*Module, error) {
	text := append(append([]byte(nil), ptx...), 0)
	log := make([]byte, 8192)
	// Its address goes by a number, which the collector does not see.
	var pin runtime.Pinner
	pin.Pin(&log[0])
	defer pin.Unpin()
	options := [2]int32{jitErrorLog, jitErrorLogSize}
	// Values are pointers or, in the same place, numbers.
	values := [2]uintptr{uintptr(unsafe.Pointer(&log[0])), uintptr(len(log))}
	m := &Module{l: c.l}
	err := c.l.check("cuModuleLoadDataEx", syscall(c.l.fn.moduleLoadDataEx, uintptr(unsafe.Pointer(&m.handle)), uintptr(unsafe.Pointer(&text[0])),
		uintptr(len(options)), uintptr(unsafe.Pointer(&options[0])), uintptr(unsafe.Pointer(&values[0]))))
	if e, ok := err.(*Error); ok {
		words, _, _ := strings.Cut(string(log), "\x00")
		e.Note = strings.TrimSpace(words)
	}
	return m, err
}

// Unload frees the module.
func (m *Module) Unload() error {
	return m.l.check("cuModuleUnload", syscall(m.l.fn.moduleUnload, m.handle))
}

// Function finds a kernel by its name in the PTX.
func (m *Module) Function(name string) (*Function, error) {
	f := &Function{l: m.l, name: name}
	c := append([]byte(name), 0)
	err := m.l.check("cuModuleGetFunction", syscall(m.l.fn.moduleGetFunction, uintptr(unsafe.Pointer(&f.handle)), m.handle, uintptr(unsafe.Pointer(&c[0]))))
	if e, ok := err.(*Error); ok {
		e.Note = "kernel " + name
	}
	return f, err
}

// Name is the kernel's name.
func (f *Function) Name() string { return f.name }

// AllowShared allows launches with so many bytes of dynamic shared memory; more
// than 48 KiB must be allowed.
func (f *Function) AllowShared(bytes int) error {
	err := f.l.check("cuFuncSetAttribute", syscall(f.l.fn.funcSetAttribute, f.handle, funcMaxDynamicShared, uintptr(bytes)))
	if e, ok := err.(*Error); ok {
		e.Note = fmt.Sprintf("kernel %s, %d bytes of shared memory", f.name, bytes)
	}
	return err
}

// maxArgs is how many arguments a kernel may have.
const maxArgs = 24

// Args are a kernel's arguments, one in each 8 bytes: the driver copies as many
// bytes of each as the kernel declares, and both processors in question are
// little-endian. It must lie in the heap (NewArgs), where addresses do not change.
type Args struct {
	values   [maxArgs]uint64
	pointers [maxArgs]uintptr
	n        int
}

// NewArgs returns arguments to be filled again for each launch.
func NewArgs() *Args {
	a := new(Args)
	for i := range a.values {
		a.pointers[i] = uintptr(unsafe.Pointer(&a.values[i]))
	}
	return a
}

// Reset begins a new list.
func (a *Args) Reset() *Args { a.n = 0; return a }

func (a *Args) add(v uint64) *Args {
	if a.n == maxArgs {
		panic(fmt.Sprintf("driver: a kernel with more than %d arguments", maxArgs))
	}
	a.values[a.n] = v
	a.n++
	return a
}

// Addr adds a pointer.
func (a *Args) Addr(p uintptr) *Args { return a.add(uint64(p)) }

// Int adds a 32-bit integer; it panics when v does not fit.
func (a *Args) Int(v int) *Args {
	if v < math.MinInt32 || v > math.MaxInt32 {
		panic(fmt.Sprintf("driver: the size %d does not fit 32 bits", v))
	}
	return a.add(uint64(uint32(int32(v))))
}

// Long adds a 64-bit integer.
func (a *Args) Long(v int64) *Args { return a.add(uint64(v)) }

// Float adds a float.
func (a *Args) Float(v float32) *Args { return a.add(uint64(math.Float32bits(v))) }

// Launch puts a launch of grid x × y × z blocks of threads × 1 × 1 into s. shared is the
// dynamic shared memory in bytes. The arguments are copied: a may be filled again at once.
func (s *Stream) Launch(f *Function, x, y, z, threads, shared int, a *Args) error {
	r := syscall(s.l.fn.launchKernel, f.handle, uintptr(x), uintptr(y), uintptr(z), uintptr(threads), 1, 1, uintptr(shared), s.handle,
		uintptr(unsafe.Pointer(&a.pointers[0])), 0)
	if r == Success {
		return nil
	}
	err := s.l.check("cuLaunchKernel", r)
	err.(*Error).Note = fmt.Sprintf("kernel %s, grid %d × %d × %d, block %d, shared %d bytes", f.name, x, y, z, threads, shared)
	return err
}
