package courier

import (
	"context"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/kernels"
)

// hostCourier is for synchronous devices whose memory the transport can address.
type hostCourier struct {
	transport collectives.Transport
	wire      func(kernels.Buffer) []byte
}

// Host returns a courier that sends and receives the bytes that wire returns for a buffer.
func Host(t collectives.Transport, wire func(kernels.Buffer) []byte) Courier {
	return hostCourier{t, wire}
}

func (c hostCourier) Name() string { return "host" }
func (c hostCourier) Close() error { return nil }

func (c hostCourier) Recv(_ context.Context, from, tag int, to kernels.Buffer) (Parcel, error) {
	return hostParcel{c.transport.Irecv(from, tag, c.wire(to))}, nil
}

func (c hostCourier) Send(_ context.Context, to, tag int, b kernels.Buffer) (Parcel, error) {
	return hostParcel{c.transport.Isend(to, tag, c.wire(b))}, nil
}

type hostParcel struct{ req collectives.Request }

func (p hostParcel) Wait(ctx context.Context) error { return p.req.Wait(ctx) }

// plainCourier copies through host memory whenever a message goes, for devices
// that can do no more. Nothing overlaps.
type plainCourier struct {
	transport collectives.Transport
	dev       kernels.Device
}

func (c plainCourier) Name() string { return "copied" }
func (c plainCourier) Close() error { return nil }

func (c plainCourier) Recv(_ context.Context, from, tag int, to kernels.Buffer) (Parcel, error) {
	b := make([]byte, to.Bytes())
	return plainParcel{c.transport.Irecv(from, tag, b), c.dev, to, b}, nil
}

func (c plainCourier) Send(_ context.Context, to, tag int, from kernels.Buffer) (Parcel, error) {
	b := make([]byte, from.Bytes())
	c.dev.CopyOut(b, from)
	return hostParcel{c.transport.Isend(to, tag, b)}, c.dev.Sync()
}

type plainParcel struct {
	req collectives.Request
	dev kernels.Device
	to  kernels.Buffer
	b   []byte
}

func (p plainParcel) Wait(ctx context.Context) error {
	err := p.req.Wait(ctx)
	if err == nil {
		p.dev.CopyIn(p.to, p.b)
	}
	return err
}
