// Package nvtx names ranges of time for NVIDIA's profilers (Nsight Systems), through
// libnvToolsExt, loaded at run time. Without a profiler a call does next to nothing.
package nvtx

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unsafe"
)

// Name is the soname that is looked for.
const Name = "libnvToolsExt.so.1"

// ErrNoLibrary says that the library could not be loaded.
var ErrNoLibrary = errors.New("libnvToolsExt could not be loaded")

// Library is a loaded libnvToolsExt. Its methods may be called by any goroutine.
type Library struct {
	path                  string
	push, pop, start, end uintptr
	names                 sync.Map // name -> *byte, ended by a zero
}

// Open loads the library; empty means Name.
func Open(path string) (*Library, error) {
	if path == "" {
		path = Name
	}
	h, err := load(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrNoLibrary, strings.TrimSpace(err.Error()))
	}
	l := &Library{path: path}
	for name, p := range map[string]*uintptr{"nvtxRangePushA": &l.push, "nvtxRangePop": &l.pop, "nvtxRangeStartA": &l.start, "nvtxRangeEnd": &l.end} {
		if *p, err = symbol(h, name); err != nil {
			return nil, fmt.Errorf("%s has no %s: it is no libnvToolsExt", path, name)
		}
	}
	return l, nil
}

// Path is the name or file that was loaded.
func (l *Library) Path() string { return l.path }

func (l *Library) text(name string) *byte {
	if p, ok := l.names.Load(name); ok {
		return p.(*byte)
	}
	b := append([]byte(name), 0)
	p, _ := l.names.LoadOrStore(name, &b[0])
	return p.(*byte)
}

// Push begins a range of the calling thread; ranges nest. The goroutine must be bound to
// its thread until Pop.
func (l *Library) Push(name string) { call(l.push, uintptr(unsafe.Pointer(l.text(name)))) }

// Pop ends the thread's innermost range.
func (l *Library) Pop() { call(l.pop) }

// Start begins a range of the process, which any thread may end by its number.
func (l *Library) Start(name string) uint64 {
	return uint64(call(l.start, uintptr(unsafe.Pointer(l.text(name)))))
}

// End ends a range of the process.
func (l *Library) End(id uint64) { call(l.end, uintptr(id)) }
