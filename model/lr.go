package model

import (
	"fmt"
	"math"
)

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

// Check returns the first mistake of l.
func (l LRSchedule) Check() error {
	switch {
	case l.Decay != "cosine" && l.Decay != "constant":
		return fmt.Errorf("model: decay %q of the learning rate is unknown; known: \"cosine\", \"constant\"", l.Decay)
	case !(l.Base > 0) || math.IsInf(l.Base, 0):
		return fmt.Errorf("model: learning rate %v; it must be a finite number above 0", l.Base)
	case !(l.Min >= 0) || l.Min > l.Base:
		return fmt.Errorf("model: least learning rate %v; it must lie between 0 and the rate %v", l.Min, l.Base)
	case l.Warmup < 0:
		return fmt.Errorf("model: %d steps of warm-up; it must be 0 or more", l.Warmup)
	}
	return nil
}
