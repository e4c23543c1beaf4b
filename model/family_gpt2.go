package model

import (
	"fmt"
	"slices"

	"github.com/pipetrain/pipetrain/kernels"
)

func init() {
	var shared []Key
	for _, k := range transformerKeys {
		if slices.Contains([]string{"layers", "dim", "heads", "ffn", "seq", "vocab", "norm_eps"}, k.Name) {
			if k.Name == "ffn" {
				k.Note, k.Follows = "4 `dim`", []string{"dim"}
			}
			shared = append(shared, k)
		}
	}
	registerFamily(Family{
		Name: "gpt2", Doc: "is GPT-2: LayerNorm, GELU, biases, learned positions, embedding and head tied",
		Keys:     append(shared, Key{Name: "positions", Doc: "Rows of the table of positions; at least `seq`.", Note: "as `seq`", Follows: []string{"seq"}, Min: 1, Max: 1 << 24}),
		Defaults: Config{NormEps: 1e-5, Norm: NormLayer, Activation: ActivationGELU, Tied: true},
		Complete: completeGPT2,
		Check:    checkGPT2,
		Layers: func(c Config) []Layer {
			layers := []Layer{newGPT2Embed(c)}
			for i := range c.Layers {
				layers = append(layers, newGPT2Block(c, i))
			}
			return append(layers, newGPT2Head(c))
		},
		HF: func(c Config) map[string]any {
			return map[string]any{
				"architectures": []string{"GPT2LMHeadModel"}, "model_type": "gpt2", "activation_function": "gelu_new",
				"n_embd": c.Dim, "n_layer": c.Layers, "n_head": c.Heads, "n_inner": c.FFN, "n_positions": c.Positions, "vocab_size": c.Vocab,
				"layer_norm_epsilon": c.NormEps, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
				"initializer_range": initStd, "tie_word_embeddings": true, "torch_dtype": "float32", "use_cache": true,
				"bos_token_id": nil, "eos_token_id": nil, "pad_token_id": nil,
			}
		},
	})
}

// Names of Hugging Face's GPT2LMHeadModel.
const (
	gpt2Tokens    = "transformer.wte.weight"
	gpt2Positions = "transformer.wpe.weight"
)

func completeGPT2(c *Config) {
	// What a decoder of this kind always is; the parts ask for it.
	c.Norm, c.Activation, c.Tied, c.KVHeads, c.RopeBase = NormLayer, ActivationGELU, true, c.Heads, 0
	if c.FFN == 0 {
		c.FFN = 4 * c.Dim
	}
	if c.Vocab == 0 {
		c.Vocab = ByteVocab
	}
	if c.Positions == 0 {
		c.Positions = c.Seq
	}
}

func checkGPT2(c Config, ok func(keys ...string) bool) (wrong []Mistake) {
	fail := func(key, what, right string) { wrong = append(wrong, Mistake{key, what, right}) }
	if ok("dim", "heads") && c.Dim%c.Heads != 0 {
		fail("heads", fmt.Sprintf("%d does not divide model.dim = %d", c.Heads, c.Dim), "one of "+divisors(c.Dim, c.Heads, func(int) bool { return true }))
	}
	if ok("seq", "positions") && c.Positions < c.Seq {
		fail("positions", fmt.Sprintf("%d are fewer than the tokens of a sequence, model.seq = %d", c.Positions, c.Seq), fmt.Sprintf("at least %d", c.Seq))
	}
	if len(wrong) == 0 && ok("layers", "dim", "heads", "ffn", "seq", "vocab") {
		wrong = append(wrong, countable(c)...)
	}
	return wrong
}

