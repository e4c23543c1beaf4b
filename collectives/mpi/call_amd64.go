//go:build linux

package mpi

import "unsafe"

// make calls MPI on the thread's system stack.
func (c *call) make() { cgocall(callABI0, unsafe.Pointer(c)) }

// callABI0 is the address of the instructions in call_amd64.s.
var callABI0 uintptr

// cgocall is the runtime's way into C, which purego uses too (its authors and the
// runtime's agreed on the name, see runtime/cgocall.go).
//
//go:linkname cgocall runtime.cgocall
func cgocall(fn uintptr, arg unsafe.Pointer) int32
