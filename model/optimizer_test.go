package model

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/kernels"
)

func TestLRSchedule(t *testing.T) {
	l := LRSchedule{Base: 1, Min: 0.1, Warmup: 4, Steps: 14, Decay: "cosine"}
	for step, want := range map[int]float64{1: 0.25, 4: 1, 9: 0.55, 14: 0.1, 20: 0.1} {
		if got := l.At(step); math.Abs(got-want) > 1e-12 {
			t.Errorf("cosine at %d: %g, want %g", step, got, want)
		}
	}
	for step := 5; step <= 14; step++ {
		if !(l.At(step) < l.At(step-1)) {
			t.Errorf("cosine does not fall at %d", step)
		}
	}
	l.Decay = "constant"
	for step, want := range map[int]float64{2: 0.5, 4: 1, 5: 1, 100: 1} {
		if got := l.At(step); got != want {
			t.Errorf("constant at %d: %g, want %g", step, got, want)
		}
	}
	// Warm-up, stable, decay: closed forms at every step.
	for shape, left := range map[string]func(x float64) float64{
		"cosine": func(x float64) float64 { return math.Pow(math.Cos(math.Pi*x/2), 2) },
		"linear": func(x float64) float64 { return 1 - x },
		"sqrt":   func(x float64) float64 { return 1 - math.Sqrt(x) },
	} {
		for _, fall := range []int{0, 1, 5, 10} {
			l := LRSchedule{Base: 2, Min: 0.25, Warmup: 4, Steps: 14, Decay: shape, DecaySteps: fall}
			length := fall
			if fall == 0 {
				length = 10
			}
			for step := 1; step <= 16; step++ {
				want := 2 * min(1, float64(step)/4)
				if step > 14-length {
					want = 0.25 + 1.75*left(min(1, float64(step-14+length)/float64(length)))
				}
				if got := l.At(step); math.Abs(got-want) > 1e-12 || step >= 4 && step <= 14-length && got != 2 {
					t.Errorf("%s over %d at %d: %g, want %g", shape, fall, step, got, want)
				}
			}
		}
	}
	// A warm-up as long as the run, and none at all.
	if got := (LRSchedule{Base: 1, Warmup: 3, Steps: 3, Decay: "cosine"}).At(3); got != 1 {
		t.Errorf("end of a run of warm-up: %g", got)
	}
	if got := (LRSchedule{Base: 1, Steps: 1, Decay: "cosine"}).At(1); got != 0 {
		t.Errorf("a run of one step: %g", got)
	}
}

func TestClipScale(t *testing.T) {
	for _, c := range []struct {
		norm, clip float64
		want       float32
	}{{4, 1, 0.25}, {0.5, 1, 1}, {0, 1, 1}, {1e9, 0, 1}, {1e30, 1, 1e-30}} {
		if got := ClipScale(c.norm, c.clip); math.Abs(float64(got-c.want)) > 1e-6*float64(c.want) {
			t.Errorf("norm %g, clip %g: %g, want %g", c.norm, c.clip, got, c.want)
		}
	}
	for _, norm := range []float64{math.NaN(), math.Inf(1)} {
		for _, clip := range []float64{0, 1} {
			if got := ClipScale(norm, clip); got == got {
				t.Errorf("norm %g: %g, want NaN", norm, got)
			}
		}
	}
	if got := GlobalNorm([]float64{9, 16, 0}); got != 5 {
		t.Errorf("norm %g, want 5", got)
	}
}

