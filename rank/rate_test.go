package rank

import (
	"testing"

	"github.com/pipetrain/pipetrain/collectives/local"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cpu"
	"github.com/pipetrain/pipetrain/model"
)

// However a step is cut and ordered, its operations are those of the model's passes.
func TestStepFLOPs(t *testing.T) {
	for _, sets := range [][]string{
		{"parallel.stages=1"},
		{"parallel.stages=4", "schedule.kind=gpipe", "schedule.backward_p2=end", "schedule.concat=all"},
		{"parallel.stages=2", "schedule.kind=1f1b", "schedule.backward_p2=cooldown", "schedule.concat=3"},
		{"parallel.stages=2", "schedule.kind=zb-v", "schedule.backward_p2=native"},
	} {
		dev, err := cpu.New(cpu.Options{Threads: 1, BLAS: "go"})
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		spec := parse(t, parityJob, sets...)
		var sum int64
		for _, tp := range local.NewWorld(spec.World()) {
			tr, err := newTrainer(spec, tp)
			if err != nil {
				t.Fatal(err)
			}
			if err := tr.machine(tp, kernels.NewArena(kernels.Buffer{}), nil, dev); err != nil {
				t.Fatal(err)
			}
			sum += tr.stepFLOPs()
		}
		var want int64
		w, err := WorkOf(spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []model.Pass{model.PassForward, model.PassInput, model.PassWeight} {
			want += w.Model.FLOPs(p, w.Shape) * int64(w.Schedule.Microbatches)
		}
		if sum != want {
			t.Errorf("%v: %d operations a step, the passes have %d", sets, sum, want)
		}
	}
}

func TestMatrixRate(t *testing.T) {
	dev, err := cpu.New(cpu.Options{Threads: 1, BLAS: "go"})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if r := matrixRate(dev, kernels.F32); r < 1e8 || r > 1e15 {
		t.Errorf("%g FLOP/s", r)
	}
}
