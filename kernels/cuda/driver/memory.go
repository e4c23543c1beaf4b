package driver

import (
	"fmt"
	"unsafe"
)

// Addr is an address in a device's memory.
type Addr uintptr

// MemGetInfo returns the free and the total bytes of the card, other processes counted.
func (c *Context) MemGetInfo() (free, total int64, err error) {
	var f, t uint64
	err = c.l.check("cuMemGetInfo_v2", syscall(c.l.fn.memGetInfo, uintptr(unsafe.Pointer(&f)), uintptr(unsafe.Pointer(&t))))
	return int64(f), int64(t), err
}

// MemAlloc returns n bytes of device memory, aligned to at least 256, contents undefined.
func (c *Context) MemAlloc(n int64) (Addr, error) {
	var p uintptr
	err := c.l.check("cuMemAlloc_v2", syscall(c.l.fn.memAlloc, uintptr(unsafe.Pointer(&p)), uintptr(n)))
	if e, ok := err.(*Error); ok {
		e.Note = fmt.Sprintf("asked for %d bytes", n)
		if free, total, err := c.MemGetInfo(); err == nil {
			e.Note += fmt.Sprintf(", %d of %d are free", free, total)
		}
	}
	return Addr(p), err
}

// MemFree waits for the work that uses p and frees it.
func (c *Context) MemFree(p Addr) error {
	return c.l.check("cuMemFree_v2", syscall(c.l.fn.memFree, uintptr(p)))
}

// MemHostAlloc returns n bytes of pinned host memory, outside the Go heap.
func (c *Context) MemHostAlloc(n int) ([]byte, error) {
	var p uintptr
	if err := c.l.check("cuMemHostAlloc", syscall(c.l.fn.memHostAlloc, uintptr(unsafe.Pointer(&p)), uintptr(n), 0)); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(pointer(p)), n), nil
}

// MemFreeHost frees what MemHostAlloc gave.
func (c *Context) MemFreeHost(b []byte) error {
	return c.l.check("cuMemFreeHost", syscall(c.l.fn.memFreeHost, uintptr(unsafe.Pointer(unsafe.SliceData(b)))))
}

// The copies below are ordered in their stream. Host memory must be pinned: the
// driver reads and writes it after the call has returned.

// CopyIn copies pinned host memory to the device.
func (s *Stream) CopyIn(dst Addr, src []byte) error {
	return s.l.check("cuMemcpyHtoDAsync_v2", syscall(s.l.fn.memcpyHtoDAsync, uintptr(dst), uintptr(unsafe.Pointer(unsafe.SliceData(src))), uintptr(len(src)), s.handle))
}

// CopyOut copies device memory to pinned host memory.
func (s *Stream) CopyOut(dst []byte, src Addr) error {
	return s.l.check("cuMemcpyDtoHAsync_v2", syscall(s.l.fn.memcpyDtoHAsync, uintptr(unsafe.Pointer(unsafe.SliceData(dst))), uintptr(src), uintptr(len(dst)), s.handle))
}

// Copy copies n bytes on the device.
func (s *Stream) Copy(dst, src Addr, n int64) error {
	return s.l.check("cuMemcpyDtoDAsync_v2", syscall(s.l.fn.memcpyDtoDAsync, uintptr(dst), uintptr(src), uintptr(n), s.handle))
}

// Set writes n bytes of value v.
func (s *Stream) Set(dst Addr, v byte, n int64) error {
	return s.l.check("cuMemsetD8Async", syscall(s.l.fn.memsetD8Async, uintptr(dst), uintptr(v), uintptr(n), s.handle))
}
