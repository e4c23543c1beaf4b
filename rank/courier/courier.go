// Package courier brings messages from the memory of one rank's device to that of another's: by the transport
// alone where the device has host memory, through page-locked memory, through memory that processes of a node share, or by an MPI that takes
// device memory. Open finds the way for each pair of ranks.
package courier

import (
	"context"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/kernels"
)

// Courier moves what ranks send each other between the memories of their
// devices. It is called by the goroutine that performs the program.
type Courier interface {
	// Name is the way as device.transfer has it, for the run's record.
	Name() string
	// Recv starts receiving into memory that operations called before may still
	// read; operations called after the parcel's Wait see the message.
	Recv(ctx context.Context, from, tag int, to kernels.Buffer) (Parcel, error)
	// Send starts sending what the operations called so far leave in b, which
	// operations called after the parcel's Wait may overwrite.
	Send(ctx context.Context, to, tag int, b kernels.Buffer) (Parcel, error)
	// Close ends the courier, once all its parcels have arrived.
	Close() error
}

// Parcel is a message on its way. Wait is called once.
type Parcel interface {
	Wait(ctx context.Context) error
}

// Null moves nothing: what is sent is gone and what is received is there at once.
type Null struct{}

// Name returns "".
func (Null) Name() string { return "" }

// Recv changes nothing.
func (Null) Recv(context.Context, int, int, kernels.Buffer) (Parcel, error) { return Null{}, nil }

// Send sends nothing.
func (Null) Send(context.Context, int, int, kernels.Buffer) (Parcel, error) { return Null{}, nil }

// Wait returns at once.
func (Null) Wait(context.Context) error { return nil }

// Close does nothing.
func (Null) Close() error { return nil }

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

func (p *tracked) Wait(ctx context.Context) error {
	close(p.urgent)
	defer close(p.taken)
	select {
	case <-p.arrived:
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.err == nil {
		p.dev.After(p.at)
	}
	return p.err
}
