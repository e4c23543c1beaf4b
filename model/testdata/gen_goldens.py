#!/usr/bin/python3
"""Writes the golden files of this package: what PyTorch computes for the same models.

Debian: apt install python3-torch, then /usr/bin/python3 gen_goldens.py here.
Everything is computed in float64 by autograd; nothing of the project is used.
"""
import json
import math

import numpy as np
import torch

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)


def names(c):
    out = ["model.embed_tokens.weight", "model.norm.weight"]
    for i in range(c["layers"]):
        p = f"model.layers.{i}."
        out += [p + n for n in (
            "input_layernorm.weight", "self_attn.q_proj.weight", "self_attn.k_proj.weight",
            "self_attn.v_proj.weight", "self_attn.o_proj.weight", "post_attention_layernorm.weight")]
        if c.get("activation") == "gelu":
            out += [p + "mlp.c_fc.weight", p + "mlp.c_proj.weight"]
        else:
            out += [p + n for n in ("mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight")]
    if c.get("norm") == "layernorm":
        out += [n[:-6] + "bias" for n in out if n.endswith("norm.weight")]
    if not c["tied"]:
        out.append("lm_head.weight")
    return sorted(out)


def shape(c, name):
    d, hd = c["dim"], c["dim"] // c["heads"]
    kv = c["kv_heads"] * hd
    for end, s in (("norm.weight", (d,)), ("norm.bias", (d,)), ("c_fc.weight", (c["ffn"], d)), ("c_proj.weight", (d, c["ffn"])), ("q_proj.weight", (d, d)), ("k_proj.weight", (kv, d)),
                   ("v_proj.weight", (kv, d)), ("o_proj.weight", (d, d)), ("gate_proj.weight", (c["ffn"], d)),
                   ("up_proj.weight", (c["ffn"], d)), ("down_proj.weight", (d, c["ffn"]))):
        if name.endswith(end):
            return s
    return (c["vocab"], d)


def value(k, s):
    """The weights are a formula, so that the goldens need not hold them."""
    i = np.arange(1, int(np.prod(s)) + 1, dtype=np.float64)
    v = np.sin(12.9898 * i + 78.233 * (k + 1))
    v = 1 + 0.2 * v if len(s) == 1 else 0.5 * v
    return torch.tensor(v.astype(np.float32).astype(np.float64).reshape(s))


def weights(c):
    return {n: value(k, shape(c, n)).requires_grad_() for k, n in enumerate(names(c))}


def rmsnorm(x, g, eps):
    return g * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def norm(c, w, x, module):
    if c.get("norm") == "layernorm":
        return torch.nn.functional.layer_norm(x, (c["dim"],), w[module + ".weight"], w[module + ".bias"], c["norm_eps"])
    return rmsnorm(x, w[module + ".weight"], c["norm_eps"])


