package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/pipetrain/pipetrain/durable"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/record/tfevents"
)

// metricKeys are the numbers of a step.
var metricKeys = record.Columns()

func metricsCommand(stdout io.Writer) *cli.Command {
	var names []string
	for _, k := range metricKeys {
		names = append(names, k.Name)
	}
	return &cli.Command{
		Name: "metrics", Usage: "the steps of runs as CSV, JSON, or TensorBoard's files", ArgsUsage: "RUN…",
		OnUsageError: usageError,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "format", Usage: "`FORM`: csv, json or tensorboard", Value: "csv"},
			&cli.StringFlag{Name: "key", Usage: "one `KEY`, with a column for each run: " + strings.Join(names, ", ") + " (csv)"},
			&cli.StringFlag{Name: "out", Usage: "`DIR` for TensorBoard's files, a folder for each run (default: RUN/tensorboard)"},
		},
		Action: func(_ context.Context, c *cli.Command) error { return convertMetrics(c, stdout) },
	}
}

// ran is a run's name and steps.
type ran struct {
	Run   string           `json:"run"`
	Steps []record.Metrics `json:"steps"`

	dir     string
	written time.Time // when the last of its steps was
}

func convertMetrics(c *cli.Command, stdout io.Writer) error {
	format, key := c.String("format"), c.String("key")
	if c.Args().Len() == 0 || !slices.Contains([]string{"csv", "json", "tensorboard"}, format) {
		return usage("metrics: want run folders, and --format csv, json or tensorboard (see pipetrain metrics --help)")
	}
	if key != "" && (keyIndex(key) < 0 || format != "csv") {
		return usage("metrics: --key %q: want one that pipetrain metrics --help lists, with --format csv", key)
	}
	var runs []ran
	for _, dir := range c.Args().Slice() {
		path := filepath.Join(dir, record.MetricsName)
		steps, err := record.ReadMetrics(path)
		if err != nil {
			return exitcode.With(exitcode.Usage, err)
		}
		info, err := os.Stat(path)
		if err != nil {
			return exitcode.With(exitcode.Usage, err)
		}
		runs = append(runs, ran{Run: filepath.Base(filepath.Clean(dir)), Steps: steps, dir: dir, written: info.ModTime()})
	}
	distinct(runs)
	switch format {
	case "json":
		return json.NewEncoder(stdout).Encode(runs)
	case "tensorboard":
		return exitcode.With(exitcode.Environment, writeTensorBoard(runs, c.String("out"), stdout))
	}
	w := csv.NewWriter(stdout)
	if key == "" {
		writeLong(w, runs)
	} else {
		writeWide(w, runs, keyIndex(key))
	}
	w.Flush()
	return w.Error()
}

func keyIndex(name string) int {
	for i, k := range metricKeys {
		if k.Name == name {
			return i
		}
	}
	return -1
}

// distinct gives runs of one name the whole path as names.
func distinct(runs []ran) {
	count := map[string]int{}
	for _, r := range runs {
		count[r.Run]++
	}
	for i := range runs {
		if count[runs[i].Run] > 1 {
			runs[i].Run = runs[i].dir
		}
	}
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// writeLong writes a line for each run and step.
func writeLong(w *csv.Writer, runs []ran) {
	head := []string{"run", "step"}
	for _, k := range metricKeys {
		head = append(head, k.Name)
	}
	_ = w.Write(head) // its error is told by w.Error
	for _, r := range runs {
		for _, m := range r.Steps {
			line := []string{r.Run, strconv.Itoa(m.Step)}
			for _, k := range metricKeys {
				line = append(line, number(k.Of(m)))
			}
			_ = w.Write(line)
		}
	}
}

// writeWide writes a line for each step with one figure of every run; empty where a run has not the step.
func writeWide(w *csv.Writer, runs []ran, key int) {
	head, last := []string{"step"}, 0
	values := make([]map[int]string, len(runs))
	for i, r := range runs {
		head, values[i] = append(head, r.Run), map[int]string{}
		for _, m := range r.Steps {
			values[i][m.Step] = number(metricKeys[key].Of(m))
			last = max(last, m.Step)
		}
	}
	_ = w.Write(head)
	for step := 1; step <= last; step++ {
		line := []string{strconv.Itoa(step)}
		for i := range runs {
			line = append(line, values[i][step])
		}
		if strings.Join(line[1:], "") != "" {
			_ = w.Write(line)
		}
	}
}

// writeTensorBoard writes an event file for each run. The steps' times are reckoned back
// from when the last was written. A file of an earlier conversion is replaced.
func writeTensorBoard(runs []ran, out string, stdout io.Writer) error {
	for _, r := range runs {
		dir := filepath.Join(r.dir, record.TensorBoardDir)
		if out != "" {
			dir = filepath.Join(out, strings.ReplaceAll(strings.Trim(r.Run, "/."), "/", "-"))
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		path := filepath.Join(dir, convertedName)
		if err := alone(path); err != nil {
			return err
		}
		now := float64(r.written.UnixNano()) / 1e9
		for _, m := range r.Steps {
			now -= m.StepSeconds
		}
		b := tfevents.Header(now, 0)
		for _, m := range r.Steps {
			now += m.StepSeconds
			b = tfevents.Append(b, record.Event(m, now))
		}
		if err := durable.WriteFile(path, b); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(stdout, "%s: %d steps\n", path, len(r.Steps)); err != nil {
			return err
		}
	}
	return nil
}

// convertedName is the file of a conversion. TensorBoard orders the files of a folder by name; the number stands for a time.
const convertedName = "events.out.tfevents.0000000000.pipetrain"

// alone refuses a folder that has event files of others: TensorBoard would show steps twice.
func alone(path string) error {
	found, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*tfevents*"))
	for _, f := range found {
		if f != path {
			return fmt.Errorf("%s has %s, written by the run itself: look at that, or name another folder with --out", filepath.Dir(path), filepath.Base(f))
		}
	}
	return err
}
