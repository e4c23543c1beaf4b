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
// smallBytes), and the rest follows under the message's number as tag, above the tags of
// callers, in pieces of at most 2³¹−1 bytes.
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
	roleSend     = iota // the send of a small message or a head
	roleFirst           // the receive of one
	roleSendBody        // the send of a piece of the rest, or of device memory
	roleBody            // the receive of a piece of the rest
	roleDevice          // the receive of a piece of device memory
)

// long says that moving such a message can take MPI longer than some microseconds.
func long(role int) bool { return role >= roleSendBody }

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

// sendSmall sends a message that fits into a slot. Copied, it is complete for its sender
// at once. Nearly always MPI is through with it too when MPI_Isend is back: asked in the same
// breath, its handle need not be looked at with the others, nor remembered.
func (t *Transport) sendSmall(to, tag int, b []byte) *request {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return ended(collectives.ErrClosed)
	}
	head := t.slots.get()
	binary.NativeEndian.PutUint64(head, uint64(len(b)))
	copy(head[8:], b)
	c := &t.small
	c.arg[0], c.arg[1], c.arg[3], c.arg[4] = uintptr(unsafe.Pointer(&head[0])), uintptr(8+len(b)), uintptr(to), uintptr(tag)
	t.sent.done, t.sent.rc = 0, 0
	t.run(c)
	if c.rc == 0 && t.sent.rc == 0 && t.sent.done != 0 {
		t.slots.put(head)
		t.mu.Unlock()
		return gone
	}
	r := t.sendingStill(to, tag, head)
	t.mu.Unlock()
	return r
}

// prepareSmall sets what is the same in all calls of sendSmall.
func (t *Transport) prepareSmall() {
	handle := uintptr(unsafe.Pointer(&t.handle))
	t.small = call{fn: t.lib.fn.isend, arg: [7]uintptr{2: t.lib.byteType.value, 5: t.comm, 6: handle}, next: &t.sent}
	t.sent = call{fn: t.lib.fn.test, arg: [7]uintptr{0: handle, 1: t.sent.donePtr(), 2: uintptr(unsafe.Pointer(&t.scratch[0]))}}
}

// sendingStill has a small message that MPI did not take at once looked after, or refused.
func (t *Transport) sendingStill(to, tag int, head []byte) *request {
	x := t.transfer(true, to, tag, nil)
	x.head = head
	r := x.r
	if rc, name := t.small.rc|t.sent.rc, "MPI_Isend"; rc != 0 {
		if t.small.rc == 0 {
			name = "MPI_Test"
		}
		x.end(fmt.Errorf("mpi: %v: %w", x, t.lib.errorOf(name, rc)))
		return r
	}
	slot := t.table.push(t.lib, x, roleSend)
	copy(unsafe.Slice(slot, t.lib.handleSize), unsafe.Slice((*byte)(unsafe.Pointer(&t.handle)), t.lib.handleSize))
	x.parts = 1
	r.complete(nil)
	t.wakePoller()
	return r
}

// sendAll posts all parts of a send that is longer.
func (t *Transport) sendAll(x *transfer) {
	t.number++
	tag := t.number & bodyTags
	x.head = t.slots.get()
	binary.NativeEndian.PutUint64(x.head, uint64(len(x.buf)))
	binary.NativeEndian.PutUint64(x.head[8:], uint64(tag))
	copy(x.head[16:], x.buf[:smallBytes])
	if t.start(x, roleSend, x.head, x.tag, t.comm) {
		t.bodies(x, roleSendBody, x.buf, tag)
	}
}

// bodies posts the rest of a message, from smallBytes on.
func (t *Transport) bodies(x *transfer, role int, b []byte, tag int) {
	for at := smallBytes; at < len(b); {
		end := min(at+t.limit, len(b))
		if !t.start(x, role, b[at:end], t.bodyTag|tag, t.bodyComm) {
			return
		}
		at = end
	}
}

// arrived looks at what a receive got first: a small message, or the head of a
// longer one, of which it posts the rest.
func (t *Transport) arrived(x *transfer) {
	length := int(binary.NativeEndian.Uint64(x.head))
	if length <= smallBytes {
		if length == len(x.buf) {
			copy(x.buf, x.head[8:])
		} else {
			x.fail(x.wrongLength(length))
		}
		return
	}
	tag := int(binary.NativeEndian.Uint64(x.head[8:]))
	into := x.buf
	if length != len(x.buf) {
		// Taken off the wire all the same: its sender waits for that.
		x.fail(x.wrongLength(length))
		into = make([]byte, length)
		x.spare = into
		x.pin.Pin(&into[0])
		x.pinned = true
	} else {
		copy(into, x.head[16:])
	}
	t.bodies(x, roleBody, into, tag)
}
