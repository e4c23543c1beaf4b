// Package null is a device without memory or operations: what is called on it does nothing. An engine that performs a
// program on it does all the rest, as a plan or a rehearsal of the program wants it.
package null

import "github.com/pipetrain/pipetrain/kernels"

// Device does nothing, at once. It answers one question: how much scratch memory an operation needs on the device
// whose Ops it was made with.
type Device struct{ ops }

var _ kernels.Device = Device{}

// New returns a device that stands for the one with these operations.
func New(of kernels.Ops) Device { return Device{ops{of}} }

// Name returns "null".
func (Device) Name() string { return "null" }

// Info returns nothing.
func (Device) Info() map[string]string { return nil }

// Alloc returns a buffer at address 0, which no memory is behind.
func (Device) Alloc(bytes int64) (kernels.Buffer, error) {
	return kernels.Buffer{Len: bytes, Type: kernels.U8}, nil
}

// Free does nothing.
func (Device) Free(kernels.Buffer) {}

// Host returns nil: there is nothing to address.
func (Device) Host(kernels.Buffer) []byte { return nil }

// CopyIn does nothing.
func (Device) CopyIn(kernels.Buffer, []byte) {}

// CopyOut leaves dst as it is.
func (Device) CopyOut([]byte, kernels.Buffer) {}

// Copy does nothing.
func (Device) Copy(kernels.Buffer, kernels.Buffer) {}

// Zero does nothing.
func (Device) Zero(kernels.Buffer) {}

// Sync returns nil.
func (Device) Sync() error { return nil }

// Close does nothing.
func (Device) Close() error { return nil }
