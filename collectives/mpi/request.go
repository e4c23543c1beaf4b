package mpi

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/pipetrain/pipetrain/collectives"
)

// request is what a caller holds of a send or receive, for as long as it likes. Being new
// memory for every message it is small: touching fresh pages cost more than the message.
type request struct {
	t     *Transport
	more  *more // nil: no error, nobody asleep
	state atomic.Uint32
}

type more struct {
	err error
	ch  chan struct{}
}

// gone is the request of every small message that MPI took at once.
var gone = ended(nil)

// ended is a request that is complete.
func ended(err error) *request {
	r := &request{}
	r.complete(err)
	return r
}

func (r *request) finished() bool { return r.state.Load() != 0 }

// result is the error of a finished request.
func (r *request) result() error {
	if r.more == nil {
		return nil
	}
	return r.more.err
}

// complete ends r for its waiters; mu is held, or r is known to nobody yet.
func (r *request) complete(err error) {
	if r.finished() {
		return
	}
	if err != nil {
		r.extra().err = err
	}
	r.state.Store(1)
	if r.more != nil && r.more.ch != nil {
		close(r.more.ch)
	}
}

func (r *request) extra() *more {
	if r.more == nil {
		r.more = &more{}
	}
	return r.more
}

// transfer is MPI's side of a request: one or more messages. It is used again when MPI
// holds no part of it; mu guards it.
type transfer struct {
	t         *Transport
	r         *request
	send      bool
	device    bool // buf is no memory of the processor
	peer, tag int
	buf       []byte
	head      []byte // slot in MPI's hands
	spare     []byte // takes a message of the wrong length
	parts     int    // messages of MPI not complete
	got       int    // bytes of device memory received
	first     error  // of the parts
	pin       runtime.Pinner
	pinned    bool
	cancelled bool
}

// transfer begins one, and its request; mu is held.
func (t *Transport) transfer(send bool, peer, tag int, b []byte) *transfer {
	var x *transfer
	if n := len(t.spares); n > 0 {
		x, t.spares = t.spares[n-1], t.spares[:n-1]
	} else {
		x = &transfer{t: t}
	}
	if len(t.fresh) == 0 {
		t.fresh = make([]request, 42) // 1 KiB
	}
	x.r, t.fresh = &t.fresh[0], t.fresh[1:]
	x.r.t = t
	x.send, x.peer, x.tag, x.buf = send, peer, tag, b
	return x
}

func (x *transfer) String() string {
	if x.send {
		return fmt.Sprintf("send to rank %d, tag %d", x.peer, x.tag)
	}
	return fmt.Sprintf("receive from rank %d, tag %d", x.peer, x.tag)
}

// fail keeps the first error; the request ends when MPI holds no part of it.
func (x *transfer) fail(err error) {
	if x.first == nil {
		x.first = err
	}
}

func (x *transfer) wrongLength(got int) error {
	return &collectives.LengthError{From: x.peer, Tag: x.tag, Want: len(x.buf), Got: got}
}

// end gives the buffers back and completes the request, once MPI holds no part of them.
// Nobody uses x afterwards.
func (x *transfer) end(err error) {
	if x.pinned {
		x.pin.Unpin()
	}
	if x.head != nil {
		x.t.slots.put(x.head)
	}
	x.r.complete(err)
	*x = transfer{t: x.t}
	x.t.spares = append(x.t.spares, x)
}
