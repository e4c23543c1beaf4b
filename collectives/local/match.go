package local

import (
	"github.com/pipetrain/pipetrain/collectives"
)

func key(peer, tag int) uint64 { return uint64(peer)<<32 | uint64(tag) }

func (t *Transport) queue(peer, tag int) *queue {
	k := key(peer, tag)
	q := t.queues[k]
	if q == nil {
		q = &queue{}
		t.queues[k] = q
	}
	return q
}

// prune forgets an empty queue once there are many: tags come and go.
func (t *Transport) prune(peer, tag int, q *queue) {
	if len(t.queues) > 1024 && len(q.posted)+len(q.arrived) == 0 {
		delete(t.queues, key(peer, tag))
	}
}

// drain takes what has arrived from p.
func (t *Transport) drain(p *peer) (moved bool) {
	var f frame
	for p.in.peek(&f) {
		moved = true
		t.handle(p, f)
		p.in.drop(&f)
	}
	if moved && p.in.release() {
		t.notify(p)
	}
	return moved
}

// handle performs one frame; its payload is still in the ring.
func (t *Transport) handle(p *peer, f frame) {
	switch f.kind {
	case kindEager, kindOffer:
		tag := int(f.tag)
		q := t.queue(p.rank, tag)
		if len(q.posted) > 0 {
			r := q.posted[0]
			q.posted[0] = nil
			q.posted = q.posted[1:]
			t.match(p, r, f, nil)
			t.prune(p.rank, tag, q)
			return
		}
		a := arrival{f: f}
		if f.kind == kindEager && f.n > 0 {
			a.data = make([]byte, f.n)
			p.in.read(a.data)
		}
		q.arrived = append(q.arrived, a)
	case kindClear:
		if r := t.ids[f.sendID]; r != nil {
			r.peerID = f.recvID
			t.enqueue(p, func() { p.streams = append(p.streams, r) })
			t.flush(p)
		}
	case kindPiece:
		r := t.ids[f.recvID]
		if r == nil {
			return
		}
		p.in.read(r.buf[f.addr : f.addr+f.n])
		r.moved += int(f.n)
		if r.moved == len(r.buf) {
			delete(t.ids, r.id)
			if t.rendezvous {
				t.control(p, frame{kind: kindTaken, sendID: f.sendID})
			}
			t.finish(r, nil)
		}
	case kindTaken:
		if r := t.ids[f.sendID]; r != nil {
			delete(t.ids, f.sendID)
			t.finish(r, nil)
		}
	}
}

// match joins a receive with its message. data is the payload of an eager
// message that arrived earlier; else the payload is still in the ring.
func (t *Transport) match(p *peer, r *request, f frame, data []byte) {
	if int(f.n) != len(r.buf) {
		if f.kind == kindOffer || f.flags&flagAck != 0 {
			t.control(p, frame{kind: kindTaken, sendID: f.sendID})
		}
		t.finish(r, &collectives.LengthError{From: p.rank, Tag: r.tag, Want: len(r.buf), Got: int(f.n)})
		return
	}
	if f.kind == kindEager {
		if data != nil {
			copy(r.buf, data)
		} else if f.n > 0 {
			p.in.read(r.buf)
		}
		if f.flags&flagAck != 0 {
			t.control(p, frame{kind: kindTaken, sendID: f.sendID})
		}
		t.finish(r, nil)
		return
	}
	if p.lost != nil {
		t.finish(r, p.lost)
		return
	}
	if p.direct {
		r.copying = true
		t.jobs = append(t.jobs, &copyJob{p, r, f})
		return
	}
	t.askPieces(p, r, f)
}

// askPieces has an offered message sent through the ring.
func (t *Transport) askPieces(p *peer, r *request, f frame) {
	t.register(r)
	t.control(p, frame{kind: kindClear, sendID: f.sendID, recvID: r.id})
}

// register gives r an id that frames name it by.
func (t *Transport) register(r *request) {
	for {
		t.lastID++
		if _, taken := t.ids[t.lastID]; !taken && t.lastID != 0 {
			break
		}
	}
	r.id = t.lastID
	t.ids[r.id] = r
}

// trySend puts a send's first frame into the ring, if there is room.
func (t *Transport) trySend(p *peer, r *request) bool {
	f := frame{kind: kindEager, tag: uint32(r.tag), n: uint64(len(r.buf))}
	if len(r.buf) > t.eager {
		f.kind = kindOffer
	}
	if !p.out.room(f.payload()) {
		return false
	}
	switch {
	case f.kind == kindOffer:
		r.pinBuffer()
		f.addr = r.address()
		t.register(r)
		f.sendID = r.id
		p.out.write(f, nil)
	case t.rendezvous:
		t.register(r)
		f.flags, f.sendID = flagAck, r.id
		p.out.write(f, r.buf)
	default:
		p.out.write(f, r.buf)
		t.finish(r, nil)
	}
	t.notify(p)
	return true
}

// control sends a frame of the protocol, now or when there is room.
func (t *Transport) control(p *peer, f frame) {
	if p.lost != nil {
		return
	}
	if len(p.control) == 0 && p.out.room(0) {
		p.out.write(f, nil)
		t.notify(p)
		return
	}
	t.enqueue(p, func() { p.control = append(p.control, f) })
}

// enqueue adds to what p waits to write, and asks p's reader to tell of room.
func (t *Transport) enqueue(p *peer, add func()) {
	if !p.waiting() {
		t.backlog++
	}
	add()
	p.out.full()
}

// flush writes what waits for p while there is room: the protocol's frames
// first, then pieces, one of each message in turn, then new messages in order.
func (t *Transport) flush(p *peer) (moved bool) {
	if !p.waiting() {
		return false
	}
	for {
		wrote := t.writeSome(p)
		moved = moved || wrote
		if !p.waiting() {
			t.backlog--
			break
		}
		if !wrote {
			// Asked for room; the reader may have freed some before it saw that.
			p.out.full()
			if !t.writeSome(p) {
				break
			}
			moved = true
		}
	}
	if moved {
		t.notify(p)
	}
	return moved
}

func (t *Transport) writeSome(p *peer) (wrote bool) {
	for len(p.control) > 0 && p.out.room(0) {
		p.out.write(p.control[0], nil)
		p.control = p.control[1:]
		wrote = true
	}
	for turn := len(p.streams); turn > 0; turn-- {
		r := p.streams[0]
		n := min(t.piece, len(r.buf)-r.moved)
		if !p.out.room(uint64(n)) {
			break
		}
		wrote = true
		f := frame{kind: kindPiece, n: uint64(n), addr: uint64(r.moved), sendID: r.id, recvID: r.peerID}
		p.out.write(f, r.buf[r.moved:r.moved+n])
		r.moved += n
		p.streams = p.streams[1:]
		if r.moved < len(r.buf) {
			p.streams = append(p.streams, r)
		} else if !t.rendezvous {
			delete(t.ids, r.id)
			t.finish(r, nil)
		}
	}
	for len(p.queue) > 0 && len(p.control) == 0 && t.trySend(p, p.queue[0]) {
		p.queue[0] = nil
		p.queue = p.queue[1:]
		wrote = true
	}
	return wrote
}
