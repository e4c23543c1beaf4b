package model

// Names of the parameters that do not belong to a block, as in Hugging Face's
// LlamaForCausalLM.
const (
	nameEmbed = "model.embed_tokens.weight"
	nameHead  = "lm_head.weight"
)

// HFConfig returns the contents of the config.json with which Hugging Face
// transformers loads the model's safetensors as LlamaForCausalLM.
func (m *Model) HFConfig() map[string]any {
	c := m.Config
	return map[string]any{
		"architectures":           []string{"LlamaForCausalLM"},
		"model_type":              "llama",
		"hidden_act":              "silu",
		"hidden_size":             c.Dim,
		"intermediate_size":       c.FFN,
		"num_hidden_layers":       c.Layers,
		"num_attention_heads":     c.Heads,
		"num_key_value_heads":     c.KVHeads,
		"head_dim":                c.HeadDim(),
		"max_position_embeddings": c.Seq,
		"vocab_size":              c.Vocab,
		"rms_norm_eps":            c.NormEps,
		"rope_theta":              c.RopeBase,
		"rope_scaling":            nil,
		"attention_bias":          false,
		"attention_dropout":       0.0,
		"mlp_bias":                false,
		"initializer_range":       initStd,
		"tie_word_embeddings":     c.Tied,
		"torch_dtype":             "float32",
		"use_cache":               true,
		// Bytes have no special tokens; the defaults (1 and 2) would mean control characters.
		"bos_token_id": nil,
		"eos_token_id": nil,
		"pad_token_id": nil,
	}
}
