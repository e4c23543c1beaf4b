package model

import "math"

// LRSchedule is the learning rate over the steps: a linear warm-up, then a cosine
// down to Min (arXiv 1608.03983, without restarts) or a constant.
type LRSchedule struct {
	Base, Min float64
	Warmup    int    // steps until Base is reached
	Steps     int    // of the whole run; Min is reached at the last
	Decay     string // "cosine" or "constant"
}

// At returns the rate of a step, counted from 1.
func (l LRSchedule) At(step int) float64 {
	if step <= l.Warmup {
		return l.Base * float64(step) / float64(l.Warmup)
	}
	if l.Decay == "constant" {
		return l.Base
	}
	part := 1.0
	if l.Steps > l.Warmup {
		part = min(1, float64(step-l.Warmup)/float64(l.Steps-l.Warmup))
	}
	return l.Min + (l.Base-l.Min)*(1+math.Cos(math.Pi*part))/2
}
