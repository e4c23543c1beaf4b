package local

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
)

// step looks at every ring once and writes what waits. mu is held.
func (t *Transport) step() (moved bool) {
	if t.closed {
		return false
	}
	for _, p := range t.peers {
		if t.drain(p) {
			moved = true
		}
	}
	if t.backlog > 0 {
		for _, p := range t.peers {
			if t.flush(p) {
				moved = true
			}
		}
	}
	return moved
}

// progress drives the transport once: rings, then the copies they led to.
func (t *Transport) progress() (moved bool) {
	t.mu.Lock()
	moved = t.step()
	for len(t.jobs) > 0 && !t.closed {
		t.perform()
		moved = true
	}
	t.unlock()
	return moved
}

// perform takes one copy job; mu is given back while bytes move.
func (t *Transport) perform() {
	j := t.jobs[0]
	t.jobs[0] = nil
	t.jobs = t.jobs[1:]
	t.copying++
	t.mu.Unlock()
	err := t.copyFrom(j)
	t.mu.Lock()
	t.copying--
	j.r.copying = false
	switch {
	case err == nil:
		t.control(j.p, frame{kind: kindTaken, sendID: j.f.sendID})
		t.finish(j.r, nil)
		t.flush(j.p)
	case errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS):
		// Allowed at the start and not any more: through the ring then.
		j.p.direct = false
		t.askPieces(j.p, j.r, j.f)
		t.flush(j.p)
	default:
		t.finish(j.r, err)
	}
}

// copyFrom copies an offered message from its sender's memory.
func (t *Transport) copyFrom(j *copyJob) error {
	p := j.p
	if t.world != nil || p.rank == t.rank {
		owner := t
		if t.world != nil {
			owner = t.world[p.rank]
		}
		owner.mu.Lock()
		s := owner.ids[j.f.sendID]
		if s == nil || owner.closed {
			owner.mu.Unlock()
			return t.leftError(p.rank)
		}
		owner.lent++
		owner.mu.Unlock()
		copy(j.r.buf, s.buf)
		owner.mu.Lock()
		owner.lent--
		owner.mu.Unlock()
		return nil
	}
	err := readMemory(p.pid, j.r.buf, j.f.addr)
	if err == nil && t.seg.state(p.rank) != stateJoined {
		return t.leftError(p.rank) // the buffer may have been reused while we copied
	}
	if errors.Is(err, syscall.ESRCH) {
		return &collectives.PeerLostError{Rank: p.rank, Reason: fmt.Sprintf("process %d is gone", p.pid)}
	}
	if err != nil && !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.ENOSYS) {
		if !t.alive(p) {
			return &collectives.PeerLostError{Rank: p.rank, Reason: fmt.Sprintf("process %d is gone", p.pid)}
		}
		err = fmt.Errorf("local: reading %d bytes from rank %d (process %d): %w", len(j.r.buf), p.rank, p.pid, err)
	}
	return err
}

// finish completes a request; mu is held.
func (t *Transport) finish(r *request, err error) {
	if r.finished() {
		return
	}
	t.pending--
	t.peers[r.peer].pending--
	t.news = true
	r.unpin()
	r.fail(err)
}

// failAll fails what is pending with p, but for copies under way, which end by themselves.
func (t *Transport) failAll(p *peer, err error) {
	for _, r := range p.queue {
		t.finish(r, err)
	}
	if p.waiting() {
		t.backlog--
	}
	p.queue, p.streams, p.control = nil, nil, nil
	for id, r := range t.ids {
		if r.peer == p.rank {
			delete(t.ids, id)
			t.finish(r, err)
		}
	}
	for k, q := range t.queues {
		if int(k>>32) != p.rank {
			continue
		}
		for _, r := range q.posted {
			t.finish(r, err)
		}
		q.posted = nil
	}
	for _, j := range t.jobs {
		if j.p == p {
			j.r.copying = false
			t.finish(j.r, err)
		}
	}
	kept := t.jobs[:0]
	for _, j := range t.jobs {
		if j.p != p {
			kept = append(kept, j)
		}
	}
	t.jobs = kept
}

