package record

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func runFolder(t *testing.T) *Folder {
	t.Helper()
	f, err := Create(filepath.Join(t.TempDir(), "run"), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// oddFloats are values that are easily printed such that they do not come back.
var oddFloats = []float64{
	0, math.Copysign(0, -1), 1, -1, 0.1, 1.0 / 3, 5, 1e6, 1e20, 1e21, 1e22, 123456789012345680000, 1 << 53, 1<<53 + 2,
	math.MaxFloat64, math.SmallestNonzeroFloat64, 2.2250738585072011e-308, math.Pi, float64(float32(0.1)),
	math.NaN(), math.Inf(1), math.Inf(-1),
}

func sameBits(a, b float64) bool {
	return math.Float64bits(a) == math.Float64bits(b) || math.IsNaN(a) && math.IsNaN(b)
}

// TestFloatsComeBack prints and reads floats, by us, by encoding/json and by Python.
func TestFloatsComeBack(t *testing.T) {
	values := append([]float64{}, oddFloats...)
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		values = append(values, math.Float64frombits(r.Uint64()))
	}
	for _, v := range values {
		b, err := json.Marshal(Metrics{Step: 1, Loss: v, Idle: map[string]float64{"a\"b": v}})
		if err != nil {
			t.Fatalf("%v: %v", v, err)
		}
		var m Metrics
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if !sameBits(m.Loss, v) || !sameBits(m.Idle[`a"b`], v) {
			t.Errorf("%v came back as %v: %s", v, m.Loss, b)
		}
		var plain map[string]any
		if err := json.Unmarshal(b, &plain); err != nil {
			t.Fatal(err)
		}
		if x, ok := plain["loss"].(float64); !ok != (math.IsNaN(v) || math.IsInf(v, 0)) || ok && !sameBits(x, v) {
			t.Errorf("%v is %v to a plain reader: %s", v, plain["loss"], b)
		}
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	f := runFolder(t)
	m, err := f.OpenMetrics(0)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range values {
		if err := m.Append(Metrics{Step: i + 1, Loss: v}); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	const script = `
import json, struct, sys
for line in open(sys.argv[1]):
    v = json.loads(line)["loss"]
    print(struct.pack(">d", float(v)).hex(), type(v).__name__)`
	out, err := exec.Command(python, "-c", script, f.File(MetricsName)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(values) {
		t.Fatalf("%d lines, want %d", len(lines), len(values))
	}
	for i, v := range values {
		hex, kind, _ := strings.Cut(lines[i], " ")
		finite := !math.IsNaN(v) && !math.IsInf(v, 0)
		if finite && (kind != "float" || hex != bitsHex(v)) || !finite && kind != "str" || math.IsInf(v, 0) && hex != bitsHex(v) {
			t.Errorf("%v is %s (%s) to Python", v, hex, kind)
		}
	}
}

func bitsHex(v float64) string {
	const digits = "0123456789abcdef"
	var b [16]byte
	u := math.Float64bits(v)
	for i := range b {
		b[i] = digits[u>>(60-4*i)&15]
	}
	return string(b[:])
}

func TestMetricsLine(t *testing.T) {
	b, err := json.Marshal(Metrics{Step: 3, Loss: 5, GradNorm: 1.5, LR: 3e-4, Tokens: 8192, StepSeconds: 0.25, TokensPerSecond: 32768, Bubble: 0.2})
	want := `{"step":3,"loss":5.0,"grad_norm":1.5,"lr":0.0003,"tokens":8192,"step_seconds":0.25,"tokens_per_second":32768.0,"bubble":0.2}`
	if err != nil || string(b) != want {
		t.Errorf("%s, %v\nwant %s", b, err, want)
	}
	b, err = json.Marshal(Metrics{MakespanSeconds: 0.5, Idle: map[string]float64{"wait": 0.25, "end": 1}})
	if err != nil || !strings.HasSuffix(string(b), `"makespan_seconds":0.5,"idle":{"end":1.0,"wait":0.25}}`) {
		t.Errorf("%s, %v", b, err)
	}
}

// part performs steps from a point on, as one start of a run does.
func part(t *testing.T, f *Folder, resumeFrom, to int) *MetricsLog {
	t.Helper()
	m, err := f.OpenMetrics(resumeFrom)
	if err != nil {
		t.Fatal(err)
	}
	for s := resumeFrom + 1; s <= to; s++ {
		if err := m.Append(Metrics{Step: s, Loss: 1 / float64(s)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return m
}

func expectSteps(t *testing.T, f *Folder, n int) {
	t.Helper()
	got, err := ReadMetrics(f.File(MetricsName))
	if err != nil || len(got) != n {
		t.Fatalf("%d lines, %v; want %d", len(got), err, n)
	}
	for i, m := range got {
		if m.Step != i+1 || m.Loss != 1/float64(i+1) {
			t.Errorf("line %d is %+v", i+1, m)
		}
	}
}

func TestMetricsResume(t *testing.T) {
	f := runFolder(t)
	part(t, f, 0, 7)
	expectSteps(t, f, 7)
	f.Resumed = true
	if m := part(t, f, 4, 9); m.Cut != 3 || m.Gap != "" {
		t.Errorf("%+v", m)
	}
	expectSteps(t, f, 9)
	if m := part(t, f, 9, 9); m.Cut != 0 || m.Gap != "" {
		t.Errorf("%+v", m)
	}
	// Killed within a line.
	l, err := os.OpenFile(f.File(MetricsName), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.WriteString(`{"step":10,"lo`); err != nil {
		t.Fatal(err)
	}
	l.Close()
	expectSteps(t, f, 9)
	if m := part(t, f, 9, 12); m.Cut != 1 {
		t.Errorf("%+v", m)
	}
	expectSteps(t, f, 12)
	if m := part(t, f, 0, 3); m.Cut != 12 {
		t.Errorf("%+v", m)
	}
	expectSteps(t, f, 3)
	// The lines before the checkpoint never reached the disk.
	m, err := f.OpenMetrics(5)
	if err != nil || !strings.Contains(m.Gap, "steps 4 to 5") {
		t.Errorf("%+v, %v", m, err)
	}
	if err := m.Append(Metrics{Step: 6}); err != nil {
		t.Error(err)
	}
	m.Close()
}

func TestMetricsRefuses(t *testing.T) {
	f := runFolder(t)
	part(t, f, 0, 3)
	f.Resumed = true
	m, err := f.OpenMetrics(3)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []int{3, 5, 0} {
		if err := m.Append(Metrics{Step: step}); err == nil || !strings.Contains(err.Error(), "follows step 3") {
			t.Errorf("step %d: %v", step, err)
		}
	}
	m.Close()
	expectSteps(t, f, 3)
	for _, c := range []struct{ text, why string }{
		{"{\"step\":1}\nnonsense\n{\"step\":2}\n", "metrics.jsonl:2"},
		{"{\"step\":1}\n{\"step\":3}\n", "metrics.jsonl:2: step 3 follows step 1"},
		{"{\"step\":1}\n{\"step\":1}\n", "metrics.jsonl:2: step 1 follows step 1"},
		{"{\"step\":9}\n{\"step\":1}\n", "metrics.jsonl:2: step 1 follows"},
	} {
		if err := os.WriteFile(f.File(MetricsName), []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := f.OpenMetrics(3); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%q: %v, want %q", c.text, err, c.why)
		}
		if b, _ := os.ReadFile(f.File(MetricsName)); string(b) != c.text {
			t.Errorf("%q was changed to %q", c.text, b)
		}
	}
}

func TestSummary(t *testing.T) {
	f := runFolder(t)
	s := Summary{Status: "finished", Steps: 20, LossFirst: 5.5, LossLast: math.NaN(), BubbleMeasured: 0.1,
		PeakBytesPredicted: []int64{1, 1 << 60}, Concat: "all", Schedule: "1f1b", Error: ""}
	if err := f.WriteSummary(s); err != nil {
		t.Fatal(err)
	}
	got, err := ReadSummary(f.File(SummaryName))
	if err != nil || !math.IsNaN(got.LossLast) {
		t.Fatalf("%+v, %v", got, err)
	}
	got.LossLast, s.LossLast = 0, 0
	s.PeakBytesMeasured = []int64{}
	if !reflect.DeepEqual(got, s) {
		t.Errorf("%+v\nwant %+v", got, s)
	}
	b, err := os.ReadFile(f.File(SummaryName))
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	// What programs may rely on.
	for _, key := range []string{"status", "exit_code", "steps", "loss_first", "loss_last", "tokens_per_second", "bubble_predicted",
		"bubble_measured", "makespan_predicted_seconds", "makespan_measured_seconds", "step_seconds_median", "peak_bytes_predicted",
		"peak_bytes_measured", "transport", "device", "ranks", "replicas", "stages", "schedule", "backward_p2", "concat",
		"microbatches", "final_checkpoint", "seconds_total", "version", "commit"} {
		if _, ok := m[key]; !ok {
			t.Errorf("no %q in %s", key, b)
		}
	}
	if err := os.WriteFile(f.File(SummaryName), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSummary(f.File(SummaryName)); err == nil || !strings.Contains(err.Error(), SummaryName) {
		t.Error(err)
	}
}
