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

// quick is make without word to the scheduler, as the runtime itself makes such calls:
// for calls that end within microseconds, since until then neither may a garbage
// collection begin nor another goroutine have the processor. It saves half of what a
// way into C and back costs.
func (c *call) quick() { asmcgocall(callABI0, unsafe.Pointer(c)) }

//go:linkname asmcgocall runtime.asmcgocall
func asmcgocall(fn uintptr, arg unsafe.Pointer) int32
