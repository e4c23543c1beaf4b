package report

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"

	"github.com/pipetrain/pipetrain/chart"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/stats"
	"github.com/pipetrain/pipetrain/study"
)

// nightFigures draws medians over the nights, a chart a case and metric that is no exact one, with steps.
func nightFigures(all []study.Night, most int) []figure {
	var order []string
	of := map[string][]study.Night{}
	for _, n := range all {
		if m, ok := study.MetricOf(n.Metric); !ok || m.Exact {
			continue
		}
		key := n.Study + "\x00" + n.Case + "\x00" + n.Metric
		if of[key] == nil {
			order = append(order, key)
		}
		of[key] = append(of[key], n)
	}
	var out []figure
	for i, key := range order {
		nights := of[key]
		if len(nights) < 2 || len(out) == most {
			continue
		}
		out = append(out, nightFigure(fmt.Sprintf("nights-%d", i), nights))
	}
	return out
}

func nightFigure(name string, nights []study.Night) figure {
	last := nights[len(nights)-1]
	format := formatOf(last.Unit)
	f := figure{name: name, head: []string{"night:", "commit:", "host:", "median", "low", "high", "runs", "verdict:"}}
	line := chart.Series{Name: last.Label}
	labels := map[float64]string{}
	var values []float64
	for i, n := range nights {
		x := float64(i)
		line.Points = append(line.Points, chart.Point{X: x, Y: float64(n.Median), Lo: float64(n.Lo), Hi: float64(n.Hi)})
		labels[x] = n.Time.Format("01-02")
		values = append(values, float64(n.Median))
		f.rows = append(f.rows, []string{n.Night, versionOf(n.Version, n.Commit), n.Host, cell(n.Median, format), cell(n.Lo, format), cell(n.Hi, format), fmt.Sprint(n.N), string(n.Verdict)})
	}
	levels := stats.Steps(values, stats.StepPenalty(values))
	c := chart.Lines{X: "night", Y: last.Metric, Format: format, XLabels: labels, Series: []chart.Series{line}}
	for _, l := range levels {
		c.Series = append(c.Series, chart.Series{Name: "level", Plan: true, Of: 1, Points: []chart.Point{{X: float64(l.First), Y: l.Median, Lo: math.NaN(), Hi: math.NaN()}, {X: float64(l.End - 1), Y: l.Median, Lo: math.NaN(), Hi: math.NaN()}}})
	}
	f.title = fmt.Sprintf("%s of %s over %d nights: no step", last.Metric, last.Label, len(nights))
	if len(levels) > 1 {
		var steps []string
		for i, l := range levels[1:] {
			steps = append(steps, fmt.Sprintf("× %.3f on %s (%s to %s)", l.Median/levels[i].Median, nights[l.First].Time.Format("2006-01-02"), versionOf(nights[l.First-1].Version, nights[l.First-1].Commit), versionOf(nights[l.First].Version, nights[l.First].Commit)))
		}
		f.title = fmt.Sprintf("%s of %s over %d nights: %s", last.Metric, last.Label, len(nights), strings.Join(steps, "; "))
	}
	c.Finding = f.title
	f.svg = c.SVG()
	f.from = fmt.Sprintf("pipetrain %s on %s, the last night; pipetrain study %s", versionOf(last.Version, last.Commit), last.Host, last.Study)
	return f
}

// Nights writes the page of a folder of studies: every case over the nights.
func Nights(w io.Writer, dir string) error {
	all, err := study.ReadHistory(filepath.Join(dir, study.HistoryName))
	if err != nil {
		return exitcode.With(exitcode.Environment, err)
	}
	if len(all) == 0 {
		return exitcode.Errorf(exitcode.Usage, "%s holds no nights: it has no %s; name a run, a study or a folder of studies", dir, study.HistoryName)
	}
	p := &page{}
	last := all[len(all)-1]
	p.head("Nights of "+filepath.Base(dir), esc(fmt.Sprintf("until %s · pipetrain %s on %s; steps are shown, never judged", last.Time.Format("2006-01-02 15:04"), versionOf(last.Version, last.Commit), last.Host)))
	p.add(`<div class="grid">`)
	figures := nightFigures(all, 200)
	for _, f := range figures {
		p.figure(f)
	}
	p.add(`</div>`)
	if len(figures) == 0 {
		p.add(`<p>One night: charts begin with the second.</p>`)
	}
	return p.write(w)
}
