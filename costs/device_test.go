package costs

import (
	"testing"

	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/schedule"
)

const testJob = `
name = "test"
[model]
layers = 8
dim = 64
heads = 4
seq = 64
[data]
kind = "synthetic"
[train]
steps = 1
batch = 16
[parallel]
stages = 4
[schedule]
microbatches = 8
`

func parse(t testing.TB, sets ...string) *jobs.Spec {
	t.Helper()
	spec, err := jobs.Parse("test.toml", []byte(testJob), sets, ".")
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// workOf cuts a job's model into stages, one a rank.
func workOf(t testing.TB, spec *jobs.Spec, stages int) Work {
	t.Helper()
	m, err := model.New(spec.ModelConfig())
	if err != nil {
		t.Fatal(err)
	}
	cut, err := m.Cut(stages)
	if err != nil {
		t.Fatal(err)
	}
	return WorkOf(spec, m, cut, model.Optimizer{Kind: spec.Optimizer.Kind}, 1, 1)
}

func near(a, b float64) bool { return a-b <= 1e-9*max(a, b) && b-a <= 1e-9*max(a, b) }

// Joined W read and write the gradients once: on a device with slow memory they are faster.
func TestDeviceCosts(t *testing.T) {
	d := DefaultDevice()
	work := workOf(t, parse(t), 4)
	full := d.of(work)
	w := func(n int) float64 {
		return full.Compute(schedule.Op{Stage: 1, Kind: schedule.BackwardWeight, First: 0, Last: n - 1})
	}
	if !(w(4) < 4*w(1)) || w(4) < w(1) {
		t.Errorf("W of 1: %v, of 4: %v", w(1), w(4))
	}
	send := schedule.Op{Stage: 0, Kind: schedule.SendF}
	if got, want := full.Transfer(send, 0, 1), 10e-6+4.0*2*64*64/25e9; !near(got, want) {
		t.Errorf("a transfer takes %v, want %v", got, want)
	}
	// With bf16 messages take half the time, gradients of weights do not.
	low := d.of(workOf(t, parse(t, "train.precision=bf16"), 4))
	if got, want := low.Transfer(send, 0, 1), 10e-6+2.0*2*64*64/25e9; !near(got, want) {
		t.Errorf("a transfer in bf16 takes %v, want %v", got, want)
	}
	if low.params[1] != full.params[1] || !(low.f[1] < 0.7*full.f[1]) || !(low.w[1] > 0.5*full.w[1]) || !(low.update[1] > full.update[1]) {
		t.Errorf("bf16: F %v, W %v, update %v; fp32: %v, %v, %v", low.f, low.w, low.update, full.f, full.w, full.update)
	}
	d.NodeRanks, d.InterBytes = 2, 1e9
	slow := d.of(work)
	if slow.Transfer(send, 0, 1) != full.Transfer(send, 0, 1) || slow.Transfer(send, 1, 2) < 10*4.0*2*64*64/25e9 {
		t.Error("links between nodes are not slower")
	}
}
