package data

import "fmt"

// Cut shares the samples of a step out: first among replicas, then among the
// micro-batches of each. Both take consecutive samples, so that 2 replicas of
// m micro-batches read what 1 replica of 2m does, in the same order.
type Cut struct {
	Batch        int // samples of a step, a multiple of Replicas × Microbatches
	Replicas     int
	Microbatches int // of a step and replica
}

// Size returns the samples of one micro-batch.
func (c Cut) Size() int { return c.Batch / (c.Replicas * c.Microbatches) }

// First returns the number, in the whole run, of a micro-batch's first
// sample. Steps count from 1, replicas and micro-batches from 0.
func (c Cut) First(step, replica, microbatch int) int64 {
	return int64(step-1)*int64(c.Batch) + int64(replica*c.Microbatches+microbatch)*int64(c.Size())
}

// Check returns what makes a cut impossible.
func (c Cut) Check() error {
	if c.Batch < 1 || c.Replicas < 1 || c.Microbatches < 1 || c.Batch%(c.Replicas*c.Microbatches) != 0 {
		return fmt.Errorf("data: %d samples cannot be shared out evenly over %d replicas × %d micro-batches", c.Batch, c.Replicas, c.Microbatches)
	}
	return nil
}

// Read writes one micro-batch: the samples' wanted fields, a sample after another,
// into memory for Size of them. Steps count from 1.
func Read(s Source, c Cut, step, replica, microbatch int, into Sample) error {
	if step < 1 || replica < 0 || replica >= c.Replicas || microbatch < 0 || microbatch >= c.Microbatches {
		return fmt.Errorf("data: step %d, replica %d, micro-batch %d: of steps from 1, %d replicas, %d micro-batches",
			step, replica, microbatch, c.Replicas, c.Microbatches)
	}
	first, size := c.First(step, replica, microbatch), c.Size()
	one := Sample{}
	for i := range size {
		for name, all := range into {
			if len(all)%size != 0 {
				panic(fmt.Sprintf("data: %d bytes of %s for %d samples", len(all), name, size))
			}
			n := len(all) / size
			one[name] = all[i*n : (i+1)*n]
		}
		if err := s.Sample(first+int64(i), one); err != nil {
			return fmt.Errorf("step %d, replica %d, micro-batch %d: %w", step, replica, microbatch, err)
		}
	}
	return nil
}

// Terms returns the losses of n micro-batches from the given one on, of all replicas.
func Terms(s Source, c Cut, step, microbatch, n int) int {
	terms := 0
	for replica := range c.Replicas {
		first := c.First(step, replica, microbatch)
		for i := range int64(n * c.Size()) {
			terms += s.Terms(first + i)
		}
	}
	return terms
}