func TestRules(t *testing.T) {
	good := map[string]Values{"adamw": {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8}, "sgd": {"momentum": 0.9}}
	for _, r := range Rules() {
		if got := good[r.Name]; len(got) != len(r.Keys) {
			t.Errorf("%s: this test knows %d of %d keys", r.Name, len(got), len(r.Keys))
		}
		for _, k := range r.Keys {
			if d := k.Default; d != good[r.Name][k.Name] || d < k.Min || d > k.Max || k.Above && d == k.Min || k.Below && d == k.Max {
				t.Errorf("%s: the default of %s is %v", r.Name, k.Name, d)
			}
		}
		if r.Check != nil && r.Check(good[r.Name]) != nil {
			t.Errorf("%s refuses its own defaults: %v", r.Name, r.Check(good[r.Name]))
		}
	}
	for want, v := range map[string]Values{
		"[{eps 1e-50 is 0 in fp32 at least 1e-45, usually 1e-8}]": {"eps": 1e-50, "beta1": 0.9, "beta2": 0},
		"[{beta1 0.99999999999 is 1 in fp32 below 1, e.g. 0.95}]": {"eps": 1e-8, "beta1": 0.99999999999},
	} {
		if got := fmt.Sprint(FindRule("adamw").Check(v)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for want, o := range map[int]Optimizer{2: {Kind: "adamw", Values: good["adamw"]}, 1: {Kind: "sgd", Values: good["sgd"]}, 0: {Kind: "sgd"}} {
		if got := len(o.States()); got != want {
			t.Errorf("%+v: %d states, want %d", o, got, want)
		}
	}
	if r := FindRule("lion"); r != nil {
		t.Errorf("found %+v", r)
	}
}

// TestRegisterRule: one call makes an optimizer; what it registers is what trains. A key
// that another rule has with another range is refused.
func TestRegisterRule(t *testing.T) {
	defer func(before []*Rule) { rules = before }(rules)
	rules = slices.Clone(rules)
	register(Rule{Name: "averaged", Keys: []Key{{Name: "share", Max: 1}, {Name: "momentum", Default: 0.9, Max: 1, Below: true}},
		States: func(Values) []string { return []string{"sum"} },
		Step: func(d kernels.Ops, s Step) {
			d.StepSGD(s.Weights, s.Grads, kernels.Buffer{}, s.Low, kernels.SGD{LR: s.LR * s.Values.f32("share"), GradScale: s.GradScale})
			d.Add(s.States[0], s.States[0], s.Weights)
		}})
	dev := openCPU(t)
	n := newNetwork(t, dev, Config{Layers: 1, Dim: 12, Heads: 3, FFN: 7, Seq: 4, Vocab: 11}, 1, Optimizer{Kind: "averaged", Values: Values{"share": 0.5}})
	n.each(func(p ParamRef, w, g kernels.Buffer) {
		ones := slices.Repeat([]float32{1}, int(w.Len))
		dev.CopyIn(w, f32Bytes(ones))
		dev.CopyIn(g, f32Bytes(ones))
	})
	n.update(1, 0.5, 1)
	s := n.stages[0]
	n.each(func(p ParamRef, w, g kernels.Buffer) {
		dev.CopyIn(g, f32Bytes(slices.Repeat([]float32{1}, int(w.Len))))
	})
	n.update(2, 0.5, 1)
	if w, sum := readF32(dev, s.w)[0], readF32(dev, s.states[0])[0]; w != 0.5 || sum != 0.75+0.5 {
		t.Errorf("two steps of 0.25 from 1 give %v, and %v in sum", w, sum)
	}
	defer func() {
		if r := fmt.Sprint(recover()); !strings.Contains(r, "averaged and other: key momentum has two ranges") {
			t.Errorf("got %v", r)
		}
	}()
	register(Rule{Name: "other", Keys: []Key{{Name: "momentum", Max: 2}}})
}

func TestLayout(t *testing.T) {
	m, err := New(Config{Layers: 2, Dim: 12, Heads: 3, FFN: 7, Seq: 4, Vocab: 11, Tied: true})
	if err != nil {
		t.Fatal(err)
	}
	l := NewLayout(m.Params())
	if len(l.Groups) != 2 || !l.Groups[0].Decay || l.Groups[1].Decay || l.Groups[0].Offset != 0 ||
		l.Groups[1].Offset != l.Groups[0].Len || l.Groups[0].Len+l.Groups[1].Len != l.Len {
		t.Fatalf("groups %+v of %d", l.Groups, l.Len)
	}
	owner := make([]int, l.Len) // parameter + 1 of each element
	for i, p := range l.Params {
		if l.Offsets[i]%alignElems != 0 {
			t.Errorf("%s starts at %d", p.Name, l.Offsets[i])
		}
		for at := l.Offsets[i]; at < l.Offsets[i]+p.Len(); at++ {
			if owner[at] != 0 {
				t.Fatalf("%s lies over parameter %d", p.Name, owner[at]-1)
			}
			owner[at] = i + 1
			if g := l.Groups[0]; p.Decay != (at < g.Len) {
				t.Fatalf("%s lies in the wrong group", p.Name)
			}
		}
	}

	dev := openCPU(t)
	b, err := dev.Alloc(4*l.Len + 8*int64(len(l.Params)))
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Free(b)
	flat := b.Slice(0, 4*l.Len).As(kernels.F32)
	out := kernels.Buffer{Addr: b.Addr + uintptr(4*l.Len), Len: int64(len(l.Params)), Type: kernels.F64}
	at := 0
	for i := range m.Layers {
		for j, v := range l.Views(flat, i) {
			p := m.Params()[at]
			if p.Layer != i || p.Slot != j || v != l.View(flat, at) || v.Len != p.Len() {
				t.Errorf("layer %d, view %d is %+v", i, j, v)
			}
			values := make([]float32, v.Len)
			for k := range values {
				values[k] = float32(at + 1)
			}
			dev.CopyIn(v, f32Bytes(values))
			at++
		}
	}
	l.SumSquares(dev, out, flat)
	raw := make([]byte, out.Bytes())
	dev.CopyOut(raw, out)
	for i, p := range l.Params {
		want := float64(p.Len()) * float64((i+1)*(i+1))
		if !p.Owned() {
			want = 0
		}
		if got := math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:])); got != want {
			t.Errorf("%s: sum of squares %g, want %g", p.Name, got, want)
		}
	}
	// A stage without its embedding's owner does not count the head's copy either.
	if refs := m.ParamsOf(Range{3, 4}); len(refs) != 2 || refs[1].Owned() || refs[1].Owner != 0 {
		t.Errorf("the head's parameters: %+v", refs)
	}
}

