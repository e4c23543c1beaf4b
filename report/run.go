package report

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pipetrain/pipetrain/chart"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/schedule"
	"github.com/pipetrain/pipetrain/stats"
	"github.com/pipetrain/pipetrain/study"
)

// run is a run's folder as its page shows it.
type run struct {
	dir         string
	job         string
	steps       []record.Metrics
	summary     record.Summary
	environment record.Environment
	lines       record.Timelines
	point       study.Point
}

// readRun reads a run folder. What the run did not come to write is left out of its page.
func readRun(dir string) (*run, error) {
	r := &run{dir: dir}
	p, err := study.ReadRun(dir)
	if err != nil {
		return nil, exitcode.With(exitcode.Environment, err)
	}
	r.point = p
	job, err := os.ReadFile(filepath.Join(dir, record.JobName))
	if err != nil {
		return nil, exitcode.With(exitcode.Environment, err)
	}
	r.job = string(job)
	// ReadRun has told of files that are damaged; one that is not there stays empty.
	r.steps, _ = record.ReadMetrics(filepath.Join(dir, record.MetricsName))
	r.summary, _ = record.ReadSummary(filepath.Join(dir, record.SummaryName))
	r.environment, _ = record.ReadEnvironment(filepath.Join(dir, record.EnvironmentName))
	r.lines, _ = record.ReadTimelines(dir)
	return r, nil
}

// from says what made the run's figures.
func (r *run) from() string {
	return fmt.Sprintf("pipetrain %s, %s on %s: %s", versionOf(r.environment.Version, r.environment.Commit), r.point.Device, r.point.Host, r.point.Command)
}

func versionOf(version, commit string) string {
	if commit == "" || strings.Contains(version, commit[:min(7, len(commit))]) {
		return version
	}
	return version + " (" + commit[:min(12, len(commit))] + ")"
}

// Run writes the page of a single run.
func Run(w io.Writer, dir string) error {
	r, err := readRun(dir)
	if err != nil {
		return err
	}
	p := &page{}
	s := r.summary
	p.head("Run "+filepath.Base(dir), fmt.Sprintf("%s, %s, %d ranks, %d micro-batches · %s", esc(s.Schedule), esc(s.BackwardP2), s.Ranks, s.Microbatches, esc(r.from())))
	if r.point.Status != study.Finished {
		p.add(`<div class="banner bad"><b class="bad">%s</b> (code %d): %s</div>`, esc(string(r.point.Status)), r.point.ExitCode, esc(r.point.Reason))
	}
	tiles := [][2]string{}
	tile := func(x study.Number, f func(float64) string, label string) {
		if x.Known() {
			tiles = append(tiles, [2]string{f(float64(x)), label})
		}
	}
	loss := func(x float64) string { return fmt.Sprintf("%.4f", x) }
	tile(r.point.LossLast, loss, fmt.Sprintf("last loss; the first was %s", loss(float64(r.point.LossFirst))))
	tile(r.point.StepSeconds, chart.Seconds, fmt.Sprintf("a step, median of %d", len(r.point.StepSecondsAll)))
	tile(r.point.TokensPerSecond, chart.Short, "tokens/s")
	tile(r.point.Bubble, chart.Percent, "bubble; predicted "+percent(r.point.BubblePlan))
	tile(r.point.Makespan, chart.Seconds, "makespan; predicted "+seconds(r.point.MakespanPlan))
	tile(r.point.PeakBytes, chart.Bytes, "memory of the fullest rank; planned "+size(r.point.PeakBytesPlan))
	tile(r.point.TFLOPS*1000, chart.Short, "GFLOP/s, all ranks")
	tile(r.point.MFU, chart.Percent, "MFU")
	p.tiles(tiles...)
	p.add(`<div class="grid">`)
	for _, f := range r.figures() {
		p.figure(f)
	}
	p.add(`</div>`)
	p.h2("Environment")
	p.add(`<div class="scroll">`)
	p.table([]string{"what:", "value:"}, r.environmentRows())
	p.add(`</div>`)
	p.more("the job, every key", r.job)
	return p.write(w)
}

func percent(x study.Number) string {
	if !x.Known() {
		return "not known"
	}
	return chart.Percent(float64(x))
}

func seconds(x study.Number) string {
	if !x.Known() {
		return "not known"
	}
	return chart.Seconds(float64(x))
}

func size(x study.Number) string {
	if !x.Known() {
		return "not known"
	}
	return chart.Bytes(float64(x))
}