// notify tells p that a frame or room is there. Between processes that is a
// system call, made only when p sleeps; in one process its progress is driven
// by us once mu is free.
func (t *Transport) notify(p *peer) {
	if t.inline {
		t.kicks = append(t.kicks, p.rank)
		return
	}
	if p.rank == t.rank {
		t.self = true
		return
	}
	if atomic.LoadUint32(t.seg.slot32(p.rank, slotSleep)) != 0 {
		t.ring(p.rank, slotBell)
	} else if atomic.LoadUint32(t.seg.slot32(p.rank, slotArmed)) != 0 {
		t.ring(p.rank, slotPoll)
	}
}

// wake is notify, asleep or not.
func (t *Transport) wake(p *peer) {
	if t.inline {
		t.kicks = append(t.kicks, p.rank)
		return
	}
	t.ring(p.rank, slotBell)
	t.ring(p.rank, slotPoll)
}

func (t *Transport) ring(rank, which int) {
	bell := t.seg.slot32(rank, which)
	atomic.AddUint32(bell, 1)
	futexWake(bell)
}

// unlock gives mu back and does what had to wait for that: waking this rank's
// own sleepers, performing copies nobody else will, driving peers in this process.
func (t *Transport) unlock() {
	if !t.inline {
		for own := t.peers[t.rank]; t.self && !t.closed; {
			t.self = false
			t.drain(own)
			t.flush(own)
		}
		if (t.news || len(t.jobs) > 0) && !t.closed {
			if atomic.LoadUint32(t.seg.slot32(t.rank, slotSleep)) != 0 {
				t.ring(t.rank, slotBell)
			}
			if len(t.jobs) > 0 && t.waiters == 0 && t.pollerAsleep {
				t.ring(t.rank, slotPoll) // else the poller, or a waiter, comes by soon
			}
		}
		t.news = false
		t.mu.Unlock()
		return
	}
	for len(t.jobs) > 0 && !t.closed {
		t.perform()
	}
	work := t.kicks
	t.kicks = nil
	t.mu.Unlock()
	for len(work) > 0 {
		w := t.world[work[0]]
		work = work[1:]
		w.mu.Lock()
		w.step()
		for len(w.jobs) > 0 && !w.closed {
			w.perform()
		}
		w.checkAllLeft()
		work = append(work, w.kicks...)
		w.kicks = nil
		w.mu.Unlock()
	}
}

// life looks after peers that died without a word; at most every checkEvery.
func (t *Transport) life(now time.Time) {
	last := t.checked.Load()
	if t.inline || now.UnixNano()-last < int64(t.checkEvery) || !t.checked.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	t.mu.Lock()
	if !t.closed {
		t.checkAllLeft()
		asked := 0
		for range t.size {
			t.ask = (t.ask + 1) % t.size
			p := t.peers[t.ask]
			if p.pending == 0 || p.lost != nil || p.rank == t.rank {
				continue
			}
			if !t.alive(p) {
				t.lose(p, &collectives.PeerLostError{Rank: p.rank, Reason: fmt.Sprintf("process %d is gone", p.pid)})
			}
			if asked++; asked == checkAtOnce {
				break // the others next time
			}
		}
	}
	t.unlock()
}

func (t *Transport) alive(p *peer) bool {
	start, ok := processStart(p.pid)
	return ok && start == p.start
}

// checkAllLeft finds peers that closed or ended the world.
func (t *Transport) checkAllLeft() {
	if t.closed {
		return
	}
	for _, p := range t.peers {
		if p.lost == nil && p.rank != t.rank {
			t.checkLeft(p)
		}
	}
}

func (t *Transport) checkLeft(p *peer) {
	if t.seg.state(p.rank) == stateJoined && atomic.LoadUint64(t.seg.u64(offAbort)) == 0 {
		return
	}
	if p.rank != t.rank {
		t.lose(p, t.leftError(p.rank))
	}
}

// lose takes what p still managed to write, then fails the rest.
func (t *Transport) lose(p *peer, err *collectives.PeerLostError) {
	t.drain(p)
	p.lost = err
	t.failAll(p, err)
}

func (t *Transport) leftError(rank int) *collectives.PeerLostError {
	if w := atomic.LoadUint64(t.seg.u64(offAbort)); w != 0 {
		by := int(w >> 32 & 0x7fffffff)
		return &collectives.PeerLostError{Rank: by, Reason: fmt.Sprintf("it aborted the world with exit code %d", int32(uint32(w)))}
	}
	return &collectives.PeerLostError{Rank: rank, Reason: "it closed its transport"}
}
