package rank

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/collectives/local"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels/cpu"
	"github.com/pipetrain/pipetrain/schedule"
	"github.com/pipetrain/pipetrain/stats"
)

// rehearse performs steps of a job's schedule over a world and returns the
// makespans that rank 0 measured and the one that was predicted.
func rehearse(t testing.TB, spec *jobs.Spec, world []collectives.Transport, r Rehearsal, steps int) (measured []float64, predicted float64) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), 30*time.Second, fmt.Errorf("the rehearsal hangs"))
	defer cancel()
	var wg sync.WaitGroup
	for rank, tp := range world {
		wg.Go(func() {
			err := func() error {
				dev, err := cpu.New(cpu.Options{Threads: 1, BLAS: "go"})
				if err != nil {
					return err
				}
				defer dev.Close()
				tr, err := NewRehearsal(ctx, spec, tp, dev, r)
				if err != nil {
					return err
				}
				defer tr.Close()
				if rank == 0 {
					line, err := schedule.Simulate(tr.work.Schedule, r.Costs)
					if err != nil {
						return err
					}
					predicted = line.Makespan()
				}
				for step := 1; step <= steps; step++ {
					res, err := tr.Step(ctx, step, false)
					if err != nil {
						return err
					}
					if rank == 0 {
						measured = append(measured, res.Makespan)
					}
				}
				if got := tr.Measured(); got.Arena != tr.Planned().Arena {
					return fmt.Errorf("the rehearsal would have used %d bytes, %d are planned", got.Arena, tr.Planned().Arena)
				}
				return nil
			}()
			if err != nil {
				cancel()
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return measured, predicted
}

// A rehearsal takes the modelled time: never less than predicted, and on an
// idle machine hardly more, which the benchmark below shows.
func TestRehearsal(t *testing.T) {
	for _, kind := range []string{"1f1b", "zb-v", "interleaved", "pipedream", "pipedream-2bw"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			spec := parse(t, parityJob, "parallel.stages=4", "schedule.kind="+kind, "schedule.backward_p2=native", "optimizer.clip=0")
			world := local.NewWorldWith(4, local.Options{Rendezvous: true}) // what Simulate supposes of sends
			got, want := rehearse(t, spec, world, Rehearsal{Costs: schedule.Uniform(2e-3, 2e-3, 1e-3), RealMessages: true}, 2)
			for _, m := range got {
				if m < 0.999*want {
					t.Errorf("a step took %v s where the ops alone take %v", m, want)
				}
			}
		})
	}
}

// Reductions count: they take their modelled time and are part of the makespan.
func TestRehearsedReductions(t *testing.T) {
	spec := parse(t, parityJob, "parallel.stages=2", "parallel.replicas=2", "train.batch=16")
	c := schedule.Uniform(1e-3, 1e-3, 1e-3)
	c.Reduce = []float64{200e-3}
	got, want := rehearse(t, spec, local.NewWorld(4), Rehearsal{Costs: c}, 1)
	if got[0] < 0.999*want || want < 200e-3 {
		t.Errorf("a step took %v s where ops and reductions take %v", got[0], want)
	}
}

// 64 ranks on one machine.
func TestRehearsalOfManyRanks(t *testing.T) {
	spec := parse(t, parityJob, "parallel.stages=64", "model.layers=64", "schedule.kind=1f1b", "schedule.microbatches=8")
	got, want := rehearse(t, spec, local.NewWorldWith(64, local.Options{Rendezvous: true}), Rehearsal{Costs: schedule.Uniform(1e-3, 1e-3, 1e-3)}, 1)
	if got[0] < 0.999*want {
		t.Errorf("a step took %v s where the ops alone take %v", got[0], want)
	}
}

// BenchmarkRehearsal reports measured over predicted makespan of every schedule
// on 8 ranks, op times of 5 to 15 ms.
func BenchmarkRehearsal(b *testing.B) {
	for _, info := range schedule.Kinds() {
		b.Run(info.Name, func(b *testing.B) {
			spec := parse(b, parityJob, "parallel.stages=8", "model.layers=16", "schedule.kind="+info.Name, "schedule.backward_p2=native", "optimizer.clip=0",
				"schedule.microbatches=16", "train.batch=16")
			var ratios []float64
			for b.Loop() {
				got, want := rehearse(b, spec, local.NewWorldWith(8, local.Options{Processes: true}), Rehearsal{Costs: schedule.Uniform(5e-3, 8e-3, 6e-3)}, 3)
				for _, m := range got[1:] {
					ratios = append(ratios, m/want)
				}
			}
			b.ReportMetric(stats.MedianOr(ratios, 0), "measured/predicted")
		})
	}
}

// BenchmarkTwoBP reports what 2BP brings to the schedules of its paper
// (arXiv 2405.18047, table 1), rehearsed with equal times of 10 ms: makespan
// without over makespan with, measured and in theory.
func BenchmarkTwoBP(b *testing.B) {
	const op = 10e-3
	for _, ranks := range []int{4, 8} {
		for _, c := range []struct {
			name, kind, p2 string
			microbatches   int
		}{
			{"naive", "naive", "end", 1}, {"gpipe", "gpipe", "end", ranks},
			{"1f1b-1", "1f1b", "cooldown", ranks}, {"1f1b-2", "1f1b", "cooldown", 2 * ranks},
		} {
			b.Run(fmt.Sprintf("N=%d/%s", ranks, c.name), func(b *testing.B) {
				makespan := func(p2 string) (measured, theory float64) {
					spec := parse(b, parityJob, fmt.Sprintf("parallel.stages=%d", ranks), "schedule.kind="+c.kind, "schedule.backward_p2="+p2,
						`schedule.concat="all"`, fmt.Sprintf("schedule.microbatches=%d", c.microbatches), fmt.Sprintf("train.batch=%d", c.microbatches))
					got, want := rehearse(b, spec, local.NewWorldWith(ranks, local.Options{Processes: true}), Rehearsal{Costs: schedule.Uniform(op, op, op)}, 5)
					return stats.MedianOr(got[1:], 0), want
				}
				for b.Loop() {
					without, theoryWithout := makespan("fused")
					with, theoryWith := makespan(c.p2)
					b.ReportMetric(without/with, "speedup")
					b.ReportMetric(theoryWithout/theoryWith, "speedup-theory")
					b.ReportMetric(without/theoryWithout, "measured/predicted-without")
					b.ReportMetric(with/theoryWith, "measured/predicted-with")
				}
			})
		}
	}
}
