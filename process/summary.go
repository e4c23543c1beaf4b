package process

import (
	"math"
	"path/filepath"
	"strconv"

	"github.com/pipetrain/pipetrain/checkpoint"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/rank"
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/stats"
)

func fill(s *record.Summary, rep *rank.Report) {
	s.Steps, s.ResumedAt = rep.Steps, rep.Start
	s.LossFirst, s.LossLast = rep.LossFirst, rep.LossLast
	s.StepSecondsMedian = stats.Median(rep.StepSeconds)
	if s.StepSecondsMedian > 0 {
		s.TokensPerSecond = float64(rep.Tokens) / s.StepSecondsMedian
	}
	s.BubbleMeasured = stats.Median(rep.Bubbles)
	s.MakespanMeasuredSeconds = stats.Median(rep.Makespans)
	s.BubblePredicted, s.MakespanPredictedSeconds = math.NaN(), math.NaN() // too few steps to tell
	if rep.Predicted != nil {
		s.BubblePredicted, s.MakespanPredictedSeconds = rep.Predicted.Bubble(), rep.Predicted.Makespan()
	}
	for _, r := range rep.Ranks {
		s.PeakBytesPredicted = append(s.PeakBytesPredicted, r.Planned.Arena)
		s.PeakBytesMeasured = append(s.PeakBytesMeasured, r.Measured.Arena)
		s.PeakBytesByCategory = append(s.PeakBytesByCategory, r.Measured.ByCategory)
		if s.Device == jobs.DeviceRehearse {
			continue
		}
		if r.Transfer != "" && r.Transfer != "host" { // host memory, or nobody to send to
			s.Transfers = append(s.Transfers, r.Transfer)
		}
		rate := func(seconds float64) float64 {
			if seconds <= 0 {
				return 0
			}
			return float64(r.FLOPs) / seconds / 1e12
		}
		s.TFLOPS = append(s.TFLOPS, rate(s.StepSecondsMedian))
		s.TFLOPSBusy = append(s.TFLOPSBusy, rate(r.Busy))
		if r.MatrixRate > 0 {
			s.MatrixTFLOPS = append(s.MatrixTFLOPS, r.MatrixRate/1e12)
			s.MFU = append(s.MFU, rate(s.StepSecondsMedian)*1e12/r.MatrixRate)
		}
	}
	if rep.Final >= 0 {
		s.FinalCheckpoint = filepath.Join(record.CheckpointsName, checkpoint.StepDir(rep.Final))
	}
}

func baseSummary(version string, spec *jobs.Spec) record.Summary {
	v, commit, _ := record.BuildInfo(version)
	s := record.Summary{
		Name: spec.Name, Version: v, Commit: commit, StepsAsked: spec.Train.Steps,
		Ranks: spec.World(), Replicas: spec.Parallel.Replicas, Stages: spec.Parallel.Stages,
		Schedule: spec.ScheduleName(), BackwardP2: spec.Schedule.BackwardP2, Concat: concatText(spec.Schedule.Concat),
		Microbatches: spec.Schedule.Microbatches, Precision: spec.Train.Precision,
	}
	if m, err := model.New(spec.ModelConfig()); err == nil {
		s.Parameters = m.ParamCount()
	}
	return s
}

func concatText(c jobs.Concat) string {
	if c == 0 {
		return "all"
	}
	return strconv.Itoa(int(c))
}
