package checkpoint

import "context"

// Group is the ranks that save a checkpoint together. Every member calls Save,
// and within it the same sequence of Broadcast and Gather. When a member is
// lost the calls must return an error, as the transports' do.
type Group interface {
	Rank() int
	Size() int
	// Gather returns every member's bytes, by rank, on rank 0, and nil elsewhere.
	// The lengths differ between members.
	Gather(ctx context.Context, b []byte) ([][]byte, error)
	// Broadcast returns rank 0's bytes on every member; what others pass is ignored.
	// It is how all ranks learn that one of them could not write: gathering and a
	// barrier alone tell rank 0 only.
	Broadcast(ctx context.Context, b []byte) ([]byte, error)
}

// Alone is the group of a process that saves by itself.
type Alone struct{}

// Rank returns 0.
func (Alone) Rank() int { return 0 }

// Size returns 1.
func (Alone) Size() int { return 1 }

// Gather returns b.
func (Alone) Gather(_ context.Context, b []byte) ([][]byte, error) { return [][]byte{b}, nil }

// Broadcast returns b.
func (Alone) Broadcast(_ context.Context, b []byte) ([]byte, error) { return b, nil }
