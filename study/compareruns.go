package study

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/record"
)

// RunDifference is what two single runs differ in.
type RunDifference struct {
	Old string `json:"old"`
	New string `json:"new"`
	// FirstStep is the first step whose loss has other bits; 0: none of the steps that both have.
	FirstStep   int     `json:"first_step_whose_loss_differs"`
	OldLoss     Number  `json:"old_loss"` // of that step
	NewLoss     Number  `json:"new_loss"`
	Steps       int     `json:"steps_compared"`
	Figures     []Delta `json:"figures"`
	Job         []Delta `json:"job"`
	Environment []Delta `json:"environment"`
}

// Delta is a figure or a key with its two values.
type Delta struct {
	Name  string `json:"name"`
	Old   string `json:"old"`
	New   string `json:"new"`
	Ratio Number `json:"ratio"` // new / old; unknown of texts
}

// CompareRuns compares two run folders.
func CompareRuns(old, new string) (*RunDifference, error) {
	d := &RunDifference{Old: old, New: new, OldLoss: Unknown, NewLoss: Unknown}
	var steps [2][]record.Metrics
	var points [2]Point
	var jobs, environments [2][]string
	for i, dir := range []string{old, new} {
		var err error
		if steps[i], err = record.ReadMetrics(filepath.Join(dir, record.MetricsName)); err != nil {
			return nil, exitcode.With(exitcode.Environment, err)
		}
		if points[i], err = ReadRun(dir); err != nil {
			return nil, exitcode.With(exitcode.Environment, err)
		}
		if jobs[i], err = readJob(dir); err != nil {
			return nil, exitcode.With(exitcode.Environment, err)
		}
		if e, err := record.ReadEnvironment(filepath.Join(dir, record.EnvironmentName)); err == nil {
			environments[i] = environmentLines(e)
		}
	}
	d.Steps = min(len(steps[0]), len(steps[1]))
	if points[0].LossHash == "" || points[1].LossHash == "" {
		d.Steps = 0 // a rehearsal has no loss
	}
	for i := range d.Steps {
		if a, b := steps[0][i].Loss, steps[1][i].Loss; math.Float64bits(a) != math.Float64bits(b) {
			d.FirstStep, d.OldLoss, d.NewLoss = steps[0][i].Step, Number(a), Number(b)
			break
		}
	}
	for _, m := range Metrics {
		a, b := m.of(&points[0]), m.of(&points[1])
		if a.Known() || b.Known() {
			d.Figures = append(d.Figures, Delta{m.Name + " (" + m.Unit + ")", a.Text(), b.Text(), b / a})
		}
	}
	d.Job, d.Environment = differences(jobs[0], jobs[1]), differences(environments[0], environments[1])
	return d, nil
}

// differences returns the "name = value" lines that are not alike.
func differences(old, new []string) []Delta {
	split := func(lines []string) map[string]string {
		m := map[string]string{}
		for _, l := range lines {
			k, v, _ := strings.Cut(l, " = ")
			m[k] = v
		}
		return m
	}
	a, b := split(old), split(new)
	names := slices.Sorted(maps.Keys(a))
	for k := range b {
		if _, ok := a[k]; !ok {
			names = append(names, k)
		}
	}
	slices.Sort(names)
	var out []Delta
	for _, k := range names {
		if a[k] != b[k] {
			out = append(out, Delta{k, a[k], b[k], Unknown})
		}
	}
	return out
}

// jobLines returns a resolved job as lines "table.key = value".
func jobLines(text string) []string {
	var out []string
	table := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "["):
			table = strings.Trim(line, "[]") + "."
		case line != "" && line[0] != '#':
			out = append(out, table+line)
		}
	}
	return out
}

// environmentLines describes where a run was, a fact a line.
func environmentLines(e record.Environment) []string {
	out := []string{"version = " + e.Version, "commit = " + e.Commit, fmt.Sprintf("modified = %v", e.Modified), "go = " + e.Go,
		"system = " + e.OS + "/" + e.Arch, "nodes = " + strings.Join(e.Nodes, ","), "command = " + strings.Join(e.Command, " ")}
	for i, h := range e.Hosts {
		if i == 0 || !slices.ContainsFunc(e.Hosts[:i], func(o record.Host) bool { return o.Name == h.Name }) {
			out = append(out, fmt.Sprintf("host %d = %s; %d of %d cores; %s; %s", i, h.CPU, h.Cores, h.CoresHost, h.Kernel, h.Distribution))
		}
	}
	for name, m := range map[string]map[string]string{"device": e.Device, "transport": e.Transport, "variable": e.Variables} {
		for k, v := range m {
			out = append(out, name+"."+k+" = "+v)
		}
	}
	slices.Sort(out)
	return out
}

// WriteText prints the differences.
func (d *RunDifference) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "old: %s\nnew: %s\n", d.Old, d.New)
	switch {
	case d.Steps == 0:
		b.WriteString("loss: no step that both have\n")
	case d.FirstStep == 0:
		fmt.Fprintf(&b, "loss: the same bits in all %d steps\n", d.Steps)
	default:
		fmt.Fprintf(&b, "loss: differs from step %d on: %s, %s\n", d.FirstStep, d.OldLoss.Text(), d.NewLoss.Text())
	}
	for _, part := range []struct {
		title string
		list  []Delta
	}{{"figures", d.Figures}, {"job", d.Job}, {"environment", d.Environment}} {
		fmt.Fprintf(&b, "\n%s", part.title)
		if len(part.list) == 0 {
			b.WriteString(": no difference\n")
			continue
		}
		b.WriteString("\n")
		for _, x := range part.list {
			fmt.Fprintf(&b, "  %-28s %s → %s", x.Name, cmp.Or(x.Old, "none"), cmp.Or(x.New, "none"))
			if x.Ratio.Known() {
				fmt.Fprintf(&b, "  (× %.4f)", float64(x.Ratio))
			}
			b.WriteString("\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
