#!/usr/bin/python3
"""The loss of saved LLaMA weights on given tokens, computed without pipetrain.

    eval_safetensors.py CHECKPOINT_DIR TOKENS --seq S

CHECKPOINT_DIR holds config.json and model.safetensors (or its shards with
model.safetensors.index.json) with the Hugging Face names. TOKENS is a file of
little-endian int32 ids, n rows of S + 1: a row's first S tokens are the input,
its last S the targets. Prints one JSON object with the mean cross-entropy in
nats per token. Needs numpy only; everything is computed in float64.

It shares no code with pipetrain on purpose: agreement says that the weights on
disk mean to another program what they meant to the run.
"""

import argparse
import json
import os
import struct
import sys

import numpy as np

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


class Bad(Exception):
    """What is wrong with the input, in one line."""


def read_json(path):
    try:
        with open(path, encoding="utf-8") as f:
            return json.load(f)
    except (OSError, ValueError) as e:
        raise Bad(f"{path}: {e}") from e


def read_safetensors(path):
    """Returns {name: float64 array} of one file."""
    with open(path, "rb") as f:
        raw = f.read()
    if len(raw) < 8:
        raise Bad(f"{path}: too short for a safetensors file")
    (size,) = struct.unpack("<Q", raw[:8])
    if size > len(raw) - 8:
        raise Bad(f"{path}: its header of {size} bytes is longer than the file")
    header = json.loads(raw[8 : 8 + size].decode("utf-8"))
    data = raw[8 + size :]
    out = {}
    for name, t in header.items():
        if name == "__metadata__":
            continue
        begin, end = t["data_offsets"]
        if t["dtype"] not in DTYPES:
            raise Bad(f"{path}: {name} is {t['dtype']}, want one of {', '.join(DTYPES)}")
        kind = np.dtype(DTYPES[t["dtype"]])
        want = int(np.prod(t["shape"], dtype=np.int64)) * kind.itemsize
        if not 0 <= begin <= end <= len(data) or end - begin != want:
            raise Bad(f"{path}: {name} has shape {t['shape']} but offsets {begin} to {end} of {len(data)}")
        a = np.frombuffer(data, kind, count=want // kind.itemsize, offset=begin)
        if t["dtype"] == "BF16":  # the upper half of a float32
            a = (a.astype(np.uint32) << 16).view("<f4")
        out[name] = a.astype(np.float64).reshape(t["shape"])
    return out


def read_weights(folder):
    index = os.path.join(folder, "model.safetensors.index.json")
    single = os.path.join(folder, "model.safetensors")
    if not os.path.exists(index):
        if not os.path.exists(single):
            raise Bad(f"{folder}: neither model.safetensors nor its index is there")
        return read_safetensors(single)
    where = read_json(index)["weight_map"]
    out = {}
    for file in sorted(set(where.values())):
        for name, a in read_safetensors(os.path.join(folder, file)).items():
            if where.get(name) != file:
                raise Bad(f"{index}: {name} lies in {file}, the index says {where.get(name)}")
            out[name] = a
    missing = sorted(set(where) - set(out))
    if missing:
        raise Bad(f"{index}: no shard holds {missing[0]}")
    return out


def rms_norm(x, gain, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * gain


def rotate(x, theta):
    """Rotary embedding of x [heads, seq, head_dim], Hugging Face's rotate-half form."""
    seq, dim = x.shape[-2:]
    freq = theta ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)
    angle = np.outer(np.arange(seq), freq)
    angle = np.concatenate([angle, angle], axis=-1)
    half = np.concatenate([-x[..., dim // 2 :], x[..., : dim // 2]], axis=-1)
    return x * np.cos(angle) + half * np.sin(angle)


class Llama:
    def __init__(self, config, weights):
        self.w = weights
        self.used = set()
        try:
            self.dim = int(config["hidden_size"])
            self.layers = int(config["num_hidden_layers"])
            self.heads = int(config["num_attention_heads"])
            self.vocab = int(config["vocab_size"])
            self.eps = float(config["rms_norm_eps"])
        except KeyError as e:
            raise Bad(f"config.json: {e} is missing") from e
        self.kv_heads = int(config.get("num_key_value_heads") or self.heads)
        self.head_dim = int(config.get("head_dim") or self.dim // self.heads)
        self.theta = float(config.get("rope_theta", 10000.0))
        self.tied = bool(config.get("tie_word_embeddings", False))
        self.ffn = int(config.get("intermediate_size") or 0)
        if config.get("hidden_act", "silu") != "silu":
            raise Bad(f"config.json: hidden_act {config['hidden_act']!r}, want silu")
        for key in ("rope_scaling", "attention_bias", "mlp_bias"):
            if config.get(key):
                raise Bad(f"config.json: {key} is not supported here")
        if self.heads % self.kv_heads:
            raise Bad(f"config.json: {self.heads} heads over {self.kv_heads} key/value heads")

    def weight(self, name, *shape):
        if name not in self.w:
            raise Bad(f"the weights have no {name}")
        a = self.w[name]
        if any(s and s != got for s, got in zip(shape, a.shape)) or len(shape) != a.ndim:
            raise Bad(f"{name} has shape {list(a.shape)}, want {list(shape)}")
        self.used.add(name)
        return a

    def attention(self, x, prefix):
        seq = x.shape[0]
        h, kv, d = self.heads, self.kv_heads, self.head_dim

        def project(name, heads):
            y = x @ self.weight(prefix + name, heads * d, self.dim).T
            return y.reshape(seq, heads, d).transpose(1, 0, 2)

        q = rotate(project("q_proj.weight", h), self.theta)
        k = rotate(project("k_proj.weight", kv), self.theta)
        v = project("v_proj.weight", kv)
        k = np.repeat(k, h // kv, axis=0)  # query head i reads key/value head i // (h/kv)
        v = np.repeat(v, h // kv, axis=0)
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(d)
        scores = np.where(np.tril(np.ones((seq, seq), dtype=bool)), scores, -np.inf)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        out = (scores @ v).transpose(1, 0, 2).reshape(seq, h * d)
        return out @ self.weight(prefix + "o_proj.weight", self.dim, h * d).T

    def mlp(self, x, prefix):
        gate = x @ self.weight(prefix + "gate_proj.weight", self.ffn, self.dim).T
        up = x @ self.weight(prefix + "up_proj.weight", self.ffn, self.dim).T
        y = gate / (1 + np.exp(-gate)) * up
        return y @ self.weight(prefix + "down_proj.weight", self.dim, self.ffn).T

    def logits(self, tokens):
        embedding = self.weight("model.embed_tokens.weight", self.vocab, self.dim)
        x = embedding[tokens]
        for i in range(self.layers):
            p = f"model.layers.{i}."
            norm = self.weight(p + "input_layernorm.weight", self.dim)
            x = x + self.attention(rms_norm(x, norm, self.eps), p + "self_attn.")
            norm = self.weight(p + "post_attention_layernorm.weight", self.dim)
            x = x + self.mlp(rms_norm(x, norm, self.eps), p + "mlp.")
        x = rms_norm(x, self.weight("model.norm.weight", self.dim), self.eps)
        head = embedding if self.tied else self.weight("lm_head.weight", self.vocab, self.dim)
        return x @ head.T

    def loss(self, window):
        """The mean cross-entropy of one row of seq + 1 tokens."""
        logits = self.logits(window[:-1])
        top = logits.max(axis=-1)
        lse = top + np.log(np.exp(logits - top[:, None]).sum(axis=-1))
        return float(np.mean(lse - logits[np.arange(len(window) - 1), window[1:]]))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("checkpoint")
    p.add_argument("tokens")
    p.add_argument("--seq", type=int, required=True, help="tokens of a row, without the last target")
    args = p.parse_args()

    model = Llama(read_json(os.path.join(args.checkpoint, "config.json")), read_weights(args.checkpoint))
    ids = np.fromfile(args.tokens, dtype="<i4")
    if args.seq < 1 or ids.size == 0 or ids.size % (args.seq + 1):
        raise Bad(f"{args.tokens}: {ids.size} ids are no whole number of rows of {args.seq} + 1")
    if ids.min() < 0 or ids.max() >= model.vocab:
        raise Bad(f"{args.tokens}: ids from {ids.min()} to {ids.max()}, the vocabulary has {model.vocab}")
    rows = ids.reshape(-1, args.seq + 1)
    losses = [model.loss(row) for row in rows]
    unused = sorted(set(model.w) - model.used - {"lm_head.weight" if model.tied else ""})
    if unused:
        raise Bad(f"the weights hold {unused[0]}, which config.json has no place for")
    print(json.dumps({
        "loss": float(np.mean(losses)),
        "rows": len(losses),
        "tokens": int(rows.shape[0] * args.seq),
        "parameters": int(sum(a.size for a in model.w.values())),
    }))


if __name__ == "__main__":
    try:
        main()
    except (Bad, OSError, ValueError, KeyError, TypeError) as e:
        sys.exit(f"eval_safetensors.py: {e}")
