package driver

import (
	"fmt"
	"math"
	"unsafe"
)

// Pool is memory of a device that streams allocate from and free to in their order,
// without waiting for the device. What is freed stays with the pool until Trim.
type Pool struct {
	c      *Context
	handle uintptr
}

// poolProps is a CUmemPoolProps.
type poolProps struct {
	allocType, handleTypes, locationType, location int32
	security                                       uintptr
	maxSize                                        uint64
	usage                                          uint16
	_                                              [54]byte
}

// cuda.h's numbers.
const (
	allocationPinned = 1
	locationDevice   = 1

	poolReuseInternalDependencies = 3
	poolReleaseThreshold          = 4
	poolReservedNow               = 5
	poolUsedNow                   = 7
)

// NewPool makes a pool, which other processes do not see. Devices whose MemoryPools
// attribute is 0 have none.
func (c *Context) NewPool() (*Pool, error) {
	p := &Pool{c: c}
	props := poolProps{allocType: allocationPinned, locationType: locationDevice, location: c.device.handle}
	err := c.l.check("cuMemPoolCreate", syscall(c.l.fn.memPoolCreate, uintptr(unsafe.Pointer(&p.handle)), uintptr(unsafe.Pointer(&props))))
	if err != nil {
		return nil, err
	}
	// By itself the driver gives all back that is free whenever somebody waits.
	keep := uint64(math.MaxUint64)
	err = c.l.check("cuMemPoolSetAttribute", syscall(c.l.fn.memPoolSetAttribute, p.handle, poolReleaseThreshold, uintptr(unsafe.Pointer(&keep))))
	if err == nil {
		// A stream shall rather get other memory than wait for what another one freed.
		var no int32
		err = c.l.check("cuMemPoolSetAttribute", syscall(c.l.fn.memPoolSetAttribute, p.handle, poolReuseInternalDependencies, uintptr(unsafe.Pointer(&no))))
	}
	if err != nil {
		_ = p.Destroy()
		return nil, err
	}
	return p, nil
}

// Alloc returns n bytes, contents undefined, for work that is put into s from here on,
// and for work of other streams that is ordered behind it.
func (p *Pool) Alloc(n int64, s *Stream) (Addr, error) {
	var a uintptr
	err := p.c.l.check("cuMemAllocFromPoolAsync", syscall(p.c.l.fn.memAllocFromPoolAsync, uintptr(unsafe.Pointer(&a)), uintptr(n), p.handle, s.handle))
	if e, ok := err.(*Error); ok {
		e.Note = fmt.Sprintf("asked for %d bytes", n)
	}
	return Addr(a), err
}

// Free gives back what Alloc gave, behind the work that is in s now.
func (p *Pool) Free(a Addr, s *Stream) error {
	return p.c.l.check("cuMemFreeAsync", syscall(p.c.l.fn.memFreeAsync, uintptr(a), s.handle))
}

func (p *Pool) attribute(which uintptr) (int64, error) {
	var n uint64
	err := p.c.l.check("cuMemPoolGetAttribute", syscall(p.c.l.fn.memPoolGetAttribute, p.handle, which, uintptr(unsafe.Pointer(&n))))
	return int64(n), err
}

// Reserved returns the bytes of the device that the pool holds, free ones too.
func (p *Pool) Reserved() (int64, error) { return p.attribute(poolReservedNow) }

// Used returns the bytes that are allocated from the pool.
func (p *Pool) Used() (int64, error) { return p.attribute(poolUsedNow) }

// Trim gives what is free beyond so many reserved bytes back to the device; what is being
// freed counts as free once the device has been waited for.
func (p *Pool) Trim(keep int64) error {
	return p.c.l.check("cuMemPoolTrimTo", syscall(p.c.l.fn.memPoolTrimTo, p.handle, uintptr(keep)))
}

// Destroy gives the pool back, all of whose memory must have been freed.
func (p *Pool) Destroy() error {
	return p.c.l.check("cuMemPoolDestroy", syscall(p.c.l.fn.memPoolDestroy, p.handle))
}
