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

// Timer is a device that tells when it did what, rather than when it was told to.
type Timer interface {
	// Mark notes the instant in the order of the current queue's operations.
	Mark() Mark
	// At returns the time between an instant and the first Mark of the device; it waits
	// until the instant has passed. A mark is asked once, then reused.
	At(Mark) time.Duration
}

// Mark is an instant in a queue of a device.
type Mark int32

// Copier is a device that copies to and from host memory while it computes.
type Copier interface {
	// HostAlloc returns page-locked host memory, which FreeHost gives back.
	HostAlloc(bytes int64) ([]byte, error)
	FreeHost([]byte)
	// Upload and Download copy beside the operations: a Download begins after what was
	// called before it, what is called after an Upload waits for it. Each returns at
	// once; the host memory is page-locked, and not touched until Done says so.
	Upload(dst Buffer, src []byte) Mark
	Download(dst []byte, src Buffer) Mark
	// Done says whether a copy is complete; DoneWait waits until it is.
	Done(Mark) bool
	DoneWait(Mark) error
}

// Sharer is a device whose memory other processes of the node can address (CUDA IPC).
type Sharer interface {
	// Export names the allocation that b lies in, and b's offset in it.
	Export(b Buffer) (handle []byte, offset int64, err error)
	// Import makes an allocation of another process addressable here.
	Import(handle []byte) (Buffer, error)
	// Release ends an import.
	Release(Buffer)
}
