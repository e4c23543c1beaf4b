package courier

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/kernels"
)

// directCourier hands addresses of the device to a transport that takes them
// (CUDA-aware MPI).
type directCourier struct {
	transport collectives.DeviceMemory
	dev       kernels.Marker
}

func (c *directCourier) Name() string { return "direct" }
func (c *directCourier) Close() error { return nil }

func (c *directCourier) Recv(ctx context.Context, from, tag int, to kernels.Buffer) (Parcel, error) {
	unused := c.dev.Mark()
	return track(ctx, c.dev, func(ctx context.Context) (kernels.Mark, func(), error) {
		err := c.dev.Await(unused) // the library knows nothing of the device's queues
		c.dev.Drop(unused)
		if err == nil {
			err = c.transport.RecvDevice(from, tag, to.Addr, to.Bytes()).Wait(ctx)
		}
		return 0, nil, err
	}), nil
}

func (c *directCourier) Send(ctx context.Context, to, tag int, b kernels.Buffer) (Parcel, error) {
	computed := c.dev.Mark()
	return track(ctx, c.dev, func(ctx context.Context) (kernels.Mark, func(), error) {
		err := c.dev.Await(computed)
		c.dev.Drop(computed)
		if err == nil {
			err = c.transport.SendDevice(to, tag, b.Addr, b.Bytes()).Wait(ctx)
		}
		return 0, nil, err
	}), nil
}

// A library that claims to take device memory gets this long to move a little of it.
const trialTime = 20 * time.Second

// tryDirect asks the transport whether it takes device memory and, where both ends of a
// pair say so, has it move some between their arenas. why has those it does not work with.
func tryDirect(ctx context.Context, t collectives.Transport, dev kernels.Device, arena kernels.Buffer, peers []int) (c *directCourier, why map[int]string, err error) {
	why = map[int]string{}
	dm, able := t.(collectives.DeviceMemory)
	marker, marks := dev.(kernels.Marker)
	reason := fmt.Sprintf("transport %s takes no device memory", t.Kind())
	if able {
		able, reason = dm.DeviceAware()
	}
	if !able || !marks {
		for _, p := range peers {
			why[p] = reason
		}
	}
	if err := agree(ctx, t, peers, why); err != nil {
		return nil, nil, err
	}
	var claim []int
	for _, p := range peers {
		if why[p] == "" {
			claim = append(claim, p)
		}
	}
	if len(claim) > 0 {
		failed, err := trial(ctx, dm, dev, arena, claim)
		if err != nil {
			return nil, nil, err
		}
		for p, reason := range failed {
			why[p] = reason
		}
	}
	// Those that were not tried take part: both ends skip alike.
	if err := agree(ctx, t, peers, why); err != nil {
		return nil, nil, err
	}
	return &directCourier{dm, marker}, why, nil
}

// trial moves some bytes of the arena to and from each peer, and looks at them.
func trial(ctx context.Context, t collectives.DeviceMemory, dev kernels.Device, arena kernels.Buffer, peers []int) (map[int]string, error) {
	failed := map[int]string{}
	n := min(int64(64<<10), arena.Len/int64(len(peers)+1))
	pattern := func(rank int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i*7 + rank*13 + 1)
		}
		return b
	}
	dev.CopyIn(arena.Slice(0, n), pattern(t.Rank()))
	dev.Zero(arena.Slice(n, n*int64(len(peers))))
	if err := dev.Sync(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, trialTime, fmt.Errorf("device memory did not arrive within %v", trialTime))
	defer cancel()
	var recvs, sends []collectives.Request
	for i, p := range peers {
		recvs = append(recvs, t.RecvDevice(p, trialTag, arena.Addr+uintptr(n)*uintptr(i+1), n))
		sends = append(sends, t.SendDevice(p, trialTag, arena.Addr, n))
	}
	for i, p := range peers {
		err := recvs[i].Wait(ctx)
		if err == nil {
			err = sends[i].Wait(ctx)
		}
		got := make([]byte, n)
		if err == nil {
			dev.CopyOut(got, arena.Slice(n*int64(i+1), n))
			err = dev.Sync()
		}
		switch {
		case context.Cause(ctx) != nil: // in flight still, so the memory is not ours: no way on
			return nil, fmt.Errorf("the library claims to move device memory, but: %w; device.transfer = \"staged\" does without", context.Cause(ctx))
		case err != nil:
			failed[p] = err.Error()
		case !bytes.Equal(got, pattern(p)):
			failed[p] = "device memory arrived wrong"
		}
	}
	return failed, nil
}
