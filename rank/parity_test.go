package rank

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/collectives/local"
	"github.com/pipetrain/pipetrain/data"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cpu"
	"github.com/pipetrain/pipetrain/schedule"
)

// outcome is what must not depend on how a job is cut and scheduled.
type outcome struct {
	losses, norms []float64
	weights       map[string][]float32
}

const parityJob = `
name = "parity"
seed = 7
[model]
kind = "transformer"
layers = 8
dim = 16
heads = 2
kv_heads = 1
ffn = 24
seq = 8
vocab = 32
[data]
kind = "synthetic"
[train]
steps = 20
batch = 8
[optimizer]
kind = "adamw"
lr = 3e-3
warmup = 5
clip = 0.5
[schedule]
kind = "naive"
microbatches = 8
backward_p2 = "fused"
concat = 1
[device]
kind = "cpu"
blas = "go"
`

func parse(t testing.TB, text string, sets ...string) *jobs.Spec {
	t.Helper()
	spec, err := jobs.Parse("parity.toml", []byte(text), sets, t.TempDir())
	if err != nil {
		t.Fatalf("%v: %v", sets, err)
	}
	return spec
}

func openData(spec *jobs.Spec) (data.Source, error) {
	return data.Open(spec.DataConfig())
}

// train runs every rank of a world and returns what they agreed on.
func train(t testing.TB, spec *jobs.Spec, world []collectives.Transport) outcome {
	t.Helper()
	return trainOn(t, spec, world, func(d kernels.Device) kernels.Device { return d })
}

// trainOn is train on devices made from the CPU's.
func trainOn(t testing.TB, spec *jobs.Spec, world []collectives.Transport, wrap func(kernels.Device) kernels.Device) outcome {
	t.Helper()
	return trainWith(t, spec, world, wrap, func(*Trainer) {})
}

