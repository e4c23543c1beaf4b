// Package cuda is the NVIDIA backend: kernels of its own, compiled to PTX and
// embedded (ptx), matrix products through cublasLt where it is found, the driver's
// library loaded at run time (driver). Nothing of CUDA is needed to build it.
//
// Operations run on a stream, in the order in which they are called and after the
// call has returned; the first failure is kept for Sync. Beside the operations of
// kernels.Device it has all abilities of kernels/optional.go.
package cuda

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cuda/driver"
	"github.com/pipetrain/pipetrain/kernels/cuda/nvtx"
)

// Options says how a Device is opened.
type Options struct {
	// Driver is the soname or the path of the driver's library; empty: libcuda.so.1.
	Driver string
	// CublasLt is the soname or the path of cublasLt; empty: the newest found, else
	// the own kernels multiply. "none" does not look for it.
	CublasLt string
	// GPU is the card's number among those that the process sees.
	GPU int
	// TF32 lets products of f32 matrices round their inputs to 10 bits of fraction.
	TF32 bool
}

// Device is one GPU as a kernels.Device.
type Device struct {
	lib  *driver.Library
	card Card
	ctx  *driver.Context
	info map[string]string

	kernels functions
	args    *driver.Args
	gemm    *products     // nil: the own kernels
	ranges  *nvtx.Library // nil: nobody is told names

	first, second, recorded *queue
	now                     *queue // that operations go to
	up, down, moves         *driver.Stream
	staging                 *staging
	marks                   marks
	faults                  faults
	rotary                  map[rotaryKey]driver.Addr
	memory                  memory
	pool                    *driver.Pool // nil: the device has none

	mu     sync.Mutex
	err    error
	closed bool
}

var (
	_ kernels.Device   = (*Device)(nil)
	_ kernels.Queues   = (*Device)(nil)
	_ kernels.Recorder = (*Device)(nil)
	_ kernels.Sharer   = (*Device)(nil)
	_ kernels.Ranger   = (*Device)(nil)

	_ kernels.GemmByAlignment = (*Device)(nil)
)

// New opens a GPU. Its errors say what is wrong in one line, and what to do.
func New(o Options) (*Device, error) {
	lib, err := load(o.Driver)
	if err != nil {
		return nil, err
	}
	card, err := choose(lib, o.GPU)
	if err != nil {
		return nil, err
	}
	d := &Device{lib: lib, card: card, args: driver.NewArgs(), rotary: map[rotaryKey]driver.Addr{}}
	if d.ctx, err = card.device.PrimaryContext(); err != nil {
		return nil, card.refused(err)
	}
	if err = d.ctx.Enter(); err == nil {
		err = d.open(o)
	}
	d.ctx.Leave()
	if err != nil {
		_ = d.Close() // what went wrong first is what matters
		return nil, card.refused(err)
	}
	return d, nil
}

// open makes what every Device has.
func (d *Device) open(o Options) (err error) {
	if d.kernels, err = loadKernels(d.ctx, d.card); err != nil {
		return err
	}
	if d.gemm, err = openProducts(o, d.card); err != nil {
		return err
	}
	least, greatest, err := d.ctx.PriorityRange()
	if err != nil {
		return err
	}
	for _, q := range []struct {
		to       **queue
		priority int
	}{{&d.first, greatest}, {&d.second, least}, {&d.recorded, greatest}} {
		if *q.to, err = d.newQueue(q.priority); err != nil {
			return err
		}
	}
	d.now = d.first
	if err = d.openPool(); err != nil {
		return err
	}
	for _, s := range []**driver.Stream{&d.up, &d.down, &d.moves} {
		if *s, err = d.ctx.NewStream(greatest); err != nil {
			return err
		}
	}
	d.marks.ctx = d.ctx
	if d.staging, err = newStaging(d.ctx); err != nil {
		return err
	}
	if err = d.faults.open(d); err != nil {
		return err
	}
	d.info = d.card.info()
	if r, err := nvtx.Open(""); err == nil { // that it is not there is no mistake
		d.ranges = r
		d.info["ranges"] = r.Path()
	}
	maps.Copy(d.info, d.gemm.info())
	return nil
}

// Name returns "cuda".
func (d *Device) Name() string { return "cuda" }

// Info describes the card, the driver and the libraries.
func (d *Device) Info() map[string]string {
	m := maps.Clone(d.info)
	m["scratch"] = "kept by queues"
	if d.pool != nil {
		m["scratch"] = "memory pool"
	}
	m["own memory"] = fmt.Sprintf("%.1f MiB beside the arena", float64(d.overhead())/(1<<20))
	return m
}

// Card is the GPU that d computes on.
func (d *Device) Card() Card { return d.card }

// Sync waits for all operations and copies and returns the first failure since New.
func (d *Device) Sync() error {
	d.perform("Sync", func() error {
		for _, s := range []*driver.Stream{d.first.stream, d.second.stream, d.up, d.down, d.moves} {
			if err := s.Synchronize(); err != nil {
				return err
			}
		}
		return d.faults.look(d)
	})
	return d.failure()
}

func (d *Device) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// fail keeps the first failure of an operation for Sync.
func (d *Device) fail(op string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return
	}
	note := ""
	var e *driver.Error
	switch {
	case !errors.As(err, &e):
	case e.Hardware():
		note = "; the GPU or its link is broken: leave out its node, and have its operator look at nvidia-smi -q"
	case e.Asynchronous():
		note = "; it was an operation called before, which CUDA_LAUNCH_BLOCKING=1 in the environment names"
	}
	d.err = fmt.Errorf("cuda: GPU %d: %s: %w%s", d.card.Number, op, err, note)
}

// perform runs the calls of one operation with the context current, unless an
// operation has failed before.
func (d *Device) perform(op string, f func() error) {
	if d.failure() != nil {
		return
	}
	err := d.ctx.Enter()
	defer d.ctx.Leave()
	if err == nil {
		if d.ranges != nil {
			d.ranges.Push(op)
			defer d.ranges.Pop()
		}
		err = f()
	}
	if err != nil {
		d.fail(op, err)
	}
}

// Profiled is kernels.Ranger's.
func (d *Device) Profiled() bool { return d.ranges != nil }

// Range is kernels.Ranger's.
func (d *Device) Range(name string) (end func()) {
	if d.ranges == nil {
		return func() {}
	}
	id := d.ranges.Start(name)
	return func() { d.ranges.End(id) }
}

// Close waits, frees what the device holds and gives the card back. A second Close does nothing.
func (d *Device) Close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	failed := d.failure()
	var errs []error
	note := func(err error) {
		// After a failure of the card every call returns it again.
		if err != nil && failed == nil {
			errs = append(errs, err)
		}
	}
	if err := d.ctx.Enter(); err != nil {
		note(err)
	}
	note(d.ctx.Synchronize())
	d.gemm.close()
	d.marks.close(note)
	if d.staging != nil {
		d.staging.close(note)
	}
	if d.pool != nil {
		note(d.pool.Destroy())
	}
	d.memory.close(d.ctx, note)
	for _, q := range []*queue{d.first, d.second, d.recorded} {
		if q != nil {
			note(q.stream.Destroy())
		}
	}
	for _, s := range []*driver.Stream{d.up, d.down, d.moves} {
		if s != nil {
			note(s.Destroy())
		}
	}
	d.kernels.close(note)
	d.ctx.Leave()
	note(d.ctx.Release())
	if len(errs) > 0 {
		return fmt.Errorf("cuda: GPU %d: Close: %w", d.card.Number, errors.Join(errs...))
	}
	return nil
}

func text(n int) string { return strconv.Itoa(n) }
