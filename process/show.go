package process

import (
	"fmt"

	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/rank"
	"github.com/pipetrain/pipetrain/record"
	"github.com/pipetrain/pipetrain/schedule"
)

// show draws the last steps' typical timeline beside the predicted one.
func (o *output) show(rep *rank.Report, s record.Summary) {
	w := o.p.o.Stdout
	if rep.Predicted != nil {
		from := "the op times of the first steps"
		if s.Device == jobs.DeviceRehearse {
			from = "the modelled op times"
		}
		fmt.Fprintf(w, "\npredicted, from %s:\n", from)
		o.draw(rep.Predicted)
	}
	if rep.Measured != nil {
		fmt.Fprintf(w, "\nmeasured (a step of median length):\n")
		o.draw(rep.Measured)
	}
	if s.Device == jobs.DeviceRehearse {
		fmt.Fprintf(w, "\nrehearsed %d steps, %.0f tokens/s; nothing was computed\n", s.Steps, s.TokensPerSecond)
	} else {
		fmt.Fprintf(w, "\nloss %.4f → %.4f in %d steps, %.0f tokens/s\n", s.LossFirst, s.LossLast, s.Steps, s.TokensPerSecond)
	}
	if rep.Predicted != nil {
		fmt.Fprintf(w, "bubble    predicted %5.1f %%   | measured %5.1f %%   (idle share of ranks × makespan)\n", 100*s.BubblePredicted, 100*s.BubbleMeasured)
		fmt.Fprintf(w, "makespan  predicted %s | measured %s\n", seconds(s.MakespanPredictedSeconds), seconds(s.MakespanMeasuredSeconds))
		if s.Device == "cpu" && o.p.shared != "" {
			fmt.Fprintf(w, "cores     %s\n", o.p.shared)
		}
	}
	for r, m := range rep.Ranks {
		fmt.Fprintf(w, "memory    rank %d: planned %s | measured %s\n", r, mebibytes(m.Planned.Arena), mebibytes(m.Measured.Arena))
	}
	for r := range s.TFLOPS {
		fmt.Fprintf(w, "compute   rank %d: %s over the step, %s while it computed", r, flops(s.TFLOPS[r]), flops(s.TFLOPSBusy[r]))
		if r < len(s.MFU) {
			fmt.Fprintf(w, "; MFU %.0f %% of the %s of a matrix product", 100*s.MFU[r], flops(s.MatrixTFLOPS[r]))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "run folder %s\n", o.p.folder.Path)
}

func (o *output) draw(line *schedule.Timeline) {
	if err := schedule.Draw(o.p.o.Stdout, line, o.p.o.Draw); err != nil {
		o.p.log.Warn().Err(err).Msg("the timeline cannot be drawn")
	}
}

// flops prints TFLOP/s with three digits.
func flops(tera float64) string {
	if tera < 1 {
		return fmt.Sprintf("%.3g GFLOP/s", tera*1e3)
	}
	return fmt.Sprintf("%.3g TFLOP/s", tera)
}

func seconds(s float64) string     { return fmt.Sprintf("%6.1f ms", s*1e3) }
func mebibytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
