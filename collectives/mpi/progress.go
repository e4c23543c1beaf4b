package mpi

import (
	"context"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/pipetrain/pipetrain/collectives"
)

// table holds what MPI has in flight: handles side by side as MPI_Testsome
// wants them, and whose they are. mu guards it.
type table struct {
	n       int
	handles []byte // stride handleSize
	owner   []*request
	bytes   []int
	indices []int32
	status  []byte // stride statusSize
}

// push makes room for one more handle and returns its slot.
func (q *table) push(l *library, r *request, bytes int) *byte {
	q.owner = append(q.owner[:q.n], r)
	q.bytes = append(q.bytes[:q.n], bytes)
	q.n++
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
}

// remove takes out entry i by moving the last one there.
func (q *table) remove(l *library, i int) {
	last := q.n - 1
	h := l.handleSize
	copy(q.handles[i*h:(i+1)*h], q.handles[last*h:(last+1)*h])
	q.owner[i], q.bytes[i] = q.owner[last], q.bytes[last]
	q.pop()
}

func (q *table) onlySends() bool {
	for _, r := range q.owner[:q.n] {
		if !r.send {
			return false
		}
	}
	return true
}

// progressLocked lets MPI work and completes what is done. mu is held.
func (t *Transport) progressLocked() (moved bool) {
	q := &t.table
	if q.n == 0 || t.finalized {
		return false
	}
	var done int32
	rc, _, _ := purego.SyscallN(t.lib.fn.testsome, uintptr(q.n), uintptr(unsafe.Pointer(&q.handles[0])),
		uintptr(unsafe.Pointer(&done)), uintptr(unsafe.Pointer(&q.indices[0])), uintptr(unsafe.Pointer(&q.status[0])))
	if int32(rc) == 0 && done <= 0 {
		return false
	}
	if done < 0 || int(done) > q.n {
		err := fmt.Errorf("mpi: %w", t.lib.errorOf("MPI_Testsome", int32(rc)))
		t.failPending(err)
		return true
	}
	failed := int32(rc) != 0 // then, and only then, the statuses hold error codes
	ended := make([]int, 0, 16)
	for k := range int(done) {
		i := int(q.indices[k])
		st := q.status[k*t.lib.statusSize:][:t.lib.statusSize]
		t.part(q.owner[i], q.bytes[i], st, failed)
		ended = append(ended, i)
	}
	// From the back: remove moves the last entry to the hole.
	for len(ended) > 0 {
		top := 0
		for k := range ended {
			if ended[k] > ended[top] {
				top = k
			}
		}
		q.remove(t.lib, ended[top])
		ended[top] = ended[len(ended)-1]
		ended = ended[:len(ended)-1]
	}
	return true
}

// part ends one MPI message of r.
func (t *Transport) part(r *request, want int, status []byte, failed bool) {
	r.parts--
	code := int32(0)
	if failed {
		code = *(*int32)(unsafe.Pointer(&status[t.lib.statusErr]))
	}
	got := int32(want)
	if !r.send {
		purego.SyscallN(t.lib.fn.getCount, uintptr(unsafe.Pointer(&status[0])), t.lib.byteType.value, uintptr(unsafe.Pointer(&got)))
	}
	switch {
	case code != 0:
		e := t.lib.errorOf(map[bool]string{true: "MPI_Isend", false: "MPI_Irecv"}[r.send], code)
		if int32(e.Class) == t.lib.errTruncate && !r.send {
			// How long it was is lost with some libraries; it was longer than its receive.
			t.fail(r, &collectives.ErrLength{From: r.peer, Tag: r.tag, Want: len(r.buf), Got: max(int(got), len(r.buf)+1)})
		} else {
			t.fail(r, fmt.Errorf("mpi: %v: %w", r, e))
		}
	case int(got) != want && !t.closed:
		t.fail(r, &collectives.ErrLength{From: r.peer, Tag: r.tag, Want: len(r.buf), Got: r.got + int(got)})
	}
	r.got += int(got)
	if r.parts == 0 {
		r.release()
		r.complete(r.first)
	}
}

// fail keeps the first error of r. What MPI still holds of it keeps its buffer.
func (t *Transport) fail(r *request, err error) {
	if r.first == nil {
		r.first = err
	}
}

func (t *Transport) failPending(err error) {
	for _, r := range t.table.owner[:t.table.n] {
		r.complete(err)
	}
}

// cancelReceives takes back receives nobody sends to.
func (t *Transport) cancelReceives() {
	q := &t.table
	for i, r := range q.owner[:q.n] {
		if !r.send {
			if r.first == nil {
				r.first = collectives.ErrClosed
			}
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
		return r.err
	}
	if r.ch == nil {
		r.ch = make(chan struct{})
	}
	ch := r.ch
	r.t.mu.Unlock()
	select {
	case <-ch:
		return r.err
	case <-urgent:
		return nil
	case <-ctx.Done():
		if r.finished() {
			return r.err
		}
		return ctx.Err()
	}
}

// drive is Wait: the waiter itself lets MPI work, spinning for a while, then
// with pauses.
func (t *Transport) drive(ctx context.Context, r *request) error {
	t.waiters.Add(1)
	defer t.leave()
	var since time.Time
	for i := 1; ; i++ {
		moved := false
		if t.mu.TryLock() {
			moved = t.progressLocked()
			t.mu.Unlock()
		}
		if r.finished() {
			return r.err
		}
		if moved {
			since = time.Time{}
			continue
		}
		if i&15 != 0 {
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
	quiet := 0
	pause := t.pause
	for {
		if t.waiters.Load() == 0 && t.mu.TryLock() {
			moved, pending, closed := t.progressLocked(), t.table.n, t.closed
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
		if t.waiters.Load() > 0 {
			nap(int64(5 * t.pause))
			continue
		}
		if quiet < 20 {
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
