package mpi

import "unsafe"

// call is a call of MPI on the path of every message. purego.SyscallN copies its
// arguments twice and takes memory from a pool, which costs more than the whole message
// does in C; here the arguments lie where the few instructions that make the call
// (call_amd64.s, which knows this layout) find them, and a call is repeated and followed by
// another without a way back through Go. Elsewhere than on amd64 purego does the same, slower.
//
// The transport's mutex guards it. What arguments point to is not Go's stack.
type call struct {
	fn     uintptr
	arg    [7]uintptr
	rc     int32 // of the last repetition
	done   int32 // where until is set: an output of the call, which ends the repetitions
	rounds int64 // repetitions at most; 0 and 1: one
	until  bool  // repeat while rc and done are 0
	next   *call // made afterwards where rc is 0
}

func (c *call) donePtr() uintptr { return uintptr(unsafe.Pointer(&c.done)) }
