package mpi

import (
	"encoding/binary"
	"fmt"
	"syscall"
	"unsafe"

	"github.com/pipetrain/pipetrain/collectives"
)

// How a message travels. Up to smallBytes it is one MPI message, behind its length:
// MPI would tell that too, for the price of another call. A longer one
// starts with a head of headBytes (its length, its number, its first
// smallBytes), and the rest follows on a second communicator under the
// message's number as tag, in pieces of at most 2³¹−1 bytes.
//
// Every receive is posted with room for a head, so that no message is ever
// longer than the receive it meets: Open MPI 4.1 writes past the end of a
// receive that is too short for a large message. It also makes a wrong length
// known exactly, and a message of it can be taken off the wire.
const (
	smallBytes = 2048 // with the head still below the eager limits of shared memory (4 KiB)
	headBytes  = smallBytes + 16
)

// What a message in MPI's hands is of its request.
const (
	roleSend   = iota // a part of a send
	roleFirst         // the receive of a small message or a head
	roleBody          // the receive of a piece of the rest
	roleDevice        // the receive of a piece of device memory
)

// slots are buffers of headBytes at fixed places, outside the Go heap: MPI may
// hold one for as long as the process lives, where Finalize is left out.
type slots struct {
	free [][]byte
}

func (s *slots) get() []byte {
	if len(s.free) == 0 {
		const stride, count = 2112, 64
		slab, err := syscall.Mmap(-1, 0, stride*count, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			panic(fmt.Sprintf("mpi: no memory for message heads: %v", err)) // as a failing make would
		}
		for i := range count {
			s.free = append(s.free, slab[i*stride:][:headBytes:headBytes])
		}
	}
	b := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return b
}

func (s *slots) put(b []byte) { s.free = append(s.free, b) }

// gone is the request of every small message that MPI took at once.
var gone = func() *request {
	r := &request{send: true}
	r.complete(nil)
	return r
}()

// sendSmall sends a message that fits into a slot. Copied, it is complete for its sender
// at once. Nearly always MPI is through with it too when MPI_Isend is back: asked in the same
// breath, its handle need not be looked at with the others, nor remembered.
func (t *Transport) sendSmall(to, tag int, b []byte) *request {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		r := &request{}
		r.complete(collectives.ErrClosed)
		return r
	}
	head := t.slots.get()
	binary.NativeEndian.PutUint64(head, uint64(len(b)))
	copy(head[8:], b)
	slot := t.table.push(t.lib, nil, roleSend)
	t.sending.arg = [7]uintptr{uintptr(unsafe.Pointer(&head[0])), uintptr(8 + len(b)), t.lib.byteType.value,
		uintptr(to), uintptr(tag), t.comm, uintptr(unsafe.Pointer(slot))}
	t.sending.next = &t.sent
	t.sent.arg[0], t.sent.done, t.sent.rc = uintptr(unsafe.Pointer(slot)), 0, 0
	t.sending.make()
	if t.sending.rc == 0 && t.sent.rc == 0 && t.sent.done != 0 {
		t.table.pop()
		t.slots.put(head)
		return gone
	}
	r := &request{t: t, send: true, peer: to, tag: tag, head: head}
	if rc, name := t.sending.rc|t.sent.rc, "MPI_Isend"; rc != 0 {
		if t.sending.rc == 0 {
			name = "MPI_Test"
		}
		t.table.pop()
		t.slots.put(head)
		r.complete(fmt.Errorf("mpi: %v: %w", r, t.lib.errorOf(name, rc)))
		return r
	}
	t.table.owner[t.table.n-1] = r
	r.parts = 1
	r.complete(nil)
	t.wakePoller()
	return r
}

// sendAll posts all parts of a send that is longer.
func (t *Transport) sendAll(r *request) {
	t.number++
	tag := t.number & bodyTags
	r.head = t.slots.get()
	binary.NativeEndian.PutUint64(r.head, uint64(len(r.buf)))
	binary.NativeEndian.PutUint64(r.head[8:], uint64(tag))
	copy(r.head[16:], r.buf[:smallBytes])
	if t.start(r, roleSend, r.head, r.tag, t.comm) {
		t.bodies(r, roleSend, r.buf, tag)
	}
}

// bodies posts the rest of a message, from smallBytes on.
func (t *Transport) bodies(r *request, role int, b []byte, tag int) {
	for at := smallBytes; at < len(b); {
		end := min(at+t.limit, len(b))
		if !t.start(r, role, b[at:end], tag, t.bodyComm) {
			return
		}
		at = end
	}
}

// arrived looks at what a receive got first: a small message, or the head of a
// longer one, of which it posts the rest.
func (t *Transport) arrived(r *request) {
	length := int(binary.NativeEndian.Uint64(r.head))
	if length <= smallBytes {
		if length == len(r.buf) {
			copy(r.buf, r.head[8:])
		} else {
			r.fail(r.wrongLength(length))
		}
		return
	}
	tag := int(binary.NativeEndian.Uint64(r.head[8:]))
	into := r.buf
	if length != len(r.buf) {
		// Taken off the wire all the same: its sender waits for that.
		r.fail(r.wrongLength(length))
		into = make([]byte, length)
		r.spare = into
		r.pin.Pin(&into[0])
		r.pinned = true
	} else {
		copy(into, r.head[16:])
	}
	t.bodies(r, roleBody, into, tag)
}