// TestGapsStayZero: an update leaves the space between parameters alone.
func TestGapsStayZero(t *testing.T) {
	dev := openCPU(t)
	for _, o := range []Optimizer{{Kind: "adamw", Values: Values{"beta1": 0.9, "beta2": 0.95, "eps": 1e-8}, WeightDecay: 0.1}, {Kind: "sgd", Values: Values{"momentum": 0.9}, WeightDecay: 0.1}} {
		n := newNetwork(t, dev, Config{Layers: 1, Dim: 12, Heads: 3, FFN: 7, Seq: 4, Vocab: 11}, 1, o)
		n.each(func(p ParamRef, w, g kernels.Buffer) {
			v := make([]float32, w.Len)
			Initialise(v, p.Param, 1, p.Owner)
			dev.CopyIn(w, f32Bytes(v))
			dev.CopyIn(g, f32Bytes(v))
		})
		for step := 1; step <= 3; step++ {
			n.update(step, 0.1, 0.5)
		}
		s := n.stages[0]
		for _, b := range append([]kernels.Buffer{s.w, s.g}, s.states...) {
			v := readF32(dev, b)
			for i, p := range s.layout.Params {
				end := s.layout.Offsets[i] + p.Len()
				if gap := v[end : (end+alignElems-1)/alignElems*alignElems]; slices.ContainsFunc(gap, func(x float32) bool { return x != 0 }) {
					t.Errorf("%s: the gap after %s holds %v", o.Kind, p.Name, gap)
				}
			}
		}
	}
}