def rotate(x, base):  # x: batch, heads, seq, hd; as in transformers' modeling_llama
    hd, seq = x.shape[-1], x.shape[-2]
    freq = 1.0 / (base ** (torch.arange(0, hd, 2) / hd))
    angle = torch.outer(torch.arange(seq).double(), freq)
    angle = torch.cat((angle, angle), -1)
    half = torch.cat((-x[..., hd // 2:], x[..., :hd // 2]), -1)
    return x * angle.cos() + half * angle.sin()


def forward(c, w, ids):
    b, t = ids.shape
    hd = c["dim"] // c["heads"]
    x = w["model.embed_tokens.weight"][ids]
    for i in range(c["layers"]):
        p = f"model.layers.{i}."
        n = norm(c, w, x, p + "input_layernorm")
        def heads(name, h):
            return (n @ w[p + f"self_attn.{name}.weight"].T).view(b, t, h, hd).transpose(1, 2)
        q, k, v = heads("q_proj", c["heads"]), heads("k_proj", c["kv_heads"]), heads("v_proj", c["kv_heads"])
        q, k = rotate(q, c["rope_base"]), rotate(k, c["rope_base"])
        each = c["heads"] // c["kv_heads"]
        k, v = k.repeat_interleave(each, 1), v.repeat_interleave(each, 1)
        s = q @ k.transpose(2, 3) / math.sqrt(hd)
        s = s.masked_fill(torch.ones(t, t).triu(1).bool(), -math.inf)
        o = (torch.softmax(s, -1) @ v).transpose(1, 2).reshape(b, t, -1)
        x = x + o @ w[p + "self_attn.o_proj.weight"].T
        n = norm(c, w, x, p + "post_attention_layernorm")
        if c.get("activation") == "gelu":
            x = x + torch.nn.functional.gelu(n @ w[p + "mlp.c_fc.weight"].T, approximate="tanh") @ w[p + "mlp.c_proj.weight"].T
            continue
        act = torch.nn.functional.silu(n @ w[p + "mlp.gate_proj.weight"].T) * (n @ w[p + "mlp.up_proj.weight"].T)
        x = x + act @ w[p + "mlp.down_proj.weight"].T
    n = norm(c, w, x, "model.norm")
    return n @ w["model.embed_tokens.weight" if c["tied"] else "lm_head.weight"].T


def losses(c, w, text):
    logits = forward(c, w, text[:, :-1])
    return torch.nn.functional.cross_entropy(logits.reshape(-1, c["vocab"]), text[:, 1:].reshape(-1), reduction="none")


def text(c, batch, step):
    """Token i of sequence s: a formula again."""
    return torch.tensor([[(i * i + 3 * s + 7 * step + i * s) % c["vocab"] for i in range(c["seq"] + 1)] for s in range(batch)])


def rate(o, step):
    if step <= o["warmup"]:
        return o["lr"] * step / o["warmup"]
    part = (step - o["warmup"]) / (o["steps"] - o["warmup"])
    return o["min_lr"] + 0.5 * (o["lr"] - o["min_lr"]) * (1 + math.cos(math.pi * part))


def rounded(t):
    return [float(f"{x:.8g}") for x in t.detach().flatten().tolist()]


def case(name, c, o, batch):
    w = weights(c)
    loss = losses(c, w, text(c, batch, 1))
    loss.mean().backward()
    g = {"name": name, "config": c, "batch": batch, "losses": rounded(loss),
         "grads": {n: rounded(p.grad) for n, p in w.items()}}

    w = weights(c)
    groups = [{"params": [p for p in w.values() if p.dim() == 2], "weight_decay": o["weight_decay"]},
              {"params": [p for p in w.values() if p.dim() == 1], "weight_decay": 0.0}]
    if o["kind"] == "adamw":
        opt = torch.optim.AdamW(groups, lr=1, betas=(o["beta1"], o["beta2"]), eps=o["eps"])
    else:
        opt = torch.optim.SGD(groups, lr=1, momentum=o["momentum"])
    run = []
    for step in range(1, o["steps"] + 1):
        opt.zero_grad()
        loss = losses(c, w, text(c, batch, step)).mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(w.values(), o["clip"])
        for group in opt.param_groups:
            group["lr"] = rate(o, step)
        opt.step()
        run.append({"loss": loss.item(), "norm": norm.item(), "lr": rate(o, step)})
    g["optimizer"], g["run"] = o, run
    g["weights"] = {n: rounded(p) for n, p in w.items()}
    with open(name + ".json", "w") as f:
        # A line for each key, so that a change shows as one.
        f.write("{\n" + ",\n".join(json.dumps(k) + ": " + json.dumps(v) for k, v in g.items()) + "\n}\n")


case("untied-adamw",
     dict(layers=2, dim=12, heads=6, kv_heads=2, ffn=10, seq=7, vocab=11, tied=False, rope_base=100.0, norm_eps=1e-5),
     dict(kind="adamw", lr=0.01, min_lr=0.001, warmup=2, steps=6, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip=1.0), 3)
case("tied-sgd",
     dict(layers=2, dim=8, heads=2, kv_heads=2, ffn=9, seq=5, vocab=13, tied=True, rope_base=10000.0, norm_eps=1e-3),
     dict(kind="sgd", lr=0.1, min_lr=0.0, warmup=1, steps=5, momentum=0.9, weight_decay=0.05, clip=0.5), 2)
case("gpt-adamw",
     dict(layers=2, dim=12, heads=3, kv_heads=3, ffn=17, seq=6, vocab=11, tied=True, rope_base=10000.0, norm_eps=1e-5, norm="layernorm", activation="gelu"),
     dict(kind="adamw", lr=0.01, min_lr=0.001, warmup=2, steps=5, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip=1.0), 2)
