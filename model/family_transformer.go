package model

import (
	"fmt"
	"math"
	"strings"
)

// What Norm and Activation may be.
const (
	NormRMS          = "rmsnorm"
	NormLayer        = "layernorm"
	ActivationSwiGLU = "swiglu"
	ActivationGELU   = "gelu"
)

// Bounds are far above any use and keep every size that follows within 64 bits.
var transformerKeys = []Key{
	{Name: "layers", Doc: "Blocks between embedding and head; at least one for each stage.", Required: true, Min: 1, Max: 1 << 12},
	{Name: "dim", Doc: "Width of the residual stream.", Required: true, Min: 1, Max: 1 << 18},
	{Name: "heads", Doc: "Attention heads; `dim / heads` is a whole, even number (rotary embedding turns pairs).", Required: true, Min: 1, Max: 1 << 12},
	{Name: "kv_heads", Doc: "Heads of keys and values; divides `heads`, fewer is grouped-query attention.", Note: "as `heads`", Follows: []string{"heads"}, Min: 1, Max: 1 << 12},
	{Name: "ffn", Doc: "Inner width of the feed-forward part.", Note: "8/3 `dim`, rounded up to a multiple of 32; 4 `dim` with `gelu`", Follows: []string{"dim", "activation"}, Min: 1, Max: 1 << 20},
	{Name: "seq", Doc: "Tokens of a sequence.", Required: true, Min: 1, Max: 1 << 24},
	{Name: "vocab", Doc: "Size of the vocabulary; bytes need 256.", Note: "256", Min: 1, Max: 1 << 24},
	{Name: "tied", Doc: "Embedding and head share one matrix."},
	{Name: "rope_base", Doc: "Base θ of the rotary position embedding.", Min: 1, Max: 1e12, Above: true},
	{Name: "norm_eps", Doc: "ε of the norms.", Min: 0, Max: 1, Above: true, Below: true},
	{Name: "norm", Doc: "`rmsnorm` (arXiv 1910.07467), or `layernorm` with gain and bias (arXiv 1607.06450).", Choices: []string{NormRMS, NormLayer}},
	{Name: "activation", Doc: "Of the feed-forward part: `swiglu` (two joined matrices in, one out), or `gelu` in its tanh form (one in, one out, as GPT-2).", Choices: []string{ActivationSwiGLU, ActivationGELU}},
}

func init() {
	registerFamily(Family{
		Name: "transformer", Doc: "is a decoder with rotary position; as LLaMA unless `norm` or `activation` say otherwise",
		Keys:     transformerKeys,
		Defaults: Config{RopeBase: 10000, NormEps: 1e-5, Norm: NormRMS, Activation: ActivationSwiGLU},
		Complete: completeTransformer,
		Check:    checkTransformer,
		Layers: func(c Config) []Layer {
			layers := []Layer{NewEmbed(c.Vocab, c.Dim, initStd, c.tie(), c.Type)}
			for i := range c.Layers {
				layers = append(layers, NewBlock(c, i))
			}
			return append(layers, NewHead(c))
		},
		HF: transformerHF,
	})
}

// initStd is the standard deviation of fresh matrices; those that add to the
// residual stream divide it by sqrt(2·Layers), as GPT-2 does.
const initStd = 0.02

// HeadDim returns the columns of one head.
func (c Config) HeadDim() int { return c.Dim / c.Heads }

func (c Config) residualStd() float64 { return initStd / math.Sqrt(2*float64(c.Layers)) }

// Names of the parameters that do not belong to a block, as in Hugging Face's
// decoders.
const (
	nameEmbed = "model.embed_tokens.weight"
	nameHead  = "lm_head.weight"
)

// tie returns what embedding and head share, "" when untied.
func (c Config) tie() string {
	if c.Tied {
		return nameEmbed
	}
	return ""
}

func completeTransformer(c *Config) {
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if c.FFN == 0 {
		// 2/3 of the usual 4 dim keeps the parameters of a two-matrix feed-forward
		// (arXiv 2002.05202); 32 keeps rows of floats aligned to cache lines.
		c.FFN = (8*c.Dim/3 + 31) / 32 * 32
		if c.Activation == ActivationGELU {
			c.FFN = 4 * c.Dim
		}
	}
	if c.Vocab == 0 {
		c.Vocab = ByteVocab
	}
}

