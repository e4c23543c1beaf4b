package emutest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Library is an opened build of the emulation.
type Library struct {
	find   func(name string) *kernel
	launch func(kernel *kernel, grid, block *[3]uint32, shared uint32, args *unsafe.Pointer, text *byte, size uintptr) int32
	alloc  func(base unsafe.Pointer, size uintptr)
	free   func(base unsafe.Pointer)
	seed   func(uint64)
}

// live is what is allocated, so that the garbage collector leaves it: two Libraries of one
// path are one.
var live sync.Map

// kernel is struct emu_kernel of emu.h.
type kernel struct {
	_                  *byte // its name
	params, maxThreads int32
	sizes              *uint32
}

// Open loads a library that Build made.
func Open(path string) (*Library, error) {
	h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err
	}
	l := &Library{}
	purego.RegisterLibFunc(&l.find, h, "emu_find")
	purego.RegisterLibFunc(&l.launch, h, "emu_launch")
	purego.RegisterLibFunc(&l.alloc, h, "emu_alloc_range")
	purego.RegisterLibFunc(&l.free, h, "emu_free_range")
	purego.RegisterLibFunc(&l.seed, h, "emu_seed")
	return l, nil
}

// Seed sets the order in which threads run.
func (l *Library) Seed(seed uint64) { l.seed(seed) }

// Memory is device memory of the emulation that holds n elements of T.
type Memory[T any] struct {
	l *Library
	V []T // the elements, for the host
}

// NewMemory allocates n elements that nobody wrote yet. Their address is offset elements off 256 bytes.
func NewMemory[T any](l *Library, n, offset int) *Memory[T] {
	var t T
	size := int(unsafe.Sizeof(t))
	m := &Memory[T]{l: l}
	// On the heap, where nothing moves.
	base := unsafe.Pointer(unsafe.SliceData(make([]uint64, (n+offset)*size/8+66)))
	skip := (256-uintptr(base)%256)%256 + uintptr(offset*size)
	base = unsafe.Add(base, skip)
	m.V = unsafe.Slice((*T)(base), n)
	l.alloc(base, uintptr(n*size))
	live.Store(base, m.V)
	return m
}

// From allocates memory with the values of v.
func From[T any](l *Library, v []T, offset int) *Memory[T] {
	m := NewMemory[T](l, len(v), offset)
	copy(m.V, v)
	return m
}

// Ptr is the address, as an argument of a kernel.
func (m *Memory[T]) Ptr() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(m.V)) }

// Free gives the memory back.
func (m *Memory[T]) Free() {
	m.l.free(m.Ptr())
	live.Delete(m.Ptr())
}

// Describe returns the most threads of a kernel's block and the bytes of each parameter.
func (l *Library) Describe(name string) (threads int, params []int, ok bool) {
	k := l.find(name)
	if k == nil {
		return 0, nil, false
	}
	for _, n := range unsafe.Slice(k.sizes, k.params) {
		params = append(params, int(n))
	}
	return int(k.maxThreads), params, true
}

// Launch runs a kernel. Arguments are int (C's int), int64 (long), float32 and unsafe.Pointer.
func (l *Library) Launch(name string, blocks, blocksY, threads, shared int, args ...any) error {
	k := l.find(name)
	if k == nil {
		return fmt.Errorf("no kernel %s", name)
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pointers := make([]unsafe.Pointer, len(args)+1)
	for i, a := range args {
		word := new(uint64)
		p := unsafe.Pointer(word)
		switch v := a.(type) {
		case int:
			*(*int32)(p) = int32(v)
		case int64:
			*(*int64)(p) = v
		case float32:
			*(*float32)(p) = v
		case unsafe.Pointer:
			*(*uintptr)(p) = uintptr(v)
		default:
			return fmt.Errorf("%s: argument %d is a %T", name, i, a)
		}
		pin.Pin(word)
		pointers[i] = p
	}
	pin.Pin(&pointers[0])
	text := make([]byte, 400)
	grid, block := [3]uint32{uint32(blocks), uint32(max(1, blocksY)), 1}, [3]uint32{uint32(threads), 1, 1}
	if l.launch(k, &grid, &block, uint32(shared), &pointers[0], &text[0], uintptr(len(text))) != 0 {
		message, _, _ := strings.Cut(string(text), "\x00")
		return fmt.Errorf("%s", message)
	}
	return nil
}
