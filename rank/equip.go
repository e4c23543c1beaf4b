package rank

import (
	"context"
	"fmt"
	"slices"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/rank/courier"
)

// equip gives the machine what the device can do beside its operations, as the job's
// [device] table has it: the way messages go, a second queue, recorded p2, its own clock.
func (tr *Trainer) equip(ctx context.Context, t collectives.Transport) error {
	set, m := tr.spec.Device, tr.m
	m.clock = newDeviceClock(tr.dev)
	if _, ok := tr.dev.(kernels.Queues); set.P2Stream && !ok {
		return cannot(tr.dev, "device.p2_stream = true", "has no second queue")
	}
	if set.P2Graph {
		r, ok := tr.dev.(kernels.Recorder)
		if !ok {
			return cannot(tr.dev, "device.p2_graph = true", "records no graphs")
		}
		m.graphs = newGraphs(r)
	}
	var err error
	if m.courier, err = courier.Open(ctx, courier.Options{Transport: t, Device: tr.dev, Arena: tr.arena, Peers: tr.neighbours(), Want: set.Transfer}); err != nil {
		return err
	}
	if tr.dev.Host(tr.arena) == nil {
		tr.dev.Zero(tr.arena) // of what was tried with
	}
	return nil
}

func cannot(dev kernels.Device, key, why string) error {
	return exitcode.With(exitcode.Environment, fmt.Errorf("%s: the %s device %s; leave the key out", key, dev.Name(), why))
}

// neighbours lists the world ranks with which this one exchanges messages, ascending.
func (tr *Trainer) neighbours() []int {
	var out []int
	for _, op := range tr.m.program {
		if !op.Kind.IsTransfer() {
			continue
		}
		w := tr.m.peer(op)
		if !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	slices.Sort(out)
	return out
}
