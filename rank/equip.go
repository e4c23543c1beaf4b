package rank

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/kernels"
)

// equip gives the machine what the device can do beside its operations, as the job's
// [device] table has it: the way messages go, a second queue, recorded p2, its own clock.
func (tr *Trainer) equip(ctx context.Context, t collectives.Transport) error {
	set, m := tr.spec.Device, tr.m
	tr.u.reducer = newReducer(tr.dev)
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
	if m.courier, err = tr.courier(ctx, t, set.Transfer); err != nil {
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

// courier chooses the way that messages go between the devices. Every rank calls it.
func (tr *Trainer) courier(ctx context.Context, t collectives.Transport, want string) (courier, error) {
	dev := tr.dev
	if dev.Host(tr.arena) != nil {
		if want != "auto" {
			return nil, cannot(dev, fmt.Sprintf("device.transfer = %q", want), "has host memory, which transports reach by themselves")
		}
		return hostCourier{t, dev.Host}, nil
	}
	copier, ok := dev.(kernels.Copier)
	if !ok {
		return plainCourier{t, dev}, nil
	}
	staged := newStagedCourier(t, copier)
	if want == "staged" {
		return staged, nil
	}
	way, left := router{}, tr.neighbours()
	if sharer, ok := dev.(kernels.Sharer); ok && want != "direct" {
		host, err := os.Hostname()
		if err != nil {
			return nil, exitcode.With(exitcode.Environment, fmt.Errorf("the host's name, by which ranks find whom they share memory with: %w", err))
		}
		shared, why, err := share(ctx, t, sharer, tr.arena, left, host)
		if err != nil {
			return nil, fmt.Errorf("exchanging device memory between the ranks of %s: %w", host, err)
		}
		if left, err = way.add(shared, left, why, want == "ipc"); err != nil {
			return nil, err
		}
	}
	if want != "ipc" {
		direct, why, err := tryDirect(ctx, t, dev, tr.arena, left)
		if err != nil {
			return nil, err
		}
		if left, err = way.add(direct, left, why, want == "direct"); err != nil {
			return nil, err
		}
	}
	for _, p := range left {
		way[p] = staged
	}
	return way, nil
}

// add gives a courier the peers for which why has no objection, and returns the others; must
// makes an objection an error.
func (r router) add(c courier, peers []int, why map[int]string, must bool) (left []int, err error) {
	for _, p := range peers {
		if why[p] == "" {
			r[p] = c
			continue
		}
		left = append(left, p)
		if must && err == nil {
			err = exitcode.With(exitcode.Environment, fmt.Errorf("device.transfer = %q does not reach rank %d: %s; \"auto\" takes another way there", c.name(), p, why[p]))
		}
	}
	return left, err
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
