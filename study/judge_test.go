package study

import "github.com/pipetrain/pipetrain/stats"

// quickJudge is the rule of Judge without the figures that only a report needs.
func quickJudge(candidate, control []float64) Judgement {
	j := Judgement{N: len(candidate), M: len(control)}
	j.Ratio, j.P = stats.Median(candidate)/stats.Median(control), stats.UTest(candidate, control)
	j.decide(DefaultThreshold)
	return j
}

func ulow(a, b []float64) bool { return stats.UTest(a, b) < 0.05 }
