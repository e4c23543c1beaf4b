package local

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
)

const (
	sleepAtMost  = 50 * time.Millisecond  // a sleeper looks at its context and its peers this often
	sleepLongest = 500 * time.Millisecond // in worlds of many ranks
	pollerSleep  = 200 * time.Millisecond // so does the poller
	pollerTick   = 100 * time.Microsecond // while the caller waits and computes in turns
)

// drive is Wait between processes.
func (t *Transport) drive(ctx context.Context, r *request) error {
	if patient, urgent := collectives.Patience(ctx); patient {
		if err := r.block(ctx, urgent); err != nil || r.finished() {
			return err
		}
	}
	t.mu.Lock()
	t.waiters++
	t.waits++
	t.disarm()
	t.mu.Unlock()
	defer t.leave()

	var since time.Time // nothing has moved since
	yielded := 0
	for i := 1; ; i++ {
		moved := t.progress()
		if r.finished() {
			return r.err
		}
		if moved {
			since, yielded = time.Time{}, 0
			continue
		}
		if i&63 != 0 && t.spin > 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		// Other goroutines of this process may have no processor but ours.
		runtime.Gosched()
		now := time.Now()
		t.life(now)
		switch {
		case since.IsZero() && t.spin > 0:
			since = now
		case now.Sub(since) < t.spin:
		case t.yields && yielded < 4:
			yielded++
			yield()
		default:
			t.sleep(r)
		}
	}
}

// sleep waits on the bell, once.
func (t *Transport) sleep(r *request) {
	bell, asleep := t.seg.slot32(t.rank, slotBell), t.seg.slot32(t.rank, slotSleep)
	seen := atomic.LoadUint32(bell)
	atomic.AddUint32(asleep, 1)
	// A frame may have come, or a peer gone, before it could see that we sleep.
	moved := t.progress()
	t.mu.Lock()
	t.checkAllLeft()
	t.unlock()
	if !moved && !r.finished() {
		futexSleep(bell, seen, min(t.ticks(sleepAtMost), sleepLongest))
	}
	atomic.AddUint32(asleep, ^uint32(0))
}

// leave ends drive: the last waiter hands over to the poller.
func (t *Transport) leave() {
	t.mu.Lock()
	t.waiters--
	if t.arm() {
		t.step()
	}
	t.unlock()
}

// glance is one look at the rings by a caller of Test.
func (t *Transport) glance() {
	t.mu.Lock()
	t.step()
	t.unlock()
	t.life(time.Now())
}

// arm has peers wake the poller, where nobody else looks after what is pending;
// true when they did not know yet: what came before they do is to be looked for.
func (t *Transport) arm() bool {
	if !t.pollerAsleep || t.armed || t.waiters > 0 || t.pending == 0 || t.closed {
		return false
	}
	t.armed = true
	atomic.StoreUint32(t.seg.slot32(t.rank, slotArmed), 1)
	return true
}

func (t *Transport) disarm() {
	if t.armed && !t.closed {
		t.armed = false
		atomic.StoreUint32(t.seg.slot32(t.rank, slotArmed), 0)
	}
}

func (t *Transport) startPoller() {
	t.pollerDone = make(chan struct{})
	go t.poll()
}

// stopPoller waits for the poller to see that the transport is closed.
func (t *Transport) stopPoller() {
	if t.pollerDone != nil {
		<-t.pollerDone
	}
}

// poll is the background poller. It sleeps until a peer wakes it, which peers do
// only while it is armed. Being woken for every frame would cost both sides more
// than it gains when the caller is back in Wait soon: after a tick in which the
// caller has waited, the poller looks once more a tick later, unarmed.
func (t *Transport) poll() {
	defer close(t.pollerDone)
	bell := t.seg.slot32(t.rank, slotPoll)
	var waits uint64
	for {
		t.mu.Lock()
		if t.closed {
			t.mu.Unlock()
			return
		}
		seen := atomic.LoadUint32(bell)
		pause := pollerTick
		if t.waits == waits || t.waiters > 0 {
			pause = min(t.ticks(pollerSleep), sleepLongest)
			t.pollerAsleep = true
			if t.arm() {
				t.step()
			}
		}
		waits = t.waits
		t.unlock()
		futexSleep(bell, seen, pause)
		t.mu.Lock()
		t.pollerAsleep = false
		t.disarm()
		drive := t.waiters == 0 && !t.closed
		t.mu.Unlock()
		if drive {
			t.progress()
		}
		t.life(time.Now())
	}
}
