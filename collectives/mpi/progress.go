package mpi

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/pipetrain/pipetrain/collectives"
)

// table holds what MPI has in flight: handles side by side as MPI_Testsome
// wants them, and whose they are. mu guards it.
type table struct {
	n       int
	long    int    // of which may take long to move
	handles []byte // stride handleSize
	owner   []*transfer
	role    []int
	indices []int32
	status  []byte // stride statusSize
}

// push makes room for one more handle and returns its slot.
func (q *table) push(l *library, x *transfer, role int) *byte {
	q.owner = append(q.owner[:q.n], x)
	q.role = append(q.role[:q.n], role)
	q.n++
	if long(role) {
		q.long++
	}
	for len(q.handles) < q.n*l.handleSize {
		q.handles = append(q.handles, make([]byte, 64*l.handleSize)...)
		q.indices = make([]int32, len(q.handles)/l.handleSize)
		q.status = make([]byte, len(q.indices)*l.statusSize)
	}
	slot := q.handles[(q.n-1)*l.handleSize:][:l.handleSize]
	clear(slot)
	return &slot[0]
}

func (q *table) pop() {
	q.n--
	q.owner[q.n] = nil
	if long(q.role[q.n]) {
		q.long--
	}
}

// remove takes out entry i by moving the last one there.
func (q *table) remove(l *library, i int) {
	last := q.n - 1
	h := l.handleSize
	copy(q.handles[i*h:(i+1)*h], q.handles[last*h:(last+1)*h])
	q.owner[i], q.owner[last] = q.owner[last], q.owner[i]
	q.role[i], q.role[last] = q.role[last], q.role[i]
	q.pop()
}

func (q *table) onlySends() bool {
	for _, role := range q.role[:q.n] {
		if role != roleSend && role != roleSendBody {
			return false
		}
	}
	return true
}

// progressLocked lets MPI work, in rounds while nothing is done, and completes what is
// done. mu is held.
func (t *Transport) progressLocked(rounds int64) (moved bool) {
	q := &t.table
	if q.n == 0 || t.finalized {
		return false
	}
	if q.n == 1 {
		return t.progressOne(rounds)
	}
	c := &t.testing
	c.arg[0], c.arg[1], c.arg[3], c.arg[4] = uintptr(q.n), uintptr(unsafe.Pointer(&q.handles[0])),
		uintptr(unsafe.Pointer(&q.indices[0])), uintptr(unsafe.Pointer(&q.status[0]))
	c.done, c.rounds = 0, rounds
	t.run(c)
	rc, n := c.rc, c.done
	if rc == 0 && n <= 0 {
		return false
	}
	if n < 0 || int(n) > q.n {
		err := fmt.Errorf("mpi: %w", t.lib.errorOf("MPI_Testsome", rc))
		t.failPending(err)
		return true
	}
	failed := rc != 0 // then, and only then, the statuses hold error codes
	t.done = t.done[:0]
	for k := range int(n) {
		i := int(q.indices[k])
		st := q.status[k*t.lib.statusSize:][:t.lib.statusSize]
		e := done{index: i, x: q.owner[i], role: q.role[i]}
		if failed {
			e.code = *(*int32)(unsafe.Pointer(&st[t.lib.statusErr]))
		}
		t.count(&e, st)
		t.done = append(t.done, e)
	}
	// From the back, as remove moves the last entry into the hole.
	slices.SortFunc(t.done, func(a, b done) int { return b.index - a.index })
	for _, e := range t.done {
		q.remove(t.lib, e.index)
	}
	for i := range t.done {
		t.part(&t.done[i])
		t.done[i].x = nil
	}
	return true
}

// progressOne is progressLocked where one message is under way: MPI_Test looks again at what its own
// progress completed, MPI_Testsome only when called once more.
func (t *Transport) progressOne(rounds int64) (moved bool) {
	q, c := &t.table, &t.one
	c.arg[0], c.arg[2] = uintptr(unsafe.Pointer(&q.handles[0])), uintptr(unsafe.Pointer(&q.status[0]))
	c.done, c.rounds = 0, rounds
	t.run(c)
	if c.done == 0 {
		if c.rc != 0 {
			t.failPending(fmt.Errorf("mpi: %w", t.lib.errorOf("MPI_Test", c.rc)))
		}
		return c.rc != 0
	}
	e := done{x: q.owner[0], role: q.role[0], code: c.rc}
	t.count(&e, q.status)
	q.pop()
	t.part(&e)
	return true
}

// count asks how much a receive of device memory got; the lengths of others are in their heads.
func (t *Transport) count(e *done, status []byte) {
	if e.role == roleDevice {
		purego.SyscallN(t.lib.fn.getCount, uintptr(unsafe.Pointer(&status[0])), t.lib.byteType.value, uintptr(unsafe.Pointer(&t.got)))
		e.got = t.got
	}
}

// done is a message that MPI has completed.
type done struct {
	index int
	x     *transfer
	role  int
	code  int32
	got   int32
}

