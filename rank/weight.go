package rank

import (
	"fmt"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/schedule"
)

// weight performs a W op. Nobody waits for its result before the gradients are
// reduced, so it may run beside the ops that follow (device.p2_stream), and it is the same
// sequence on the same memory every step, so it may be recorded (device.p2_graph).
func (m *machine) weight(i int, st *stage, op schedule.Op, start int64, begun kernels.Mark) error {
	m.settle()
	queues, _ := m.dev.(kernels.Queues)
	beside := m.beside && queues != nil
	blocks, err := st.backwardWeight(op.First, op.Last, func(memory uint64, ops func()) error {
		if beside {
			queues.Fork()
			defer queues.Join()
			if m.clock != nil {
				m.clock.dev.Drop(begun)
				begun = m.clock.dev.Mark()
			}
		}
		if m.graphs != nil {
			if err := m.graphs.perform(i, memory, ops); err != nil {
				return err
			}
		} else {
			ops()
		}
		if beside { // within the second queue, whose time it is
			return m.note(op, "compute", start, begun)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if m.beside {
		m.forked, m.since = blocks, 0
	} else {
		for _, b := range blocks {
			m.arena.Free(b)
		}
	}
	if beside {
		return nil
	}
	return m.note(op, "compute", start, begun)
}

// pace bounds what runs beside: a W runs beside one F or I, no longer, so that its
// memory is free again at a place in the program that the plan knows.
func (m *machine) pace(op schedule.Op) {
	switch {
	case op.Kind == schedule.ReduceGrad, op.Kind == schedule.Update:
		m.settle()
	case op.Kind.IsCompute() && op.Kind != schedule.BackwardWeight:
		if m.since++; m.since > 1 {
			m.settle()
		}
	}
}

// settle lets what follows begin after the W that runs beside, and frees what that held.
func (m *machine) settle() {
	if m.forked == nil {
		return
	}
	if q, ok := m.dev.(kernels.Queues); ok {
		q.Wait()
	}
	for _, b := range m.forked {
		m.arena.Free(b)
	}
	m.forked = nil
}

// graphs are the recorded W of a program, by its index: the first step records, the
// others replay. The arena gives the same memory every step; where it did not, the op is
// recorded anew.
type graphs struct {
	dev      kernels.Recorder
	recorded map[int]recording
	count    int // recordings made, for the run's record
}

type recording struct {
	memory uint64
	kernels.Recording
}

func newGraphs(dev kernels.Recorder) *graphs {
	return &graphs{dev: dev, recorded: map[int]recording{}}
}

func (g *graphs) perform(i int, memory uint64, ops func()) error {
	r, ok := g.recorded[i]
	if ok && r.memory != memory {
		r.Free()
		ok = false
	}
	if !ok {
		made, err := g.dev.Record(ops)
		if err != nil {
			return fmt.Errorf("recording backward-p2: %w", err)
		}
		r = recording{memory, made}
		g.recorded[i] = r
		g.count++
	}
	r.Replay()
	return nil
}

func (g *graphs) close() {
	for _, r := range g.recorded {
		r.Free()
	}
	clear(g.recorded)
}
