package model

// Names of the parameters that do not belong to a block, as in Hugging Face's
// decoders.
const (
	nameEmbed = "model.embed_tokens.weight"
	nameHead  = "lm_head.weight"
)

// HFConfig returns the contents of the config.json with which Hugging Face
// transformers loads the model's safetensors: as LlamaForCausalLM, with LayerNorm as
// StableLmForCausalLM, with LayerNorm and GELU as Starcoder2ForCausalLM. RMSNorm with
// GELU is in no family: it is named "pipetrain", so that nothing takes it for what
// it is not; its tensors have Starcoder2's names.
func (m *Model) HFConfig() map[string]any {
	c := m.Config
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
