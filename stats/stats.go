// Package stats has the statistics of studies: medians with exact intervals, the exact U test, ratios
// by bootstrap, steps in a history. All of them are free of assumptions about the noise's distribution.
//
// The formulas are those of benchstat (golang.org/x/perf/cmd/benchstat), which is the tests' oracle.
package stats

import (
	"math"
	"slices"
)

// Mean returns the arithmetic mean, NaN of none.
func Mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// Median returns the middle of the values, or the mean of the two in the middle; NaN of none.
func Median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	switch {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return v[n/2]
	}
	return (v[n/2-1] + v[n/2]) / 2
}

// MAD returns the median distance of the values from their median; NaN of none.
func MAD(values []float64) float64 {
	m := Median(values)
	away := make([]float64, len(values))
	for i, v := range values {
		away[i] = math.Abs(v - m)
	}
	return Median(away)
}

// Geomean returns the geometric mean; NaN of none, or where a value is not above 0.
func Geomean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		if !(v > 0) {
			return math.NaN()
		}
		sum += math.Log(v)
	}
	return math.Exp(sum / float64(len(values)))
}

// Interval is a confidence interval of a median.
type Interval struct {
	Lo, Hi float64
	// Level is the confidence reached, at least the one asked for. 0 where the sample is too small
	// for that: then Lo and Hi are the sample's range.
	Level float64
}

// exactInterval bounds the samples whose interval is by the binomial distribution itself.
const exactInterval = 30

// MedianOr is Median, or other where there are no values.
func MedianOr(values []float64, other float64) float64 {
	if len(values) == 0 {
		return other
	}
	return Median(values)
}

// MedianInterval returns the interval between two of the sorted values that holds the median with the
// given confidence (0.95): the number of values below the median is binomial with p = 1/2. It needs 6
// values for 0.95.
func MedianInterval(values []float64, confidence float64) Interval {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	if n == 0 {
		return Interval{math.NaN(), math.NaN(), 0}
	}
	lo, hi, level := medianOrders(n, confidence)
	if lo < 1 || hi > n {
		return Interval{v[0], v[n-1], 0}
	}
	return Interval{v[lo-1], v[hi-1], level}
}

// medianOrders returns which of the sorted values, from 1, bound the interval; 0 or n+1: none does.
func medianOrders(n int, confidence float64) (lo, hi int, level float64) {
	if n > exactInterval {
		return approxOrders(n, confidence)
	}
	// From the middle outwards, the likelier side first and the left one of two that are alike,
	// until the intervals between order statistics that were passed reach the confidence.
	p := make([]float64, n+1) // of k values below the median
	p[0] = math.Pow(0.5, float64(n))
	for k := 1; k <= n; k++ {
		p[k] = p[k-1] * float64(n-k+1) / float64(k)
	}
	at := func(k int) float64 {
		if k < 0 || k > n {
			return 0
		}
		return p[k]
	}
	lo = (n+2)/2 - 1
	hi = lo + 1
	level = p[lo]
	for level < confidence && (at(lo-1) > 0 || at(hi) > 0) {
		if at(lo-1) >= at(hi) {
			lo--
			level += p[lo]
		} else {
			level += p[hi]
			hi++
		}
	}
	return lo, hi, level
}

// approxOrders is medianOrders by the normal distribution, with continuity correction.
func approxOrders(n int, confidence float64) (lo, hi int, level float64) {
	mean, sd := float64(n)/2, math.Sqrt(float64(n))/2
	cdf := func(x float64) float64 { return math.Erfc(-(x-mean)/(sd*math.Sqrt2)) / 2 }
	left := mean - sd*math.Sqrt2*math.Erfinv(confidence)
	right := 2*mean - left
	lo = int(math.Floor(math.Floor(left-0.5)+0.5)) + 1
	hi = int(math.Floor(math.Ceil(right-0.5)+0.5)) + 1
	between := func(l, r int) float64 { return cdf(float64(r)-0.5) - cdf(float64(l)-0.5) }
	level = between(lo, hi)
	if biased := between(lo, hi-1); biased >= confidence && biased < level {
		hi, level = hi-1, biased
	}
	return lo, hi, level
}
