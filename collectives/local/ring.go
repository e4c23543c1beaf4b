package local

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// A ring carries frames from one rank to one other: one writer, one reader, no
// lock. A frame starts on a cache line with a 32-byte header whose first word is
// stored last and is never zero: the reader looks at that word alone, so that a
// small message costs one cache line to move. The reader zeroes the first word
// of every line it leaves, which is where a later frame may start.
type ring struct {
	data  []byte
	tail  *uint64 // bytes the reader has freed
	want  *uint32 // the writer found the ring full and asks to be told
	mask  uint64
	bytes uint64

	pos   uint64 // this side's place: bytes written or read so far
	freed uint64 // writer: tail as last seen; reader: tail as last stored
}

const frameHeader = 32

// Kinds of frames.
const (
	kindEager = 1 + iota // a whole message
	kindOffer            // a message waits in the sender's memory
	kindClear            // the receiver asks for an offered message in pieces
	kindPiece            // a piece of it
	kindTaken            // the receiver has the message
)

const flagAck = 1 // the sender wants kindTaken

type frame struct {
	kind, flags uint8
	tag         uint32
	n           uint64 // bytes of the message; of a piece: bytes of the piece
	addr        uint64 // offer: address in the sender's memory; piece: its offset
	sendID      uint32
	recvID      uint32
}

func (f *frame) payload() uint64 {
	if f.kind == kindEager || f.kind == kindPiece {
		return f.n
	}
	return 0
}

func frameBytes(payload uint64) uint64 { return (frameHeader + payload + line - 1) &^ (line - 1) }

func (r *ring) word(pos uint64) *uint64 {
	return (*uint64)(unsafe.Pointer(&r.data[pos&r.mask]))
}

// room says whether the writer can place a frame with this payload.
func (r *ring) room(payload uint64) bool {
	need := r.pos + frameBytes(payload)
	if need-r.freed <= r.bytes {
		return true
	}
	r.freed = atomic.LoadUint64(r.tail)
	return need-r.freed <= r.bytes
}

// write places a frame; room must have said yes.
func (r *ring) write(f frame, payload []byte) {
	at := r.pos & r.mask
	h := r.data[at : at+frameHeader : at+frameHeader]
	binary.NativeEndian.PutUint64(h[8:], f.n)
	binary.NativeEndian.PutUint64(h[16:], f.addr)
	binary.NativeEndian.PutUint64(h[24:], uint64(f.sendID)|uint64(f.recvID)<<32)
	if len(payload) > 0 {
		from := (r.pos + frameHeader) & r.mask
		n := copy(r.data[from:], payload)
		copy(r.data, payload[n:])
	}
	atomic.StoreUint64(r.word(r.pos), uint64(f.kind)|uint64(f.flags)<<8|uint64(f.tag)<<32)
	r.pos += frameBytes(uint64(len(payload)))
}

// peek returns the next frame, if it is there.
func (r *ring) peek(f *frame) bool {
	w := atomic.LoadUint64(r.word(r.pos))
	if w == 0 {
		return false
	}
	at := r.pos & r.mask
	h := r.data[at : at+frameHeader : at+frameHeader]
	ids := binary.NativeEndian.Uint64(h[24:])
	*f = frame{
		kind: uint8(w), flags: uint8(w >> 8), tag: uint32(w >> 32),
		n:      binary.NativeEndian.Uint64(h[8:]),
		addr:   binary.NativeEndian.Uint64(h[16:]),
		sendID: uint32(ids), recvID: uint32(ids >> 32),
	}
	return true
}

// read copies the payload of the frame at hand into b.
func (r *ring) read(b []byte) {
	from := (r.pos + frameHeader) & r.mask
	n := copy(b, r.data[from:])
	copy(b[n:], r.data)
}

// drop leaves the frame at hand behind.
func (r *ring) drop(f *frame) {
	end := r.pos + frameBytes(f.payload())
	for ; r.pos < end; r.pos += line {
		*r.word(r.pos) = 0
	}
}

// release tells the writer what was freed; true when it asked to be woken.
func (r *ring) release() bool {
	if r.freed == r.pos {
		return false
	}
	r.freed = r.pos
	atomic.StoreUint64(r.tail, r.pos)
	return atomic.LoadUint32(r.want) != 0 && atomic.SwapUint32(r.want, 0) != 0
}

// full leaves word that the writer waits for room. The caller looks for room
// once more afterwards: the reader may have freed some in between.
func (r *ring) full() { atomic.StoreUint32(r.want, 1) }
