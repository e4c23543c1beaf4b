package model

import (
	"encoding/binary"
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
	// A warm-up as long as the run, and none at all.
	if got := (LRSchedule{Base: 1, Warmup: 3, Steps: 3, Decay: "cosine"}).At(3); got != 1 {
		t.Errorf("end of a run of warm-up: %g", got)
	}
	if got := (LRSchedule{Base: 1, Steps: 1, Decay: "cosine"}).At(1); got != 0 {
		t.Errorf("a run of one step: %g", got)
	}
	for want, bad := range map[string]LRSchedule{
		`decay "linear"`:         {Base: 1, Decay: "linear"},
		"learning rate NaN":      {Base: math.NaN(), Decay: "cosine"},
		"learning rate 0":        {Decay: "cosine"},
		"learning rate +Inf":     {Base: math.Inf(1), Decay: "cosine"},
		"least learning rate 2;": {Base: 1, Min: 2, Decay: "cosine"},
		"-1 steps of warm-up":    {Base: 1, Warmup: -1, Decay: "cosine"},
	} {
		if err := bad.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if err := l.Check(); err != nil {
		t.Error(err)
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

func TestOptimizerCheck(t *testing.T) {
	good := Optimizer{Kind: "adamw", Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for want, bad := range map[string]func(*Optimizer){
		`"lion" is unknown`:    func(o *Optimizer) { o.Kind = "lion" },
		"beta1 is 1;":          func(o *Optimizer) { o.Beta1 = 1 },
		"beta2 is NaN":         func(o *Optimizer) { o.Beta2 = math.NaN() },
		"eps is 0":             func(o *Optimizer) { o.Eps = 0 },
		"weight_decay is -0.1": func(o *Optimizer) { o.WeightDecay = -0.1 },
		"momentum is 2":        func(o *Optimizer) { o.Kind, o.Momentum = "sgd", 2 },
	} {
		o := good
		bad(&o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	for want, o := range map[int]Optimizer{2: good, 1: {Kind: "sgd", Momentum: 0.9}, 0: {Kind: "sgd"}} {
		if got := len(o.States()); got != want {
			t.Errorf("%+v: %d states, want %d", o, got, want)
		}
	}
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
	for _, o := range []Optimizer{{Kind: "adamw", Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1}, {Kind: "sgd", Momentum: 0.9, WeightDecay: 0.1}} {
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
