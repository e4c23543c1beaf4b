package stats

import (
	"math/rand/v2"
	"slices"
)

// Resamples is how often a bootstrap draws.
const Resamples = 10_000

// RatioInterval returns the 95 % interval of median(a) / median(b) by percentile bootstrap: Resamples
// draws with replacement from each sample. The same seed gives the same interval.
func RatioInterval(a, b []float64, seed uint64) Interval {
	if len(a) == 0 || len(b) == 0 {
		return MedianInterval(nil, 0.95)
	}
	r := rand.New(rand.NewPCG(seed, 0))
	drawA, drawB := make([]float64, len(a)), make([]float64, len(b))
	ratios := make([]float64, Resamples)
	for i := range ratios {
		ratios[i] = drawMedian(r, a, drawA) / drawMedian(r, b, drawB)
	}
	slices.Sort(ratios)
	return Interval{Lo: ratios[Resamples*25/1000], Hi: ratios[Resamples*975/1000-1], Level: 0.95}
}

// drawMedian returns the median of a sample drawn with replacement from values; room has its length.
func drawMedian(r *rand.Rand, values, room []float64) float64 {
	for i := range room {
		room[i] = values[r.IntN(len(values))]
	}
	slices.Sort(room)
	n := len(room)
	if n%2 == 1 {
		return room[n/2]
	}
	return (room[n/2-1] + room[n/2]) / 2
}
