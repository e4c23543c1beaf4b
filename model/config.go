package model

import (
	"errors"
	"fmt"
	"math"

	"github.com/pipetrain/pipetrain/kernels"
)

// Config describes a decoder-only transformer.
type Config struct {
	Kind     string // "transformer": LLaMA-style
	Layers   int    // decoder blocks
	Dim      int
	Heads    int
	KVHeads  int // key/value heads; 0: as Heads
	FFN      int // 0: 8/3 Dim rounded up to a multiple of 32, 4 Dim with gelu
	Seq      int // tokens of a sequence
	Vocab    int // 0: 256, bytes
	Tied     bool
	RopeBase float64 // 0: 10000
	NormEps  float64 // 0: 1e-5
	// Norm and Activation choose the parts of a block; empty: those of LLaMA.
	Norm       string
	Activation string
	// Type is what layers read and write: F32, or BF16 with the weights rounded to
	// it. Gradients of weights, statistics and losses are F32 always.
	Type kernels.DType
}

// What Norm and Activation may be.
const (
	NormRMS          = "rmsnorm"
	NormLayer        = "layernorm"
	ActivationSwiGLU = "swiglu"
	ActivationGELU   = "gelu"
)

// TypeOf returns the type of layers under a precision: "fp32", "tf32" (of which only
// the device knows) or "bf16".
func TypeOf(precision string) kernels.DType {
	if precision == "bf16" {
		return kernels.BF16
	}
	return kernels.F32
}

// initStd is the standard deviation of fresh matrices; those that add to the
// residual stream divide it by sqrt(2·Layers), as GPT-2 does.
const initStd = 0.02

// WithDefaults returns c with its zero values replaced.
func (c Config) WithDefaults() Config {
	def(&c.Kind, "transformer")
	def(&c.KVHeads, c.Heads)
	def(&c.Norm, NormRMS)
	def(&c.Activation, ActivationSwiGLU)
	if c.Activation == ActivationGELU {
		def(&c.FFN, 4*c.Dim)
	}
	def(&c.FFN, (8*c.Dim/3+31)/32*32)
	def(&c.Vocab, 256)
	def(&c.RopeBase, 10000)
	def(&c.NormEps, 1e-5)
	return c
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Check returns every mistake of c, defaults filled in, joined.
func (c Config) Check() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf("model: "+format, args...)) }
	if c.Kind != "transformer" {
		fail("kind %q is unknown; known: \"transformer\"", c.Kind)
	}
	if c.Norm != NormRMS && c.Norm != NormLayer {
		fail("norm %q is unknown; known: \"rmsnorm\", \"layernorm\"", c.Norm)
	}
	if c.Activation != ActivationSwiGLU && c.Activation != ActivationGELU {
		fail("activation %q is unknown; known: \"swiglu\", \"gelu\"", c.Activation)
	}
	if c.Type != kernels.F32 && c.Type != kernels.BF16 {
		fail("layers of %s are unknown; known: f32, bf16", c.Type)
	}
	for _, v := range []struct {
		name        string
		value, most int
	}{
		{"layers", c.Layers, 1 << 12}, {"dim", c.Dim, 1 << 18}, {"heads", c.Heads, 1 << 12}, {"kv_heads", c.KVHeads, 1 << 12},
		{"ffn", c.FFN, 1 << 20}, {"seq", c.Seq, 1 << 24}, {"vocab", c.Vocab, 1 << 24},
	} {
		if v.value < 1 || v.value > v.most {
			fail("%s is %d; it must lie between 1 and %d", v.name, v.value, v.most)
		}
	}
	if len(errs) == 0 {
		if c.Dim%c.Heads != 0 {
			fail("dim %d does not divide into %d heads; choose dim as a multiple of heads", c.Dim, c.Heads)
		} else if c.HeadDim()%2 != 0 {
			fail("a head has dim/heads = %d columns; rotary position needs an even number", c.HeadDim())
		}
		if c.Heads%c.KVHeads != 0 {
			fail("%d heads do not divide over kv_heads = %d; choose heads as a multiple of kv_heads", c.Heads, c.KVHeads)
		}
	}
	if len(errs) == 0 {
		// Operations are counted in int64: 6 for each weight and token, 12 for each pair of tokens and column.
		layers, dim, seq := float64(c.Layers), float64(c.Dim), float64(c.Seq)
		ops := 6*seq*dim*(layers*(4*dim+3*float64(c.FFN))+float64(c.Vocab)) + 12*layers*seq*seq*dim
		if ops > 0x1p62 {
			fail("%.2g operations a sequence are beyond counting; choose fewer layers, a smaller dim, ffn, vocab or seq", ops)
		}
	}
	if !(c.RopeBase > 1) || math.IsInf(c.RopeBase, 0) {
		fail("rope_base is %v; it must be a finite number above 1", c.RopeBase)
	}
	if !(c.NormEps > 0) || c.NormEps >= 1 {
		fail("norm_eps is %v; it must lie above 0 and below 1", c.NormEps)
	}
	return errors.Join(errs...)
}

// HeadDim returns the columns of one head.
func (c Config) HeadDim() int { return c.Dim / c.Heads }

func (c Config) residualStd() float64 { return initStd / math.Sqrt(2*float64(c.Layers)) }

// tie returns what embedding and head share, "" when untied.
func (c Config) tie() string {
	if c.Tied {
		return nameEmbed
	}
	return ""
}
