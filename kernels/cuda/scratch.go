package cuda

import (
	"errors"

	"github.com/pipetrain/pipetrain/kernels/cuda/driver"
)

// Memory that one operation needs and no other looks at. What a queue keeps for it serves small
// operations; large ones allocate from a pool in the order of their queue, which waits for nothing, and what one queue
// has freed serves the others. Where a device has no pools, and for what is recorded (a replay
// comes at any time, and a pool would put allocations into the graph), queues keep larger memory instead.

const (
	// keptBytes is what a queue keeps: the parts of a sum (maxParts), and small operations' scratch.
	keptBytes = 64 << 10
	// reservedBytes is what the pool holds from the start, so that a device with too little memory is
	// found before the first step: two large operations' scratch.
	reservedBytes = 8 << 20
)

// keptScratch is scratch of a queue.
type keptScratch struct {
	at    driver.Addr
	bytes int64
}

// scratch calls f with n bytes that operations put into the current queue within f may use;
// their contents are undefined.
func (d *Device) scratch(n int64, f func(p uintptr) error) error {
	for _, k := range d.now.kept {
		if k.bytes >= n {
			return f(uintptr(k.at))
		}
	}
	if d.pool == nil || d.now == d.recorded {
		k, err := d.keep(n)
		if err != nil {
			return err
		}
		// Smaller memory stays: what was recorded uses it.
		d.now.kept = append(d.now.kept, k)
		return f(uintptr(k.at))
	}
	p, err := d.pool.Alloc(n, d.now.stream)
	if err != nil {
		return err
	}
	// Freed after a failure too, or Close would find it.
	return errors.Join(f(uintptr(p)), d.pool.Free(p, d.now.stream))
}

// keep allocates scratch of at least n bytes: up to twice that, so that few sizes serve many.
func (d *Device) keep(n int64) (k keptScratch, err error) {
	for k.bytes = keptBytes; k.bytes < n; k.bytes *= 2 {
	}
	k.at, err = d.memory.own(d.ctx, k.bytes)
	return k, err
}

// openPool makes the pool, where the device has any.
func (d *Device) openPool() error {
	if able, err := d.card.device.Attribute(driver.MemoryPools); err != nil || able == 0 {
		return nil // an old driver does not know the attribute
	}
	pool, err := d.ctx.NewPool()
	if errors.Is(err, driver.NotSupported) {
		return nil // some virtual GPUs
	}
	if err != nil {
		return err
	}
	d.pool = pool
	p, err := d.pool.Alloc(reservedBytes, d.first.stream)
	if err != nil {
		return err
	}
	return d.pool.Free(p, d.first.stream)
}

// trimPool gives the card back what the pool holds and nobody uses.
func (d *Device) trimPool() error {
	if d.pool == nil {
		return nil
	}
	if err := d.ctx.Synchronize(); err != nil {
		return err
	}
	return d.pool.Trim(0)
}
