package study

import (
	"bytes"
	"encoding/csv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pipetrain/pipetrain/durable"
)

// column of a CSV file: one type, empty where unknown.
type column[T any] struct {
	name string
	of   func(*T) string
}

// IdleCauses are the parts of idle time, in the order of columns and charts.
var IdleCauses = []string{"warmup", "dependency", "transfer", "other", "drain"}

// writeCSV writes rows under the columns.
func writeCSV[T any](path string, columns []column[T], rows []T) error {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	line := make([]string, len(columns))
	for i, c := range columns {
		line[i] = c.name
	}
	_ = w.Write(line) // to memory; Flush has the first error
	for r := range rows {
		for i, c := range columns {
			line[i] = c.of(&rows[r])
		}
		_ = w.Write(line)
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return err
	}
	return durable.WriteFile(path, b.Bytes())
}

// keyNames are the axes' keys, sorted.
func keyNames(cases []*Case) []string {
	all := map[string]bool{}
	for _, c := range cases {
		for k := range c.Keys {
			all[k] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// keyText prints a key's value for a cell.
func keyText(v any) string {
	if s, ok := v.(string); ok || v == nil {
		return s
	}
	return tomlText(v)
}

func pointColumns(cases []*Case) []column[Point] {
	type p = Point
	out := []column[p]{
		{"case", func(x *p) string { return x.Case }}, {"label", func(x *p) string { return x.Label }},
		{"round", func(x *p) string { return strconv.Itoa(x.Round) }}, {"attempt", func(x *p) string { return strconv.Itoa(x.Attempt) }},
		{"order", func(x *p) string { return strconv.Itoa(x.Order) }}, {"binary", func(x *p) string { return x.Binary }},
		{"warmup", func(x *p) string { return strconv.FormatBool(x.Warmup) }}, {"status", func(x *p) string { return string(x.Status) }},
		{"exit_code", func(x *p) string {
			if x.ExitCode < 0 {
				return ""
			}
			return strconv.Itoa(x.ExitCode)
		}},
		{"reason", func(x *p) string { return strings.Join(strings.Fields(x.Reason), " ") }},
		{"job_id", func(x *p) string { return x.JobID }}, {"nodes", func(x *p) string { return strings.Join(x.Nodes, " ") }},
		{"started", func(x *p) string {
			if x.Started.IsZero() {
				return ""
			}
			return x.Started.UTC().Format(time.RFC3339Nano)
		}},
		{"queued_seconds", func(x *p) string { return x.Queued.Text() }}, {"seconds", func(x *p) string { return x.Seconds.Text() }},
		{"ranks", func(x *p) string { return strconv.Itoa(x.Ranks) }},
	}
	for _, k := range keyNames(cases) {
		out = append(out, column[p]{k, func(x *p) string { return keyText(x.Keys[k]) }})
	}
	figure := func(name string, of func(*p) Number) {
		out = append(out, column[p]{name, func(x *p) string { return of(x).Text() }})
	}
	figure("tokens_per_second", func(x *p) Number { return x.TokensPerSecond })
	figure("step_seconds", func(x *p) Number { return x.StepSeconds })
	figure("makespan_measured", func(x *p) Number { return x.Makespan })
	figure("makespan_predicted", func(x *p) Number { return x.MakespanPlan })
	figure("bubble_measured", func(x *p) Number { return x.Bubble })
	figure("bubble_predicted", func(x *p) Number { return x.BubblePlan })
	for _, cause := range IdleCauses {
		figure("idle_"+cause+"_measured", func(x *p) Number { return partOf(x.IdleParts, cause) })
		figure("idle_"+cause+"_predicted", func(x *p) Number { return partOf(x.IdlePartsPlan, cause) })
	}
	figure("peak_bytes_measured", func(x *p) Number { return x.PeakBytes })
	figure("peak_bytes_predicted", func(x *p) Number { return x.PeakBytesPlan })
	figure("tflops", func(x *p) Number { return x.TFLOPS })
	figure("mfu", func(x *p) Number { return x.MFU })
	figure("loss_last", func(x *p) Number { return x.LossLast })
	return append(out, column[p]{"loss_hash", func(x *p) string { return x.LossHash }}, column[p]{"environment_hash", func(x *p) string { return x.EnvironmentHash }}, column[p]{"version", func(x *p) string { return x.Version }},
		column[p]{"commit", func(x *p) string { return x.Commit }}, column[p]{"host", func(x *p) string { return x.Host }},
		column[p]{"device", func(x *p) string { return x.Device }}, column[p]{"folder", func(x *p) string { return x.Folder }})
}

func partOf(m map[string]Number, name string) Number {
	if x, ok := m[name]; ok {
		return x
	}
	return Unknown
}

func summaryColumns(cases []*Case) []column[Summary] {
	type s = Summary
	out := []column[s]{{"case", func(x *s) string { return x.Case }}, {"label", func(x *s) string { return x.Label }}, {"binary", func(x *s) string { return x.Binary }}}
	for _, k := range keyNames(cases) {
		out = append(out, column[s]{k, func(x *s) string { return keyText(x.Keys[k]) }})
	}
	figure := func(name string, of func(*s) Number) {
		out = append(out, column[s]{name, func(x *s) string { return of(x).Text() }})
	}
	figure("ranks", func(x *s) Number { return Number(x.Ranks) })
	figure("runs", func(x *s) Number { return Number(x.N) })
	figure("step_seconds", func(x *s) Number { return x.StepSeconds })
	figure("step_seconds_low", func(x *s) Number { return Number(x.Interval.Lo) })
	figure("step_seconds_high", func(x *s) Number { return Number(x.Interval.Hi) })
	figure("interval_level", func(x *s) Number { return Number(x.Interval.Level) })
	figure("tokens_per_second", func(x *s) Number { return x.TokensPerSecond })
	figure("speedup", func(x *s) Number { return x.SpeedUp })
	figure("speedup_low", func(x *s) Number { return known(x.SpeedUp, x.SpeedUpInterval.Lo) })
	figure("speedup_high", func(x *s) Number { return known(x.SpeedUp, x.SpeedUpInterval.Hi) })
	figure("speedup_predicted", func(x *s) Number { return x.SpeedUpPlan })
	figure("efficiency", func(x *s) Number { return x.Efficiency })
	figure("bubble_measured", func(x *s) Number { return x.Bubble })
	figure("bubble_predicted", func(x *s) Number { return x.BubblePlan })
	figure("makespan_measured", func(x *s) Number { return x.Makespan })
	figure("makespan_predicted", func(x *s) Number { return x.MakespanPlan })
	figure("peak_bytes_measured", func(x *s) Number { return x.PeakBytes })
	figure("peak_bytes_predicted", func(x *s) Number { return x.PeakBytesPlan })
	figure("tflops", func(x *s) Number { return x.TFLOPS })
	figure("mfu", func(x *s) Number { return x.MFU })
	figure("loss_last", func(x *s) Number { return x.LossLast })
	return out
}

// known returns x where the figure that it belongs to is known.
func known(of Number, x float64) Number {
	if !of.Known() {
		return Unknown
	}
	return Number(x)
}

// writeTables writes points.csv and summary.csv.
func (r *runner) writeTables(summaries []Summary) error {
	if err := writeCSV(r.o.Folder.File(PointsCSV), pointColumns(r.o.Cases), r.all); err != nil {
		return err
	}
	return writeCSV(r.o.Folder.File(SummaryCSV), summaryColumns(r.o.Cases), summaries)
}
