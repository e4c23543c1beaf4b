package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pipetrain/pipetrain/kernels"
)

// trials are every layer in odd and even shapes, with and without grouped queries.
func trials() map[string]*trial {
	out := map[string]*trial{}
	add := func(name string, cfg Config, batch, n int, blockOnly bool) {
		cfg = cfg.WithDefaults()
		if err := cfg.Check(); err != nil {
			panic(err)
		}
		out[name+"/block"] = newTrial(cfg, NewBlock(cfg, 1), batch, n)
		out[name+"/post-norm"] = newTrial(cfg, postNorm(cfg), batch, n)
		if !blockOnly {
			out[name+"/embed"] = newTrial(cfg, NewEmbed(cfg.Vocab, cfg.Dim, initStd, "", cfg.Type), batch, n)
			out[name+"/head"] = newTrial(cfg, NewHead(cfg), batch, n)
		}
	}
	add("odd", Config{Layers: 2, Dim: 12, Heads: 3, FFN: 7, Seq: 5, Vocab: 11}, 2, 3, false)
	add("grouped", Config{Layers: 2, Dim: 24, Heads: 6, KVHeads: 2, FFN: 20, Seq: 4, Vocab: 5, RopeBase: 50}, 1, 2, true)
	add("one-kv-head", Config{Layers: 1, Dim: 40, Heads: 5, KVHeads: 1, FFN: 33, Seq: 9, Vocab: 37, NormEps: 0.1}, 1, 2, false)
	add("one-token", Config{Layers: 1, Dim: 8, Heads: 4, KVHeads: 2, FFN: 5, Seq: 1, Vocab: 2}, 3, 2, false)
	// More positions than an attention kernel is likely to take at a time.
	add("long", Config{Layers: 1, Dim: 16, Heads: 2, KVHeads: 1, FFN: 9, Seq: 67}, 1, 2, true)
	add("layernorm", Config{Layers: 2, Dim: 12, Heads: 3, FFN: 7, Seq: 5, Vocab: 11, Norm: NormLayer}, 2, 3, false)
	add("gelu", Config{Layers: 2, Dim: 12, Heads: 3, FFN: 19, Seq: 3, Vocab: 11, Activation: ActivationGELU}, 1, 2, true)
	add("gpt", Config{Layers: 1, Dim: 20, Heads: 2, KVHeads: 1, Seq: 7, Vocab: 13, Norm: NormLayer, Activation: ActivationGELU}, 2, 2, false)
	add("bf16", Config{Layers: 1, Dim: 24, Heads: 6, KVHeads: 2, FFN: 21, Seq: 5, Vocab: 11, Type: kernels.BF16}, 3, 3, false)
	add("gpt-bf16", Config{Layers: 1, Dim: 20, Heads: 2, FFN: 33, Seq: 7, Vocab: 13, Norm: NormLayer, Activation: ActivationGELU, Type: kernels.BF16}, 1, 3, false)
	for name, typ := range map[string]kernels.DType{"gpt2": kernels.F32, "gpt2-bf16": kernels.BF16} {
		cfg := Config{Kind: "gpt2", Layers: 2, Dim: 15, Heads: 3, FFN: 7, Seq: 4, Vocab: 11, Positions: 6, Type: typ}.WithDefaults()
		if err := cfg.Check(); err != nil {
			panic(err)
		}
		for part, l := range map[string]Layer{"embed": newGPT2Embed(cfg), "block": newGPT2Block(cfg, 1), "head": newGPT2Head(cfg)} {
			out[name+"/"+part] = newTrial(cfg, l, 2, 3)
		}
	}
	return out
}

// postNorm is a block as in BERT, of the same parts in another order: the norms behind the residuals. Its h1 is not
// kept but computed again, for the parts of a residual.
//
//	h1 = norm1(x + attention(x))   y = norm2(h1 + mlp(h1))
func postNorm(cfg Config) Layer {
	dim := Matrix{Token, cfg.Dim, cfg.Type}
	l := &layer{name: "post-norm", in: dim, out: dim}
	l.x, l.dy = l.slot(SlotX, UntilWeight, dim), l.slot(SlotDY, FromInput, dim)
	norm1, attn := newNorm(l, cfg, "norm1", "1"), newAttention(l, cfg)
	attention := sequence{
		{newLinear(l, Token, qkvParam(cfg, "post")), l.slot("qkv", UntilInput, attn.in()), l.slot("dqkv", FromInput, attn.in())},
		{attn, l.slot("o", UntilWeight, attn.out()), scratch(attn.out())},
		{part: newLinear(l, Token, Param{Name: "o", Rows: cfg.Dim, Cols: cfg.Dim, Init: Init{Std: 1}})},
	}
	norm2 := newNorm(l, cfg, "norm2", "2")
	l.made(sequence{
		{residual{attention}, l.slot("s1", UntilWeight, dim), l.slot("ds1", FromInput, dim)},
		{norm1, scratch(dim), l.slot("dh1", FromInput, dim)},
		{residual{newMLP(l, cfg, "mlp")}, l.slot("s2", UntilWeight, dim), l.slot("ds2", FromInput, dim)},
		{part: norm2},
	})
	return l
}

