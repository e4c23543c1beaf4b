package data

import "fmt"

// Cut shares the sequences of a step out: first among replicas, then among the
// micro-batches of each. Both take consecutive sequences, so that 2 replicas of
// m micro-batches read what 1 replica of 2m does, in the same order.
type Cut struct {
	Batch        int // sequences of a step, a multiple of Replicas × Microbatches
	Replicas     int
	Microbatches int // of a step and replica
}

// Size returns the sequences of one micro-batch.
func (c Cut) Size() int { return c.Batch / (c.Replicas * c.Microbatches) }

// First returns the number, in the whole run, of a micro-batch's first
// sequence. Steps count from 1, replicas and micro-batches from 0.
func (c Cut) First(step, replica, microbatch int) int64 {
	return int64(step-1)*int64(c.Batch) + int64(replica*c.Microbatches+microbatch)*int64(c.Size())
}

// Check returns what makes a cut impossible.
func (c Cut) Check() error {
	if c.Batch < 1 || c.Replicas < 1 || c.Microbatches < 1 || c.Batch%(c.Replicas*c.Microbatches) != 0 {
		return fmt.Errorf("data: %d sequences cannot be shared out evenly over %d replicas × %d micro-batches", c.Batch, c.Replicas, c.Microbatches)
	}
	return nil
}

// Read writes one micro-batch: Size × Seq ids and targets, a sequence after
// another; either may be nil. Steps count from 1.
func Read(s Source, c Cut, step, replica, microbatch int, ids, targets []int32) error {
	size, seq := c.Size(), s.Seq()
	checkSlices(size*seq, ids, targets)
	if step < 1 || replica < 0 || replica >= c.Replicas || microbatch < 0 || microbatch >= c.Microbatches {
		return fmt.Errorf("data: step %d, replica %d, micro-batch %d: of steps from 1, %d replicas, %d micro-batches",
			step, replica, microbatch, c.Replicas, c.Microbatches)
	}
	first := c.First(step, replica, microbatch)
	for i := range size {
		if err := s.Sequence(first+int64(i), part(ids, i, seq), part(targets, i, seq)); err != nil {
			return fmt.Errorf("step %d, replica %d, micro-batch %d: %w", step, replica, microbatch, err)
		}
	}
	return nil
}

func part(s []int32, i, seq int) []int32 {
	if s == nil {
		return nil
	}
	return s[i*seq : (i+1)*seq]
}
