#!/usr/bin/env python3
"""Checks and measures the GPU backend on this machine's GPU and writes one JSON file.

    make bench-cuda        builds what is needed and runs all of it
    scripts/cuda-check.py [--only PARTS] [--out FILE] [--bin DIR]

Nothing is built here: bin/pipetrain and bin/cuda.test (go test -c ./kernels/cuda) are enough, beside the
standard library of Python. Parts: conformance, parity, memory, rates, block, pipeline, torch; torch is left out
where PyTorch is not installed. The exit code is 0 when all parts held, 1 when one did not, 77 where there is no GPU:
then nothing was tested, and nothing is written.
"""
import argparse
import ctypes
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARTS = ["conformance", "parity", "memory", "rates", "block", "pipeline", "torch"]

# The 2BP paper's schedules (arXiv 2405.18047): kind, placement of p2, micro-batches for N ranks.
PAPER = {
    "naive": ("naive", "end", lambda n: 1),
    "GPipe": ("gpipe", "end", lambda n: n),
    "1F1B-1": ("1f1b", "cooldown", lambda n: n),
    "1F1B-2": ("1f1b", "cooldown", lambda n: 2 * n),
}


def gpus(library):
    """Returns how many GPUs the driver shows, or why there is none."""
    try:
        lib = ctypes.CDLL(library)
    except OSError as e:
        return 0, f"no NVIDIA driver: {e}"
    r = lib.cuInit(0)
    if r:
        return 0, f"the driver does not start (cuInit: {r})"
    n = ctypes.c_int()
    lib.cuDeviceGetCount(ctypes.byref(n))
    return n.value, "the driver shows no GPU"


