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
		untilInput, fromInput := 0, 0
		p := &peaks[r]
		for _, o := range program {
			switch o.Kind {
			case Forward:
				untilInput++
			case Backward:
				untilInput--
			case BackwardInput:
				untilInput--
				fromInput++
			case BackwardWeight:
				fromInput -= o.Microbatches()
			}
			p.Live = max(p.Live, untilInput+fromInput)
			p.UntilInput = max(p.UntilInput, untilInput)
			p.FromInput = max(p.FromInput, fromInput)
		}
	}
	return peaks
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
			var freed int64
			switch o.Kind {
			case Forward:
				held += b.UntilInput + b.UntilWeight
			case Backward:
				held += b.FromInput
				freed = b.UntilInput + b.UntilWeight + b.FromInput
			case BackwardInput:
				held += b.FromInput
				freed = b.UntilInput
			case BackwardWeight:
				freed = int64(o.Microbatches()) * (b.UntilWeight + b.FromInput)
			}
			peaks[r] = max(peaks[r], held)
			held -= freed
		}
	}
	return peaks
}
