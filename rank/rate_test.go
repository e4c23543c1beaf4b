package rank

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/pipetrain/pipetrain/collectives/local"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cpu"
	"github.com/pipetrain/pipetrain/kernels/null"
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
			w, err := WorkOf(spec)
			if err != nil {
				t.Fatal(err)
			}
			tr, err := newTrainer(spec, w, tp)
			if err != nil {
				t.Fatal(err)
			}
			if err := tr.machine(tp, kernels.NewArena(kernels.Buffer{}), null.New(dev)); err != nil {
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

// What rates are measured on is random to the end, and finite.
func TestFill(t *testing.T) {
	dev, err := cpu.New(cpu.Options{Threads: 1, BLAS: "go"})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for _, of := range []kernels.DType{kernels.F32, kernels.BF16} {
		n := int64(2*ratePattern + 777)
		m, err := dev.Alloc(n * of.Size())
		if err != nil {
			t.Fatal(err)
		}
		fill(dev, m.As(of))
		b := dev.Host(m)
		seen := map[float32]bool{}
		for i := range n {
			var v float32
			if of == kernels.BF16 {
				v = math.Float32frombits(uint32(binary.NativeEndian.Uint16(b[2*i:])) << 16)
			} else {
				v = math.Float32frombits(binary.NativeEndian.Uint32(b[4*i:]))
			}
			if !(math.Abs(float64(v)) < 10) {
				t.Fatalf("%s: element %d is %g", of, i, v)
			}
			if i >= n-500 {
				seen[v] = true
			}
		}
		if len(seen) < 100 {
			t.Errorf("%s: %d different values among the last 500", of, len(seen))
		}
		dev.Free(m)
	}
}
