package mpi

import (
	"encoding/binary"
	"fmt"
	"syscall"
)

// How a message travels. Up to smallBytes it is one MPI message. A longer one
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

// sendAll posts all parts of a send.
func (t *Transport) sendAll(r *request) {
	if len(r.buf) <= smallBytes {
		// Copied, so that the request is complete at once: no call of MPI is spent on
		// asking after it.
		r.head = t.slots.get()
		copy(r.head, r.buf)
		if t.start(r, roleSend, r.head[:len(r.buf)], r.tag, t.comm) {
			r.complete(nil)
		}
		return
	}
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
func (t *Transport) arrived(r *request, n int) {
	if n <= smallBytes {
		if n == len(r.buf) {
			copy(r.buf, r.head[:n])
		} else {
			r.fail(r.wrongLength(n))
		}
		return
	}
	length := int(binary.NativeEndian.Uint64(r.head))
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
