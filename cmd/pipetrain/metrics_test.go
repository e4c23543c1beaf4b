package main

import (
	"encoding/csv"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/record/tfevents"
)

// putMetrics writes the metrics of a run that had these losses.
func putMetrics(t *testing.T, dir string, losses ...float64) []record.Metrics {
	t.Helper()
	var steps []record.Metrics
	var text []byte
	for i, loss := range losses {
		m := record.Metrics{Step: i + 1, Loss: loss, GradNorm: 1.5 * loss, LR: 1e-3, Tokens: 64, StepSeconds: 0.25, TokensPerSecond: 256, Bubble: 0.1, MakespanSeconds: 0.2}
		b, err := m.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		steps, text = append(steps, m), append(append(text, b...), '\n')
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, record.MetricsName), text, 0o644); err != nil {
		t.Fatal(err)
	}
	return steps
}

func TestMetricsAsCSV(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	putMetrics(t, a, 3, 0.1, math.NaN())
	putMetrics(t, b, 7)
	s := call("metrics", "--key", "loss", a, b)
	if want := "step,a,b\n1,3,7\n2,0.1,\n3,NaN,\n"; s.code != 0 || s.stdout != want {
		t.Errorf("%+v, want %q", s, want)
	}
	s = call("metrics", a, b)
	lines, err := csv.NewReader(strings.NewReader(s.stdout)).ReadAll()
	if err != nil || len(lines) != 5 || strings.Join(lines[0][:4], " ") != "run step loss grad_norm" || strings.Join(lines[2][:4], " ") != "a 2 0.1 0.15000000000000002" || lines[4][0] != "b" {
		t.Errorf("%v, %v", lines, err)
	}
	var runs []struct {
		Run   string
		Steps []record.Metrics
	}
	if s = call("metrics", "--format", "json", a, b); json.Unmarshal([]byte(s.stdout), &runs) != nil || len(runs) != 2 || runs[0].Steps[1].Loss != 0.1 || !math.IsNaN(runs[0].Steps[2].Loss) {
		t.Errorf("%+v", s)
	}
}

// TensorBoard's files give the numbers back as float32.
func TestMetricsForTensorBoard(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	steps := putMetrics(t, run, 3, 0.1, math.Inf(1))
	for _, args := range [][]string{{run}, {"--out", filepath.Join(t.TempDir(), "all"), run}} {
		s := call(append([]string{"metrics", "--format", "tensorboard"}, args...)...)
		path, _, ok := strings.Cut(s.stdout, ": 3 steps\n")
		if s.code != 0 || !ok {
			t.Fatalf("%+v", s)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		events, whole, err := tfevents.Read(f)
		info, _ := f.Stat()
		f.Close()
		if err != nil || whole != info.Size() || len(events) != 2+len(steps) || !events[1].Start || events[0].Version == "" {
			t.Fatalf("%+v, %v", events, err)
		}
		for i, m := range steps {
			e := events[2+i]
			if e.Step != int64(m.Step) || len(e.Scalars) != len(metricKeys) {
				t.Errorf("step %d: %+v", m.Step, e)
			}
			for j, k := range metricKeys {
				if want := (tfevents.Scalar{Tag: k.Name, Value: float32(k.Of(m))}); e.Scalars[j] != want {
					t.Errorf("step %d: %+v, want %+v", m.Step, e.Scalars[j], want)
				}
			}
			if d := e.WallTime - events[1].WallTime - 0.25*float64(m.Step); math.Abs(d) > 1e-3 {
				t.Errorf("step %d is %v s off", m.Step, d)
			}
		}
	}
}

// A run writes TensorBoard's files itself. Resumed from an earlier step, it has each step once,
// as TensorBoard reads the folder.
func TestTensorBoardOfARun(t *testing.T) {
	job, out := writeJob(t, tinyJob), filepath.Join(t.TempDir(), "run")
	mustRun(t, "--quiet", "--out", out, "--set", "metrics.tensorboard=true", job)
	for _, later := range []string{"step-00000012", "step-00000008"} {
		if err := os.RemoveAll(filepath.Join(out, "checkpoints", later)); err != nil {
			t.Fatal(err)
		}
	}
	mustRun(t, "--quiet", "--resume", "--out", out, "--set", "metrics.tensorboard=true", job)
	files, err := filepath.Glob(filepath.Join(out, "tensorboard", "events.out.tfevents.*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	var steps []tfevents.Event
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		events, _, err := tfevents.Read(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Start {
				steps = slices.DeleteFunc(steps, func(old tfevents.Event) bool { return old.Step >= e.Step })
			} else if e.Version == "" {
				steps = append(steps, e)
			}
		}
	}
	want, err := record.ReadMetrics(filepath.Join(out, record.MetricsName))
	if err != nil || len(steps) != len(want) || len(want) != 12 {
		t.Fatalf("%d steps of %d, %v", len(steps), len(want), err)
	}
	for i, m := range want {
		if e := record.Event(m, steps[i].WallTime); !reflect.DeepEqual(e, steps[i]) {
			t.Errorf("%+v, want %+v", steps[i], e)
		}
	}
	if s := call("metrics", "--format", "tensorboard", out); s.code != 3 || !strings.Contains(s.stderr, "written by the run itself") {
		t.Errorf("%+v", s)
	}
}

func TestMetricsRefuses(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	putMetrics(t, run, 1)
	for i, args := range [][]string{{}, {"--format", "xml", run}, {"--key", "los", run}, {"--key", "loss", "--format", "json", run}, {run + "x"}} {
		if s := call(append([]string{"metrics"}, args...)...); s.code != 2 || s.stderr == "" {
			t.Error(strconv.Itoa(i), s)
		}
	}
}