func (r *run) environmentRows() [][]string {
	e := r.environment
	rows := [][]string{{"version", versionOf(e.Version, e.Commit)}, {"command", strings.Join(e.Command, " ")}, {"started", e.Started.UTC().Format("2006-01-02 15:04:05 MST")},
		{"nodes", strings.Join(e.Nodes, ", ")}, {"Go, system", e.Go + ", " + e.OS + "/" + e.Arch}}
	for i, h := range e.Hosts {
		if i == 0 || h.Name != e.Hosts[i-1].Name {
			rows = append(rows, []string{"host " + h.Name, fmt.Sprintf("%s, %d of %d cores, %s, %s, %s", h.CPU, h.Cores, h.CoresHost, chart.Bytes(float64(h.MemoryBytes)), h.Kernel, h.Distribution)})
		}
	}
	for name, m := range map[string]map[string]string{"device": e.Device, "transport": e.Transport} {
		var parts []string
		for k, v := range m {
			parts = append(parts, k+" "+v)
		}
		slices.Sort(parts)
		rows = append(rows, []string{name, strings.Join(parts, ", ")})
	}
	return rows
}

// figures of a run's page.
func (r *run) figures() []figure {
	var out []figure
	add := func(f figure, ok bool) {
		if ok {
			f.from = r.from()
			out = append(out, f)
		}
	}
	add(r.lossFigure())
	add(r.stepFigure())
	add(r.bubbleFigure())
	add(memoryFigure("memory", "Memory of each rank at its peak, by what it is for", r.memoryRows()))
	for _, part := range []struct {
		name string
		line record.Timeline
	}{{"measured", r.lines.Measured}, {"predicted", r.lines.Predicted}} {
		add(timelineFigure("timeline-"+part.name, "A step as "+part.name, part.line, max(r.lines.Measured.Makespan, r.lines.Predicted.Makespan)))
	}
	return out
}

func (r *run) lossFigure() (figure, bool) {
	if r.point.LossHash == "" || len(r.steps) < 2 {
		return figure{}, false
	}
	f := figure{name: "loss", title: fmt.Sprintf("The loss went from %.4f to %.4f in %d steps", float64(r.point.LossFirst), float64(r.point.LossLast), len(r.steps)), head: []string{"step", "loss", "gradient norm", "learning rate"}}
	var line chart.Series
	for _, m := range r.steps {
		line.Points = append(line.Points, chart.Point{X: float64(m.Step), Y: m.Loss, Lo: math.NaN(), Hi: math.NaN()})
		f.rows = append(f.rows, []string{fmt.Sprint(m.Step), fmt.Sprintf("%.6g", m.Loss), fmt.Sprintf("%.4g", m.GradNorm), fmt.Sprintf("%.4g", m.LR)})
	}
	line.Points = thin(line.Points, 400)
	f.svg = chart.Lines{Finding: f.title, X: "step", Y: "loss", Plain: true, Series: []chart.Series{line}}.SVG()
	f.rows = thin(f.rows, 100)
	return f, true
}

// thin leaves out values of a long series evenly; the last one stays.
func thin[T any](v []T, most int) []T {
	if len(v) <= most {
		return v
	}
	out := make([]T, 0, most)
	for i := range most - 1 {
		out = append(out, v[i*len(v)/(most-1)])
	}
	return append(out, v[len(v)-1])
}

func (r *run) stepFigure() (figure, bool) {
	if len(r.steps) < 2 {
		return figure{}, false
	}
	var line, middle chart.Series
	f := figure{name: "steps", head: []string{"step", "step time", "makespan", "bubble"}}
	var all []float64
	for _, m := range r.steps {
		all = append(all, m.StepSeconds)
		line.Points = append(line.Points, chart.Point{X: float64(m.Step), Y: m.StepSeconds, Lo: math.NaN(), Hi: math.NaN()})
		f.rows = append(f.rows, []string{fmt.Sprint(m.Step), chart.Seconds(m.StepSeconds), chart.Seconds(m.MakespanSeconds), chart.Percent(m.Bubble)})
	}
	m := stats.Median(all)
	f.title = fmt.Sprintf("A step took %s in the middle, %s to %s", chart.Seconds(m), chart.Seconds(slices.Min(all)), chart.Seconds(slices.Max(all)))
	middle = chart.Series{Name: "median", Plan: true, Points: []chart.Point{{X: line.Points[0].X, Y: m, Lo: math.NaN(), Hi: math.NaN()}, {X: line.Points[len(line.Points)-1].X, Y: m, Lo: math.NaN(), Hi: math.NaN()}}}
	line.Points = thin(line.Points, 400)
	f.svg = chart.Lines{Finding: f.title, X: "step", Y: "time of a step", Plain: true, Zero: true, Format: chart.Seconds, Series: []chart.Series{line, middle}}.SVG()
	f.rows = thin(f.rows, 100)
	return f, true
}

// causes are the parts of idle time in words.
var causes = map[string]string{"warmup": "warm-up", "dependency": "dependency", "transfer": "transfer", "other": "jitter, reductions", "drain": "drain"}