class Checks:
    def __init__(self, args):
        self.args = args
        self.small = args.small
        self.result = {"parts": {}}
        self.failed = []

    def sets(self):
        s = {"device.kind": "cuda", "device.share": "true"}
        if self.args.libcuda:
            s["device.libcuda"] = self.args.libcuda
        if self.args.cublaslt:
            s["device.cublaslt"] = self.args.cublaslt
        return s

    def train(self, sets, device=True, timeout=1800):
        """Runs a job and returns its summary and its losses."""
        base = {
            "data.kind": "synthetic", "optimizer.warmup": 0, "checkpoint.every": 0, "model.layers": 4, "model.dim": 64, "model.heads": 4,
            "model.ffn": 128, "model.seq": 64, "train.steps": 4, "train.batch": 8, "parallel.stages": 1, "schedule.kind": "1f1b",
        }
        if device:
            base.update(self.sets())
        base.update(sets)
        with tempfile.TemporaryDirectory() as tmp:
            run = pathlib.Path(tmp, "run")
            cmd = [str(self.args.bin / "pipetrain"), "--quiet", "--out", str(run)]
            for k, v in base.items():
                cmd += ["--set", f"{k}={v}"]
            r = subprocess.run(cmd + [str(self.args.job)], capture_output=True, text=True, timeout=timeout)
            if r.returncode:
                raise RuntimeError(f"pipetrain ended with {r.returncode}: {r.stderr.strip()[-800:]}")
            summary = json.loads((run / "summary.json").read_text())
            lines = (run / "metrics.jsonl").read_text().splitlines()
            losses = [m["loss"] for m in map(json.loads, lines) if "loss" in m]
            return summary, losses

    def test(self, pattern, **env):
        e = dict(os.environ, PIPETRAIN_TEST_GPU=self.args.libcuda or "libcuda.so.1", PIPETRAIN_TEST_CUBLASLT=self.args.cublaslt or "", **env)
        if self.small:
            e["PIPETRAIN_TEST_SMALL"] = "1"
        r = subprocess.run([str(self.args.bin / "cuda.test"), "-test.run", pattern, "-test.v", "-test.timeout", "30m"],
                           capture_output=True, text=True, env=e)
        names = [l.strip() for l in r.stdout.splitlines() if l.lstrip().startswith("--- ")]
        out = {"ok": r.returncode == 0, "passed": sum("PASS" in n for n in names), "failed": [n for n in names if "FAIL" in n]}
        if r.returncode:
            out["output"] = (r.stdout + r.stderr)[-4000:]
        return out

    # The parts. Each returns what it found, with "ok" where something had to hold.

    def conformance(self):
        return self.test("^TestCard(Conformance|Abilities)$")

    def parity(self):
        """Two stages against the CPU, 50 steps of fp32."""
        small = {"parallel.stages": 2, "train.steps": 4 if self.small else 50, "schedule.microbatches": 4}
        if self.small:
            small.update({"model.layers": 2, "model.dim": 16, "model.seq": 8, "model.ffn": 32})
        _, want = self.train(dict(small, **{"device.kind": "cpu"}), device=False)
        _, got = self.train(small)
        worst = max(abs(g - w) / abs(w) for g, w in zip(got, want))
        return {"ok": len(got) == len(want) and worst < 1e-3, "steps": len(got), "largest_relative_difference": worst}

    def memory(self):
        """What the arenas held against what was planned."""
        s, _ = self.train({"parallel.stages": 2, "schedule.microbatches": 4, "train.steps": 2})
        return {"ok": s["peak_bytes_measured"] == s["peak_bytes_predicted"], "planned": s["peak_bytes_predicted"],
                "measured": s["peak_bytes_measured"], "by_category": s["peak_bytes_by_category"]}

    def rates(self):
        with tempfile.TemporaryDirectory() as tmp:
            file = pathlib.Path(tmp, "rates.json")
            out = self.test("^TestCardMeasure$", PIPETRAIN_TEST_MEASURE=str(file))
            if file.exists():
                out.update(json.loads(file.read_text()))
        return out

    def block_job(self):
        if self.small:
            return {"model.layers": 1, "model.dim": 32, "model.heads": 4, "model.ffn": 64, "model.seq": 16, "train.batch": 2,
                    "schedule.microbatches": 1, "train.steps": 12}
        # Two blocks: a run writes its weights at both ends, and they are large.
        return {"model.layers": 2, "model.dim": 4096, "model.heads": 32, "model.ffn": 11008, "model.seq": 1024, "train.batch": 8,
                "schedule.microbatches": 1, "train.steps": 12, "train.precision": "bf16"}

    def block(self):
        """A stage of transformer blocks, forward and backward, against the matrix rate of its type."""
        out = {}
        for p2 in ["fused", "end"]:
            s, _ = self.train(dict(self.block_job(), **{"schedule.kind": "naive", "schedule.backward_p2": p2}))
            out[p2] = {k: s.get(k) for k in ["tflops", "tflops_busy", "step_seconds_median", "makespan_measured_seconds"]}
        rates = self.result["parts"].get("rates", {}).get("matrix_tflops", {})
        of = rates.get("f32" if self.small else "bf16")
        if of:
            out["share_of_matrix_rate"] = out["fused"]["tflops_busy"][0] / of
        return out

    def pipeline(self):
        """Ranks that share the card: the paper's schedules with and without 2BP, p2 concatenated or not, as graphs or not."""
        n = 2 if self.small else 4
        base = {"parallel.stages": n, "train.steps": 12}
        if self.small:
            base.update({"model.layers": n, "model.dim": 16, "model.seq": 8, "model.ffn": 32})
        else:
            base.update({"model.layers": 8, "model.dim": 1024, "model.heads": 16, "model.ffn": 2752, "model.seq": 1024, "train.precision": "bf16"})
        table = []
        for name, (kind, p2, micro) in PAPER.items():
            row = {"schedule": name, "ranks": n}
            sets = dict(base, **{"schedule.kind": kind, "schedule.microbatches": micro(n), "train.batch": (2 if self.small else 8) * micro(n)})
            variants = {"without": {"schedule.backward_p2": "fused"}}
            for concat in ["1", "all"]:
                for graph in ["false", "true"]:
                    key = f"2BP, concat {concat}" + (", graphs" if graph == "true" else "")
                    variants[key] = {"schedule.backward_p2": p2, "schedule.concat": concat, "device.p2_graph": graph}
            for key, v in variants.items():
                s, _ = self.train(dict(sets, **v))
                row[key] = {"makespan": s["makespan_measured_seconds"], "predicted": s["makespan_predicted_seconds"],
                            "step": s["step_seconds_median"], "bubble": s["bubble_measured"], "peak_bytes": s["peak_bytes_measured"]}
                if key != "without":
                    row[key]["speedup"] = row["without"]["makespan"] / row[key]["makespan"]
                    row[key]["speedup_predicted"] = row["without"]["predicted"] / row[key]["predicted"]
            table.append(row)
        pipe = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
        return {"mps": os.path.exists(os.path.join(pipe, "control")), "table": table}

    def torch(self):
        """The same blocks in PyTorch, eager, with its flash attention, on the same card."""
        try:
            import torch
            import torch.nn.functional as F
        except ImportError:
            return {"left_out": "PyTorch is not installed"}
        if not torch.cuda.is_available():
            return {"left_out": "PyTorch sees no GPU"}
        j = self.block_job()
        dim, heads, ffn, seq, layers = (j["model." + k] for k in ["dim", "heads", "ffn", "seq", "layers"])
        batch = j["train.batch"]
        half, dev = dim // heads // 2, torch.device("cuda")
        angle = torch.arange(seq, device=dev)[:, None] * 10000 ** (-torch.arange(half, device=dev) / half)
        cos, sin = angle.cos().bfloat16(), angle.sin().bfloat16()

        def turn(x):
            a, b = x[..., :half], x[..., half:]
            return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

        def norm(x, g):
            return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)).bfloat16() * g

        shapes = [(dim,), (3 * dim, dim), (dim, dim), (dim,), (2 * ffn, dim), (dim, ffn)]
        weights = [[torch.randn(s, device=dev, dtype=torch.bfloat16).mul_(0.02).requires_grad_() for s in shapes] for _ in range(layers)]

        def forward(x):
            for g1, qkv, out, g2, up, down in weights:
                q, k, v = F.linear(norm(x, g1), qkv).view(batch, seq, 3, heads, dim // heads).permute(2, 0, 3, 1, 4)
                o = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True)
                x = x + F.linear(o.transpose(1, 2).reshape(batch, seq, dim), out)
                g, u = F.linear(norm(x, g2), up).chunk(2, -1)
                x = x + F.linear(F.silu(g) * u, down)
            return x

        x = torch.randn(batch, seq, dim, device=dev, dtype=torch.bfloat16, requires_grad=True)
        times = []
        for _ in range(12):
            torch.cuda.synchronize()
            start = time.perf_counter()
            forward(x).sum().backward()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        seconds = sorted(times[2:])[len(times[2:]) // 2]
        ours = self.result["parts"].get("block", {}).get("fused", {}).get("makespan_measured_seconds")
        # Of products and attention, as the program counts: backward twice the forward.
        tokens = batch * seq
        flops = 3 * layers * (2 * tokens * (4 * dim * dim + 3 * dim * ffn) + 2 * batch * dim * seq * seq)
        out = {"version": torch.__version__, "seconds": seconds, "tflops": flops / seconds / 1e12}
        if ours:
            # The program's step has embedding, head and loss beside the blocks.
            out["pipetrain_over_pytorch"] = seconds / ours
        return out

    def run(self):
        for part in self.args.only:
            print(f"=== {part}", flush=True)
            start = time.time()
            try:
                found = getattr(self, part)()
            except Exception as e:  # one part's failure must not lose the others' figures
                found = {"ok": False, "error": f"{type(e).__name__}: {e}"}
            found["seconds_taken"] = round(time.time() - start, 1)
            self.result["parts"][part] = found
            good = found.get("ok", True)
            if not good:
                self.failed.append(part)
            print(json.dumps(found, indent=1) if not good else f"    {'ok' if 'ok' in found else 'done'}, {found['seconds_taken']} s", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--only", type=lambda s: s.split(","), default=PARTS, help="parts, with commas between: " + ",".join(PARTS))
    p.add_argument("--out", type=pathlib.Path, help="the JSON file; default: standard output")
    p.add_argument("--bin", type=pathlib.Path, default=ROOT / "bin", help="folder of pipetrain and cuda.test")
    p.add_argument("--job", type=pathlib.Path, default=ROOT / "jobs/examples/demo.toml", help="the job file whose keys are overridden")
    p.add_argument("--libcuda", help="path of the driver's library")
    p.add_argument("--cublaslt", help="path of cublasLt")
    p.add_argument("--small", action="store_true", help="tiny sizes, for an emulated GPU: tries this script, measures nothing")
    args = p.parse_args()
    if unknown := [x for x in args.only if x not in PARTS]:
        p.error(f"unknown parts {', '.join(unknown)}; known: {', '.join(PARTS)}")
    n, why = gpus(args.libcuda or "libcuda.so.1")
    if n == 0:
        print(f"cuda-check: no GPU here, so nothing was tested: {why}", file=sys.stderr)
        return 77
    c = Checks(args)
    version = subprocess.run([str(args.bin / "pipetrain"), "--version"], capture_output=True, text=True).stdout.strip()
    doctor = subprocess.run([str(args.bin / "pipetrain"), "doctor", "--json"], capture_output=True, text=True).stdout
    c.result.update(version=version, command=" ".join(sys.argv), kernel=platform.release(), gpus=n, small=args.small,
                    doctor=[f for f in json.loads(doctor)["findings"] if f["check"].startswith("compute")] if doctor else None)
    c.run()
    c.result["failed"] = c.failed
    text = json.dumps(c.result, indent=1, allow_nan=False, default=str) + "\n"
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text)
        print(f"written: {args.out}")
    else:
        print(text, end="")
    if c.failed:
        print(f"cuda-check: failed: {', '.join(c.failed)}", file=sys.stderr)
    return 1 if c.failed else 0


if __name__ == "__main__":
    sys.exit(main())
