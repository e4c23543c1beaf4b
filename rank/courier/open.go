package courier

import (
	"context"
	"fmt"
	"os"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/kernels"
)

// Options say between whom messages go, and how.
type Options struct {
	Transport collectives.Transport
	Device    kernels.Device
	Arena     kernels.Buffer // all that is sent lies in it; Open may write to it
	Peers     []int          // world ranks with which messages are exchanged, ascending
	Want      string         // device.transfer: auto, ipc, direct or staged
}

// Open chooses the way that messages go between the devices. Every rank of the world calls it. The error
// says which way that was asked for does not reach whom.
func Open(ctx context.Context, o Options) (Courier, error) {
	dev, t := o.Device, o.Transport
	if dev.Host(o.Arena) != nil {
		if o.Want != "auto" {
			return nil, exitcode.With(exitcode.Environment, fmt.Errorf("device.transfer = %q: the %s device has host memory, which transports reach by themselves; leave the key out", o.Want, dev.Name()))
		}
		return Host(t, dev.Host), nil
	}
	copier, ok := dev.(kernels.Copier)
	if !ok {
		return plainCourier{t, dev}, nil
	}
	staged := newStagedCourier(t, copier)
	if o.Want == "staged" {
		return staged, nil
	}
	way, left := router{}, o.Peers
	if sharer, ok := dev.(kernels.Sharer); ok && o.Want != "direct" {
		host, err := os.Hostname()
		if err != nil {
			return nil, exitcode.With(exitcode.Environment, fmt.Errorf("the host's name, by which ranks find whom they share memory with: %w", err))
		}
		shared, why, err := share(ctx, t, sharer, o.Arena, left, host)
		if err != nil {
			return nil, fmt.Errorf("exchanging device memory between the ranks of %s: %w", host, err)
		}
		if left, err = way.add(shared, left, why, o.Want == "ipc"); err != nil {
			return nil, err
		}
	}
	if o.Want != "ipc" {
		direct, why, err := tryDirect(ctx, t, dev, o.Arena, left)
		if err != nil {
			return nil, err
		}
		if left, err = way.add(direct, left, why, o.Want == "direct"); err != nil {
			return nil, err
		}
	}
	for _, p := range left {
		way[p] = staged
	}
	return way, nil
}
