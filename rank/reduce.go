package rank

import (
	"context"
	"unsafe"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/rank/courier"
)

// reducer sums gradients over communicators, in rank order.
type reducer struct {
	dev kernels.Device
	// Of a device that copies while it computes; else nil.
	copier kernels.Copier
	pool   *courier.HostPool
}

// Of a gradient that is staged, so much is reduced at a time, and so many parts are in flight.
const (
	reduceBytes = 4 << 20
	reduceAhead = 4
)

func newReducer(dev kernels.Device) *reducer {
	r := &reducer{dev: dev}
	if c, ok := dev.(kernels.Copier); ok {
		r.copier, r.pool = c, courier.NewHostPool(c)
	}
	return r
}

func (r *reducer) close() {
	if r.pool != nil {
		r.pool.Close()
	}
}

// sum replaces g (F32) on every member by the sum over the members.
func (r *reducer) sum(ctx context.Context, c *collectives.Comm, g kernels.Buffer) error {
	if host := r.dev.Host(g); host != nil {
		if err := r.dev.Sync(); err != nil {
			return err
		}
		return c.AllReduceSumF32(ctx, unsafe.Slice((*float32)(unsafe.Pointer(&host[0])), g.Len))
	}
	if r.pool != nil {
		return r.staged(ctx, c, g)
	}
	host := make([]float32, g.Len)
	r.dev.CopyOut(float32Bytes(host), g)
	if err := r.dev.Sync(); err != nil {
		return err
	}
	if err := c.AllReduceSumF32(ctx, host); err != nil {
		return err
	}
	r.dev.CopyIn(g, float32Bytes(host))
	return nil
}

// staged copies out, reduces and copies back in parts that overlap.
func (r *reducer) staged(ctx context.Context, c *collectives.Comm, g kernels.Buffer) error {
	dev := r.copier
	host, err := r.pool.Get(g.Bytes())
	if err != nil {
		return err
	}
	src := g.As(kernels.U8)
	computed := dev.Mark()
	defer dev.Drop(computed)
	type part struct {
		from, to int64
		copied   kernels.Mark
	}
	var all []part
	for from := int64(0); from < src.Len; from += reduceBytes {
		to := min(src.Len, from+reduceBytes)
		all = append(all, part{from, to, dev.Download(host[from:to], src.Slice(from, to-from), computed)})
	}
	// All parts are begun, whatever happens: the copies into host end before it is used again.
	var reqs []collectives.Request
	var last kernels.Mark
	done := 0
	finish := func() {
		p := all[done]
		if e := reqs[done].Wait(ctx); e != nil {
			if err == nil {
				err = e
			}
		} else if err == nil {
			at := dev.Upload(src.Slice(p.from, p.to-p.from), host[p.from:p.to], 0)
			dev.Drop(last)
			last = at
		}
		done++
	}
	for _, p := range all {
		if e := dev.Await(p.copied); e != nil && err == nil {
			err = e
		}
		dev.Drop(p.copied)
		if err != nil {
			continue
		}
		f := unsafe.Slice((*float32)(unsafe.Pointer(&host[p.from])), (p.to-p.from)/4)
		reqs = append(reqs, c.IAllReduceSumF32(ctx, f))
		if len(reqs)-done == reduceAhead {
			finish()
		}
	}
	for done < len(reqs) {
		finish()
	}
	if err != nil {
		return err
	}
	dev.After(last)
	err = dev.Await(last)
	dev.Drop(last)
	r.pool.Put(host)
	return err
}
