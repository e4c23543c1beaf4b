package cpu

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/kernels"
)

// memory hands out anonymous mappings: page-aligned, zeroed, outside the Go heap.
type memory struct {
	mu   sync.Mutex
	live map[uintptr][]byte
}

// Alloc returns zeroed memory, page-aligned.
func (d *Device) Alloc(bytes int64) (kernels.Buffer, error) {
	if bytes < 0 || int64(int(bytes)) != bytes {
		return kernels.Buffer{}, fmt.Errorf("cpu: alloc of %d bytes: the size is not possible", bytes)
	}
	if bytes == 0 {
		return kernels.Buffer{Type: kernels.U8}, nil
	}
	m, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return kernels.Buffer{}, fmt.Errorf("cpu: alloc of %d bytes: mmap: %w", bytes, err)
	}
	wishHugePages(m)
	addr := uintptr(unsafe.Pointer(unsafe.SliceData(m)))
	d.mem.mu.Lock()
	defer d.mem.mu.Unlock()
	if d.mem.live == nil {
		d.mem.live = map[uintptr][]byte{}
	}
	d.mem.live[addr] = m
	return kernels.Buffer{Addr: addr, Len: bytes, Type: kernels.U8}, nil
}

// Free returns memory that Alloc gave; it panics on any other buffer.
func (d *Device) Free(b kernels.Buffer) {
	if b.Addr == 0 && b.Empty() {
		return
	}
	d.mem.mu.Lock()
	m, ok := d.mem.live[b.Addr]
	delete(d.mem.live, b.Addr)
	d.mem.mu.Unlock()
	if !ok {
		panic(fmt.Sprintf("cpu: free of %#x, which Alloc did not give or which is free already", b.Addr))
	}
	if err := unix.Munmap(m); err != nil {
		d.fail("free of %d bytes at %#x: munmap: %w", len(m), b.Addr, err)
	}
}

func (m *memory) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, b := range m.live {
		errs = append(errs, unix.Munmap(b))
	}
	m.live = nil
	return errors.Join(errs...)
}

// Host returns the bytes of b.
func (d *Device) Host(b kernels.Buffer) []byte {
	if b.Empty() {
		return []byte{}
	}
	return unsafe.Slice((*byte)(pointer(b.Addr)), b.Bytes())
}

// CopyIn copies src into dst; both must have the same size.
func (d *Device) CopyIn(dst kernels.Buffer, src []byte) {
	if dst.Bytes() != int64(len(src)) {
		panic(fmt.Sprintf("cpu: copy of %d bytes into a buffer of %d", len(src), dst.Bytes()))
	}
	copy(d.Host(dst), src)
}

// CopyOut copies src into dst; both must have the same size.
func (d *Device) CopyOut(dst []byte, src kernels.Buffer) {
	if src.Bytes() != int64(len(dst)) {
		panic(fmt.Sprintf("cpu: copy of a buffer of %d bytes into %d", src.Bytes(), len(dst)))
	}
	copy(dst, d.Host(src))
}

// Copy copies src into dst; both must have the same size.
func (d *Device) Copy(dst, src kernels.Buffer) {
	if dst.Bytes() != src.Bytes() {
		panic(fmt.Sprintf("cpu: copy of a buffer of %d bytes into one of %d", src.Bytes(), dst.Bytes()))
	}
	to, from := d.Host(dst), d.Host(src)
	d.split(len(to), 1<<20, func(_ *workerScratch, i, j int) { copy(to[i:j], from[i:j]) })
}

// Zero sets all bytes of b to zero.
func (d *Device) Zero(b kernels.Buffer) {
	h := d.Host(b)
	d.split(len(h), 1<<20, func(_ *workerScratch, i, j int) { clear(h[i:j]) })
}

// pointer turns an address outside the Go heap into a pointer. Going through
// memory keeps vet from taking it for the arithmetic that it warns of.
func pointer(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// f32 returns the first n elements of b, which must be f32 and hold as many.
func f32(op, name string, b kernels.Buffer, n int) []float32 {
	check(op, name, b, kernels.F32, n)
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*float32)(pointer(b.Addr)), n)
}

// bf16 is f32 for BF16 buffers.
func bf16(op, name string, b kernels.Buffer, n int) []uint16 {
	check(op, name, b, kernels.BF16, n)
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*uint16)(pointer(b.Addr)), n)
}

// i32 is f32 for I32 buffers.
func i32(op, name string, b kernels.Buffer, n int) []int32 {
	check(op, name, b, kernels.I32, n)
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*int32)(pointer(b.Addr)), n)
}

// f64 is f32 for F64 buffers.
func f64(op, name string, b kernels.Buffer, n int) []float64 {
	check(op, name, b, kernels.F64, n)
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*float64)(pointer(b.Addr)), n)
}

func check(op, name string, b kernels.Buffer, t kernels.DType, n int) {
	if n < 0 {
		panic(fmt.Sprintf("cpu: %s: %s: a shape of %d elements", op, name, n))
	}
	if b.Type != t && !b.Empty() {
		panic(fmt.Sprintf("cpu: %s: %s is %s, want %s", op, name, b.Type, t))
	}
	if b.Len < int64(n) {
		panic(fmt.Sprintf("cpu: %s: %s has %d elements, want at least %d", op, name, b.Len, n))
	}
}
