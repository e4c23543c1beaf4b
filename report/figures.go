package report

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/pipetrain/pipetrain/chart"
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/study"
)

// Most rows, lines and timelines of a chart: beyond, tables say the rest.
const (
	mostBars      = 60
	mostLines     = 8
	mostTimelines = 12
)

// figures of a study's page.
func (s *studyPage) figures() []figure {
	var own []study.Summary // the candidate's
	for _, x := range s.Summaries {
		if x.Binary == study.Candidate && x.N > 0 {
			own = append(own, x)
		}
	}
	var out []figure
	add := func(f figure, ok bool) {
		if ok {
			f.from = s.from
			out = append(out, f)
		}
	}
	add(s.scaling(own, "speedup", "Speed-up", func(x study.Summary) chart.Point {
		return chart.Point{Y: float64(x.SpeedUp), Lo: x.SpeedUpInterval.Lo, Hi: x.SpeedUpInterval.Hi}
	}, chart.Short, true))
	add(s.scaling(own, "efficiency", "Efficiency", func(x study.Summary) chart.Point {
		return chart.Point{Y: float64(x.Efficiency), Lo: math.NaN(), Hi: math.NaN()}
	}, chart.Percent, false))
	add(stepTimes(own))
	add(bubbles(own))
	add(idle(own))
	add(memories(own))
	add(tradeoff(own))
	add(s.losses(own))
	for _, f := range s.timelines(own) {
		add(f, true)
	}
	for _, f := range nightFigures(s.Nights, 12) {
		add(f, true)
	}
	return out
}

// seriesOf returns the names of series in their order.
func seriesOf(all []study.Summary) []string {
	var names []string
	for _, x := range all {
		if !slices.Contains(names, x.Series) {
			names = append(names, x.Series)
		}
	}
	return names
}

// scaling draws a figure over the ranks, a line a series, with what the planner predicts and the ideal.
func (s *studyPage) scaling(all []study.Summary, name, what string, of func(study.Summary) chart.Point, format func(float64) string, ideal bool) (figure, bool) {
	base := s.Base()
	lo, hi := math.MaxInt, 0
	for _, x := range all {
		lo, hi = min(lo, x.Ranks), max(hi, x.Ranks)
	}
	if base == nil || lo >= hi || !base.SpeedUp.Known() {
		return figure{}, false
	}
	f := figure{name: name, head: []string{"case:", "ranks", what, "low", "high", "predicted"}}
	c := chart.Lines{X: "ranks", Y: what + " relative to " + base.Label, Log2: true, Zero: true, Format: format}
	best, bestLabel := 0.0, ""
	for i, series := range seriesOf(all) {
		line, plan := chart.Series{Name: series}, chart.Series{Name: series + ", predicted", Plan: true, Of: i}
		if line.Name == "" {
			line.Name = s.File.Name
		}
		for _, x := range all {
			if x.Series != series || !x.SpeedUp.Known() {
				continue
			}
			p := of(x)
			p.X = float64(x.Ranks)
			line.Points = append(line.Points, p)
			predicted := float64(x.SpeedUpPlan)
			if !ideal {
				predicted *= float64(base.Ranks) / float64(x.Ranks)
			}
			plan.Points = append(plan.Points, chart.Point{X: p.X, Y: predicted, Lo: math.NaN(), Hi: math.NaN()})
			if x.Ranks == hi && p.Y > best {
				best, bestLabel = p.Y, x.Label
			}
			f.rows = append(f.rows, []string{x.Label, fmt.Sprint(x.Ranks), format(p.Y), nan(p.Lo, format), nan(p.Hi, format), nan(predicted, format)})
		}
		if len(c.Series) < 2*mostLines {
			slices.SortStableFunc(line.Points, func(a, b chart.Point) int { return int(a.X - b.X) })
			slices.SortStableFunc(plan.Points, func(a, b chart.Point) int { return int(a.X - b.X) })
			c.Series = append(c.Series, line, plan)
		}
	}
	if ideal {
		n := float64(base.Ranks)
		c.Series = append(c.Series, chart.Series{Name: "ideal", Plan: true, Of: 7, Points: []chart.Point{{X: float64(lo), Y: float64(lo) / n, Lo: math.NaN(), Hi: math.NaN()}, {X: float64(hi), Y: float64(hi) / n, Lo: math.NaN(), Hi: math.NaN()}}})
	}
	f.title = fmt.Sprintf("%s: %s at best on %d ranks, by %s; thin: predicted%s", what, format(best), hi, bestLabel, map[bool]string{true: " and ideal"}[ideal])
	c.Finding = f.title
	f.svg = c.SVG()
	return f, true
}

