package driver

import "unsafe"

// Stream is a queue of work for a device.
type Stream struct {
	l      *Library
	handle uintptr
}

// Event marks a place in a stream.
type Event struct {
	l      *Library
	handle uintptr
}

const (
	streamNonBlocking  = 1 // no ordering with the legacy default stream
	eventBlockingSync  = 1 // who waits sleeps
	eventDisableTiming = 2
)

// PriorityRange returns the least and the greatest priority of streams; greater is a lower number.
func (c *Context) PriorityRange() (least, greatest int, err error) {
	var a, b int32
	err = c.l.check("cuCtxGetStreamPriorityRange", syscall(c.l.fn.ctxGetStreamPriorityRange, uintptr(unsafe.Pointer(&a)), uintptr(unsafe.Pointer(&b))))
	return int(a), int(b), err
}

// NewStream creates a stream that is not ordered with the default stream.
func (c *Context) NewStream(priority int) (*Stream, error) {
	s := &Stream{l: c.l}
	err := c.l.check("cuStreamCreateWithPriority", syscall(c.l.fn.streamCreate, uintptr(unsafe.Pointer(&s.handle)), streamNonBlocking, uintptr(priority)))
	return s, err
}

// Handle is the CUstream, for other libraries.
func (s *Stream) Handle() uintptr { return s.handle }

// Synchronize waits for the stream's work and returns what failed in it.
func (s *Stream) Synchronize() error {
	return s.l.check("cuStreamSynchronize", syscall(s.l.fn.streamSynchronize, s.handle))
}

// Wait makes later work of s wait for the event.
func (s *Stream) Wait(e *Event) error {
	return s.l.check("cuStreamWaitEvent", syscall(s.l.fn.streamWaitEvent, s.handle, e.handle, 0))
}

// Destroy frees the stream once its work has ended.
func (s *Stream) Destroy() error {
	return s.l.check("cuStreamDestroy_v2", syscall(s.l.fn.streamDestroy, s.handle))
}

// NewEvent creates an event on which Synchronize sleeps; timing makes Since
// possible and recording dearer.
func (c *Context) NewEvent(timing bool) (*Event, error) {
	flags := uintptr(eventBlockingSync)
	if !timing {
		flags |= eventDisableTiming
	}
	e := &Event{l: c.l}
	err := c.l.check("cuEventCreate", syscall(c.l.fn.eventCreate, uintptr(unsafe.Pointer(&e.handle)), flags))
	return e, err
}

// Record puts the event behind the work that is in s now.
func (e *Event) Record(s *Stream) error {
	return e.l.check("cuEventRecord", syscall(e.l.fn.eventRecord, e.handle, s.handle))
}

// Synchronize waits until the event has happened; an event never recorded has.
func (e *Event) Synchronize() error {
	return e.l.check("cuEventSynchronize", syscall(e.l.fn.eventSynchronize, e.handle))
}

// Since returns the milliseconds from start to e; both must have happened.
func (e *Event) Since(start *Event) (float32, error) {
	var ms float32
	err := e.l.check("cuEventElapsedTime", syscall(e.l.fn.eventElapsedTime, uintptr(unsafe.Pointer(&ms)), start.handle, e.handle))
	return ms, err
}

// Destroy frees the event.
func (e *Event) Destroy() error {
	return e.l.check("cuEventDestroy_v2", syscall(e.l.fn.eventDestroy, e.handle))
}
