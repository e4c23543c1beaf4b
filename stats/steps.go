package stats

import "math"

// Level is a stretch of a series over which its values lie around one median.
type Level struct {
	First, End int // values [First, End)
	Median     float64
}

// Steps fits a piecewise constant function to a series by the sum of absolute distances, as asv finds
// steps in a history: each further level has to lower the sum by penalty, and one value alone is no
// level. It returns one level for a series without steps, none for an empty one. It takes a time that
// grows with the cube of the length.
func Steps(values []float64, penalty float64) []Level {
	n := len(values)
	if n == 0 {
		return nil
	}
	// best[e] is the least cost of values[:e]; from[e] where its last level begins.
	best, from := make([]float64, n+1), make([]int, n+1)
	best[0] = -penalty
	for e := 1; e <= n; e++ {
		best[e] = math.Inf(1)
	}
	for b := range n {
		for e := b + min(2, n); e <= n; e++ {
			m, sum := Median(values[b:e]), 0.0
			for _, v := range values[b:e] {
				sum += math.Abs(v - m)
			}
			if c := best[b] + penalty + sum; c < best[e] {
				best[e], from[e] = c, b
			}
		}
	}
	var levels []Level
	for e := n; e > 0; e = from[e] {
		levels = append([]Level{{from[e], e, Median(values[from[e]:e])}}, levels...)
	}
	return levels
}

// StepPenalty is a penalty for Steps that noise alone seldom overcomes: three times the logarithm of
// the length in units of the median distance between neighbours, at least 1 % of the median each.
func StepPenalty(values []float64) float64 {
	var jumps []float64
	for i := 1; i < len(values); i++ {
		jumps = append(jumps, math.Abs(values[i]-values[i-1]))
	}
	if len(jumps) == 0 {
		return math.Inf(1)
	}
	noise := max(Median(jumps), 0.01*math.Abs(Median(values)))
	return 3 * math.Log(float64(len(values))+1) * noise
}
