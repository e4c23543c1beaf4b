package study

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/record"
)

// Metric is a figure of a point that can be compared.
type Metric struct {
	Name string
	Unit string
	// Exact: any change is a change; else the values are timings, which scatter.
	Exact bool
	// Higher: more is better.
	Higher bool
	of     func(*Point) Number
}

// Metrics are the figures that compare and the gate know.
var Metrics = []Metric{
	{Name: "step_seconds", Unit: "sec/step", of: func(p *Point) Number { return p.StepSeconds }},
	{Name: "tokens_per_second", Unit: "tokens/sec", Higher: true, of: func(p *Point) Number { return p.TokensPerSecond }},
	{Name: "makespan", Unit: "sec/makespan", of: func(p *Point) Number { return p.Makespan }},
	{Name: "bubble", Unit: "bubble", of: func(p *Point) Number { return p.Bubble }},
	{Name: "peak_bytes", Unit: "B/rank", Exact: true, of: func(p *Point) Number { return p.PeakBytes }},
	{Name: "loss", Unit: "loss", Exact: true, of: func(p *Point) Number { return p.LossLast }},
	{Name: "tflops", Unit: "TFLOP/sec", Higher: true, of: func(p *Point) Number { return p.TFLOPS }},
	{Name: "mfu", Unit: "MFU", Higher: true, of: func(p *Point) Number { return p.MFU }},
}

// MetricOf returns the metric of a name.
func MetricOf(name string) (Metric, bool) {
	i := slices.IndexFunc(Metrics, func(m Metric) bool { return m.Name == name })
	if i < 0 {
		return Metric{}, false
	}
	return Metrics[i], true
}

// MetricNames lists the metrics' names.
func MetricNames() string {
	var names []string
	for _, m := range Metrics {
		names = append(names, m.Name)
	}
	return strings.Join(names, ", ")
}

// Value returns the metric's figure of a point.
func (m Metric) Value(p *Point) Number { return m.of(p) }

// Results is one side of a comparison: samples by case and unit. A sample's value is a run.
type Results struct {
	Name string // the path as given
	// From says what made the figures: version, commit, host, command.
	From    []string
	Points  []Point // empty of Go benchmarks
	cases   []string
	units   []string
	samples map[[2]string][]float64
	failed  map[string]int // attempts of a case that did not finish
}

func newResults(name string) *Results {
	return &Results{Name: name, samples: map[[2]string][]float64{}, failed: map[string]int{}}
}

func (r *Results) add(name, unit string, x float64) {
	if !slices.Contains(r.cases, name) {
		r.cases = append(r.cases, name)
	}
	if !slices.Contains(r.units, unit) {
		r.units = append(r.units, unit)
	}
	r.samples[[2]string{name, unit}] = append(r.samples[[2]string{name, unit}], x)
}

// Sample returns the values of a case in a unit.
func (r *Results) Sample(name, unit string) []float64 { return r.samples[[2]string{name, unit}] }

// IsRun says whether dir is the folder of a single run.
func IsRun(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, record.MetricsName))
	return err == nil
}

// ReadResults reads what a path holds: a study's or baseline's folder, a run's folder, a points.jsonl,
// or a text with the results of Go benchmarks.
func ReadResults(path string) (*Results, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, exitcode.Errorf(exitcode.Usage, "%s: there is no such folder or file", path)
	case err != nil:
		return nil, exitcode.With(exitcode.Environment, err)
	case !info.IsDir() && filepath.Base(path) == PointsName:
		return readPointResults(path, filepath.Dir(path))
	case !info.IsDir():
		return readBenchmarks(path)
	case IsRun(path):
		return readRunResults(path)
	}
	if _, err := os.Stat(filepath.Join(path, PointsName)); err != nil {
		return nil, exitcode.Errorf(exitcode.Usage, "%s holds neither a study nor a run: no %s, no %s", path, PointsName, record.MetricsName)
	}
	return readPointResults(path, path)
}

func readPointResults(name, dir string) (*Results, error) {
	points, err := ReadPoints(dir)
	if err != nil {
		return nil, exitcode.With(exitcode.Environment, err)
	}
	r := newResults(name)
	r.Points = points
	for i := range points {
		r.addPoint(&points[i])
	}
	return r, nil
}

func readRunResults(dir string) (*Results, error) {
	p, err := ReadRun(dir)
	if err != nil {
		return nil, exitcode.With(exitcode.Environment, err)
	}
	r := newResults(dir)
	r.Points = []Point{p}
	r.addPoint(&p)
	return r, nil
}

// addPoint takes the candidate's counted runs; a baseline's points are its candidate's.
func (r *Results) addPoint(p *Point) {
	if p.Warmup || p.Binary == Control {
		return
	}
	if p.Status != Finished {
		if p.Status != Impossible {
			r.failed[p.Label]++
		}
		return
	}
	for _, m := range Metrics {
		if v := m.of(p); v.Known() {
			r.add(p.Label, m.Unit, float64(v))
		}
	}
	if from := fmt.Sprintf("pipetrain %s (%s), %s on %s", p.Version, cmp.Or(short(p.Commit), "no commit"), p.Device, p.Host); !slices.Contains(r.From, from) {
		r.From = append(r.From, from)
	}
}

func short(commit string) string { return commit[:min(12, len(commit))] }

// readBenchmarks reads Go's benchmark format (https://go.dev/design/14313-benchmark-format).
func readBenchmarks(path string) (*Results, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, exitcode.With(exitcode.Environment, err)
	}
	defer f.Close()
	r := newResults(path)
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		text := s.Text()
		if rest, ok := strings.CutPrefix(text, "Benchmark"); ok {
			r.addBenchmark(strings.Fields(rest))
			continue
		}
		if key, value, ok := strings.Cut(text, ": "); ok && slices.Contains([]string{"commit", "cpu", "goos", "goarch", "cores", "version", "command", "host"}, key) {
			if from := key + " " + strings.TrimSpace(value); !slices.Contains(r.From, from) {
				r.From = append(r.From, from)
			}
		}
	}
	if err := s.Err(); err != nil {
		return nil, exitcode.With(exitcode.Environment, fmt.Errorf("%s: %w", path, err))
	}
	if len(r.cases) == 0 {
		return nil, exitcode.Errorf(exitcode.Usage, "%s holds no results: want the folder of a study or a run, or the output of go test -bench", path)
	}
	return r, nil
}

// addBenchmark takes "Name-8 10 123 ns/op 45 B/op" apart.
func (r *Results) addBenchmark(words []string) {
	if len(words) < 4 {
		return
	}
	if _, err := strconv.Atoi(words[1]); err != nil {
		return
	}
	for i := 2; i+1 < len(words); i += 2 {
		x, err := strconv.ParseFloat(words[i], 64)
		if err != nil {
			return
		}
		unit := words[i+1]
		switch unit {
		case "ns/op":
			x, unit = x*1e-9, "sec/op"
		case "MB/s":
			x, unit = x*1e6, "B/s"
		}
		r.add(words[0], unit, x)
	}
}
