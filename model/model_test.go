package model

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var small = Config{Layers: 6, Dim: 64, Heads: 4, KVHeads: 2, Seq: 32}

func TestNew(t *testing.T) {
	for _, tied := range []bool{false, true} {
		cfg := small
		cfg.Tied = tied
		m, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if c := m.Config; c.FFN != 192 || c.Vocab != 256 || c.RopeBase != 10000 || c.NormEps != 1e-5 || c.Kind != "transformer" {
			t.Errorf("defaults: %+v", c)
		}
		// dim² (q, o) + half of it (k, v) each, gate, up, down, two gains.
		block := 3*64*64 + 3*64*192 + 2*64
		want := int64(6*block + 64 + 256*64)
		if !tied {
			want += 256 * 64
		}
		if got := m.ParamCount(); got != want {
			t.Errorf("tied %v: %d parameters, want %d", tied, got, want)
		}
		if len(m.Layers) != 8 || m.Layers[0].Name() != "model.embed_tokens" || m.Layers[6].Name() != "model.layers.5" || m.Layers[7].Name() != "lm_head" {
			t.Errorf("layers: %d", len(m.Layers))
		}
		seen := map[string]bool{}
		for i, p := range m.Params() {
			if p.Index != i {
				t.Errorf("%s has index %d, want %d", p.Name, p.Index, i)
			}
			rows := 0
			for _, part := range p.Parts {
				rows += part.Rows
			}
			if p.Parts != nil && rows != p.Rows {
				t.Errorf("%s: parts of %d rows, want %d", p.Name, rows, p.Rows)
			}
			p.names(func(name string, _, _ int64) {
				if seen[name] {
					t.Errorf("%s twice", name)
				}
				seen[name] = true
			})
		}
		if seen["lm_head.weight"] == tied {
			t.Errorf("tied %v: lm_head.weight is saved: %v", tied, !tied)
		}
		last := m.Params()[len(m.Params())-1]
		if tied && last.Owner != 0 || !tied && !last.Owned() {
			t.Errorf("tied %v: the head's owner is %d", tied, last.Owner)
		}
	}
}

// Each key of a job file's [model] is described by a family, and each that a family describes is one.
func TestFamilyKeysAreTheFields(t *testing.T) {
	described := map[string]bool{"kind": true, "-": true}
	for _, f := range Families() {
		if f.Doc == "" || f.Complete == nil || f.Check == nil || f.Layers == nil || f.HF == nil || f.Defaults.Kind != f.Name {
			t.Errorf("%s: a part of the description is missing", f.Name)
		}
		for _, k := range f.Keys {
			described[k.Name] = true
			f.Defaults.field(k.Name)
			for _, from := range k.Follows {
				if !slices.ContainsFunc(f.Keys, func(k Key) bool { return k.Name == from }) {
					t.Errorf("%s: %s follows from %s, which is no key", f.Name, k.Name, from)
				}
			}
		}
	}
	c := reflect.TypeFor[Config]()
	for i := range c.NumField() {
		if tag := c.Field(i).Tag.Get("toml"); !described[tag] {
			t.Errorf("%s (%q) is in no family", c.Field(i).Name, tag)
		}
	}
}

// Families may share a key, not its name alone.
func TestSharedKeysHaveOneRange(t *testing.T) {
	was := families
	defer func() {
		families = was
		if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "and other: key heads has two ranges") {
			t.Errorf("%v", p)
		}
	}()
	other := Family{Name: "other", Keys: FindFamily(DefaultKind).Keys[:1:1]}
	registerFamily(other)
	if FindFamily("other") == nil || len(Families()) != len(was)+1 {
		t.Error("not registered")
	}
	other.Keys = []Key{{Name: "heads", Min: 1, Max: 2}}
	families = was
	registerFamily(other)
}

// The parameters of GPT-2 as published: 124 million.
func TestGPT2Parameters(t *testing.T) {
	m, err := New(Config{Kind: "gpt2", Layers: 12, Dim: 768, Heads: 12, Seq: 1024, Vocab: 50257})
	if err != nil {
		t.Fatal(err)
	}
	n := int64(0)
	for _, p := range m.Params() {
		if p.Owned() {
			n += p.Len()
		}
	}
	if n != 124439808 {
		t.Errorf("%d parameters", n)
	}
}

// TestFLOPs counts by hand.
func TestFLOPs(t *testing.T) {
	m, err := New(Config{Layers: 4, Dim: 512, Heads: 8, FFN: 1365, Seq: 256})
	if err != nil {
		t.Fatal(err)
	}
	s := Shape{Batch: 4, Seq: 256}
	r := Range{1, 5}
	products := 2 * 1024 * int64(4*512*512+3*512*1365) * 4
	pairs := int64(4 * 256 * 257 / 2)
	if got, want := m.FLOPsOf(r, PassForward, s), products+4*2*2*pairs*512; got != want {
		t.Errorf("forward: %d, want %d", got, want)
	}
	if got, want := m.FLOPsOf(r, PassInput, s), products+4*4*2*pairs*512; got != want {
		t.Errorf("backward-p1: %d, want %d", got, want)
	}
	if got := m.FLOPsOf(r, PassWeight, s); got != products {
		t.Errorf("backward-p2: %d, want %d", got, products)
	}
	if whole := m.FLOPs(PassForward, s); whole != m.FLOPsOf(r, PassForward, s)+2*1024*512*256 {
		t.Errorf("whole forward: %d", whole)
	}
}

