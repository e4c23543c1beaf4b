package kernels

import "time"

// What follows are abilities that a Device may have beside its own: found by a
// type assertion, used where a setting asks for them, never required.

// Queues is a device with a second queue of operations (on CUDA a stream of
// lower priority), where work runs that nobody waits for yet, as backward-p2.
type Queues interface {
	// Fork sends the operations that follow to the second queue; they begin after
	// all that was called before, on both queues.
	Fork()
	// Join sends operations to the first queue again, without waiting for the second.
	Join()
	// Wait lets what follows on the first queue begin after all of the second.
	Wait()
}

// Recorder is a device that records operations once and replays them at once (a CUDA graph).
type Recorder interface {
	// Record performs nothing: it returns what ops called, with the buffers' addresses
	// and all numbers as they were. ops calls no Alloc, Sync, CopyIn or CopyOut.
	Record(ops func()) (Recording, error)
}

// Recording is a sequence of recorded operations.
type Recording interface {
	// Replay performs the operations, in the current queue.
	Replay()
	// Free ends the recording.
	Free()
}

// Mark is an instant in the order of a queue's operations; the zero Mark has always passed.
type Mark int32

// Marker is a device that can be asked how far it is. Its methods, but for Mark and
// After, may be called by any goroutine beside the one that computes.
type Marker interface {
	// Mark notes an instant: it passes when what was called before it on the current
	// queue is complete.
	Mark() Mark
	// After lets what follows on the current queue begin only once the instant has passed.
	After(Mark)
	// Between returns the time from one instant to a later one; it waits until both have passed.
	Between(from, to Mark) time.Duration
	// Await blocks until the instant has passed, and returns the device's first error, if it has one.
	Await(Mark) error
	// Drop ends marks: the device may use them anew.
	Drop(...Mark)
}

// Copier is a device that copies while it computes. Its methods may be called by any
// goroutine beside the one that computes. Each copy begins once the instant `after`
// has passed, beside the operations of the queues; it returns at once the instant at
// which it is complete, to be dropped by the caller.
type Copier interface {
	Marker
	// HostAlloc returns page-locked host memory, which FreeHost gives back.
	HostAlloc(bytes int64) ([]byte, error)
	FreeHost([]byte)
	// Upload and Download copy between the device and page-locked memory, which nobody
	// else touches until the copy is complete.
	Upload(dst Buffer, src []byte, after Mark) Mark
	Download(dst []byte, src Buffer, after Mark) Mark
	// Move copies from one buffer to another, which may be imported.
	Move(dst, src Buffer, after Mark) Mark
}

// Sharer is a device whose memory other processes of the node can address (CUDA IPC).
type Sharer interface {
	Copier
	// Export names an allocation for other processes; b is a whole allocation.
	Export(b Buffer) (handle []byte, err error)
	// Import makes an allocation of another process addressable here, for Move alone.
	// An error says that this pair of devices or processes cannot.
	Import(handle []byte, bytes int64) (Buffer, error)
	// Release ends an import.
	Release(Buffer)
}

// Ranger is a device whose vendor's profiler shows named ranges of the host's time.
type Ranger interface {
	// Profiled says whether there is anything to name ranges for.
	Profiled() bool
	// Range begins a range, which the returned function ends; any thread may call it.
	Range(name string) (end func())
}

// GemmByAlignment is a device whose library chooses how it multiplies by the alignment of
// the matrices too: Gemm gives the same bits for all that are aligned to 16 bytes, as an
// arena's blocks are, and may give others for those that are not.
type GemmByAlignment interface {
	GemmByAlignment() bool
}