// trainWith is trainOn with a look at each rank before its first step.
func trainWith(t testing.TB, spec *jobs.Spec, world []collectives.Transport, wrap func(kernels.Device) kernels.Device, ready func(*Trainer)) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), 30*time.Second, fmt.Errorf("the run hangs"))
	defer cancel()
	var mu sync.Mutex
	out := outcome{weights: map[string][]float32{}}
	var wg sync.WaitGroup
	for r, tp := range world {
		wg.Go(func() {
			err := func() error {
				host, err := cpu.New(cpu.Options{Threads: 1, BLAS: spec.Device.BLAS})
				if err != nil {
					return err
				}
				defer host.Close()
				dev := wrap(host)
				src, err := openData(spec)
				if err != nil {
					return err
				}
				defer src.Close()
				tr, err := New(ctx, spec, tp, dev, src)
				if err != nil {
					return err
				}
				defer tr.Close()
				ready(tr)
				for step := 1; step <= spec.Train.Steps; step++ {
					res, err := tr.Step(ctx, step, false)
					if err != nil {
						return err
					}
					if r == 0 {
						out.losses, out.norms = append(out.losses, res.Loss), append(out.norms, res.GradNorm)
					}
				}
				if got, want := tr.Measured(), tr.Planned(); got.Arena != want.Arena || got.Peak != want.Peak {
					return fmt.Errorf("arena of %d bytes (peak %d) where %d (%d) were planned", got.Arena, got.Peak, want.Arena, want.Peak)
				}
				mu.Lock()
				defer mu.Unlock()
				for name, w := range tr.Weights() {
					if old, ok := out.weights[name]; ok && !equal(old, w) {
						return fmt.Errorf("rank %d: %s differs between replicas", r, name)
					}
					out.weights[name] = w
				}
				return nil
			}()
			if err != nil {
				cancel()
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return out
}

func equal(a, b []float32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return false
		}
	}
	return true
}

// differ says how two outcomes differ: bits when tolerance is 0, else relatively.
func differ(got, want outcome, tolerance float64) string {
	near := func(a, b float64) bool {
		if tolerance == 0 {
			return math.Float64bits(a) == math.Float64bits(b)
		}
		return math.Abs(a-b) <= tolerance*math.Max(math.Abs(a), math.Abs(b))
	}
	for i := range want.losses {
		if !near(got.losses[i], want.losses[i]) {
			return fmt.Sprintf("step %d: loss %v, want %v", i+1, got.losses[i], want.losses[i])
		}
		if !near(got.norms[i], want.norms[i]) {
			return fmt.Sprintf("step %d: gradient norm %v, want %v", i+1, got.norms[i], want.norms[i])
		}
	}
	if len(got.weights) != len(want.weights) {
		return fmt.Sprintf("%d tensors, want %d", len(got.weights), len(want.weights))
	}
	for name, w := range want.weights {
		g := got.weights[name]
		if tolerance == 0 {
			if !equal(g, w) {
				return name + " differs"
			}
			continue
		}
		var diff, size float64
		for i := range w {
			diff += float64(g[i]-w[i]) * float64(g[i]-w[i])
			size += float64(w[i]) * float64(w[i])
		}
		if math.Sqrt(diff) > 10*tolerance*math.Sqrt(size) {
			return fmt.Sprintf("%s differs by %.2g relative", name, math.Sqrt(diff/size))
		}
	}
	return ""
}

// Loss, gradient norm and weights after 20 steps have the same bits on one rank
// and under every schedule × placement with concat 1 × 2, 4, 8 ranks; with
// concatenation they agree to 1e-5.
func TestParity(t *testing.T) {
	references := map[string]outcome{}
	for _, tied := range []string{"false", "true"} {
		for _, layers := range []int{8, 16} {
			if tied == "true" && layers == 16 {
				continue
			}
			key := fmt.Sprintf("%d %s", layers, tied)
			references[key] = train(t, parse(t, parityJob, "parallel.stages=1", fmt.Sprintf("model.layers=%d", layers), "model.tied="+tied), local.NewWorld(1))
			if l := references[key].losses; l[19] >= l[0] {
				t.Fatalf("the reference does not learn: %v", l)
			}
		}
	}
	for _, info := range schedule.Kinds() {
		for _, ranks := range []int{2, 4, 8} {
			for _, p2 := range []string{"native", "fused", "lagged", "cooldown", "end"} {
				for _, concat := range []string{"1", "3", `"all"`} {
					for _, tied := range []string{"false", "true"} {
						if !worthwhile(info, ranks, p2, concat, tied) {
							continue
						}
						layers := 8
						if info.DefaultChunks > 1 && ranks == 8 {
							layers = 16
						}
						t.Run(fmt.Sprintf("%s/%d/%s/%s/tied=%s", info.Name, ranks, p2, strings.Trim(concat, `"`), tied), func(t *testing.T) {
							t.Parallel()
							spec := parse(t, parityJob, fmt.Sprintf("parallel.stages=%d", ranks), "schedule.kind="+info.Name,
								"schedule.backward_p2="+p2, "schedule.concat="+concat, "model.tied="+tied, fmt.Sprintf("model.layers=%d", layers))
							tolerance := 0.0
							// Another order of the micro-batches in a sum changes its last bits.
							if concat != "1" || info.Descending || info.Bidirectional {
								tolerance = 1e-5
							}
							world := local.NewWorldWith(ranks, local.Options{Rendezvous: true})
							if d := differ(train(t, spec, world), references[fmt.Sprintf("%d %s", layers, tied)], tolerance); d != "" {
								t.Error(d)
							}
						})
					}
				}
			}
		}
	}
}

// worthwhile leaves out combinations that say nothing new: concatenation and
// tying are tried on 4 ranks.
func worthwhile(info schedule.Info, ranks int, p2, concat, tied string) bool {
	switch {
	case info.Async:
		return false // other weights: held to a reference with the same staleness
	case info.MinMicrobatches(ranks, info.DefaultChunks) > 8:
		return false
	case concat != "1" && (ranks != 4 || p2 == "fused" || p2 == "native" || tied == "true"):
		return false
	case tied == "true" && (ranks != 4 || p2 != "cooldown" && p2 != "native"):
		return false
	}
	return true
}

// Two replicas see together what one sees with the same global batch: the first loss has its bits, but the
// gradients are (g0+…+g3)+(g4+…+g7) where one replica adds ((g0+g1)+…)+g7. Two replicas of other stages have the same bits.
func TestReplicas(t *testing.T) {
	want := train(t, parse(t, parityJob, "parallel.stages=1"), local.NewWorld(1))
	of := func(stages string) outcome {
		spec := parse(t, parityJob, "parallel.stages="+stages, "parallel.replicas=2", "schedule.microbatches=4", "schedule.kind=1f1b", "schedule.backward_p2=cooldown")
		return train(t, spec, local.NewWorld(spec.World()))
	}
	got := of("2")
	if d := differ(got, want, 1e-5); d != "" {
		t.Error(d)
	}
	if got.losses[0] != want.losses[0] || got.norms[0] == want.norms[0] {
		t.Errorf("first loss and norm %v and %v, of one replica %v and %v: want the same loss, another last digit of the norm", got.losses[0], got.norms[0], want.losses[0], want.norms[0])
	}
	if d := differ(of("4"), got, 0); d != "" {
		t.Errorf("four stages instead of two: %s", d)
	}
}

// apart is a device whose memory the host cannot address, as a GPU's.
type apart struct{ kernels.Device }

func (apart) Host(kernels.Buffer) []byte { return nil }

// Messages and reductions of a device with memory of its own are staged.
func TestDeviceMemoryApart(t *testing.T) {
	sets := []string{"parallel.stages=2", "parallel.replicas=2", "schedule.microbatches=4", "schedule.kind=1f1b", "schedule.backward_p2=cooldown", "model.tied=true"}
	want := train(t, parse(t, parityJob, sets...), local.NewWorld(4))
	got := trainOn(t, parse(t, parityJob, sets...), local.NewWorld(4), func(d kernels.Device) kernels.Device { return apart{d} })
	if d := differ(got, want, 0); d != "" {
		t.Error(d)
	}
}

// A plan above the job's limit is refused before the first step, by the rank that it concerns.
func TestMemoryLimit(t *testing.T) {
	spec := parse(t, parityJob, "schedule.memory_limit=4KiB")
	dev, err := cpu.New(cpu.Options{Threads: 1, BLAS: "go"})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	_, err = New(t.Context(), spec, local.NewWorld(1)[0], dev, nil)
	if err == nil || exitcode.Of(err) != exitcode.Usage || !strings.Contains(err.Error(), "schedule.memory_limit allows 4096") {
		t.Errorf("%v", err)
	}
}
