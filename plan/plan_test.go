package plan

import (
	"testing"

	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cpu"
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

func ops(t testing.TB) kernels.Ops {
	t.Helper()
	d, err := cpu.New(cpu.Options{Threads: 1, BLAS: "go"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func mustMake(t testing.TB, source Source, sets ...string) *Plan {
	t.Helper()
	p, err := Make(parse(t, sets...), Options{Source: source, Ops: ops(t)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// BenchmarkPlan is the plan of a large job with all alternatives.
func BenchmarkPlan(b *testing.B) {
	for b.Loop() {
		mustMake(b, DefaultDevice(), "model.layers=192", "parallel.stages=64", "schedule.microbatches=512", "train.batch=512")
	}
}