// forEach runs f on every trial as a subtest.
func forEach(t *testing.T, f func(t *testing.T, tr *trial)) {
	all := trials()
	for _, name := range sortedKeys(all) {
		t.Run(name, func(t *testing.T) { f(t, all[name]) })
	}
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// values are the float64 inputs of a reference: one micro-batch's x and the weights.
type values struct {
	x       []float64
	weights [][]float64
}

func (tr *trial) values(k int) values {
	v := values{x: widen(tr.x[k])}
	for _, w := range tr.weights {
		v.weights = append(v.weights, widen(w))
	}
	return v
}

func widen(v []float32) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}

// reference computes micro-batch k on a tape: outputs, objective and the numbers
// whose gradients count.
func (tr *trial) reference(k int, v values) (t *tape, y mat, x mat, weights []mat, objective num) {
	t = &tape{val: tr.spare.val[:0], from: tr.spare.from[:0], part: tr.spare.part[:0]}
	for i, p := range tr.layer.Params() {
		weights = append(weights, t.mat(p.Rows, p.Cols, v.weights[i]))
	}
	gpt2 := tr.cfg.Kind == "gpt2"
	x = t.mat(tr.shape.Rows(), tr.cfg.Dim, v.x)
	dy := widen(tr.dy[k])
	switch {
	case isEmbed(tr.layer):
		y, x = embedRef(tr.ids[k], weights), nil
		if gpt2 {
			y = t.addRef(y, positionsRef(len(y), tr.shape.Seq, weights[1]))
		}
	case tr.layer.Name() == "post-norm":
		y = t.postNormRef(x, weights, tr.cfg)
	case gpt2 && SlotIndex(tr.layer, SlotDY) >= 0:
		y = t.gpt2BlockRef(x, weights, tr.cfg)
	case SlotIndex(tr.layer, SlotDY) >= 0:
		y = t.blockRef(x, weights, tr.cfg)
	default:
		y = t.headRef(x, weights, tr.ids[k], tr.cfg)
		for i := range dy {
			dy[i] = float64(tr.scale)
		}
	}
	return t, y, x, weights, t.objective(y, dy)
}

// isEmbed says whether a layer takes ids, which have no gradient.
func isEmbed(l Layer) bool { return l.In().Type == kernels.I32 }

// expected returns what the tape says about all micro-batches.
func (tr *trial) expected() (out, dx, grads [][]float64) {
	if tr.known != nil {
		return tr.known.out, tr.known.dx, tr.known.grads
	}
	defer func() { tr.known = &expectation{out, dx, grads} }()
	for k := range tr.n {
		t, y, x, weights, objective := tr.reference(k, tr.values(k))
		g := t.gradient(objective)
		out = append(out, y.pick(t.val))
		dx = append(dx, x.pick(g))
		for i, w := range weights {
			if k == 0 {
				grads = append(grads, make([]float64, tr.layer.Params()[i].Len()))
			}
			for j, d := range w.pick(g) {
				grads[i][j] += d
			}
		}
	}
	return out, dx, grads
}

// check compares a run on dev with the tape.
func (tr *trial) check(dev kernels.Device, calls []call) error {
	tolerance := 1e-5 // of the largest number; f32 has 6e-8
	if tr.cfg.Type == kernels.BF16 {
		// Some ten roundings of 2⁻⁹ on average lie between input and output, and their
		// errors do not all add up. A missing or misplaced operation is off by parts of one.
		tolerance = 0.02
	}
	wantDX := !isEmbed(tr.layer)
	got, err := tr.run(dev, calls, wantDX)
	if err != nil {
		return err
	}
	out, dx, grads := tr.expected()
	for k := range tr.n {
		if d := apart(got.out[k], out[k]); d > tolerance {
			return fmt.Errorf("output of micro-batch %d is %.2g off", k, d)
		}
		if wantDX {
			if d := apart(got.dx[k], dx[k]); d > tolerance {
				return fmt.Errorf("input gradient of micro-batch %d is %.2g off", k, d)
			}
		}
	}
	for i, p := range tr.layer.Params() {
		if d := apart(got.grads[i], grads[i]); d > tolerance {
			return fmt.Errorf("gradient of %s is %.2g off", p.Name, d)
		}
	}
	return nil
}

func TestLayersAgainstTape(t *testing.T) {
	forEach(t, func(t *testing.T, tr *trial) {
		for _, way := range sortedKeys(ways) {
			dev := open(t, ways[way])
			for name, calls := range map[string][]call{"fused": fused(tr.n), "split": split(tr.n), "concat": concat(tr.n)} {
				if err := tr.check(dev, calls); err != nil {
					t.Errorf("%s, %s: %v", way, name, err)
				}
			}
		}
	})
}