func nan(x float64, format func(float64) string) string {
	if math.IsNaN(x) {
		return ""
	}
	return format(x)
}

func stepTimes(all []study.Summary) (figure, bool) {
	if len(all) == 0 || len(all) > mostBars {
		return figure{}, false
	}
	fast := slices.MinFunc(all, func(a, b study.Summary) int { return compare(a.StepSeconds, b.StepSeconds) })
	f := figure{name: "steps", title: fmt.Sprintf("The fastest step is that of %s: %s", fast.Label, seconds(fast.StepSeconds)), head: []string{"case:", "step", "low", "high", "runs"}}
	b := chart.Bars{Finding: f.title, X: "time of a step, median of the runs", Parts: []string{"step time"}, Format: chart.Seconds}
	for _, x := range all {
		b.Groups = append(b.Groups, chart.Group{Name: x.Label, Bars: []chart.Bar{{Values: []float64{float64(x.StepSeconds)}}}})
		f.rows = append(f.rows, []string{x.Label, seconds(x.StepSeconds), chart.Seconds(x.Interval.Lo), chart.Seconds(x.Interval.Hi), fmt.Sprint(x.N)})
	}
	f.svg = b.SVG()
	return f, true
}

func compare(a, b study.Number) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func bubbles(all []study.Summary) (figure, bool) {
	f := figure{name: "bubble", head: []string{"case:", "predicted", "measured"}}
	b := chart.Bars{X: "bubble: idle share of ranks × makespan", Parts: []string{"predicted", "measured"}, Side: true, Format: chart.Percent}
	worst := 0.0
	for _, x := range all {
		if !x.Bubble.Known() || !x.BubblePlan.Known() {
			continue
		}
		worst = max(worst, math.Abs(float64(x.Bubble-x.BubblePlan)))
		b.Groups = append(b.Groups, chart.Group{Name: x.Label, Bars: []chart.Bar{{Values: []float64{float64(x.BubblePlan), float64(x.Bubble)}}}})
		f.rows = append(f.rows, []string{x.Label, percent(x.BubblePlan), percent(x.Bubble)})
	}
	if len(b.Groups) == 0 || len(b.Groups) > mostBars {
		return f, false
	}
	f.title = fmt.Sprintf("The bubble is at most %.1f points from what was predicted", 100*worst)
	b.Finding = f.title
	f.svg = b.SVG()
	return f, true
}

func idle(all []study.Summary) (figure, bool) {
	var rows []idleRow
	for _, x := range all {
		if len(x.IdleParts) > 0 && x.Ranks > 1 {
			rows = append(rows, idleRow{x.Label, x.IdlePartsPlan, x.IdleParts})
		}
	}
	if len(rows) == 0 || len(rows) > mostBars/2 {
		return figure{}, false
	}
	return idleFigure("idle", "Idle time of a step by cause, predicted above measured", rows), true
}

func memories(all []study.Summary) (figure, bool) {
	var rows []memoryRow
	var least *study.Summary
	for i, x := range all {
		row := memoryRow{x.Label, map[string]float64{}}
		for k, v := range x.Memory {
			row.by[k] = float64(v)
		}
		if len(row.by) > 0 {
			rows = append(rows, row)
		}
		if x.PeakBytes.Known() && (least == nil || x.PeakBytes < least.PeakBytes) {
			least = &all[i]
		}
	}
	if least == nil || len(rows) > mostBars {
		return figure{}, false
	}
	return memoryFigure("memory", fmt.Sprintf("Memory of the fullest rank at its peak; the least is that of %s: %s", least.Label, size(least.PeakBytes)), rows)
}

