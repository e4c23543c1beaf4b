"""Writes this folder with Hugging Face's own LLaMA: random weights, tokens, its loss.

pip install "transformers==4.46.3" "jax[cpu]==0.4.35" "flax==0.10.2" safetensors
(The Flax model has a rotary base of 10000 whatever the configuration says.)
"""

import json
import os

os.environ["JAX_ENABLE_X64"] = "1"
import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file
from transformers import FlaxLlamaForCausalLM, LlamaConfig

OUT = os.path.dirname(os.path.abspath(__file__))
SEQ = 12

config = LlamaConfig(
    vocab_size=23, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, rms_norm_eps=1e-5, rope_theta=10000.0, max_position_embeddings=32,
    tie_word_embeddings=False, hidden_act="silu",
)
model = FlaxLlamaForCausalLM(config, seed=0, dtype=jnp.float64)
rng = np.random.default_rng(3)
saved = {}


def fill(tree, path):
    """Random weights in the tree's form, and into saved under the PyTorch names."""
    out = {}
    for key, value in sorted(tree.items()):
        if isinstance(value, dict):
            out[key] = fill(value, path + [key])
            continue
        name = ".".join(path + ["weight"])
        w = (rng.standard_normal(value.shape) * 0.4 + (1 if "norm" in name else 0)).astype(np.float32)
        saved[name] = np.ascontiguousarray(w.T) if key == "kernel" else w
        out[key] = jnp.asarray(w.astype(np.float64))
    return out


params = fill(model.params, [])
ids = rng.integers(0, config.vocab_size, (3, SEQ + 1)).astype("<i4")
with jax.default_matmul_precision("highest"):
    logits = np.asarray(model(jnp.asarray(ids[:, :-1]), params=params, train=False).logits, np.float64)
top = logits.max(-1, keepdims=True)
lse = np.log(np.exp(logits - top).sum(-1)) + top[..., 0]
loss = float(np.mean(lse - np.take_along_axis(logits, ids[:, 1:, None].astype(int), -1)[..., 0]))

names = sorted(saved)
shards = [names[: len(names) // 2], names[len(names) // 2 :]]
weight_map = {}
for i, shard in enumerate(shards):
    file = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
    save_file({n: saved[n] for n in shard}, os.path.join(OUT, file), metadata={"format": "pt"})
    os.chmod(os.path.join(OUT, file), 0o644)
    weight_map |= {n: file for n in shard}


def write_json(name, value):
    with open(os.path.join(OUT, name), "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1)
        f.write("\n")


write_json("model.safetensors.index.json", {
    "metadata": {"total_size": sum(a.nbytes for a in saved.values())}, "weight_map": weight_map})
write_json("config.json", {k: v for k, v in config.to_dict().items() if k in (
    "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "rms_norm_eps", "rope_theta", "tie_word_embeddings", "hidden_act",
    "max_position_embeddings")})
ids.tofile(os.path.join(OUT, "tokens.i32"))
write_json("expected.json", {"loss": loss, "seq": SEQ, "by": "transformers 4.46.3, FlaxLlamaForCausalLM in float64"})
