package rank

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/schedule"
)

// Rehearsal performs a job's schedule with its real messages between real
// ranks, while each op takes its modelled time and computes nothing: neither
// a processor nor the memory of the plan is used.
type Rehearsal struct {
	Costs schedule.Costs // seconds
	// RealMessages sends as many bytes as the run would; else each message is
	// one word, whose transfer costs next to nothing.
	RealMessages bool
}

// NewRehearsal is New for a rehearsal. ops is asked for the sizes of scratch memory only.
func NewRehearsal(ctx context.Context, spec *jobs.Spec, t collectives.Transport, ops kernels.Ops, r Rehearsal) (*Trainer, error) {
	tr, err := newTrainer(spec, t)
	if err != nil {
		return nil, err
	}
	if tr.planned, err = PlanMemory(tr.work, tr.place.Stage, ops); err != nil {
		return nil, err
	}
	if err := tr.machine(t, kernels.NewArena(kernels.Buffer{}), nil, ops); err != nil {
		return nil, err
	}
	tr.m.wire = r.message
	tr.m.pretend = func(op schedule.Op, start int64) { sleepUntil(start + int64(r.Costs.Compute(op)*1e9)) }
	tr.m.reduce = nil
	if tr.offset, err = clockOffset(ctx, t); err != nil {
		return nil, fmt.Errorf("comparing clocks: %w", err)
	}
	return tr, nil
}

// message stands for a buffer of the arena, which has no memory here.
func (r Rehearsal) message(b kernels.Buffer) []byte {
	if r.RealMessages {
		return make([]byte, b.Bytes())
	}
	return make([]byte, 8)
}

// sleepUntil returns at a time of the monotonic clock, to within tens of
// microseconds. time.Sleep is a millisecond late where all processors sleep.
func sleepUntil(t int64) {
	for {
		left := t - now()
		if left <= 0 {
			return
		}
		ts := unix.NsecToTimespec(left)
		_ = unix.Nanosleep(&ts, nil) // a signal ends it early: go round again
	}
}

// FLOPCosts models a job's op times by the layers' own operation counts at a
// rate, and transfers by latency and bandwidth. Everything else is free.
func FLOPCosts(w Work, flopsPerSecond, bytesPerSecond float64, latency time.Duration) schedule.StageCosts {
	var c schedule.StageCosts
	for _, cut := range w.Cut {
		at := func(p model.Pass) float64 { return float64(w.Model.FLOPsOf(cut, p, w.Shape)) / flopsPerSecond }
		c.F, c.I, c.W = append(c.F, at(model.PassForward)), append(c.I, at(model.PassInput)), append(c.W, at(model.PassWeight))
		bytes := func(width int) float64 { return latency.Seconds() + 4*float64(w.Shape.Rows()*width)/bytesPerSecond }
		c.SendF = append(c.SendF, bytes(w.Model.Layers[cut.End-1].OutWidth()))
		c.SendB = append(c.SendB, bytes(w.Model.Layers[cut.First].InWidth()))
	}
	return c
}