// TestTapeAgainstDifferences judges the judge: central differences of the
// reference's own forward, which needs no derivative at all.
func TestTapeAgainstDifferences(t *testing.T) {
	forEach(t, func(t *testing.T, tr *trial) {
		if tr.shape.Rows() > 12 || tr.cfg.Type == kernels.BF16 {
			t.Skip("too large for hundreds of forwards, or the same reference again")
		}
		v := tr.values(0)
		tp, _, x, weights, objective := tr.reference(0, v)
		g := tp.gradient(objective)
		at := func() float64 {
			tp, _, _, _, objective := tr.reference(0, v)
			tr.spare = *tp // hundreds of forwards in the same memory
			return tp.val[objective]
		}
		compare := func(name string, values, grads []float64) {
			step := max(1, len(values)/9) // some 9 of each tensor
			size := 0.0
			for _, d := range grads {
				size = max(size, math.Abs(d))
			}
			for i := 0; i < len(values); i += step {
				const h = 1e-4
				was := values[i]
				values[i] = was + h
				up := at()
				values[i] = was - h
				down := at()
				values[i] = was
				if d := (up - down) / (2 * h); math.Abs(d-grads[i]) > 1e-6*max(size, 1) {
					t.Errorf("%s[%d]: tape %g, differences %g", name, i, grads[i], d)
				}
			}
		}
		for i, p := range tr.layer.Params() {
			compare(p.Name, v.weights[i], weights[i].pick(g))
		}
		if x != nil {
			compare("x", v.x, x.pick(g))
		}
	})
}

// TestRandomShapes draws shapes that nobody thought of.
func TestRandomShapes(t *testing.T) {
	dev := openCPU(t)
	r := rand.New(rand.NewPCG(5, 1))
	for range 12 {
		kv := 1 + r.IntN(3)
		heads := kv * (1 + r.IntN(3))
		cfg := Config{Layers: 1, Dim: heads * 2 * (1 + r.IntN(5)), Heads: heads, KVHeads: kv, FFN: 1 + r.IntN(40), Seq: 1 + r.IntN(11),
			Vocab: 2 + r.IntN(70), RopeBase: 2 + 1000*r.Float64(), NormEps: 1e-6 + 1e-2*r.Float64(),
			Norm: []string{NormRMS, NormLayer}[r.IntN(2)], Activation: []string{ActivationSwiGLU, ActivationGELU}[r.IntN(2)]}.WithDefaults()
		batch, n := 1+r.IntN(3), 1+r.IntN(3)
		for _, l := range []Layer{NewEmbed(cfg.Vocab, cfg.Dim, initStd, "", cfg.Type), NewBlock(cfg, 0), NewHead(cfg)} {
			tr := newTrial(cfg, l, batch, n)
			for name, calls := range map[string][]call{"fused": fused(n), "concat": concat(n)} {
				if err := tr.check(dev, calls); err != nil {
					t.Errorf("%s, %+v, batch %d, %d micro-batches, %s: %v", l.Name(), cfg, batch, n, name, err)
				}
			}
		}
	}
}

// TestOrderOfPasses: the same bits fused or split, 1e-5 when concatenated.
func TestOrderOfPasses(t *testing.T) {
	forEach(t, func(t *testing.T, tr *trial) {
		first := isEmbed(tr.layer)
		for _, way := range sortedKeys(ways) {
			dev := open(t, ways[way])
			var grads [][][]float32
			for _, calls := range [][]call{fused(tr.n), split(tr.n), concat(tr.n)} {
				got, err := tr.run(dev, calls, !first)
				if err != nil {
					t.Fatal(err)
				}
				grads = append(grads, got.grads)
			}
			for i, p := range tr.layer.Params() {
				if !slices.Equal(grads[0][i], grads[1][i]) {
					t.Errorf("%s: gradient of %s differs between fused and split", way, p.Name)
				}
				// Concatenation changes the order of f32 sums, whatever is added.
				if d := apart(grads[2][i], grads[0][i]); d > 1e-5 {
					t.Errorf("%s: gradient of %s is %.2g off when concatenated", way, p.Name, d)
				}
			}
		}
	})
}

// TestWithoutDX: the first layer's input gradient may be left out, and backward-p2
// is none the worse.
func TestWithoutDX(t *testing.T) {
	dev := openCPU(t)
	forEach(t, func(t *testing.T, tr *trial) {
		if isEmbed(tr.layer) {
			t.Skip("has no input gradient")
		}
		want, err := tr.run(dev, split(tr.n), true)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tr.run(dev, split(tr.n), false)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range tr.layer.Params() {
			if !slices.Equal(got.grads[i], want.grads[i]) {
				t.Errorf("gradient of %s depends on DX", p.Name)
			}
		}
	})
}
