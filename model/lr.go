package model

import "math"

// LRSchedule is the learning rate over the steps: a linear warm-up, a plateau
// where DecaySteps is given, then a fall from Base to Min.
type LRSchedule struct {
	Base, Min float64
	Warmup    int // steps until Base is reached
	Steps     int // of the whole run; Min is reached at the last
	Decay     string
	// DecaySteps is the length of the fall, at the end of the run; 0: all after the warm-up.
	DecaySteps int
}

// Decays are the shapes of the fall, by the part of it that is done, from 0 to 1: what
// share of Base - Min is left.
var decays = []struct {
	name, doc string
	left      func(part float64) float64
}{
	{"cosine", "half a cosine (arXiv 1608.03983, without restarts)", func(part float64) float64 { return (1 + math.Cos(math.Pi*part)) / 2 }},
	{"linear", "a straight line", func(part float64) float64 { return 1 - part }},
	{"sqrt", "1 − √part (arXiv 2405.18392)", func(part float64) float64 { return 1 - math.Sqrt(part) }},
	{DecayConstant, "none", func(float64) float64 { return 1 }},
}

// DecayConstant is the shape that does not fall.
const DecayConstant = "constant"

// Decays lists the shapes of an LRSchedule with a few words on each.
func Decays() (names, docs []string) {
	for _, d := range decays {
		names, docs = append(names, d.name), append(docs, d.doc)
	}
	return names, docs
}

// At returns the rate of a step, counted from 1.
func (l LRSchedule) At(step int) float64 {
	if step <= l.Warmup {
		return l.Base * float64(step) / float64(l.Warmup)
	}
	begin := l.Warmup
	if l.DecaySteps > 0 {
		begin = l.Steps - l.DecaySteps
	}
	if step <= begin {
		return l.Base
	}
	part := 1.0
	if l.Steps > begin {
		part = min(1, float64(step-begin)/float64(l.Steps-begin))
	}
	for _, d := range decays {
		if d.name == l.Decay {
			// A product and a sum of Base itself would not give Base back.
			if left := d.left(part); left < 1 {
				return l.Min + (l.Base-l.Min)*left
			}
			return l.Base
		}
	}
	panic("model: no decay " + l.Decay)
}