// newGPT2Embed returns x = tokens[id] + positions[row mod seq].
func newGPT2Embed(cfg Config) Layer {
	l := &layer{name: "transformer.wte", in: Matrix{Token, 1, kernels.I32}, out: Matrix{Token, cfg.Dim, cfg.Type}}
	l.x, l.dy = l.field(SlotX, FieldIDs, UntilWeight, l.in), l.slot(SlotDY, FromInput, l.out)
	tokens := l.param(Param{Name: gpt2Tokens, Rows: cfg.Vocab, Cols: cfg.Dim, Init: Init{Std: initStd}, Decay: true, Tie: gpt2Tokens})
	places := l.param(Param{Name: gpt2Positions, Rows: cfg.Positions, Cols: cfg.Dim, Init: Init{Std: initStd}, Decay: true})
	l.made(sequence{{part: positioned{lookup{dim: cfg.Dim, table: tokens}, places}}})
	return l
}

// positioned is a lookup to which the row of a second table is added: that of the token's place in its sequence.
type positioned struct {
	lookup
	table *weight
}

// first returns the rows of the table that a sequence uses, as one row: sequences are then rows
// to which one vector is added.
func (p positioned) first(c *Call, table kernels.Buffer) (b kernels.Buffer, width int) {
	width = c.Shape.Seq * p.dim
	return table.Slice(0, int64(width)), width
}

func (p positioned) forward(c *Call, m matrices) {
	p.lookup.forward(c, m)
	b, width := p.first(c, p.table.of(c))
	c.Dev.AddBias(m.y, b, c.Shape.Batch, width)
}

func (p positioned) backwardWeight(c *Call, m matrices) {
	p.lookup.backwardWeight(c, m)
	b, width := p.first(c, p.table.grad(c))
	c.Dev.AddColumns(b, m.dy, c.Shape.Batch, width)
}

// newGPT2Block returns block number index: that of NewBlock with biases, without rotary position.
func newGPT2Block(cfg Config, index int) Layer {
	name, dim := fmt.Sprintf("transformer.h.%d", index), Matrix{Token, cfg.Dim, cfg.Type}
	inner := Matrix{Token, cfg.FFN, cfg.Type}
	l := &layer{name: name, in: dim, out: dim}
	l.x = l.slot(SlotX, UntilWeight, dim)
	n := scratch(dim) // of either norm
	// linear is a Conv1D of GPT-2's: its matrix stands in files as in × out.
	linear := func(module string, in, out int, std float64) linear {
		return newBiasedLinear(l, Token, Param{Name: name + module + ".weight", Rows: out, Cols: in, Init: Init{Std: std}, Decay: true, Transposed: true},
			bias(name+module, out))
	}

	norm1 := newNorm(l, cfg, name+".ln_1", "1")
	attn := newAttention(l, cfg)
	first := sequence{
		{norm1, n, l.slot("dn1", FromInput, dim)},
		{linear(".attn.c_attn", cfg.Dim, attn.in().Width, initStd), l.slot("qkv", UntilInput, attn.in()), l.slot("dqkv", FromInput, attn.in())},
		{attn, l.slot("o", UntilWeight, attn.out()), scratch(attn.out())},
		{part: linear(".attn.c_proj", cfg.Dim, cfg.Dim, cfg.residualStd())},
	}

	norm2 := newNorm(l, cfg, name+".ln_2", "2")
	hidden := l.slot("hidden", UntilWeight, inner) // from I on its gradient
	second := sequence{
		{norm2, n, l.slot("dn2", FromInput, dim)},
		{linear(".mlp.c_fc", cfg.Dim, cfg.FFN, initStd), hidden, hidden},
		{gelu{}, l.slot("act", UntilWeight, inner), scratch(inner)},
		{part: linear(".mlp.c_proj", cfg.FFN, cfg.Dim, cfg.residualStd())},
	}

	l.dy = l.slot(SlotDY, FromInput, dim)
	l.made(sequence{
		{residual{first}, l.slot("h1", UntilWeight, dim), l.slot("dh1", FromInput, dim)},
		{part: residual{second}},
	})
	return l
}

func newGPT2Head(cfg Config) Layer {
	return newHead(cfg, "transformer.ln_f", Param{Name: nameHead, Rows: cfg.Vocab, Cols: cfg.Dim, Init: Init{Std: initStd}, Decay: true, Tie: gpt2Tokens})
}
