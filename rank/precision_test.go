package rank

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/collectives/local"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cpu"
	"github.com/pipetrain/pipetrain/model"
)

// With bf16, and with the other parts of a block, a pipeline gives the bits of one
// rank as it does in fp32: rounding happens where layers write, wherever they run.
func TestParityOfPrecision(t *testing.T) {
	gpt := "model.norm=layernorm model.activation=gelu"
	cases := []struct {
		model     string
		schedules []string
	}{
		{"train.precision=bf16", []string{
			"naive 2 fused", "gpipe 4 end", "1f1b 2 lagged", "1f1b 4 cooldown", "interleaved 2 cooldown", "zb-h1 4 native"}},
		{"train.precision=bf16 model.tied=true " + gpt, []string{"1f1b 4 cooldown", "zb-h1 4 native"}},
		{gpt, []string{"1f1b 2 cooldown", "gpipe 4 fused"}},
	}
	if testing.Short() {
		cases = cases[1:2] // numbers are for the long run
	}
	for _, c := range cases {
		sets := strings.Fields(c.model)
		want := train(t, parse(t, parityJob, append(sets, "parallel.stages=1")...), local.NewWorld(1))
		if l := want.losses; l[19] >= l[0] {
			t.Fatalf("%s: the reference does not learn: %v", c.model, l)
		}
		for _, s := range c.schedules {
			t.Run(c.model+"/"+s, func(t *testing.T) {
				t.Parallel()
				var kind, p2 string
				var ranks int
				if _, err := fmt.Sscan(s, &kind, &ranks, &p2); err != nil {
					t.Fatal(err)
				}
				spec := parse(t, parityJob, append(sets[:len(sets):len(sets)], "schedule.kind="+kind, fmt.Sprintf("parallel.stages=%d", ranks), "schedule.backward_p2="+p2)...)
				if d := differ(train(t, spec, local.NewWorldWith(ranks, local.Options{Rendezvous: true})), want, 0); d != "" {
					t.Error(d)
				}
			})
		}
	}
}

// bf16 is no fp32 with another name: its numbers differ, its activations and messages
// take half the memory, its weights half more for the copy that is read.
func TestPrecisionMemory(t *testing.T) {
	dev, err := cpu.New(cpu.Options{Threads: 1, BLAS: "go"})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	memory := func(precision string) Memory {
		w, err := WorkOf(parse(t, parityJob, "model.dim=64", "model.ffn=128", "model.seq=64", "parallel.stages=4", "schedule.kind=1f1b", "train.precision="+precision))
		if err != nil {
			t.Fatal(err)
		}
		all, err := PlanMemories(w, dev)
		if err != nil {
			t.Fatal(err)
		}
		return all[1]
	}
	full, half := memory("fp32").ByCategory, memory("bf16").ByCategory
	for _, c := range []string{catWeights, catGradients, catOptimizer} {
		if full[c] == 0 || half[c] != full[c] {
			t.Errorf("%s: %d bytes with bf16, %d with fp32", c, half[c], full[c])
		}
	}
	if half[catRounded]*2 != full[catWeights] || full[catRounded] != 0 {
		t.Errorf("rounded weights: %d bytes of %d", half[catRounded], full[catWeights])
	}
	// Statistics stay fp32: one or two numbers a row beside hundreds.
	for _, c := range []string{catActivations, catP2Inputs, catTransfers} {
		if r := float64(half[c]) / float64(full[c]); full[c] == 0 || math.Abs(r-0.5) > 0.02 {
			t.Errorf("%s: %d bytes with bf16, %d with fp32", c, half[c], full[c])
		}
	}
	if a, b := train(t, parse(t, parityJob, "train.steps=2", "optimizer.warmup=1", "train.precision=bf16"), local.NewWorld(1)),
		train(t, parse(t, parityJob, "train.steps=2", "optimizer.warmup=1"), local.NewWorld(1)); differ(a, b, 0) == "" {
		t.Error("bf16 gives the bits of fp32")
	}
}

// The loss of a bf16 run follows that of fp32: docs/precision.md states this
// tolerance. Both start from the same weights and see the same data.
func TestBF16FollowsFP32(t *testing.T) {
	if testing.Short() {
		t.Skip("short: it is about numbers")
	}
	for _, parts := range []string{"model.norm=rmsnorm", "model.norm=layernorm model.activation=gelu"} {
		t.Run(parts, func(t *testing.T) {
			sets := append(strings.Fields(parts), "train.steps=50", "model.layers=4", "model.dim=32", "model.ffn=64", "model.heads=4", "model.kv_heads=2",
				"model.seq=32", "model.vocab=64", "parallel.stages=2", "schedule.kind=1f1b", "schedule.microbatches=4")
			run := func(precision string) outcome {
				return train(t, parse(t, parityJob, append(sets, "train.precision="+precision)...), local.NewWorld(2))
			}
			full, half := run("fp32"), run("bf16")
			if full.losses[49] > 0.9*full.losses[0] {
				t.Fatalf("it does not learn: %v", full.losses)
			}
			worst := 0.0
			for i := range full.losses {
				worst = max(worst, math.Abs(half.losses[i]/full.losses[i]-1))
			}
			t.Logf("loss %.4f to %.4f, bf16 %.4f; worst %.2g of it", full.losses[0], full.losses[49], half.losses[49], worst)
			if worst > 5e-3 {
				t.Errorf("the loss is up to %.2g off", worst)
			}
		})
	}
}

// The weights that layers read are the optimizer's, rounded, after every step.
func TestRoundedWeights(t *testing.T) {
	spec := parse(t, parityJob, "train.steps=3", "optimizer.warmup=1", "optimizer.decay=constant", "train.precision=bf16", "model.tied=true")
	trainWith(t, spec, local.NewWorld(1), func(d kernels.Device) kernels.Device { return d }, func(tr *Trainer) {
		for step := range 3 {
			for _, st := range tr.m.stages {
				if st.typ != model.TypeOf("bf16") {
					t.Fatalf("layers of %s", st.typ)
				}
				n := st.params.Len
				read, w := make([]byte, 2*n), make([]byte, 2*n)
				tr.dev.CopyOut(read, st.readWeights())
				st.round()
				tr.dev.CopyOut(w, st.readWeights())
				if string(read) != string(w) {
					t.Errorf("after %d steps they are others", step)
				}
			}
			if _, err := tr.Step(t.Context(), step+1, false); err != nil {
				t.Fatal(err)
			}
		}
	})
}
