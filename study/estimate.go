package study

import (
	"time"

	"github.com/pipetrain/pipetrain/stats"
)

// Estimate is what the planner says of a case. Figures are of the given op times: a profile's, or those of
// an assumed device, which may be far from this machine.
type Estimate struct {
	StepSeconds float64
	Makespan    float64
	Bubble      float64
	PeakBytes   int64
	FLOPs       int64  // of the layers in one step
	Source      string // where op times come from
}

// startSeconds is what a run takes besides its steps, roughly.
const startSeconds = 1.0

// seconds a run is expected to take by the estimate.
func (e Estimate) seconds(c *Case) float64 {
	return e.StepSeconds*float64(c.Spec.Train.Steps) + startSeconds
}

// expected returns the seconds that a run of the case takes: the median of those that finished, else what
// the planner says, corrected by how it did for the others. measured: a run of the case has finished.
func (r *runner) expected(c *Case) (seconds float64, measured bool) {
	if own := r.seconds[c.ID]; len(own) > 0 {
		return stats.Median(own), true
	}
	planned := r.estimates[c.ID].seconds(c)
	var ratios []float64
	for _, other := range r.o.Cases {
		if own := r.seconds[other.ID]; len(own) > 0 && other.Spec != nil {
			ratios = append(ratios, stats.Median(own)/r.estimates[other.ID].seconds(other))
		}
	}
	if len(ratios) > 0 {
		planned *= stats.Median(ratios)
	}
	return planned, false
}

// Least time limits of a run, where [study] timeout gives none: a start on a busy machine takes a while, and
// before the first run nothing but the plan is known.
const (
	leastTimeout   = 2 * time.Minute
	unknownTimeout = 30 * time.Minute
)

func (r *runner) timeout(c *Case) time.Duration {
	if t := r.o.Study.Timeout; t > 0 {
		return t
	}
	seconds, measured := r.expected(c)
	limit := time.Duration(5 * seconds * float64(time.Second))
	if measured {
		return max(limit, leastTimeout)
	}
	return max(limit, unknownTimeout)
}
