package schedule

// Peak counts the micro-batches that a rank holds at most, in activations of
// one stage: a rank with v chunks holds v of them for a micro-batch of its whole share.
type Peak struct {
	Live       int // from F to W (or B)
	UntilInput int // from F to I (or B): what backward-p1 frees
	FromInput  int // from I to W: what backward-p2 waits with
}

// PeakMicrobatches returns the peaks of each rank, which follow from the order
// of its ops alone. An op holds what it frees until it ends.
func PeakMicrobatches(s *Schedule) []Peak {
	peaks := make([]Peak, len(s.Programs))
	for r, program := range s.Programs {
		var held Peak
		most := &peaks[r]
		for _, o := range program {
			k := &kinds[o.Kind]
			held.Live += k.makes.count(untilWeight, 1) - k.frees.count(untilWeight, o.Microbatches())
			held.UntilInput += k.makes.count(untilInput, 1) - k.frees.count(untilInput, 1)
			held.FromInput += k.makes.count(fromInput, 1) - k.frees.count(fromInput, o.Microbatches())
			most.Live, most.UntilInput, most.FromInput = max(most.Live, held.Live), max(most.UntilInput, held.UntilInput), max(most.FromInput, held.FromInput)
		}
	}
	return peaks
}

// count returns n where the set has l, else 0.
func (set life) count(l life, n int) int {
	if set&l == 0 {
		return 0
	}
	return n
}

// StageBytes says what a stage holds: for one micro-batch, and all the time.
type StageBytes struct {
	UntilInput  int64 // from F to I, and not longer
	UntilWeight int64 // from F to W
	FromInput   int64 // from I to W
	Fixed       int64 // weights, gradients, optimizer state
}

// bytesOf returns the entry of a stage; a single entry is for all.
func bytesOf(bytes []StageBytes, stage int) StageBytes {
	if len(bytes) == 1 {
		return bytes[0]
	}
	return bytes[stage]
}

// of returns the bytes of a set for one micro-batch.
func (b *StageBytes) of(set life) (n int64) {
	if set&untilInput != 0 {
		n += b.UntilInput
	}
	if set&untilWeight != 0 {
		n += b.UntilWeight
	}
	if set&fromInput != 0 {
		n += b.FromInput
	}
	return n
}

// PeakBytes returns the most that each rank holds at one time, for bytes by stage
// (one entry: for all). During I both what it frees and what it makes are held.
func PeakBytes(s *Schedule, bytes []StageBytes) []int64 {
	peaks := make([]int64, len(s.Programs))
	for r, program := range s.Programs {
		var held int64
		for _, stage := range s.StagesOf(r) {
			held += bytesOf(bytes, stage).Fixed
		}
		peaks[r] = held
		for _, o := range program {
			if !o.Kind.IsCompute() {
				continue
			}
			b := bytesOf(bytes, o.Stage)
			held += b.of(kinds[o.Kind].makes)
			peaks[r] = max(peaks[r], held)
			held -= int64(o.Microbatches()) * b.of(kinds[o.Kind].frees)
		}
	}
	return peaks
}
