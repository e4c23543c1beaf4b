package study

import (
	"slices"
	"strings"

	"github.com/pipetrain/pipetrain/stats"
)

// Summary is one case with one binary in figures. Medians are over the runs that count.
type Summary struct {
	Case, Label, Binary string
	Series, Size        string // its labels on the axes that do not change the ranks, and on those that do
	Keys                map[string]any
	Ranks, N            int
	StepSeconds         Number
	Interval            stats.Interval // of StepSeconds
	TokensPerSecond     Number
	Makespan            Number
	MakespanPlan        Number
	Bubble              Number
	BubblePlan          Number
	IdleParts           map[string]Number
	IdlePartsPlan       map[string]Number
	PeakBytes           Number
	PeakBytesPlan       Number
	Memory              map[string]Number
	TFLOPS, MFU         Number
	LossLast            Number
	// SpeedUp is the work rate over the base case's, Efficiency the same a rank; both with the base's own as 1. Work
	// is the operations of the layers in a step, so that strong and weak scaling have one formula.
	SpeedUp, Efficiency Number
	SpeedUpInterval     stats.Interval
	SpeedUpPlan         Number // by the planner's makespans
	Points              []Point
	Estimate            Estimate
}

// summarise returns the figures of the cases in their order, candidate before control.
func (r *runner) summarise() []Summary {
	var out []Summary
	for _, binary := range []string{Candidate, Control} {
		for _, c := range r.o.Cases {
			if s, ok := r.summaryOf(c, binary); ok {
				out = append(out, s)
			}
		}
	}
	r.scale(out)
	return out
}

func (r *runner) summaryOf(c *Case, binary string) (Summary, bool) {
	s := Summary{Case: c.ID, Label: c.Label, Binary: binary, Keys: c.Keys, Ranks: c.Ranks(), SpeedUp: Unknown, Efficiency: Unknown, SpeedUpPlan: Unknown, Estimate: r.estimates[c.ID]}
	s.Series, s.Size = r.o.Study.series(c)
	any := false
	for _, p := range r.all {
		if p.Case == c.ID && p.Binary == binary {
			any = true
			if p.Counts() {
				s.Points = append(s.Points, p)
			}
		}
	}
	s.N = len(s.Points)
	over := func(of func(*Point) Number) (v []float64) {
		for i := range s.Points {
			if x := of(&s.Points[i]); x.Known() {
				v = append(v, float64(x))
			}
		}
		return v
	}
	middle := func(of func(*Point) Number) Number { return median(over(of)) }
	s.StepSeconds = middle(func(p *Point) Number { return p.StepSeconds })
	s.Interval = stats.MedianInterval(over(func(p *Point) Number { return p.StepSeconds }), confidence)
	s.TokensPerSecond = middle(func(p *Point) Number { return p.TokensPerSecond })
	s.Makespan, s.MakespanPlan = middle(func(p *Point) Number { return p.Makespan }), middle(func(p *Point) Number { return p.MakespanPlan })
	s.Bubble, s.BubblePlan = middle(func(p *Point) Number { return p.Bubble }), middle(func(p *Point) Number { return p.BubblePlan })
	s.PeakBytes, s.PeakBytesPlan = middle(func(p *Point) Number { return p.PeakBytes }), middle(func(p *Point) Number { return p.PeakBytesPlan })
	s.TFLOPS, s.MFU = middle(func(p *Point) Number { return p.TFLOPS }), middle(func(p *Point) Number { return p.MFU })
	s.LossLast = middle(func(p *Point) Number { return p.LossLast })
	if s.N > 0 {
		s.Memory = s.Points[0].Memory
		s.IdleParts, s.IdlePartsPlan = medians(s.Points, func(p *Point) map[string]Number { return p.IdleParts }), medians(s.Points, func(p *Point) map[string]Number { return p.IdlePartsPlan })
	}
	return s, any
}

// medians returns the medians by name of figures that several points have.
func medians(points []Point, of func(*Point) map[string]Number) map[string]Number {
	out := map[string]Number{}
	for name := range of(&points[0]) {
		var v []float64
		for i := range points {
			if x, ok := of(&points[i])[name]; ok && x.Known() {
				v = append(v, float64(x))
			}
		}
		out[name] = median(v)
	}
	return out
}

// series returns the case's labels on the axes that leave its ranks as they are, and on those that
// change them.
func (f *File) series(c *Case) (series, size string) {
	var same, other []string
	for n, a := range f.Axes {
		if slices.ContainsFunc(a.Keys, func(k string) bool { return strings.HasPrefix(k, "parallel.") }) {
			other = append(other, c.Points[n])
		} else {
			same = append(same, c.Points[n])
		}
	}
	return strings.Join(same, ", "), strings.Join(other, ", ")
}

// baseOf returns the case that others are compared with: scaling.base, else of those with the fewest ranks the
// first that ran.
func (f *File) baseOf(all []Summary) *Summary {
	var base *Summary
	for i := range all {
		s := &all[i]
		switch {
		case s.Binary != Candidate || s.N == 0:
		case f.Scaling.Base != "":
			if s.Label == f.Scaling.Base {
				return s
			}
		case base == nil || s.Ranks < base.Ranks:
			base = s
		}
	}
	return base
}

// scale fills in speed-ups and efficiencies.
func (r *runner) scale(all []Summary) {
	base := r.o.Study.baseOf(all)
	if base == nil || base.Estimate.FLOPs == 0 {
		return
	}
	seconds := func(s *Summary) (v []float64) {
		for _, p := range s.Points {
			v = append(v, float64(p.StepSeconds))
		}
		return v
	}
	for i := range all {
		s := &all[i]
		if s.N == 0 || !s.StepSeconds.Known() {
			continue
		}
		work := float64(s.Estimate.FLOPs) / float64(base.Estimate.FLOPs)
		s.SpeedUp = Number(work) * base.StepSeconds / s.StepSeconds
		s.Efficiency = s.SpeedUp * Number(base.Ranks) / Number(s.Ranks)
		ratio := stats.RatioInterval(seconds(base), seconds(s), seedOf(s.Case))
		s.SpeedUpInterval = stats.Interval{Lo: work * ratio.Lo, Hi: work * ratio.Hi, Level: ratio.Level}
		if s.Estimate.StepSeconds > 0 {
			s.SpeedUpPlan = Number(work * base.Estimate.StepSeconds / s.Estimate.StepSeconds)
		}
	}
}
