// Package local is the transport between processes of one host, with nothing
// installed: a shared-memory segment with a ring per pair of ranks. Small
// messages pass through the ring. Large ones are copied once, straight from the
// sender's memory, where the system allows process_vm_readv; else in pieces
// through the ring.
//
// The receiver matches messages to receives, by sender and tag, in order of
// arrival. Whoever waits drives progress: it spins for a short while, then
// sleeps on a futex. While nobody waits, a background poller sleeps on the same
// futex and is woken by a peer's frame, so that posted transfers move while the
// caller computes, and nothing is burnt while nothing arrives.
package local

import (
	"context"
	"time"
)

// MaxRanks is the largest world on one host.
const MaxRanks = 512

// Options tune a rank; the zero value is right for most.
type Options struct {
	// Context ends Join early. Nil: Background.
	Context context.Context
	// Timeout bounds how long Join waits for the others; 0: 60 s.
	Timeout time.Duration
	// Rendezvous ends every send only when it was received. Code that relies on
	// small sends being buffered fails early under it.
	Rendezvous bool
	// NoDirectCopy moves large messages through the ring even where copying from
	// the peer's memory is allowed.
	NoDirectCopy bool
	// Spin is how long a waiter polls before it sleeps. 0: chosen by ranks and
	// cores; negative: sleep at once.
	Spin time.Duration
	// Cores is the number of cores the world's ranks share; 0: those this process
	// may use. With more ranks than cores, waiters yield instead of spinning.
	Cores int
	// RingBytes is the size of a ring of NewWorldWith (a power of two, at least
	// 8 KiB); 0: chosen by the number of ranks. Join takes the segment's.
	RingBytes int
	// Processes makes NewWorldWith wait and copy as ranks of different processes
	// do (futex, process_vm_readv, poller), which tests use.
	Processes bool
}
