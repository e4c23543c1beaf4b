// Package kernels is the compute package: a Device performs numeric operations on
// buffers of its own memory. Backends live in sub-packages (cpu, cuda); the
// conformance suite every backend must pass is kerneltest.
//
// All matrices are row-major. "rows" counts tokens: batch × sequence.
package kernels

import "fmt"

// DType is the element type of a Buffer.
type DType uint8

// Element types.
const (
	F32 DType = iota
	F64
	BF16
	I32
	U8
)

// Size returns the bytes of one element.
func (t DType) Size() int64 {
	switch t {
	case F64:
		return 8
	case BF16:
		return 2
	case U8:
		return 1
	}
	return 4
}

func (t DType) String() string {
	return [...]string{"f32", "f64", "bf16", "i32", "u8"}[t]
}

// Buffer is a typed range of device memory. It is a value and owns nothing:
// whoever allocated the memory frees it. The zero Buffer is empty.
type Buffer struct {
	Addr uintptr // address in the device's memory; never Go heap memory
	Len  int64   // elements
	Type DType
}

// Bytes returns the buffer's size in bytes.
func (b Buffer) Bytes() int64 { return b.Len * b.Type.Size() }

// Empty says whether b holds no element.
func (b Buffer) Empty() bool { return b.Len == 0 }

// Slice returns elements [from, from+n) of b. It panics when they are outside b.
func (b Buffer) Slice(from, n int64) Buffer {
	if from < 0 || n < 0 || from+n > b.Len {
		panic(fmt.Sprintf("kernels: slice [%d, %d) of a buffer of %d %s elements", from, from+n, b.Len, b.Type))
	}
	return Buffer{b.Addr + uintptr(from*b.Type.Size()), n, b.Type}
}

// As reinterprets b's bytes as elements of type t; the bytes must divide evenly.
func (b Buffer) As(t DType) Buffer {
	if b.Bytes()%t.Size() != 0 {
		panic(fmt.Sprintf("kernels: %d bytes are no whole number of %s", b.Bytes(), t))
	}
	return Buffer{b.Addr, b.Bytes() / t.Size(), t}
}

// Device performs operations in the order in which they are called, possibly
// asynchronously. Operations return no error: the first failure sticks and is
// returned by Sync, as on a CUDA stream. Wrong shapes are programming errors
// and panic. A Device is used by one goroutine at a time.
type Device interface {
	// Name is the kind as in the job file: "cpu", "cuda".
	Name() string
	// Info describes what was found: libraries, versions, instruction set, threads.
	Info() map[string]string

	// Alloc returns zeroed memory of the device, aligned to at least 256 bytes,
	// outside the Go heap. Host memory of a CPU device comes from mmap, so that a
	// transport may hold it across calls.
	Alloc(bytes int64) (Buffer, error) // Type U8
	Free(Buffer)
	// Host returns the bytes of b where the host can address them, else nil.
	Host(b Buffer) []byte

	CopyIn(dst Buffer, src []byte)
	CopyOut(dst []byte, src Buffer) // waits for pending operations
	Copy(dst, src Buffer)           // same size, not overlapping
	Zero(b Buffer)

	Sync() error
	Close() error

	Ops
}