func TestCheckReportsAll(t *testing.T) {
	if _, err := New(Config{Kind: "mamba"}); err == nil || !strings.Contains(err.Error(), `kind "mamba" is unknown; known: gpt2, transformer`) {
		t.Errorf("%v", err)
	}
	if _, err := New(Config{Layers: 0, Dim: -1, Heads: 1, Seq: 1 << 40, RopeBase: math.NaN(), NormEps: math.Inf(1)}); err == nil {
		t.Error("no error")
	} else {
		for _, part := range []string{"layers is 0", "dim is -1", "seq is 1099511627776", "rope_base is NaN", "norm_eps is +Inf"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q is not in: %v", part, err)
			}
		}
	}
	for want, change := range map[string]func(*Config){
		"heads: 4 does not divide model.dim = 66; one of 1, 3, 11, 33": func(c *Config) { c.Dim = 66 },
		"heads: a head gets dim / heads = 15 columns":                  func(c *Config) { c.Dim = 60 },
		"kv_heads: 3 does not divide model.heads = 4":                  func(c *Config) { c.KVHeads = 3 },
		"norm_eps is -1":                func(c *Config) { c.NormEps = -1 },
		"rope_base is 1":                func(c *Config) { c.RopeBase = 1 },
		"vocab is 16777217":             func(c *Config) { c.Vocab = 1<<24 + 1 },
		"beyond counting":               func(c *Config) { c.Layers, c.Dim, c.Seq = 1<<12, 1<<18, 1<<24 },
		"kv_heads is -2":                func(c *Config) { c.KVHeads = -2 },
		"heads is 0; it must lie betwe": func(c *Config) { c.Heads = 0; c.KVHeads = 0 },
	} {
		c := small
		change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		layers, stages, vocab int
		want                  string // blocks of each stage
	}{
		{4, 4, 256, "1 1 1 1"},
		{8, 4, 256, "2 2 2 2"},
		{6, 4, 256, "1 2 2 1"},
		{7, 2, 256, "4 3"},
		{5, 1, 256, "5"},
		{9, 4, 256, "2 2 3 2"},
		{8, 2, 5000, "7 1"}, // a head worth nine blocks
		{8, 4, 1800, "2 2 3 1"},
	} {
		m, err := New(Config{Layers: c.layers, Dim: 64, Heads: 4, Seq: 16, Vocab: c.vocab})
		if err != nil {
			t.Fatal(err)
		}
		cut, err := m.Cut(c.stages)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for s, r := range cut {
			n := r.End - r.First
			if s == 0 {
				n--
			}
			if s == len(cut)-1 {
				n--
			}
			got = append(got, fmt.Sprint(n))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%d blocks, %d stages, vocabulary %d: %s, want %s", c.layers, c.stages, c.vocab, s, c.want)
		}
	}
}

// TestCutIsBest compares with every possible cut.
func TestCutIsBest(t *testing.T) {
	for layers := 1; layers <= 9; layers++ {
		for _, vocab := range []int{2, 300, 1500, 9000} {
			m, err := New(Config{Layers: layers, Dim: 64, Heads: 4, Seq: 16, Vocab: vocab})
			if err != nil {
				t.Fatal(err)
			}
			worst := func(cut []Range) (w int64) {
				for _, r := range cut {
					var n int64
					for _, p := range []Pass{PassForward, PassInput, PassWeight} {
						n += m.FLOPsOf(r, p, Shape{Batch: 1, Seq: 16})
					}
					w = max(w, n)
				}
				return w
			}
			for stages := 1; stages <= layers; stages++ {
				cut, err := m.Cut(stages)
				if err != nil {
					t.Fatal(err)
				}
				at := 0
				for _, r := range cut {
					if r.First != at || r.End <= at {
						t.Fatalf("%d layers, %d stages: %v", layers, stages, cut)
					}
					at = r.End
				}
				if at != layers+2 || len(cut) != stages {
					t.Fatalf("%d layers, %d stages: %v", layers, stages, cut)
				}
				best := int64(math.MaxInt64)
				var try func(done []Range, at, left int)
				try = func(done []Range, at, left int) {
					if left == 1 {
						best = min(best, worst(append(done, Range{at, layers + 2})))
						return
					}
					first := at + 1
					if at == 0 {
						first++ // the embedding alone is no stage
					}
					for end := first; end <= layers+1-(left-1); end++ {
						try(append(slices.Clone(done), Range{at, end}), end, left-1)
					}
				}
				try(nil, 0, stages)
				if got := worst(cut); got != best {
					t.Errorf("%d layers, %d stages, vocabulary %d: %v costs %d, best %d", layers, stages, vocab, cut, got, best)
				}
			}
			for _, stages := range []int{-1, 0, layers + 1} {
				if _, err := m.Cut(stages); err == nil {
					t.Errorf("%d layers in %d stages: no error", layers, stages)
				}
			}
		}
	}
}

