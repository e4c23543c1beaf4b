package rank

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/collectives/local"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cpu"
	"github.com/pipetrain/pipetrain/schedule"
)

// staleness is the definition of an asynchronous kind over p ranks: how many
// micro-batches an update covers and which version of stage r micro-batch k reads.
func staleness(kind string, p int) (every int, reads func(r, k int) int) {
	if kind == "pipedream" {
		// When rank r performs the forward of k, the p-1-r micro-batches before it
		// are still on their way through the later ranks (arXiv 1806.03377, section 3.3).
		return 1, func(r, k int) int { return max(0, k-(p-1-r)) }
	}
	// w(t+1) = w(t) - lr * gradient(w(t-1)) on every rank (arXiv 2006.09503, section 3.1).
	return p, func(_, k int) int { return max(0, k/p-1) }
}

func asyncSpec(t testing.TB, kind string, p int, sets ...string) *jobs.Spec {
	t.Helper()
	return parse(t, parityJob, append([]string{"optimizer.clip=0", "schedule.kind=" + kind, fmt.Sprintf("parallel.stages=%d", p),
		"schedule.microbatches=16", "train.batch=16"}, sets...)...)
}

// Loss, gradient norm and weights after 20 steps have the bits of a plain single
// process that trains on weights as old as the schedule's definition says.
func TestAsyncParity(t *testing.T) {
	for _, c := range []struct {
		kind string
		p    int
		sets []string
	}{
		{"pipedream", 1, nil},
		{"pipedream", 2, nil},
		{"pipedream", 4, nil},
		{"pipedream", 8, nil},
		{"pipedream", 4, []string{"optimizer.kind=sgd", "optimizer.lr=0.05"}},
		{"pipedream", 4, []string{"schedule.microbatches=2", "train.batch=2"}}, // never leaves the warm-up
		{"pipedream", 2, []string{"parallel.replicas=2", "schedule.microbatches=8"}},
		{"pipedream-2bw", 1, nil},
		{"pipedream-2bw", 2, nil},
		{"pipedream-2bw", 4, nil},
		{"pipedream-2bw", 8, nil},
		{"pipedream-2bw", 4, []string{"optimizer.kind=sgd", "optimizer.lr=0.05"}},
		{"pipedream-2bw", 2, []string{"parallel.replicas=2", "schedule.microbatches=8"}},
		{"pipedream", 4, []string{"train.precision=bf16"}},
		{"pipedream-2bw", 2, []string{"parallel.replicas=2", "schedule.microbatches=8", "train.precision=bf16"}},
	} {
		t.Run(fmt.Sprintf("%s/%d/%v", c.kind, c.p, c.sets), func(t *testing.T) {
			t.Parallel()
			spec := asyncSpec(t, c.kind, c.p, c.sets...)
			every, reads := staleness(c.kind, c.p)
			want := trainStale(t, spec, every, reads)
			got := train(t, spec, local.NewWorldWith(spec.World(), local.Options{Rendezvous: true}))
			if d := differ(got, want, 0); d != "" {
				t.Error(d)
			}
			if want.losses[19] >= want.losses[0] {
				t.Errorf("it does not learn: %v", want.losses)
			}
		})
	}
}

// A schedule file may split the backward of an asynchronous schedule (2BP): I and W
// both read the version of their F. Where an update covers several micro-batches,
// their W may be one.
func TestAsyncSplit(t *testing.T) {
	const p, m = 4, 16
	for _, c := range []struct {
		kind      string
		joined    bool // one W an update, right before it; else each W right after the next I of its update
		tolerance float64
	}{{"pipedream", false, 0}, {"pipedream-2bw", false, 0}, {"pipedream-2bw", true, 1e-5}} {
		t.Run(fmt.Sprintf("%s joined=%v", c.kind, c.joined), func(t *testing.T) {
			t.Parallel()
			s, err := schedule.Build(c.kind, schedule.Config{Ranks: p, Microbatches: m})
			if err != nil {
				t.Fatal(err)
			}
			for r, program := range s.Programs {
				var split, due []schedule.Op
				for _, o := range program {
					switch {
					case o.Kind == schedule.Backward:
						o.Kind = schedule.BackwardInput
						split = append(split, o)
						if !c.joined {
							split = append(split, due...)
							due = due[:0]
						}
						o.Kind = schedule.BackwardWeight
						due = append(due, o)
						continue
					case o.Kind == schedule.Update && c.joined:
						due[0].Last = due[len(due)-1].Last
						due = due[:1]
						fallthrough
					case o.Kind == schedule.Update:
						split = append(split, due...)
						due = due[:0]
					}
					split = append(split, o)
				}
				s.Programs[r] = split
			}
			path := filepath.Join(t.TempDir(), "split.txt")
			if err := os.WriteFile(path, []byte(schedule.Format(s)), 0o644); err != nil {
				t.Fatal(err)
			}
			spec := asyncSpec(t, "file", p, "schedule.file="+path, "schedule.backward_p2=native")
			every, reads := staleness(c.kind, p)
			if d := differ(train(t, spec, local.NewWorld(p)), trainStale(t, spec, every, reads), c.tolerance); d != "" {
				t.Error(d)
			}
		})
	}
}

