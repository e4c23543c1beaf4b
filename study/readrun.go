package study

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/launcher"
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/stats"
)

// uncounted are a run's first steps: they warm up and calibrate. A run that has no more counts all but
// its first step.
const uncounted = 6

// ReadRun returns the figures of a run's folder as a point; what the folder lacks stays unknown. The
// point is Finished where the run was, else Failed with the reason of its exit record.
func ReadRun(dir string) (Point, error) {
	p := NewPoint()
	p.Status, p.Binary, p.Folder, p.Attempt = Failed, Candidate, dir, 1
	steps, err := record.ReadMetrics(filepath.Join(dir, record.MetricsName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return p, err
	}
	p.fromMetrics(steps)
	switch s, err := record.ReadSummary(filepath.Join(dir, record.SummaryName)); {
	case err == nil:
		p.fromSummary(s)
	case !errors.Is(err, fs.ErrNotExist):
		return p, err
	}
	switch e, err := record.ReadEnvironment(filepath.Join(dir, record.EnvironmentName)); {
	case err == nil:
		p.fromEnvironment(e)
	case !errors.Is(err, fs.ErrNotExist):
		return p, err
	}
	switch t, err := record.ReadTimelines(dir); {
	case err == nil:
		p.IdlePartsPlan, p.IdleParts = numbers(t.Predicted.Idle), numbers(t.Measured.Idle)
	case !errors.Is(err, fs.ErrNotExist):
		return p, err
	}
	switch r, err := exitcode.Read(dir); {
	case err == nil:
		p.ExitCode, p.Reason = int(r.Code), r.Reason
		if r.Code == exitcode.Finished {
			p.Status = Finished
		}
	case !errors.Is(err, fs.ErrNotExist):
		return p, err
	default:
		p.Reason = "the run left no exit record"
	}
	return p, nil
}

func (p *Point) fromMetrics(steps []record.Metrics) {
	if len(steps) == 0 {
		return
	}
	p.LossFirst, p.LossLast = Number(steps[0].Loss), Number(steps[len(steps)-1].Loss)
	p.LossHash = lossHash(steps)
	from := min(uncounted, len(steps)-1)
	if len(steps) <= uncounted {
		from = min(1, len(steps)-1)
	}
	var seconds, spans, bubbles []float64
	for _, m := range steps[from:] {
		seconds, spans, bubbles = append(seconds, m.StepSeconds), append(spans, m.MakespanSeconds), append(bubbles, m.Bubble)
		p.StepSecondsAll = append(p.StepSecondsAll, Number(m.StepSeconds))
	}
	p.StepSeconds, p.Makespan, p.Bubble = Number(stats.Median(seconds)), Number(stats.Median(spans)), Number(stats.Median(bubbles))
	if p.StepSeconds > 0 {
		p.TokensPerSecond = Number(float64(steps[0].Tokens)) / p.StepSeconds
	}
}

// lossHash is of the bits of every step's loss.
func lossHash(steps []record.Metrics) string {
	h := sha256.New()
	for _, m := range steps {
		h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(m.Loss)))
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

func (p *Point) fromSummary(s record.Summary) {
	p.Label, p.Version, p.Commit, p.Device, p.Ranks = s.Name, s.Version, s.Commit, s.Device, s.Ranks
	p.MakespanPlan, p.BubblePlan = Number(s.MakespanPredictedSeconds), Number(s.BubblePredicted)
	if s.Device == jobs.DeviceRehearse { // nothing was computed: its loss is none
		p.LossFirst, p.LossLast, p.LossHash = Unknown, Unknown, ""
	}
	fullest := -1
	for r, b := range s.PeakBytesMeasured {
		if fullest < 0 || b > s.PeakBytesMeasured[fullest] {
			fullest = r
		}
	}
	if fullest >= 0 {
		p.PeakBytes = Number(s.PeakBytesMeasured[fullest])
		if fullest < len(s.PeakBytesByCategory) {
			p.Memory = map[string]Number{}
			for k, b := range s.PeakBytesByCategory[fullest] {
				p.Memory[k] = Number(b)
			}
		}
	}
	if len(s.PeakBytesPredicted) > 0 {
		p.PeakBytesPlan = Number(slices.Max(s.PeakBytesPredicted))
	}
	if len(s.TFLOPS) > 0 {
		p.TFLOPS = 0
		for _, x := range s.TFLOPS {
			p.TFLOPS += Number(x)
		}
	}
	if len(s.MFU) > 0 {
		p.MFU = Number(stats.Mean(s.MFU))
	}
}

func (p *Point) fromEnvironment(e record.Environment) {
	p.Nodes, p.Started, p.EnvironmentHash, p.Command = e.Nodes, e.Started, environmentHash(e), launcher.Shell(e.Command)
	if len(e.Hosts) > 0 {
		p.Host = e.Hosts[0].Name
	}
}

// environmentHash is of what makes runs comparable: hardware and libraries, not names and times.
func environmentHash(e record.Environment) string {
	type host struct {
		CPU, Kernel, Distribution, Affinity string
		Cores, CoresHost                    int
	}
	var hosts []host
	for _, h := range e.Hosts {
		hosts = append(hosts, host{h.CPU, h.Kernel, h.Distribution, h.Affinity, h.Cores, h.CoresHost})
	}
	b, err := json.Marshal(map[string]any{"go": e.Go, "os": e.OS, "arch": e.Arch, "hosts": hosts, "device": e.Device, "transport": e.Transport})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

func numbers(m map[string]float64) map[string]Number {
	if m == nil {
		return nil
	}
	out := map[string]Number{}
	for k, v := range m {
		out[k] = Number(v)
	}
	return out
}

// readJob returns the resolved job of a run folder as lines "table.key = value".
func readJob(dir string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(dir, record.JobName))
	if err != nil {
		return nil, fmt.Errorf("the job of %s: %w", dir, err)
	}
	return jobLines(string(b)), nil
}
