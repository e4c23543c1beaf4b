package rank

import (
	"context"
	"fmt"
	"sync"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/kernels"
)

// courier moves what ranks send each other between the memories of their
// devices. It is called by the goroutine that performs the program.
type courier interface {
	// name is the way as device.transfer has it, for the run's record.
	name() string
	// recv starts receiving into memory that operations called before may still
	// read; operations called after the parcel's wait see the message.
	recv(ctx context.Context, from, tag int, to kernels.Buffer) (parcel, error)
	// send starts sending what the operations called so far leave in b, which
	// operations called after the parcel's wait may overwrite.
	send(ctx context.Context, to, tag int, b kernels.Buffer) (parcel, error)
	// close ends the courier, once all its parcels have arrived.
	close() error
}

// parcel is a message on its way. wait is called once.
type parcel interface {
	wait(ctx context.Context) error
}

// hostCourier is for devices that are done when they say so, and whose memory the
// transport can address.
type hostCourier struct {
	transport collectives.Transport
	// wire returns the bytes of a buffer as messages have them.
	wire func(kernels.Buffer) []byte
}

func (c hostCourier) name() string { return "host" }
func (c hostCourier) close() error { return nil }

func (c hostCourier) recv(_ context.Context, from, tag int, to kernels.Buffer) (parcel, error) {
	return hostParcel{c.transport.Irecv(from, tag, c.wire(to))}, nil
}

func (c hostCourier) send(_ context.Context, to, tag int, b kernels.Buffer) (parcel, error) {
	return hostParcel{c.transport.Isend(to, tag, c.wire(b))}, nil
}

type hostParcel struct{ req collectives.Request }

func (p hostParcel) wait(ctx context.Context) error { return p.req.Wait(ctx) }

// plainCourier copies through host memory whenever a message goes, for devices
// that can do no more. Nothing overlaps.
type plainCourier struct {
	transport collectives.Transport
	dev       kernels.Device
}

func (c plainCourier) name() string { return "copied" }
func (c plainCourier) close() error { return nil }

func (c plainCourier) recv(_ context.Context, from, tag int, to kernels.Buffer) (parcel, error) {
	b := make([]byte, to.Bytes())
	return plainParcel{c.transport.Irecv(from, tag, b), c.dev, to, b}, nil
}

func (c plainCourier) send(_ context.Context, to, tag int, from kernels.Buffer) (parcel, error) {
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

func (p plainParcel) wait(ctx context.Context) error {
	err := p.req.Wait(ctx)
	if err == nil {
		p.dev.CopyIn(p.to, p.b)
	}
	return err
}

// tracked is a parcel that a goroutine carries, so that a message moves on while the
// device computes and the program goes ahead.
type tracked struct {
	dev     kernels.Marker
	urgent  chan struct{} // closed when the program waits
	arrived chan struct{}
	taken   chan struct{} // closed when the program needs at no more
	at      kernels.Mark  // operations called after the wait begin after it
	err     error
}

// track carries a parcel. carry returns the instant after which the message may be
// used (0: now) and, unless nil, what is to be done once nobody needs the instant any
// more. Until the program waits for the parcel, carry waits without spinning.
func track(ctx context.Context, dev kernels.Marker, carry func(ctx context.Context) (kernels.Mark, func(), error)) *tracked {
	p := &tracked{dev: dev, urgent: make(chan struct{}), arrived: make(chan struct{}), taken: make(chan struct{})}
	go func() {
		var after func()
		p.at, after, p.err = carry(collectives.PatientUntil(ctx, p.urgent))
		close(p.arrived)
		if after != nil {
			after()
		}
		<-p.taken
		dev.Drop(p.at)
	}()
	return p
}

func (p *tracked) wait(ctx context.Context) error {
	close(p.urgent)
	select {
	case <-p.arrived:
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.err == nil {
		p.dev.After(p.at)
	}
	close(p.taken)
	return p.err
}

// hostPool keeps page-locked memory between messages: to lock it takes longer than
// to send it.
type hostPool struct {
	dev  kernels.Copier
	mu   sync.Mutex
	free map[int64][][]byte
	all  [][]byte
}

func newHostPool(dev kernels.Copier) *hostPool {
	return &hostPool{dev: dev, free: map[int64][][]byte{}}
}

func (p *hostPool) get(bytes int64) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.free[bytes]; len(f) > 0 {
		p.free[bytes] = f[:len(f)-1]
		return f[len(f)-1], nil
	}
	b, err := p.dev.HostAlloc(bytes)
	if err != nil {
		return nil, fmt.Errorf("page-locked memory for messages: %w", err)
	}
	p.all = append(p.all, b)
	return b, nil
}

func (p *hostPool) put(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free[int64(len(b))] = append(p.free[int64(len(b))], b)
}

func (p *hostPool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.all {
		p.dev.FreeHost(b)
	}
	p.all, p.free = nil, nil
}
