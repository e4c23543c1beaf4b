package model

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pipetrain/pipetrain/kernels"
)

// golden is what PyTorch computed; see testdata/gen_goldens.py.
type golden struct {
	Name   string
	Config struct {
		Layers, Dim, Heads, FFN, Seq, Vocab int
		Tied                                bool
		KVHeads                             int     `json:"kv_heads"`
		RopeBase                            float64 `json:"rope_base"`
		NormEps                             float64 `json:"norm_eps"`
		Norm, Activation                    string
	}
	Batch     int
	Losses    []float64
	Grads     map[string][]float64
	Optimizer struct {
		Kind                            string
		LR, Beta1, Beta2, Eps, Momentum float64
		Clip                            float64
		Warmup, Steps                   int
		MinLR                           float64 `json:"min_lr"`
		WeightDecay                     float64 `json:"weight_decay"`
	}
	Run     []struct{ Loss, Norm, LR float64 }
	Weights map[string][]float64
}

func readGoldens(t *testing.T) map[string]*golden {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	out := map[string]*golden{}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		g := &golden{}
		if err := json.Unmarshal(raw, g); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		out[g.Name] = g
	}
	return out
}

func (g *golden) config() Config {
	c := g.Config
	return Config{Layers: c.Layers, Dim: c.Dim, Heads: c.Heads, KVHeads: c.KVHeads, FFN: c.FFN, Seq: c.Seq,
		Vocab: c.Vocab, Tied: c.Tied, RopeBase: c.RopeBase, NormEps: c.NormEps, Norm: c.Norm, Activation: c.Activation}
}

func (g *golden) optimizer() Optimizer {
	o := g.Optimizer
	return Optimizer{Kind: o.Kind, Values: Values{"beta1": o.Beta1, "beta2": o.Beta2, "eps": o.Eps, "momentum": o.Momentum}, WeightDecay: o.WeightDecay}
}

func (g *golden) texts(step int) [][]int32 {
	out := make([][]int32, g.Batch)
	for s := range out {
		for i := range g.Config.Seq + 1 {
			out[s] = append(out[s], int32((i*i+3*s+7*step+i*s)%g.Config.Vocab))
		}
	}
	return out
}

// fill sets the weights by the generator's formula, numbered by sorted name.
func (n *network) fill() {
	var names []string
	n.each(func(p ParamRef, _, _ kernels.Buffer) {
		p.names(func(name string, _, _ int64) { names = append(names, name) })
	})
	slices.Sort(names)
	first := map[int]kernels.Buffer{}
	n.each(func(p ParamRef, w, _ kernels.Buffer) {
		if !p.Owned() {
			n.dev.Copy(w, first[p.Owner])
			return
		}
		first[p.Index] = w
		p.names(func(name string, from, to int64) {
			k, v := slices.Index(names, name), make([]float32, to-from)
			for i := range v {
				x := math.Sin(12.9898*float64(i+1) + 78.233*float64(k+1))
				if v[i] = float32(0.5 * x); p.Vector {
					v[i] = float32(1 + 0.2*x)
				}
			}
			n.dev.CopyIn(w.Slice(from, to-from), f32Bytes(v))
		})
	})
}

// compare holds every saved matrix against want.
func (n *network) compare(t *testing.T, what string, want map[string][]float64, tolerance float64, pick func(w, g kernels.Buffer) kernels.Buffer) {
	t.Helper()
	seen := 0
	n.each(func(p ParamRef, w, g kernels.Buffer) {
		v := readF32(n.dev, pick(w, g))
		p.names(func(name string, from, to int64) {
			seen++
			if d := apart(v[from:to], want[name]); d > tolerance {
				t.Errorf("%s of %s is %.2g off", what, name, d)
			}
		})
	})
	if seen != len(want) {
		t.Errorf("%s: %d matrices, want %d", what, seen, len(want))
	}
}

func TestGradientsAgainstPyTorch(t *testing.T) {
	for name, g := range readGoldens(t) {
		for _, concatenate := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				n := newNetwork(t, openCPU(t), g.config(), 1, g.optimizer())
				n.fill()
				losses := n.gradients(g.texts(1), concatenate)
				if d := apart(losses, g.Losses); d > 2e-6 {
					t.Errorf("losses are %.2g off", d)
				}
				n.compare(t, "gradient", g.Grads, 1e-5, func(_, g kernels.Buffer) kernels.Buffer { return g })
			})
		}
	}
}

// TestTrainingAgainstPyTorch: losses, norms and final weights of some steps of
// optimizer, schedule and clipping, for every cut; and no cut changes a bit.
func TestTrainingAgainstPyTorch(t *testing.T) {
	for name, g := range readGoldens(t) {
		t.Run(name, func(t *testing.T) {
			o := g.Optimizer
			schedule := LRSchedule{Base: o.LR, Min: o.MinLR, Warmup: o.Warmup, Steps: o.Steps, Decay: "cosine"}
			var whole [][]float32
			for stages := 1; stages <= g.Config.Layers; stages++ {
				n := newNetwork(t, openCPU(t), g.config(), stages, g.optimizer())
				n.fill()
				for i, want := range g.Run {
					losses := n.gradients(g.texts(i+1), false)
					var mean float64
					for _, l := range losses {
						mean += float64(l) / float64(len(losses))
					}
					norm, lr := n.norm(), schedule.At(i+1)
					n.update(i+1, lr, ClipScale(norm, o.Clip))
					for _, v := range []struct {
						what      string
						got, want float64
					}{{"loss", mean, want.Loss}, {"norm", norm, want.Norm}, {"rate", lr, want.LR}} {
						if math.Abs(v.got-v.want) > 2e-5*v.want {
							t.Errorf("%d stages, step %d: %s %.9g, want %.9g", stages, i+1, v.what, v.got, v.want)
						}
					}
				}
				n.compare(t, "final weight", g.Weights, 2e-5, func(w, _ kernels.Buffer) kernels.Buffer { return w })
				var all [][]float32
				n.each(func(_ ParamRef, w, _ kernels.Buffer) { all = append(all, readF32(n.dev, w)) })
				if whole == nil {
					whole = all
				}
				for i := range all {
					if !slices.Equal(all[i], whole[i]) {
						t.Errorf("%d stages: bits of %s differ from those of one stage", stages, n.model.Params()[i].Name)
					}
				}
			}
			if name == "tied-sgd" && !slices.Equal(whole[0], whole[len(whole)-1]) {
				t.Error("the copies of the tied table differ")
			}
		})
	}
}
