package study

import (
	"math"

	"github.com/pipetrain/pipetrain/stats"
)

// Verdict says what became of a case in a metric.
type Verdict string

// The verdicts. Slower, More and Changed are regressions.
const (
	Slower  Verdict = "slower"
	Faster  Verdict = "faster"
	Same    Verdict = "same"
	More    Verdict = "more"    // of an exact metric: memory
	Less    Verdict = "less"    //
	Changed Verdict = "changed" // of the loss: other bits
	Unclear Verdict = "unclear" // too noisy: a slowdown of twice the threshold would not have been found
	Machine Verdict = "machine" // the control moved too, against what is stored of it: not the code
	Broken  Verdict = "failed"
	Missing Verdict = "missing" // there was no run, but the baseline has some
	New     Verdict = "new"     // the baseline does not have the case
)

// Regressed says whether the verdict ends a nightly with code 9.
func (v Verdict) Regressed() bool { return v == Slower || v == More || v == Changed }

// Incomplete says whether the verdict ends a nightly with code 10.
func (v Verdict) Incomplete() bool { return v == Broken || v == Missing }

// DefaultThreshold is the change of a median from which on it counts.
const DefaultThreshold = 0.05

// Significance levels of the rule. The first look has five runs a side, of which p can be 0.008.
const (
	suspectShare = 2.0 / 3 // of the threshold: from there on as many runs again are worth it
	suspectP     = 0.05
	firstP       = 0.01
	secondP      = 0.002
	enoughRuns   = 10 // runs a side from which on secondP holds
)

// Judgement is the outcome of the rule.
type Judgement struct {
	Verdict  Verdict
	Ratio    float64 // median of the candidate over that of the control; above 1: slower, or less of what is better
	Interval stats.Interval
	P        float64
	N, M     int // runs of candidate and control
	// Least is the smallest change that would have been found with this noise; Inf: none.
	Least float64
	// Suspect: as many runs again should be made before the verdict stands.
	Suspect bool
}

// Judge compares the runs of a candidate with those of its control, made in the same rounds. Values
// are of a metric of which less is better. A change counts above the threshold with p < 0.01, and
// with ten runs a side or more with p < 0.002. A slowdown from two thirds of the threshold with
// p < 0.05 is suspect: fewer than ten runs cannot rule it out.
func Judge(candidate, control []float64, threshold float64, seed uint64) Judgement {
	j := Judgement{Verdict: Missing, Ratio: math.NaN(), P: 1, N: len(candidate), M: len(control), Interval: stats.MedianInterval(nil, 0.95)}
	if j.N == 0 || j.M == 0 {
		return j
	}
	j.Ratio = stats.Median(candidate) / stats.Median(control)
	j.P = stats.UTest(candidate, control)
	j.Interval = stats.RatioInterval(candidate, control, seed)
	j.Least = leastFound(candidate, control, threshold, j.limit())
	j.decide(threshold)
	return j
}

// limit is the p below which a change counts.
func (j *Judgement) limit() float64 {
	if min(j.N, j.M) >= enoughRuns {
		return secondP
	}
	return firstP
}

// decide fills in the verdict from the figures.
func (j *Judgement) decide(threshold float64) {
	j.Suspect = min(j.N, j.M) < enoughRuns && j.Ratio > 1+threshold*suspectShare && j.P < suspectP
	switch {
	case math.IsNaN(j.Ratio) || math.IsInf(j.Ratio, 0):
		j.Verdict = Unclear
	case j.Ratio > 1+threshold && j.P < j.limit():
		j.Verdict = Slower
	case j.Ratio < 1/(1+threshold) && j.P < j.limit():
		j.Verdict = Faster
	case j.Suspect || j.Least > 2*threshold:
		j.Verdict = Unclear
	default:
		j.Verdict = Same
	}
}

// leastFound returns the smallest share by which a candidate as scattered as this one could be slower
// and would be found: its runs are laid around the control's median and slowed down until the rule fires.
func leastFound(candidate, control []float64, threshold, limit float64) float64 {
	centre := stats.Median(control) / stats.Median(candidate)
	fires := func(by float64) bool {
		moved := make([]float64, len(candidate))
		for i, x := range candidate {
			moved[i] = x * centre * (1 + by)
		}
		return stats.UTest(moved, control) < limit
	}
	lo, hi := threshold, threshold
	for !fires(hi) {
		if lo, hi = hi, hi*1.5; hi > 100 {
			return math.Inf(1)
		}
	}
	for range 20 {
		if hi-lo < 1e-3 {
			break
		}
		if mid := (lo + hi) / 2; fires(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi
}

// JudgeExact compares values of which every change is one: bytes, bits of a loss. Runs of one side
// that differ among themselves say nothing.
func JudgeExact(candidate, control []float64, memory bool) Judgement {
	j := Judgement{Verdict: Missing, Ratio: math.NaN(), P: math.NaN(), N: len(candidate), M: len(control), Interval: stats.MedianInterval(nil, 0.95)}
	if j.N == 0 || j.M == 0 {
		return j
	}
	a, b := candidate[0], control[0]
	j.Ratio = a / b
	alike := func(v []float64) bool {
		for _, x := range v {
			if math.Float64bits(x) != math.Float64bits(v[0]) {
				return false
			}
		}
		return true
	}
	switch {
	case !alike(candidate) || !alike(control):
		j.Verdict = Unclear
	case math.Float64bits(a) == math.Float64bits(b):
		j.Verdict = Same
	case !memory:
		j.Verdict = Changed
	case a > b:
		j.Verdict = More
	default:
		j.Verdict = Less
	}
	return j
}

// madsOfHistory is how many median distances above the median of past nights a median has to lie.
const madsOfHistory = 4

// JudgeHistory compares a night's median with those of past nights (at least ten), where no control
// could run: above the threshold, and above four median absolute deviations. It misses most changes
// where nights differ much, and false alarms are a few in a hundred.
func JudgeHistory(tonight []float64, nights []float64, threshold float64) Judgement {
	j := Judgement{Verdict: Missing, Ratio: math.NaN(), P: math.NaN(), N: len(tonight), M: len(nights), Interval: stats.MedianInterval(nil, 0.95)}
	if len(tonight) == 0 {
		return j
	}
	if len(nights) < 10 {
		j.Verdict = New
		return j
	}
	usual, away := stats.Median(nights), stats.MAD(nights)
	m := stats.Median(tonight)
	j.Ratio, j.Least = m/usual, max(threshold, madsOfHistory*away/usual)
	switch {
	case j.Ratio > 1+j.Least:
		j.Verdict = Slower
	case j.Ratio < 1-j.Least:
		j.Verdict = Faster
	case j.Least > 2*threshold:
		j.Verdict = Unclear
	default:
		j.Verdict = Same
	}
	return j
}
