package rank

import (
	"context"
	"fmt"
	"runtime"
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
	tr.m.courier = hostCourier{t, r.message}
	late := lateness()
	tr.m.pretend = func(op schedule.Op, start int64) { sleepUntil(start+int64(r.Costs.Compute(op)*1e9), late) }
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

// sleepUntil returns at a time of the monotonic clock. A sleeping thread wakes up
// late, on a virtual machine by a quarter of a millisecond and more, so it sleeps
// until that much before; late is what lateness found. time.Sleep would be a
// millisecond late where all processors sleep.
func sleepUntil(t int64, late time.Duration) {
	for {
		left := t - now() - int64(late)
		if left <= 0 {
			break
		}
		ts := unix.NsecToTimespec(left)
		_ = unix.Nanosleep(&ts, nil) // a signal ends it early: go round again
	}
	for now() < t {
		runtime.Gosched()
	}
}

// lateness returns the median of how late this host's sleeps end, at most a millisecond.
func lateness() time.Duration {
	var late []float64
	for range 15 {
		t := now() + int64(2*time.Millisecond)
		sleepUntil(t, 0)
		late = append(late, float64(now()-t))
	}
	return min(time.Duration(median(late)), time.Millisecond)
}

// FLOPCosts models a job's op times by the layers' own operation counts at a
// rate, and transfers by latency and bandwidth. Everything else is free.
func FLOPCosts(w Work, flopsPerSecond, bytesPerSecond float64, latency time.Duration) schedule.StageCosts {
	var c schedule.StageCosts
	for _, cut := range w.Cut {
		at := func(p model.Pass) float64 { return float64(w.Model.FLOPsOf(cut, p, w.Shape)) / flopsPerSecond }
		c.F, c.I, c.W = append(c.F, at(model.PassForward)), append(c.I, at(model.PassInput)), append(c.W, at(model.PassWeight))
		bytes := func(width int) float64 {
			return latency.Seconds() + float64(w.Model.Config.Type.Size())*float64(w.Shape.Rows()*width)/bytesPerSecond
		}
		c.SendF = append(c.SendF, bytes(w.Model.Layers[cut.End-1].OutWidth()))
		c.SendB = append(c.SendB, bytes(w.Model.Layers[cut.First].InWidth()))
	}
	return c
}
