package courier

import (
	"context"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/kernels"
)

// stageBytes is the part of a message that is copied while another is on the wire.
// Both sides cut alike.
const stageBytes = 1 << 20

// stagedCourier sends device memory through page-locked host memory, in parts: while
// one part is on the wire the next is copied, and the device computes on.
type stagedCourier struct {
	transport collectives.Transport
	dev       kernels.Copier
	pool      *HostPool
}

func newStagedCourier(t collectives.Transport, dev kernels.Copier) *stagedCourier {
	return &stagedCourier{t, dev, NewHostPool(dev)}
}

func (c *stagedCourier) Name() string { return "staged" }

func (c *stagedCourier) Close() error {
	c.pool.Close()
	return nil
}

// parts calls f for each part of a message.
func parts(bytes int64, f func(from, to int64) error) error {
	for from := int64(0); from < bytes; from += stageBytes {
		if err := f(from, min(bytes, from+stageBytes)); err != nil {
			return err
		}
	}
	return nil
}

func (c *stagedCourier) Recv(ctx context.Context, from, tag int, to kernels.Buffer) (Parcel, error) {
	host, err := c.pool.Get(to.Bytes())
	if err != nil {
		return nil, err
	}
	dst := to.As(kernels.U8)
	unused := c.dev.Mark() // from here on nobody reads what the message replaces
	var reqs []collectives.Request
	_ = parts(dst.Len, func(a, b int64) error {
		reqs = append(reqs, c.transport.Irecv(from, tag, host[a:b]))
		return nil
	})
	return track(ctx, c.dev, func(ctx context.Context) (kernels.Mark, func(), error) {
		defer c.dev.Drop(unused)
		var last kernels.Mark
		k := 0
		err := parts(dst.Len, func(a, b int64) error {
			if err := reqs[k].Wait(ctx); err != nil {
				return err
			}
			k++
			at := c.dev.Upload(dst.Slice(a, b-a), host[a:b], unused)
			c.dev.Drop(last) // uploads end in their order
			last = at
			return nil
		})
		// The program need not wait for the copy; the next message in this memory must.
		return last, func() {
			if err == nil && c.dev.Await(last) == nil {
				c.pool.Put(host)
			}
		}, err
	}), nil
}

func (c *stagedCourier) Send(ctx context.Context, to, tag int, b kernels.Buffer) (Parcel, error) {
	host, err := c.pool.Get(b.Bytes())
	if err != nil {
		return nil, err
	}
	src := b.As(kernels.U8)
	computed := c.dev.Mark()
	return track(ctx, c.dev, func(ctx context.Context) (kernels.Mark, func(), error) {
		defer c.dev.Drop(computed)
		var copied []kernels.Mark
		_ = parts(src.Len, func(a, b int64) error {
			copied = append(copied, c.dev.Download(host[a:b], src.Slice(a, b-a), computed))
			return nil
		})
		defer c.dev.Drop(copied...)
		var reqs []collectives.Request
		k := 0
		err := parts(src.Len, func(a, b int64) error {
			if err := c.dev.Await(copied[k]); err != nil {
				return err
			}
			k++
			reqs = append(reqs, c.transport.Isend(to, tag, host[a:b]))
			return nil
		})
		for _, r := range reqs {
			if err == nil {
				err = r.Wait(ctx)
			}
		}
		if err == nil {
			c.pool.Put(host)
		}
		return 0, nil, err
	}), nil
}
