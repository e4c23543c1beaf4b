package local

import (
	"context"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// request is one send or receive. Its fields are guarded by the transport's mu
// until state says that it is complete.
type request struct {
	t         *Transport
	peer, tag int
	buf       []byte
	send      bool
	copying   bool
	pinned    bool
	id        uint32
	peerID    uint32
	moved     int // bytes, when moving in pieces

	state atomic.Uint32
	err   error
	ch    chan struct{} // closed at completion; made when somebody blocks on it
	pin   runtime.Pinner
}

func (r *request) finished() bool { return r.state.Load() != 0 }

// fail completes the request, with nil as well.
func (r *request) fail(err error) {
	r.err = err
	r.buf = nil
	r.state.Store(1)
	if r.ch != nil {
		close(r.ch)
	}
}

// pinBuffer keeps the buffer in place while its address is known to a peer.
func (r *request) pinBuffer() {
	if !r.t.inline {
		r.pin.Pin(&r.buf[0])
		r.pinned = true
	}
}

func (r *request) unpin() {
	if r.pinned {
		r.pin.Unpin()
		r.pinned = false
	}
}

func (r *request) address() uint64 { return uint64(uintptr(unsafe.Pointer(&r.buf[0]))) }

// Test looks once at what has arrived; copies are left to the poller.
func (r *request) Test() (bool, error) {
	if !r.finished() && !r.t.inline {
		r.t.glance()
	}
	if !r.finished() {
		return false, nil
	}
	return true, r.err
}

// Wait drives the transport until the request is complete. When ctx ends first,
// the request is still in flight and its buffer still the transport's.
func (r *request) Wait(ctx context.Context) error {
	if r.finished() {
		return r.err
	}
	if r.t.inline {
		return r.block(ctx, nil)
	}
	return r.t.drive(ctx, r)
}

// block waits on a channel; others drive. It returns early, with nil and the
// request not finished, when urgent is closed.
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