// The reference tells stalenesses apart: one version off is another result.
func TestAsyncParityCanFail(t *testing.T) {
	for _, kind := range []string{"pipedream", "pipedream-2bw"} {
		const p = 4
		spec := asyncSpec(t, kind, p, "train.steps=2", "optimizer.warmup=1")
		got := train(t, spec, local.NewWorld(p))
		every, reads := staleness(kind, p)
		for name, wrong := range map[string]func(r, k int) int{
			"fresh":     func(_, k int) int { return k / every },
			"one older": func(r, k int) int { return max(0, reads(r, k)-1) },
			"alike":     func(_, k int) int { return reads(0, k) },
		} {
			if name == "alike" && kind != "pipedream" {
				continue // it is the rule
			}
			if differ(got, trainStale(t, spec, every, func(r, k int) int { return min(wrong(r, k), k/every) }), 0) == "" {
				t.Errorf("%s: %s weights give the same bits", kind, name)
			}
		}
	}
}

// Older weights of a device whose memory the host cannot address stay on the device.
func TestAsyncMemoryApart(t *testing.T) {
	spec := asyncSpec(t, "pipedream-2bw", 2, "parallel.replicas=2", "schedule.microbatches=8")
	want := train(t, spec, local.NewWorld(4))
	got := trainOn(t, spec, local.NewWorld(4), func(d kernels.Device) kernels.Device { return apart{d} })
	if d := differ(got, want, 0); d != "" {
		t.Error(d)
	}
}

// A rank holds at most p-r versions under pipedream and two under pipedream-2bw,
// and as many as that where there are micro-batches enough.
func TestVersionsHeld(t *testing.T) {
	for _, kind := range []string{"pipedream", "pipedream-2bw"} {
		for _, p := range []int{1, 2, 4, 8} {
			most := make([]int64, p)
			spec := asyncSpec(t, kind, p, "train.steps=3", "optimizer.warmup=1")
			trainWith(t, spec, local.NewWorld(p), func(d kernels.Device) kernels.Device { return d }, func(tr *Trainer) {
				one := tr.m.arena.UsedBy(catWeights)
				was := tr.m.record
				tr.m.record = func(op schedule.Op, category string, start, end int64) {
					was(op, category, start, end)
					most[tr.place.Stage] = max(most[tr.place.Stage], 1+tr.m.arena.UsedBy(catVersions)/one)
				}
			})
			for r, got := range most {
				want := 2
				if kind == "pipedream" {
					want = p - r
				}
				if got != int64(want) {
					t.Errorf("%s over %d ranks: rank %d holds %d versions, want %d", kind, p, r, got, want)
				}
			}
		}
	}
}

// A run that is saved and loaded goes on with the same bits, the optimizer's count of
// updates included: with bf16 too, for what is saved are the fp32 weights.
func TestResumeBits(t *testing.T) {
	for _, c := range []struct {
		name string
		spec *jobs.Spec
	}{
		{"pipedream", asyncSpec(t, "pipedream", 4, "train.steps=6", "optimizer.beta2=0.999")},
		{"pipedream-2bw", asyncSpec(t, "pipedream-2bw", 4, "train.steps=6", "optimizer.beta2=0.999")},
		{"pipedream-2bw bf16", asyncSpec(t, "pipedream-2bw", 4, "train.steps=6", "train.precision=bf16")},
		{"1f1b bf16", parse(t, parityJob, "train.steps=6", "train.precision=bf16", "model.tied=true", "parallel.stages=2", "schedule.kind=1f1b", "model.norm=layernorm")},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := train(t, c.spec, local.NewWorld(c.spec.World()))
			for name, w := range resumed(t, c.spec, 3) {
				if !equal(w, want.weights[name]) {
					t.Errorf("%s differs after a resume", name)
				}
			}
		})
	}
}

// resumed trains a job whose first half is saved and whose second is a run of its
// own, and returns the weights.
func resumed(t *testing.T, spec *jobs.Spec, half int) map[string][]float32 {
	dir := filepath.Join(t.TempDir(), "run")
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var mu sync.Mutex
	weights := map[string][]float32{}
	part := func(tr *Trainer, load bool) error {
		from, to := 0, half
		if load {
			var err error
			if from, err = tr.Load(ctx, dir, -1, func(string) {}); err != nil {
				return err
			}
			to = spec.Train.Steps
		}
		for step := from + 1; step <= to; step++ {
			if _, err := tr.Step(ctx, step, false); err != nil {
				return err
			}
		}
		if !load {
			return tr.Save(ctx, dir, to, "test", func(string) {})
		}
		mu.Lock()
		defer mu.Unlock()
		for name, w := range tr.Weights() {
			weights[name] = w
		}
		return nil
	}
	for _, load := range []bool{false, true} {
		var wg sync.WaitGroup
		for rank, tp := range local.NewWorld(spec.World()) {
			wg.Go(func() {
				err := func() error {
					dev, err := cpu.New(cpu.Options{Threads: 1, BLAS: "go"})
					if err != nil {
						return err
					}
					defer dev.Close()
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
					return part(tr, load)
				}()
				if err != nil {
					cancel()
					t.Errorf("rank %d: %v", rank, err)
				}
			})
		}
		wg.Wait()
	}
	if len(weights) == 0 {
		t.Error("no weights came back")
	}
	return weights
}
