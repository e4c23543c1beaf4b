package cuda

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cuda/driver"
)

// memory is what the device has allocated: live for callers, owned for itself.
type memory struct {
	mu       sync.Mutex
	live     map[uintptr]int64
	owned    []driver.Addr
	ownBytes int64
	imported map[uintptr]bool
	hosts    map[*byte][]byte
}

// own allocates memory that lives as long as the device; its contents are undefined.
func (m *memory) own(ctx *driver.Context, bytes int64) (driver.Addr, error) {
	p, err := ctx.MemAlloc(bytes)
	if err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owned = append(m.owned, p)
	m.ownBytes += bytes
	return p, nil
}

func (m *memory) close(ctx *driver.Context, note func(error)) {
	for p := range m.imported {
		note(ctx.CloseMemHandle(driver.Addr(p)))
	}
	for p := range m.live {
		note(ctx.MemFree(driver.Addr(p)))
	}
	for _, p := range m.owned {
		note(ctx.MemFree(p))
	}
	for _, b := range m.hosts {
		note(ctx.MemFreeHost(b))
	}
	*m = memory{}
}

// overhead is the bytes of the card that the device holds beside Alloc's: workspaces of
// products, tables, scratch, what the pool reserves.
func (d *Device) overhead() (bytes int64) {
	if d.pool != nil {
		d.perform("Info", func() (err error) {
			bytes, err = d.pool.Reserved()
			return err
		})
	}
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	return bytes + d.memory.ownBytes
}

// Alloc returns zeroed memory of the card. Its error does not stick: who asks for
// too much may ask for less; nor does it mind an operation that failed on its data.
func (d *Device) Alloc(bytes int64) (kernels.Buffer, error) {
	if bytes < 0 {
		return kernels.Buffer{}, fmt.Errorf("cuda: alloc of %d bytes: the size is not possible", bytes)
	}
	if bytes == 0 {
		return kernels.Buffer{Type: kernels.U8}, nil
	}
	err := d.ctx.Enter()
	defer d.ctx.Leave()
	var p driver.Addr
	if err == nil {
		p, err = d.ctx.MemAlloc(bytes)
	}
	if errors.Is(err, driver.OutOfMemory) && d.trimPool() == nil {
		p, err = d.ctx.MemAlloc(bytes)
	}
	if err == nil {
		// Waited for, as the first use may be on any queue.
		if err = d.up.Set(p, 0, bytes); err == nil {
			err = d.up.Synchronize()
		}
	}
	if err != nil {
		return kernels.Buffer{}, fmt.Errorf("cuda: GPU %d (%s): alloc: %w", d.card.Number, d.card.Name, err)
	}
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	if d.memory.live == nil {
		d.memory.live = map[uintptr]int64{}
	}
	d.memory.live[uintptr(p)] = bytes
	return kernels.Buffer{Addr: uintptr(p), Len: bytes, Type: kernels.U8}, nil
}

// Free waits for all operations and gives back memory that Alloc gave; it panics on any other buffer.
func (d *Device) Free(b kernels.Buffer) {
	if b.Addr == 0 && b.Empty() {
		return
	}
	d.memory.mu.Lock()
	_, ok := d.memory.live[b.Addr]
	delete(d.memory.live, b.Addr)
	d.memory.mu.Unlock()
	if !ok {
		panic(fmt.Sprintf("cuda: free of %#x, which Alloc did not give or which is free already", b.Addr))
	}
	// After a failure too, or the memory would be lost.
	err := d.ctx.Enter()
	if err == nil {
		err = d.ctx.MemFree(driver.Addr(b.Addr))
	}
	d.ctx.Leave()
	if err != nil {
		d.fail("Free", err)
	}
}

// Host returns nil: the host cannot address the card's memory.
func (d *Device) Host(kernels.Buffer) []byte { return nil }

func sameSize(op string, to, from int64) {
	if to != from {
		panic(fmt.Sprintf("cuda: %s of %d bytes into %d", op, from, to))
	}
}

// CopyIn copies src into dst; both must have the same size.
func (d *Device) CopyIn(dst kernels.Buffer, src []byte) {
	sameSize("CopyIn", dst.Bytes(), int64(len(src)))
	d.perform("CopyIn", func() error { return d.staging.in(d.now.stream, driver.Addr(dst.Addr), src) })
}

// CopyOut copies src into dst, both of the same size, once all operations called before are done.
func (d *Device) CopyOut(dst []byte, src kernels.Buffer) {
	sameSize("CopyOut", int64(len(dst)), src.Bytes())
	d.perform("CopyOut", func() error { return d.staging.out(d.now.stream, dst, driver.Addr(src.Addr)) })
}

