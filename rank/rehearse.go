package rank

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/costs"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/null"
	"github.com/pipetrain/pipetrain/rank/courier"
	"github.com/pipetrain/pipetrain/schedule"
	"github.com/pipetrain/pipetrain/stats"
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
	w, err := WorkOf(spec)
	if err != nil {
		return nil, err
	}
	tr, err := newTrainer(spec, w, t)
	if err != nil {
		return nil, err
	}
	if tr.planned, err = PlanMemory(tr.work, tr.place.Stage, ops); err != nil {
		return nil, err
	}
	if err := tr.machine(t, kernels.NewArena(kernels.Buffer{}), null.New(ops)); err != nil {
		return nil, err
	}
	tr.m.courier = courier.Host(t, r.message)
	late := lateness()
	tr.m.pretend = func(op schedule.Op, start int64) { sleepUntil(start+int64(r.Costs.Compute(op)*1e9), late) }
	tr.u.opt.lr.Base, tr.u.opt.lr.Min = 0, 0 // nothing is learned
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
	return min(time.Duration(stats.MedianOr(late, 0)), time.Millisecond)
}

// RehearsalOf returns the rehearsal of a job: its op times are those that a plan of it has.
func RehearsalOf(spec *jobs.Spec) (*Rehearsal, error) {
	source, err := costs.Named(spec)
	if err == nil {
		err = source.Fits(spec)
	}
	if err != nil {
		return nil, err
	}
	w, err := WorkOf(spec)
	if err != nil {
		return nil, err
	}
	s := w.Schedule
	times := source.Of(costs.WorkOf(spec, w.Model, w.Cut, w.Optim, max(1, s.Stages/s.Ranks), len(s.Place)))
	return &Rehearsal{Costs: times, RealMessages: spec.Device.Messages == "real"}, nil
}
