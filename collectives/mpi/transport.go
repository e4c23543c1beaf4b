package mpi

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/pipetrain/pipetrain/collectives"
)

// Transport is the world of one MPI process.
type Transport struct {
	lib       *library
	cfg       Config
	info      map[string]string
	comm      uintptr // small messages and heads: the world's own
	bodyComm  uintptr // the rest of longer ones,
	bodyTag   int     // under tags from here on
	rank      int
	size      int
	localRank int
	localSize int
	tagUB     int
	limit     int // bytes of one MPI message
	spin      time.Duration
	pause     time.Duration
	yields    bool

	waiters atomic.Int32 // goroutines driving progress
	patient atomic.Int32 // goroutines asleep until the poller wakes them
	posted  chan struct{}
	stopped chan struct{}
	idle    atomic.Bool // the poller sleeps until something is posted

	mu        sync.Mutex // round every call of MPI
	small     call       // MPI_Isend of a small message
	sent      call       // MPI_Test of what small has begun
	handle    uint64     // of what small has begun
	sending   call       // MPI_Isend
	receiving call       // MPI_Irecv
	testing   call       // MPI_Testsome
	one       call       // MPI_Test, where one message is under way
	scratch   []byte     // a status nobody reads
	got       int32      // output of MPI_Get_count
	table     table
	turns     int // of waiters at driving progress
	done      []done
	slots     slots
	fresh     []request   // to be handed out
	spares    []*transfer // to be used again
	number    int         // of the last message with a body
	closed    bool
	finalized bool
}

// Rank is the rank in MPI_COMM_WORLD.
func (t *Transport) Rank() int { return t.rank }

// Size is the number of ranks.
func (t *Transport) Size() int { return t.size }

// Kind is "mpi".
func (t *Transport) Kind() string { return "mpi" }

// Info describes library, interface, thread level, place on the node and waiting.
func (t *Transport) Info() map[string]string {
	m := make(map[string]string, len(t.info))
	for k, v := range t.info {
		m[k] = v
	}
	return m
}

// Isend starts sending b; see collectives.Transport.
func (t *Transport) Isend(to, tag int, b []byte) collectives.Request {
	if len(b) <= smallBytes && to >= 0 && to < t.size && tag >= 0 && tag <= collectives.MaxTag {
		return t.sendSmall(to, tag, b)
	}
	return t.post(true, false, to, tag, b)
}

// Irecv starts receiving len(b) bytes; see collectives.Transport.
func (t *Transport) Irecv(from, tag int, b []byte) collectives.Request {
	return t.post(false, false, from, tag, b)
}

func (t *Transport) post(send, device bool, peer, tag int, b []byte) *request {
	wrong := ""
	switch {
	case peer < 0 || peer >= t.size:
		wrong = fmt.Sprintf("the world has %d ranks", t.size)
	case tag < 0 || tag > collectives.MaxTag:
		wrong = fmt.Sprintf("tags go from 0 to %d", collectives.MaxTag)
	case device && tag >= deviceTag:
		wrong = fmt.Sprintf("tags of device memory go from 0 to %d", deviceTag-1)
	}
	if wrong != "" {
		return ended(fmt.Errorf("mpi: %v: %s", &transfer{send: send, peer: peer, tag: tag}, wrong))
	}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return ended(collectives.ErrClosed)
	}
	x := t.transfer(send, peer, tag, b)
	r := x.r
	if len(b) > smallBytes && !device {
		x.pin.Pin(&b[0])
		x.pinned = true
	}
	switch x.device = device; {
	case device:
		t.startDevice(x)
	case send:
		t.sendAll(x)
	default:
		x.head = t.slots.get()
		t.start(x, roleFirst, x.head, tag, t.comm)
	}
	if x.parts == 0 { // MPI refused the first one
		x.end(x.first)
	}
	t.wakePoller()
	t.mu.Unlock()
	return r
}

// wakePoller has what was posted looked after. mu is held.
func (t *Transport) wakePoller() {
	if t.idle.Load() && t.waiters.Load() == 0 {
		select {
		case t.posted <- struct{}{}:
		default:
		}
	}
}

// start gives b to MPI as one message.
func (t *Transport) start(x *transfer, role int, b []byte, tag int, comm uintptr) bool {
	c, name := &t.receiving, "MPI_Irecv"
	if x.send {
		c, name = &t.sending, "MPI_Isend"
	}
	slot := t.table.push(t.lib, x, role)
	c.arg = [7]uintptr{uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), t.lib.byteType.value,
		uintptr(x.peer), uintptr(tag), comm, uintptr(unsafe.Pointer(slot))}
	t.run(c)
	if c.rc != 0 {
		t.table.pop()
		x.fail(fmt.Errorf("mpi: %v: %w", x, t.lib.errorOf(name, c.rc)))
		return false
	}
	x.parts++
	return true
}

// Close ends this rank's part and finalises MPI, which waits for the other
// ranks to do the same. Pending receives are cancelled; pending sends get two
// seconds, and if one is then still under way MPI is left as it is and the
// error says so.
func (t *Transport) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	t.cancelReceives()
	for end := time.Now().Add(2 * time.Second); t.table.n > 0 && time.Now().Before(end); {
		t.progressLocked(1)
		if t.table.onlySends() {
			t.failPending(collectives.ErrClosed)
		}
		t.mu.Unlock()
		nap(20_000)
		t.mu.Lock()
	}
	left := t.table.n
	t.failPending(collectives.ErrClosed)
	t.mu.Unlock()
	select {
	case t.posted <- struct{}{}:
	default:
	}
	<-t.stopped
	if left > 0 {
		return fmt.Errorf("mpi: rank %d closed with %d messages under way that nobody receives: MPI_Finalize left out; end the run with Abort", t.rank, left)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.finalize()
}

func (t *Transport) finalize() error {
	if t.finalized {
		return nil
	}
	t.finalized = true
	if t.bodyComm != 0 && t.bodyComm != t.comm {
		slot := uint64(t.bodyComm)
		purego.SyscallN(t.lib.fn.commFree, uintptr(unsafe.Pointer(&slot)))
	}
	signals := saveSignals()
	var r uintptr
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r, _, _ = purego.SyscallN(t.lib.fn.finalize)
	}()
	var limit <-chan time.Time
	if t.cfg.FinalizeLimit > 0 {
		limit = time.After(t.cfg.FinalizeLimit)
	}
	select {
	case <-ended:
	case <-limit:
		return nil // all that matters has been sent; the process may exit
	}
	// A library that puts back "the old handlers" would put back what it found, not what is there now.
	signals.restore()
	return t.lib.check("MPI_Finalize", r)
}

// Test looks once at what has arrived.
func (r *request) Test() (bool, error) {
	if !r.finished() && r.t.mu.TryLock() {
		r.t.progressLocked(1)
		r.t.mu.Unlock()
	}
	if !r.finished() {
		return false, nil
	}
	return true, r.result()
}

// Wait drives MPI until the request is complete. When ctx ends first, the
// request is still in flight and its buffer still MPI's.
func (r *request) Wait(ctx context.Context) error {
	if r.finished() {
		return r.result()
	}
	t := r.t
	if patient, urgent := collectives.Patience(ctx); patient && t.pause > 0 {
		if err := r.block(ctx, urgent); err != nil || r.finished() {
			return err
		}
	}
	return t.drive(ctx, r)
}