// part ends one message of a request; of a receive's head, it posts the rest.
func (t *Transport) part(e *done) {
	x := e.x
	x.parts--
	switch {
	case e.code != 0:
		name := "MPI_Irecv"
		if x.send {
			name = "MPI_Isend"
		}
		x.fail(fmt.Errorf("mpi: %v: %w", x, t.lib.errorOf(name, e.code)))
	case e.role == roleFirst && !x.cancelled:
		t.arrived(x)
	case e.role == roleDevice && !x.cancelled:
		x.got += int(e.got)
		if x.parts == 0 && x.got != len(x.buf) {
			x.fail(x.wrongLength(x.got))
		}
	}
	if x.parts == 0 {
		x.end(x.first)
	}
}

func (t *Transport) failPending(err error) {
	for _, x := range t.table.owner[:t.table.n] {
		x.r.complete(err)
	}
}

// cancelReceives takes back receives that nothing has arrived for.
func (t *Transport) cancelReceives() {
	q := &t.table
	for i, x := range q.owner[:q.n] {
		if q.role[i] == roleFirst || q.role[i] == roleDevice {
			x.cancelled = true
			x.fail(collectives.ErrClosed)
			purego.SyscallN(t.lib.fn.cancel, uintptr(unsafe.Pointer(&q.handles[i*t.lib.handleSize])))
		}
	}
}

// block waits on a channel until the poller has completed r; early, with nil,
// when urgent is closed.
func (r *request) block(ctx context.Context, urgent <-chan struct{}) error {
	r.t.mu.Lock()
	if r.finished() {
		r.t.mu.Unlock()
		return r.result()
	}
	m := r.extra()
	if m.ch == nil {
		m.ch = make(chan struct{})
	}
	ch := m.ch
	r.t.mu.Unlock()
	r.t.patient.Add(1)
	defer r.t.patient.Add(-1)
	select {
	case <-ch:
		return r.result()
	case <-urgent:
		return nil
	case <-ctx.Done():
		if r.finished() {
			return r.result()
		}
		return ctx.Err()
	}
}

// run makes a call whose length is bounded by what is under way: with nothing long there,
// MPI moves a few small messages at most.
func (t *Transport) run(c *call) {
	if t.table.long == 0 {
		c.quick()
	} else {
		c.make()
	}
}

// drive is Wait: the waiter itself lets MPI work, spinning for a while, then
// with pauses.
func (t *Transport) drive(ctx context.Context, r *request) error {
	// About half a microsecond, in which others that have something to post wait.
	const rounds = 16
	// Often that is enough, and nobody need know of this waiter.
	if t.mu.TryLock() {
		t.turns++
		t.progressLocked(rounds)
		t.mu.Unlock()
	}
	if r.finished() {
		return r.result()
	}
	t.waiters.Add(1)
	defer t.leave()
	var since time.Time
	for i := 1; ; i++ {
		moved := false
		if t.mu.TryLock() {
			t.turns++
			moved = t.progressLocked(rounds)
			t.mu.Unlock()
		}
		if r.finished() {
			return r.result()
		}
		if moved {
			since = time.Time{}
			continue
		}
		if i&3 != 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		runtime.Gosched()
		switch now := time.Now(); {
		case since.IsZero() && t.spin > 0:
			since = now
		case now.Sub(since) < t.spin:
		case t.yields:
			yield()
			nap(20_000)
		default:
			nap(20_000)
		}
	}
}

// leave ends drive: the last waiter wakes the poller if messages are left.
func (t *Transport) leave() {
	if t.waiters.Add(-1) > 0 || !t.idle.Load() {
		return
	}
	t.mu.Lock()
	left := t.table.n > 0
	t.mu.Unlock()
	if left {
		select {
		case t.posted <- struct{}{}:
		default:
		}
	}
}

// poll is the background poller. It sleeps while nothing is pending, looks
// away while somebody waits, and else lets MPI work at intervals, longer ones
// while nothing moves.
func (t *Transport) poll() {
	defer close(t.stopped)
	if t.pause <= 0 {
		return
	}
	// A thread of its own, so that its naps end on time.
	runtime.LockOSThread()
	sharpen()
	quiet, turns := 0, 0
	pause := t.pause
	for {
		waiting := t.waiters.Load() > 0
		driven := waiting
		if !waiting && t.mu.TryLock() {
			driven, turns = turns != t.turns, t.turns
			moved, pending, closed := t.progressLocked(1), t.table.n, t.closed
			t.mu.Unlock()
			switch {
			case closed:
				return
			case moved:
				quiet, pause = 0, t.pause
			case pending > 0:
				quiet = 0
				pause = min(pause+pause/8+1, 5*t.pause)
			default:
				quiet++
			}
		}
		// Stay hot for a few rounds: a channel wake-up per message would cost its sender microseconds.
		switch {
		case driven && t.patient.Load() == 0:
			// Not a nap. That is a long system call for Go's runtime, which takes the processor
			// from it and looks for others every 20 µs from then on: 18,000 switches of threads a
			// second, in which those who drive progress lose a third of their time.
			time.Sleep(5 * t.pause)
			continue
		case waiting:
			nap(int64(5 * t.pause))
			continue
		case quiet < 20:
			nap(int64(pause))
			continue
		}
		t.idle.Store(true)
		t.mu.Lock()
		again := t.table.n > 0 || t.closed
		t.mu.Unlock()
		if !again {
			<-t.posted
		}
		t.idle.Store(false)
		quiet, pause = 0, t.pause
	}
}
