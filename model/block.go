package model

import "fmt"

// NewBlock returns decoder block number index (from 0) of a model of cfg, which
// must have passed Check and have its defaults: LLaMA's (arXiv 2302.13971), or with other parts.
//
//	n1 = norm(x)     qkv = n1·Wqkvᵀ   o = attention(rotary(qkv))   h1 = x + o·Woᵀ
//	n2 = norm(h1)    y = h1 + mlp(n2)
//
// norm is RMSNorm or LayerNorm, mlp has SwiGLU or GELU. Kept for backward-p2 are the
// inputs of its Linears and their output gradients. Two of the inputs, n1 and n2,
// are computed again from x and h1, which the gains' gradients need anyway; and the
// gradient of mlp's hidden matrix takes that matrix's own memory. What only
// backward-p1 reads (qkv, lse) is freed after it.
func NewBlock(cfg Config, index int) Layer {
	name, dim := fmt.Sprintf("model.layers.%d", index), Matrix{Token, cfg.Dim, cfg.Type}
	l := &layer{name: name, in: dim, out: dim}
	l.x = l.slot(SlotX, UntilWeight, dim)
	n := scratch(dim) // of either norm

	norm1 := newNorm(l, cfg, name+".input_layernorm", "1")
	attn := newAttention(l, cfg)
	qkv := newLinear(l, Token, qkvParam(cfg, name))
	out := newLinear(l, Token, Param{Name: name + ".self_attn.o_proj.weight", Rows: cfg.Dim, Cols: attn.out().Width, Init: Init{Std: cfg.residualStd()}, Decay: true})
	first := sequence{
		{norm1, n, l.slot("dn1", FromInput, dim)},
		{qkv, l.slot("qkv", UntilInput, attn.in()), l.slot("dqkv", FromInput, attn.in())}, // turned, and its gradient turned back
		{attn, l.slot("o", UntilWeight, attn.out()), scratch(attn.out())},
		{part: out},
	}

	norm2 := newNorm(l, cfg, name+".post_attention_layernorm", "2")
	second := append(sequence{{norm2, n, l.slot("dn2", FromInput, dim)}}, newMLP(l, cfg, name+".mlp")...)

	l.dy = l.slot(SlotDY, FromInput, dim)
	l.made(sequence{
		{residual{first}, l.slot("h1", UntilWeight, dim), l.slot("dh1", FromInput, dim)},
		{part: residual{second}},
	})
	return l
}

// qkvParam is the joined matrix of queries, keys and values: one product instead of three.
func qkvParam(cfg Config, name string) Param {
	q, kv := cfg.Heads*cfg.HeadDim(), cfg.KVHeads*cfg.HeadDim()
	name += ".self_attn."
	return Param{Name: name + "qkv_proj.weight", Rows: q + 2*kv, Cols: cfg.Dim, Init: Init{Std: initStd}, Decay: true, Parts: []Part{
		{name + "q_proj.weight", q}, {name + "k_proj.weight", kv}, {name + "v_proj.weight", kv}}}
}

// newMLP returns the feed-forward part of a block: a Linear into hidden columns, an
// activation down to FFN columns, and a Linear back. With SwiGLU gate and up are one
// matrix; GELU's names are those of Starcoder2, the decoder with rotary position that has it.
func newMLP(l *layer, cfg Config, name string) sequence {
	in := Param{Name: name + ".gate_up_proj.weight", Rows: 2 * cfg.FFN, Cols: cfg.Dim, Init: Init{Std: initStd}, Decay: true,
		Parts: []Part{{name + ".gate_proj.weight", cfg.FFN}, {name + ".up_proj.weight", cfg.FFN}}}
	out := Param{Name: name + ".down_proj.weight", Rows: cfg.Dim, Cols: cfg.FFN, Init: Init{Std: cfg.residualStd()}, Decay: true}
	act := part(swiglu{ffn: cfg.FFN})
	if cfg.Activation == ActivationGELU {
		in.Name, in.Rows, in.Parts, out.Name, act = name+".c_fc.weight", cfg.FFN, nil, name+".c_proj.weight", gelu{}
	}
	inner := Matrix{Token, cfg.FFN, cfg.Type}
	hidden := l.slot("hidden", UntilWeight, Matrix{Token, in.Rows, cfg.Type}) // from I on its gradient
	return sequence{
		{newLinear(l, Token, in), hidden, hidden},
		{act, l.slot("act", UntilWeight, inner), scratch(inner)},
		{part: newLinear(l, Token, out)},
	}
}
