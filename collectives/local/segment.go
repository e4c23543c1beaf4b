package local

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// The segment, all fields aligned to cache lines so that no two writers share one:
//
//	header   4096 B: magic, version, ranks, bytes of a ring; abort word
//	slots    256 B a rank: state, process, doorbell
//	rings    one per ordered pair (source, destination)
const (
	segMagic   = 0x7069706574726e32 // "pipetrn2"
	segVersion = 2

	headerBytes = 4096
	slotBytes   = 256
	ringHeader  = 128
	line        = 64

	offVersion = 8
	offSize    = 12
	offRing    = 16
	offJoined  = 24 // how many have joined: the futex that those sleep on who wait for the others
	offAbort   = 64 // 0, or abortSet | rank<<32 | exit code

	slotState = 0
	slotPID   = 4
	slotStart = 8  // start time of the process, so that a reused pid is told apart
	slotProbe = 16 // address of a word holding segMagic ^ rank in the rank's memory
	slotBell  = 64 // counts rings: the futex that goroutines asleep in Wait sleep on
	slotSleep = 68 // goroutines asleep in Wait
	slotArmed = 72 // 1 while only the background poller looks after the rank
	slotPoll  = 76 // the bell of the poller

	abortSet = 1 << 63
)

// States of a rank.
const (
	stateNone    = iota
	stateTaken   // a process is joining
	stateJoined  // rings in use
	stateClosed  // left in order
	stateAborted // ended the world
)

type segment struct {
	mem  []byte
	keep any // what keeps mem alive when it is Go memory
	size int
	ring int // data bytes of a ring, a power of two
}

// ringBytesFor keeps the rings of a world together near 64 MiB. Pages nobody
// touches cost nothing, and in a pipeline most pairs never talk.
func ringBytesFor(size int) int {
	const budget = 64 << 20
	b := 256 << 10
	for b > 8<<10 && b*size*size > budget {
		b /= 2
	}
	return b
}

func segmentBytes(size, ring int) int {
	slots := (headerBytes + size*slotBytes + 4095) &^ 4095
	return slots + size*size*(ringHeader+ring)
}

func (s *segment) u32(off int) *uint32 { return (*uint32)(unsafe.Pointer(&s.mem[off])) }
func (s *segment) u64(off int) *uint64 { return (*uint64)(unsafe.Pointer(&s.mem[off])) }

func (s *segment) slot32(rank, field int) *uint32 {
	return s.u32(headerBytes + rank*slotBytes + field)
}

func (s *segment) slot64(rank, field int) *uint64 {
	return s.u64(headerBytes + rank*slotBytes + field)
}

func (s *segment) state(rank int) uint32 { return atomic.LoadUint32(s.slot32(rank, slotState)) }

func (s *segment) ringOf(src, dst int) ring {
	base := (headerBytes + s.size*slotBytes + 4095) &^ 4095
	base += (src*s.size + dst) * (ringHeader + s.ring)
	return ring{
		data:  s.mem[base+ringHeader : base+ringHeader+s.ring : base+ringHeader+s.ring],
		tail:  s.u64(base),
		want:  s.u32(base + line),
		mask:  uint64(s.ring - 1),
		bytes: uint64(s.ring),
	}
}

// format writes the header of a fresh, zeroed segment.
func (s *segment) format() {
	*s.u32(offVersion) = segVersion
	*s.u32(offSize) = uint32(s.size)
	*s.u64(offRing) = uint64(s.ring)
	atomic.StoreUint64(s.u64(0), segMagic)
}

// newHeapSegment makes a segment in Go memory, for ranks of one process: the
// race detector sees accesses there, and not in mapped memory.
func newHeapSegment(size, ring int) *segment {
	words := make([]uint64, (segmentBytes(size, ring)+line)/8)
	mem := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)
	skip := int(-uintptr(unsafe.Pointer(&words[0])) & (line - 1))
	s := &segment{mem: mem[skip:][:segmentBytes(size, ring)], keep: words, size: size, ring: ring}
	s.format()
	return s
}

func checkHeader(head []byte, size int) (ring int, err error) {
	s := &segment{mem: head}
	if got := atomic.LoadUint64(s.u64(0)); got != segMagic {
		return 0, fmt.Errorf("local: the inherited file is no segment of ours (it starts with %#x): pass the file that Create returned", got)
	}
	if v := *s.u32(offVersion); v != segVersion {
		return 0, fmt.Errorf("local: segment version %d, this binary speaks %d: launcher and rank are different builds", v, segVersion)
	}
	if n := *s.u32(offSize); n != uint32(size) {
		return 0, fmt.Errorf("local: the segment was made for %d ranks, this rank was started for %d", n, size)
	}
	return int(*s.u64(offRing)), nil
}