func TestHFConfig(t *testing.T) {
	cfg := small
	cfg.Tied = true
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(m.HFConfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"architectures":["LlamaForCausalLM"]`, `"hidden_size":64`, `"intermediate_size":192`,
		`"num_key_value_heads":2`, `"tie_word_embeddings":true`, `"rms_norm_eps":0.00001`, `"head_dim":16`} {
		if !strings.Contains(string(raw), part) {
			t.Errorf("%s is not in %s", part, raw)
		}
	}
}

// The family of an export is the one that has the parts; see docs/precision.md.
func TestHFFamilies(t *testing.T) {
	for _, c := range []struct{ norm, activation, family, kind, module string }{
		{NormLayer, ActivationSwiGLU, "StableLmForCausalLM", "layer_norm_eps", "model.norm.bias"},
		{NormLayer, ActivationGELU, "Starcoder2ForCausalLM", "norm_epsilon", "model.layers.0.mlp.c_fc.weight"},
		{NormRMS, ActivationGELU, "", "rms_norm_eps", "model.layers.0.mlp.c_proj.weight"},
	} {
		cfg := small
		cfg.Norm, cfg.Activation = c.norm, c.activation
		m, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		config := m.HFConfig()
		if got := strings.Join(config["architectures"].([]string), ","); got != c.family || config[c.kind] != m.Config.NormEps {
			t.Errorf("%s with %s: family %q, %v", c.norm, c.activation, got, config)
		}
		if config["model_type"] == "llama" {
			t.Errorf("%s with %s passes for LLaMA", c.norm, c.activation)
		}
		if !slices.ContainsFunc(m.Params(), func(p ParamRef) bool { return p.Name == c.module }) {
			t.Errorf("%s with %s has no %s", c.norm, c.activation, c.module)
		}
	}
}

// TestSlotsOfBlock freezes what a block keeps: memory plans rest on it.
func TestSlotsOfBlock(t *testing.T) {
	cfg := Config{Layers: 1, Dim: 512, Heads: 8, KVHeads: 2, FFN: 1376, Seq: 256}.WithDefaults()
	b := NewBlock(cfg, 0)
	const rows, d, f, qkv = 1024, 512, 1376, 512 + 256
	for life, want := range map[Life]int64{
		UntilInput:  rows * (qkv + 8),
		UntilWeight: rows * (3*d + 3*f + 2),
		FromInput:   rows * (4*d + qkv),
	} {
		if got := Bytes(b, life, Shape{Batch: rows, Seq: 1}); got != 4*want {
			t.Errorf("life %d: %d bytes, want %d", life, got, 4*want)
		}
	}
	// Slots are rounded up one by one.
	if got := Bytes(b, UntilInput, Shape{Batch: 1, Seq: 1}); got != qkv*4+256 {
		t.Errorf("one row: %d bytes", got)
	}
}

// FuzzConfig: any configuration is refused or gives a model that can be cut.
func FuzzConfig(f *testing.F) {
	f.Add(4, 64, 4, 2, 0, 32, 256, false, 0.0, 0.0, 4)
	f.Add(1, 2, 1, 1, 1, 1, 1, true, 10.0, 1e-6, 1)
	f.Add(1<<12, 1<<18, 1, 1, 1<<20, 1<<24, 1<<24, true, 1e9, 0.5, 1<<12)
	f.Add(-1, 0, math.MaxInt, math.MinInt, 3, 5, 7, false, math.NaN(), math.Inf(-1), -9)
	f.Fuzz(func(t *testing.T, layers, dim, heads, kv, ffn, seq, vocab int, tied bool, base, eps float64, stages int) {
		m, err := New(Config{Layers: layers, Dim: dim, Heads: heads, KVHeads: kv, FFN: ffn, Seq: seq, Vocab: vocab, Tied: tied, RopeBase: base, NormEps: eps})
		if err != nil {
			return
		}
		if n := m.ParamCount(); n <= 0 {
			t.Errorf("%+v: %d parameters", m.Config, n)
		}
		for p := PassForward; p <= PassWeight; p++ {
			if n := m.FLOPs(p, Shape{Batch: 1, Seq: seq}); n <= 0 {
				t.Errorf("%+v: %d operations", m.Config, n)
			}
		}
		cut, err := m.Cut(stages)
		if (err == nil) != (stages >= 1 && stages <= layers) {
			t.Errorf("%d layers in %d stages: %v", layers, stages, err)
		}
		at := 0
		for _, r := range cut {
			if r.First != at || r.End <= at {
				t.Fatalf("%v", cut)
			}
			at = r.End
		}
	})
}
