package rank

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pipetrain/pipetrain/exitcode"
)

// watchdog ends a run in which this rank has ended no op for too long: a peer that is stopped, or
// a message that was lost, would let all ranks wait until their time limit. It watches from the first step on,
// saves included. What waits in Go ends by it; who hangs in a library is ended with the world.
type watchdog struct {
	allowed time.Duration // 0: it sleeps
	step    atomic.Int64
	at      atomic.Int64 // index of the op that is performed
	since   atomic.Int64 // when that began, in ns; 0: no step was begun
}

// betweenSteps is where a rank is that has done a step's ops and sums.
const betweenSteps = -1

// advance tells that the op at this index begins.
func (w *watchdog) advance(i int) {
	if w.allowed > 0 {
		w.at.Store(int64(i))
		w.since.Store(now())
	}
}

// guard returns a context that ends where the rank does not advance, and what ends the watch. what
// tells what the op at an index waits for.
func (w *watchdog) guard(ctx context.Context, what func(i int) string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if w.allowed <= 0 {
		return ctx, func() { cancel(nil) }
	}
	every := max(time.Millisecond, min(w.allowed/8, time.Second))
	tick := time.NewTicker(every)
	go func() {
		defer tick.Stop()
		for last := now(); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			at, since := now(), w.since.Load()
			gap := at - last
			last = at
			if gap > 4*every.Nanoseconds() {
				// This process did not run itself: stopped, suspended, or its machine paused. That is nobody's
				// stall. An op that began after that is not the one seen here, and keeps its own time.
				if since != 0 {
					w.since.CompareAndSwap(since, min(since+gap, at))
				}
				continue
			}
			if waited := time.Duration(at - since); since != 0 && waited > w.allowed {
				cancel(exitcode.Errorf(exitcode.Stalled, "step %d: nothing has advanced for %v (run.stall_timeout): %s", w.step.Load(), waited.Round(time.Millisecond), what(int(w.at.Load()))))
				return
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// stalled returns the watchdog's error where it has ended ctx, else err.
func stalled(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && exitcode.Of(cause) == exitcode.Stalled && errors.Is(err, context.Canceled) {
		return cause
	}
	return err
}

// waitsFor tells what the op at an index of the program waits for.
func (m *machine) waitsFor(i int) string {
	me := m.world(m.me)
	if i == betweenSteps {
		return fmt.Sprintf("rank %d saves, or waits for others to save", me)
	}
	if i >= len(m.program) {
		return fmt.Sprintf("rank %d has done its ops, and waits for the others' sums", me)
	}
	op := m.program[i]
	text := fmt.Sprintf("rank %d is at op %d, %s", me, i, op)
	if op.Kind.IsRecv() || op.Kind.IsWait() {
		text += fmt.Sprintf(", and waits for rank %d", m.peer(op))
	}
	return text
}
