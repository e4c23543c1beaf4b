package record

import (
	"math"
	"slices"
)

// Median returns the middle of the values, NaN of none. Values that are NaN are left out.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Quantile returns the q-quantile (0 ≤ q ≤ 1) with linear interpolation between
// the two nearest values (R's type 7, numpy's default), NaN of none. Values
// that are NaN are left out.
func Quantile(values []float64, q float64) float64 { return Quantiles(values, q)[0] }

// Quantiles returns several quantiles at the cost of one sort.
func Quantiles(values []float64, qs ...float64) []float64 {
	v := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	slices.Sort(v)
	out := make([]float64, len(qs))
	for i, q := range qs {
		out[i] = quantileSorted(v, q)
	}
	return out
}

func quantileSorted(v []float64, q float64) float64 {
	if len(v) == 0 || math.IsNaN(q) {
		return math.NaN()
	}
	at := min(max(q, 0), 1) * float64(len(v)-1)
	low := int(at)
	if low+1 >= len(v) || v[low] == v[low+1] {
		return v[low]
	}
	frac := at - float64(low)
	if frac == 0 {
		return v[low] // not v[low+1]·0, which is NaN when that is infinite
	}
	return v[low] + frac*(v[low+1]-v[low])
}

// Mean returns the arithmetic mean, NaN of none.
func Mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