// Copy copies src into dst; both must have the same size.
func (d *Device) Copy(dst, src kernels.Buffer) {
	sameSize("Copy", dst.Bytes(), src.Bytes())
	if n := dst.Bytes(); n > 0 {
		d.perform("Copy", func() error { return d.now.stream.Copy(driver.Addr(dst.Addr), driver.Addr(src.Addr), n) })
	}
}

// Zero sets all bytes of b to zero.
func (d *Device) Zero(b kernels.Buffer) {
	if n := b.Bytes(); n > 0 {
		d.perform("Zero", func() error { return d.now.stream.Set(driver.Addr(b.Addr), 0, n) })
	}
}

// staging is page-locked memory through which CopyIn and CopyOut go, in parts: one is
// filled while another is under way.
type staging struct {
	ctx   *driver.Context
	parts [2]stagingPart
	next  int
}

type stagingPart struct {
	host []byte
	free *driver.Event // passed when no copy uses it
}

const stagingBytes = 4 << 20

func newStaging(ctx *driver.Context) (*staging, error) {
	s := &staging{ctx: ctx}
	for i := range s.parts {
		p := &s.parts[i]
		var err error
		if p.host, err = ctx.MemHostAlloc(stagingBytes); err != nil {
			return s, err
		}
		if p.free, err = ctx.NewEvent(false); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *staging) close(note func(error)) {
	for _, p := range s.parts {
		if p.host != nil {
			note(s.ctx.MemFreeHost(p.host))
		}
		if p.free != nil {
			note(p.free.Destroy())
		}
	}
}

// take returns the part whose turn it is, once it is free.
func (s *staging) take() (*stagingPart, error) {
	p := &s.parts[s.next]
	s.next = (s.next + 1) % len(s.parts)
	return p, p.free.Synchronize()
}

func (s *staging) in(stream *driver.Stream, dst driver.Addr, src []byte) error {
	for len(src) > 0 {
		p, err := s.take()
		if err != nil {
			return err
		}
		n := copy(p.host, src)
		if err := stream.CopyIn(dst, p.host[:n]); err != nil {
			return err
		}
		if err := p.free.Record(stream); err != nil {
			return err
		}
		dst, src = dst+driver.Addr(n), src[n:]
	}
	return nil
}

func (s *staging) out(stream *driver.Stream, dst []byte, src driver.Addr) error {
	type part struct {
		*stagingPart
		to []byte
	}
	var under []part // way, oldest first
	take := func() error {
		p := under[0]
		under = under[1:]
		if err := p.free.Synchronize(); err != nil {
			return err
		}
		copy(p.to, p.host)
		return nil
	}
	for len(dst) > 0 {
		if len(under) == len(s.parts) {
			if err := take(); err != nil {
				return err
			}
		}
		p, err := s.take()
		if err != nil {
			return err
		}
		n := min(len(dst), stagingBytes)
		if err := stream.CopyOut(p.host[:n], src); err != nil {
			return err
		}
		if err := p.free.Record(stream); err != nil {
			return err
		}
		under = append(under, part{p, dst[:n]})
		src, dst = src+driver.Addr(n), dst[n:]
	}
	for len(under) > 0 {
		if err := take(); err != nil {
			return err
		}
	}
	return nil
}

// HostAlloc is kernels.Copier's.
func (d *Device) HostAlloc(bytes int64) ([]byte, error) {
	if bytes == 0 {
		return []byte{}, nil
	}
	err := d.ctx.Enter()
	defer d.ctx.Leave()
	var b []byte
	if err == nil {
		b, err = d.ctx.MemHostAlloc(int(bytes))
	}
	if err != nil {
		return nil, fmt.Errorf("cuda: GPU %d: %d bytes of page-locked memory: %w", d.card.Number, bytes, err)
	}
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	if d.memory.hosts == nil {
		d.memory.hosts = map[*byte][]byte{}
	}
	d.memory.hosts[unsafe.SliceData(b)] = b
	return b, nil
}

// FreeHost is kernels.Copier's.
func (d *Device) FreeHost(b []byte) {
	if len(b) == 0 {
		return
	}
	d.memory.mu.Lock()
	delete(d.memory.hosts, unsafe.SliceData(b))
	d.memory.mu.Unlock()
	d.perform("FreeHost", func() error { return d.ctx.MemFreeHost(b) })
}