func checkTransformer(c Config, ok func(keys ...string) bool) (wrong []Mistake) {
	fail := func(key, what, right string) { wrong = append(wrong, Mistake{key, what, right}) }
	if ok("dim", "heads") {
		switch {
		case c.Dim%c.Heads != 0:
			fail("heads", fmt.Sprintf("%d does not divide model.dim = %d", c.Heads, c.Dim), headsFor(c.Dim, c.Heads))
		case c.HeadDim()%2 != 0:
			fail("heads", fmt.Sprintf("a head gets dim / heads = %d columns, and rotary embedding turns pairs", c.HeadDim()), headsFor(c.Dim, c.Heads))
		}
	}
	if ok("heads", "kv_heads") && c.Heads%c.KVHeads != 0 {
		fail("kv_heads", fmt.Sprintf("%d does not divide model.heads = %d", c.KVHeads, c.Heads), "one of "+divisors(c.Heads, c.KVHeads, func(int) bool { return true }))
	}
	if len(wrong) == 0 && ok("layers", "dim", "heads", "ffn", "seq", "vocab") {
		wrong = append(wrong, countable(c)...)
	}
	return wrong
}

// countable refuses a decoder whose operations go beyond int64: 6 for each weight and token, 12 for each pair of
// tokens and column.
func countable(c Config) []Mistake {
	layers, dim, seq := float64(c.Layers), float64(c.Dim), float64(c.Seq)
	ops := 6*seq*dim*(layers*(4*dim+3*float64(c.FFN))+float64(c.Vocab)) + 12*layers*seq*seq*dim
	if ops <= 0x1p62 {
		return nil
	}
	return []Mistake{{"", fmt.Sprintf("%.2g operations a sequence are beyond counting", ops), "choose fewer layers, a smaller dim, ffn, vocab or seq"}}
}

// headsFor says which numbers of heads fit a width.
func headsFor(dim, near int) string {
	if dim%2 != 0 {
		return "none fits: make model.dim even"
	}
	return "one of " + divisors(dim, near, func(h int) bool { return dim/h%2 == 0 })
}

// divisors lists up to five divisors of n around near that fit.
func divisors(n, near int, fits func(int) bool) string {
	var all []int
	for d := 1; d <= n; d++ {
		if n%d == 0 && fits(d) {
			all = append(all, d)
		}
	}
	at := 0
	for at < len(all) && all[at] < near {
		at++
	}
	from := max(0, min(at-2, len(all)-5))
	all = all[from:min(len(all), from+5)]
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(all), " ", ", "), "[]")
}

// transformerHF names the class of Hugging Face that loads the model's safetensors: LlamaForCausalLM, with LayerNorm
// StableLmForCausalLM, with LayerNorm and GELU Starcoder2ForCausalLM. RMSNorm with
// GELU is in no family: it is named "pipetrain", so that nothing takes it for what
// it is not; its tensors have Starcoder2's names.
func transformerHF(c Config) map[string]any {
	out := map[string]any{
		"hidden_size":             c.Dim,
		"intermediate_size":       c.FFN,
		"num_hidden_layers":       c.Layers,
		"num_attention_heads":     c.Heads,
		"num_key_value_heads":     c.KVHeads,
		"head_dim":                c.HeadDim(),
		"max_position_embeddings": c.Seq,
		"vocab_size":              c.Vocab,
		"rope_theta":              c.RopeBase,
		"rope_scaling":            nil,
		"attention_dropout":       0.0,
		"initializer_range":       initStd,
		"tie_word_embeddings":     c.Tied,
		"torch_dtype":             "float32", // of the saved weights, whatever they were trained in
		"use_cache":               true,
		// Bytes have no special tokens; the defaults (1 and 2) would mean control characters.
		"bos_token_id": nil,
		"eos_token_id": nil,
		"pad_token_id": nil,
	}
	add := func(more map[string]any) {
		for k, v := range more {
			out[k] = v
		}
	}
	switch {
	case c.Norm == NormRMS && c.Activation == ActivationSwiGLU:
		add(map[string]any{"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "hidden_act": "silu",
			"rms_norm_eps": c.NormEps, "attention_bias": false, "mlp_bias": false})
	case c.Activation == ActivationSwiGLU:
		add(map[string]any{"architectures": []string{"StableLmForCausalLM"}, "model_type": "stablelm", "hidden_act": "silu",
			"layer_norm_eps": c.NormEps, "use_qkv_bias": false, "qk_layernorm": false, "use_parallel_residual": false,
			"partial_rotary_factor": 1.0, "hidden_dropout": 0.0})
	case c.Norm == NormLayer:
		add(map[string]any{"architectures": []string{"Starcoder2ForCausalLM"}, "model_type": "starcoder2", "hidden_act": "gelu_pytorch_tanh",
			"norm_epsilon": c.NormEps, "use_bias": false, "sliding_window": nil, "residual_dropout": 0.0, "embedding_dropout": 0.0})
	default:
		add(map[string]any{"architectures": []string{}, "model_type": "pipetrain", "hidden_act": "gelu_pytorch_tanh", "rms_norm_eps": c.NormEps})
	}
	return out
}
