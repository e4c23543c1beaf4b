package main

import (
	"path/filepath"
	"testing"

	"github.com/pipetrain/pipetrain/record"
)

// BenchmarkPrediction reports measured over predicted makespan of a real run on 2
// ranks with a core each: 1 is a perfect prediction, within 15 % is the aim.
// The prediction is made in step 6 from the steps before; the measurement is the
// median of the steps after.
func BenchmarkPrediction(b *testing.B) {
	job := writeJob(b, tinyJob)
	var ratios []float64
	for b.Loop() {
		out := filepath.Join(b.TempDir(), "run")
		mustRun(b, "--quiet", "--out", out, "--set", "parallel.stages=2", "--set", "model.dim=256", "--set", "model.ffn=704",
			"--set", "model.seq=128", "--set", "train.batch=16", "--set", "train.steps=30", "--set", "checkpoint.every=0", "--set", "device.blas=auto", job)
		s, err := record.ReadSummary(filepath.Join(out, record.SummaryName))
		if err != nil {
			b.Fatal(err)
		}
		ratios = append(ratios, s.MakespanMeasuredSeconds/s.MakespanPredictedSeconds)
		b.ReportMetric(1e3*s.MakespanMeasuredSeconds, "makespan-ms")
		b.ReportMetric(100*s.BubblePredicted, "%bubble-predicted")
		b.ReportMetric(100*s.BubbleMeasured, "%bubble-measured")
	}
	b.ReportMetric(record.Median(ratios), "measured/predicted")
}

// BenchmarkStart reports the time from starting the program to its end for a
// job of one step on 8 ranks.
func BenchmarkStart(b *testing.B) {
	job := writeJob(b, tinyJob)
	for b.Loop() {
		mustRun(b, "--quiet", "--out", filepath.Join(b.TempDir(), "run"), "--set", "parallel.stages=4", "--set", "parallel.replicas=2",
			"--set", "schedule.microbatches=4", "--set", "train.steps=1", "--set", "optimizer.warmup=0", "--set", "checkpoint.every=0", job)
	}
}
