#!/usr/bin/env python3
"""PyTorch on one thread of the CPU: matrix products, and four blocks (RMSNorm, causal attention with
rotary position, SwiGLU; d 512, 8 heads, ffn 1376, seq 256, micro-batch 4) forward and backward, in bf16 and
fp32. What `go test ./model -bench Blocks` and `go test ./kernels/cpu -bench LowGemm` measure of pipetrain.

    scripts/bench-torch.py [rounds [products|blocks]]

Times are the thread's CPU time. Rates count what the mathematics needs: half of causal attention."""
import os
import statistics
import sys
import time

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
import torch
import torch.nn.functional as F

LAYERS, DIM, HEADS, SEQ, BATCH, FFN = 4, 512, 8, 256, 4, 1376
WIDTH = DIM // HEADS
# Linears: 2 operations a weight and token forward, twice that backward. Attention: 2 products of
# half a square forward, 2.5 times that backward.
FLOP = LAYERS * BATCH * SEQ * (6 * (4 * DIM * DIM + 3 * DIM * FFN) + 3.5 * 2 * SEQ * DIM)


def rates(flop, f, rounds):
    for _ in range(3):
        f()
    times = []
    for _ in range(rounds):
        start = time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)
        f()
        times.append(time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID) - start)
    return "median %.0f best %.0f GFLOP/s" % (flop / statistics.median(times) / 1e9, flop / min(times) / 1e9)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = (torch.nn.RMSNorm(DIM, eps=1e-5) for _ in range(2))
        self.qkv, self.out = torch.nn.Linear(DIM, 3 * DIM, bias=False), torch.nn.Linear(DIM, DIM, bias=False)
        self.gate_up, self.down = torch.nn.Linear(DIM, 2 * FFN, bias=False), torch.nn.Linear(FFN, DIM, bias=False)

    def forward(self, x, cos, sin):
        q, k, v = self.qkv(self.norm1(x)).view(BATCH, SEQ, 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + self.out(o.transpose(1, 2).reshape(BATCH, SEQ, DIM))
        g, u = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(g) * u)


def blocks(dtype, rounds):
    layers = torch.nn.ModuleList(Block() for _ in range(LAYERS)).to(dtype)
    angle = torch.arange(SEQ)[:, None] * 10000 ** (-torch.arange(WIDTH // 2) / (WIDTH // 2))
    cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
    x, dy = torch.randn(BATCH, SEQ, DIM).to(dtype).requires_grad_(), torch.randn(BATCH, SEQ, DIM).to(dtype)

    def step():
        x.grad = None
        layers.zero_grad(set_to_none=True)
        h = x
        for layer in layers:
            h = layer(h, cos, sin)
        h.backward(dy)

    return rates(FLOP, step, rounds)


def product(dtype, m, n, k, trans, rounds):
    a = torch.randn(k, m).to(dtype).t() if trans[0] == "T" else torch.randn(m, k).to(dtype)
    b = torch.randn(n, k).to(dtype).t() if trans[1] == "T" else torch.randn(k, n).to(dtype)
    c = torch.empty(m, n, dtype=dtype)
    return rates(2 * m * n * k, lambda: torch.mm(a, b, out=c), rounds)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    print("torch", torch.__version__)
    for dtype in (torch.bfloat16, torch.float32):
        for m, n, k, trans in () if only == "blocks" else (
            (512, 512, 512, "NN"), (1024, 1024, 1024, "NN"), (1024, 1024, 1024, "NT"), (1024, 1024, 1024, "TN"), (2048, 2048, 2048, "NT"),
            (1024, 2752, 512, "NT"), (1024, 512, 1376, "NT"), (1024, 512, 2752, "NN"), (2752, 512, 1024, "TN")):
            print("product %s %dx%dx%d/%s %s" % (str(dtype)[6:], m, n, k, trans, product(dtype, m, n, k, trans, 4 * rounds)), flush=True)
        if only != "products":
            print("blocks %s %s" % (str(dtype)[6:], blocks(dtype, rounds)), flush=True)


main()
