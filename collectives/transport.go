// Package collectives is the communication package: point-to-point transports
// between ranks, and the collectives built on them. Backends live in
// sub-packages (local: shared memory of one host; mpi: the cluster's library,
// loaded at run time); the conformance suite they must pass is transporttest.
package collectives

import (
	"context"
	"errors"
	"fmt"
)

// MaxTag is the largest tag; every MPI's TAG_UB we know is above it. Callers of a
// Transport beside a Comm stay below FirstCollectiveTag.
const MaxTag = 1<<24 - 1

// Transport moves bytes between the ranks of one world. Messages between a
// pair with the same tag arrive in the order sent; messages of different tags
// may be received in any order. Any number may be in flight. Methods may be
// called from several goroutines.
type Transport interface {
	Rank() int
	Size() int
	// Kind is the name as in the job file: "local", "mpi".
	Kind() string
	// Info describes what was found: library, version, ABI, path, thread level.
	Info() map[string]string

	// Isend starts sending b to rank `to`. b belongs to the transport until the
	// request's Wait returned (or Test returned true). b may be empty.
	Isend(to, tag int, b []byte) Request
	// Irecv starts receiving exactly len(b) bytes from rank `from`; a message of
	// another length is an error of both Wait and Test (LengthError).
	Irecv(from, tag int, b []byte) Request

	// Close ends this rank's part in the world; pending requests fail with ErrClosed.
	// Memory passed to Isend and Irecv may be inside the Go heap (the transport pins
	// it until completion) or outside it.
	Close() error
	// Abort ends the whole world at once with this exit code; it does not return.
	Abort(code int)
}

// Request is a send or receive in flight.
type Request interface {
	// Wait blocks until the message moved, ctx ended, the transport was closed or
	// the peer was lost. The waiting goroutine itself drives progress, but for a
	// context made by Patient. When ctx ended, the request is still in flight and
	// its buffer still the transport's: Wait may be called again.
	Wait(ctx context.Context) error
	// Test says whether the request is complete, without blocking.
	Test() (done bool, err error)
}

// ErrClosed is returned by requests that were pending when the transport closed.
var ErrClosed = errors.New("transport closed")

// PeerLostError says that a rank died or closed while a message to or from it was pending.
type PeerLostError struct {
	Rank   int
	Reason string
}

func (e *PeerLostError) Error() string { return fmt.Sprintf("rank %d was lost: %s", e.Rank, e.Reason) }

// LengthError says that a message had another length than its receive.
type LengthError struct {
	From, Tag int
	Want, Got int
}

func (e *LengthError) Error() string {
	return fmt.Sprintf("message from rank %d, tag %d: want %d bytes, got %d", e.From, e.Tag, e.Want, e.Got)
}