func (r *run) bubbleFigure() (figure, bool) {
	plan, real := r.point.IdlePartsPlan, r.point.IdleParts
	if len(real) == 0 {
		return figure{}, false
	}
	return idleFigure("bubble", fmt.Sprintf("Idle time by cause: the bubble is %s, predicted %s", percent(r.point.Bubble), percent(r.point.BubblePlan)),
		[]idleRow{{"", plan, real}}), true
}

// idleRow is idle time predicted and measured.
type idleRow struct {
	name       string
	plan, real map[string]study.Number
}

func idleFigure(name, title string, rows []idleRow) figure {
	f := figure{name: name, title: title, head: []string{"case:", "cause:", "predicted", "measured"}}
	b := chart.Bars{Finding: title, X: "idle seconds of a step, all ranks; p: predicted, m: measured", Format: chart.Seconds}
	for _, c := range study.IdleCauses {
		b.Parts = append(b.Parts, causes[c])
	}
	for _, r := range rows {
		values := func(m map[string]study.Number) (v []float64) {
			for _, c := range study.IdleCauses {
				x, ok := m[c]
				if !ok || !x.Known() {
					x = study.Number(math.NaN())
				}
				v = append(v, float64(x))
			}
			return v
		}
		g := chart.Group{Name: r.name}
		if len(r.plan) > 0 {
			g.Bars = append(g.Bars, chart.Bar{Name: "predicted", Values: values(r.plan)})
		}
		g.Bars = append(g.Bars, chart.Bar{Name: "measured", Values: values(r.real)})
		b.Groups = append(b.Groups, g)
		for _, c := range study.IdleCauses {
			cell := func(m map[string]study.Number) string {
				if x, ok := m[c]; ok {
					return seconds(x)
				}
				return ""
			}
			f.rows = append(f.rows, []string{r.name, causes[c], cell(r.plan), cell(r.real)})
		}
	}
	f.svg = b.SVG()
	return f
}

// memoryRow is a bar of memory by category.
type memoryRow struct {
	name string
	by   map[string]float64
}

func (r *run) memoryRows() []memoryRow {
	var out []memoryRow
	for i, m := range r.summary.PeakBytesByCategory {
		row := memoryRow{fmt.Sprintf("rank %d", i), map[string]float64{}}
		for k, v := range m {
			row.by[k] = float64(v)
		}
		if out = append(out, row); len(out) == 32 {
			break
		}
	}
	return out
}

func memoryFigure(name, title string, rows []memoryRow) (figure, bool) {
	if len(rows) == 0 {
		return figure{}, false
	}
	total := map[string]float64{}
	for _, r := range rows {
		for k, v := range r.by {
			total[k] += v
		}
	}
	var parts []string
	for k := range total {
		parts = append(parts, k)
	}
	slices.SortFunc(parts, func(a, b string) int {
		if total[a] != total[b] {
			return int(math.Copysign(1, total[b]-total[a]))
		}
		return strings.Compare(a, b)
	})
	f := figure{name: name, title: title, head: append([]string{"of:"}, parts...)}
	b := chart.Bars{Finding: title, X: "bytes", Parts: parts, Format: chart.Bytes, Binary: true}
	for _, r := range rows {
		var v []float64
		line := []string{r.name}
		for _, k := range parts {
			v = append(v, r.by[k])
			line = append(line, chart.Bytes(r.by[k]))
		}
		b.Groups = append(b.Groups, chart.Group{Name: r.name, Bars: []chart.Bar{{Values: v}}})
		f.rows = append(f.rows, line)
	}
	f.svg = b.SVG()
	return f, true
}

// timelineFigure draws a step; span is the time that the whole width has.
func timelineFigure(name, title string, line record.Timeline, span float64) (figure, bool) {
	t, err := line.Schedule()
	if err != nil || t == nil {
		return figure{}, false
	}
	title = fmt.Sprintf("%s: %s, bubble %s", title, chart.Seconds(line.Makespan), chart.Percent(line.Bubble))
	c := chart.Timeline{Finding: title, Ranks: t.Ranks, Span: span}
	for _, e := range t.Events {
		c.Ops = append(c.Ops, chart.Op{Rank: e.Rank, Kind: e.Op.Kind.String(), Text: opText(e.Op), Start: e.Start, End: e.End})
	}
	return figure{name: name, title: title, svg: c.SVG(), wide: true}, true
}

// opText is an op as a rectangle shows it: without the stage, which its row tells in most schedules.
func opText(o schedule.Op) string {
	switch o.Kind {
	case schedule.ReduceGrad:
		return "R"
	case schedule.Update:
		return "U"
	}
	if o.Last > o.First {
		return fmt.Sprintf("%s%d-%d", o.Kind, o.First, o.Last)
	}
	return fmt.Sprintf("%s%d", o.Kind, o.First)
}