func tradeoff(all []study.Summary) (figure, bool) {
	c := chart.Scatter{X: "memory of the fullest rank", Y: "tokens/s", Names: seriesOf(all), Binary: true, FormatX: chart.Bytes, FormatY: chart.Short}
	if len(all) < 2 || len(c.Names) > mostLines {
		return figure{}, false
	}
	f := figure{name: "tradeoff", title: "Memory against throughput: up and to the left is better", head: []string{"case:", "memory", "tokens/s"}}
	c.Finding = f.title
	for _, x := range all {
		if x.PeakBytes.Known() && x.TokensPerSecond.Known() {
			c.Points = append(c.Points, chart.Dot{Series: slices.Index(c.Names, x.Series), Name: x.Label, X: float64(x.PeakBytes), Y: float64(x.TokensPerSecond)})
			f.rows = append(f.rows, []string{x.Label, size(x.PeakBytes), chart.Short(float64(x.TokensPerSecond))})
		}
	}
	if len(c.Points) < 2 {
		return f, false
	}
	f.svg = c.SVG()
	return f, true
}

func (s *studyPage) losses(all []study.Summary) (figure, bool) {
	f := figure{name: "losses", head: []string{"case:", "first loss", "last loss"}}
	c := chart.Lines{X: "step", Y: "loss", Plain: true}
	for _, x := range all {
		r := s.runs[x.Case]
		if r == nil || r.point.LossHash == "" {
			continue
		}
		f.rows = append(f.rows, []string{x.Label, fmt.Sprintf("%.6f", float64(r.point.LossFirst)), fmt.Sprintf("%.6f", float64(r.point.LossLast))})
		if len(c.Series) == mostLines {
			continue
		}
		line := chart.Series{Name: x.Label}
		for _, m := range thin(r.steps, 120) {
			line.Points = append(line.Points, chart.Point{X: float64(m.Step), Y: m.Loss, Lo: math.NaN(), Hi: math.NaN()})
		}
		c.Series = append(c.Series, line)
	}
	if len(c.Series) == 0 {
		return f, false
	}
	f.title = "Loss over the steps, of a run of each case"
	if len(f.rows) > mostLines {
		f.title = fmt.Sprintf("Loss over the steps, of the first %d cases", mostLines)
	}
	c.Finding = f.title
	f.svg = c.SVG()
	return f, true
}

// timelines draws a measured step of each series: of its case with the most ranks that a page has room for.
func (s *studyPage) timelines(all []study.Summary) []figure {
	var out []figure
	for _, pick := range s.picks(all) {
		f, ok := timelineFigure(fmt.Sprintf("timeline-%s", pick.Case), "A measured step of "+pick.Label, s.runs[pick.Case].lines.Measured, 0)
		if !ok {
			continue
		}
		folder := s.runs[pick.Case].point.Folder
		if rel, err := filepath.Rel(s.Dir, folder); err == nil {
			folder = rel
		}
		f.title += fmt.Sprintf(" (%s opens in Perfetto)", filepath.Join(folder, record.TraceName))
		out = append(out, f)
	}
	return out
}

// predicted draws the same steps as they were predicted, with one scale for all: for plots/, to be laid side by side.
func (s *studyPage) predicted() []figure {
	var own []study.Summary
	for _, x := range s.Summaries {
		if x.Binary == study.Candidate && x.N > 0 {
			own = append(own, x)
		}
	}
	var out []figure
	span := 0.0
	picks := s.picks(own)
	for _, pick := range picks {
		span = max(span, s.runs[pick.Case].lines.Predicted.Makespan)
	}
	for _, pick := range picks {
		if f, ok := timelineFigure(fmt.Sprintf("timeline-%s-predicted", pick.Case), "The predicted step of "+pick.Label, s.runs[pick.Case].lines.Predicted, span); ok {
			out = append(out, f)
		}
	}
	return out
}

// picks are the cases whose timelines are drawn, one a series.
func (s *studyPage) picks(all []study.Summary) []study.Summary {
	var out []study.Summary
	for _, name := range seriesOf(all) {
		var pick *study.Summary
		for i, x := range all {
			if x.Series == name && s.runs[x.Case] != nil && x.Ranks <= 16 && (pick == nil || x.Ranks > pick.Ranks) {
				pick = &all[i]
			}
		}
		if pick != nil && len(out) < mostTimelines {
			out = append(out, *pick)
		}
	}
	return out
}
