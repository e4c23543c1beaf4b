#!/usr/bin/env python3
"""Checks and measures the GPU backend on this machine's GPU and writes one JSON file.

    make bench-cuda        builds what is needed and runs all of it
    scripts/cuda-check.py [--only PARTS] [--out FILE] [--bin DIR] [--minutes N]

Nothing is built here: bin/pipetrain and bin/cuda.test (go test -c ./kernels/cuda) are enough, beside the
standard library of Python. Parts: conformance, rates, block, torch, memory, parity, pipeline; torch is left out
where PyTorch is not installed. Each part has a time limit of its own, what fails loses no other part, and the file is
written anew after each: what was found stays, however this ends. The exit code is 0 when all parts held, 1
when one did not or an aim was missed, 77 where there is no GPU: then nothing was tested, and nothing is written.
"""
import argparse
import contextlib
import ctypes
import glob
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Parts in their order, with the seconds that each may take.
PARTS = {"conformance": 170, "rates": 60, "block": 120, "torch": 75, "memory": 45, "parity": 60, "pipeline": 300}

# The 2BP paper's schedules (arXiv 2405.18047): kind, placement of p2, micro-batches for N ranks.
PAPER = {
    "naive": ("naive", "end", lambda n: 1),
    "GPipe": ("gpipe", "end", lambda n: n),
    "1F1B-1": ("1f1b", "cooldown", lambda n: n),
    "1F1B-2": ("1f1b", "cooldown", lambda n: 2 * n),
}


class OutOfTime(Exception):
    """The time of a part, or of all, is over."""


def command(cmd, seconds, **kwargs):
    """Runs a command with all that it starts, for so long at most, and returns code, stdout and stderr."""
    if seconds < 1:
        raise OutOfTime("no time left")
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:  # files: a grandchild may hold a pipe
        p = subprocess.Popen(cmd, stdout=out, stderr=err, stdin=subprocess.DEVNULL, text=True, start_new_session=True, **kwargs)
        try:
            p.wait(seconds)
        except BaseException as e:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(p.pid, signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    p.wait(5)
                os.killpg(p.pid, signal.SIGKILL)
            p.wait()
            if not isinstance(e, subprocess.TimeoutExpired):
                raise
            err.seek(0)
            raise OutOfTime(f"{os.path.basename(cmd[0])} took more than {seconds:.0f} s: {err.read()[-400:].strip()}") from None
        out.seek(0), err.seek(0)
        return p.returncode, out.read(), err.read()


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


def find_cublaslt():
    """Returns the path of a cublasLt that the loader does not find by itself: of a toolkit, or of Python's packages."""
    for name in ["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"]:
        with contextlib.suppress(OSError):
            ctypes.CDLL(name)
            return None
        places = ["/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib", "/opt/nvidia/*/lib*"]
        for folder in sys.path:
            places += [os.path.join(folder, "nvidia", "*", "lib"), os.path.join(folder, "torch", "lib")]
        for place in places:
            if found := sorted(glob.glob(os.path.join(place, name))):
                return found[-1]
    return None


def finite(v):
    """Returns v with None where a float is none that JSON has."""
    if isinstance(v, dict):
        return {k: finite(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [finite(x) for x in v]
    return None if isinstance(v, float) and v - v != 0 else v


class Checks:
    def __init__(self, args):
        self.args = args
        self.small = args.small
        self.result = {"parts": {}, "aims": {}, "failed": []}
        self.end = time.monotonic() + 60 * args.minutes
        self.part_end = self.end
        self.env = dict(os.environ)
        # Checkpoints of large models go to memory where there is much; the compiled kernels into one place.
        self.tmp = tempfile.mkdtemp(prefix="cuda-check-", dir="/dev/shm" if self.roomy("/dev/shm") else None)
        self.env.setdefault("CUDA_CACHE_PATH", os.path.join(self.tmp, "cache"))
        self.env.setdefault("CUDA_CACHE_MAXSIZE", str(1 << 30))

    def roomy(self, folder):
        with contextlib.suppress(OSError):
            return not self.small and shutil.disk_usage(folder).free > 40 << 30
        return False

    def left(self, most=float("inf")):
        return min(most, min(self.part_end, self.end) - time.monotonic())

    def save(self):
        if self.args.out:
            self.args.out.parent.mkdir(parents=True, exist_ok=True)
            part = self.args.out.with_suffix(".part")
            part.write_text(self.text())
            part.replace(self.args.out)

    def text(self):
        return json.dumps(finite(self.result), indent=1, default=str) + "\n"

    def aim(self, name, got, least):
        """Notes a figure that must reach another."""
        self.result["aims"][name] = {"got": got, "least": least, "reached": None if self.small else got >= least}

    def sets(self):
        s = {"device.kind": "cuda", "device.share": "true"}
        if self.args.libcuda:
            s["device.libcuda"] = self.args.libcuda
        if self.args.cublaslt:
            s["device.cublaslt"] = self.args.cublaslt
        return s

    def train(self, sets, device=True, env=None):
        """Runs a job and returns its summary and its losses."""
        base = {
            "data.kind": "synthetic", "optimizer.warmup": 0, "checkpoint.every": 0, "model.layers": 4, "model.dim": 64, "model.heads": 4,
            "model.ffn": 128, "model.seq": 64, "train.steps": 4, "train.batch": 8, "parallel.stages": 1, "schedule.kind": "1f1b",
        }
        if device:
            base.update(self.sets())
        base.update(sets)
        with tempfile.TemporaryDirectory(dir=self.tmp) as tmp:
            run = pathlib.Path(tmp, "run")
            cmd = [str(self.args.bin / "pipetrain"), "--quiet", "--out", str(run)]
            for k, v in base.items():
                cmd += ["--set", f"{k}={v}"]
            code, _, err = command(cmd + [str(self.args.job)], self.left(), env=env or self.env)
            if code:
                raise RuntimeError(f"pipetrain ended with {code}: {err.strip()[-800:]}")
            summary = json.loads((run / "summary.json").read_text())
            lines = (run / "metrics.jsonl").read_text().splitlines()
            losses = [m["loss"] for m in map(json.loads, lines) if "loss" in m]
            return summary, losses

    def test(self, pattern, **env):
        e = dict(self.env, PIPETRAIN_TEST_GPU=self.args.libcuda or "libcuda.so.1", PIPETRAIN_TEST_CUBLASLT=self.args.cublaslt or "", **env)
        if self.small:
            e["PIPETRAIN_TEST_SMALL"] = "1"
        seconds = self.left()
        # The program's own limit comes first: it says where it stood.
        code, out, err = command([str(self.args.bin / "cuda.test"), "-test.run", pattern, "-test.v", f"-test.timeout={max(1, seconds - 5):.0f}s"], seconds, env=e)
        names = [l.strip() for l in out.splitlines() if l.lstrip().startswith("--- ")]
        found = {"ok": code == 0, "passed": sum("PASS" in n for n in names), "failed": [n for n in names if "FAIL" in n]}
        if code:
            found["output"] = (out + err)[-6000:]
        return found

    # The parts. Each returns what it found, with "ok" where something had to hold.

    def conformance(self):
        return self.test("^TestCard(Conformance|Abilities)$")

    def rates(self):
        file = pathlib.Path(self.tmp, "rates.json")
        out = self.test("^TestCardMeasure$", PIPETRAIN_TEST_MEASURE=str(file))
        if file.exists():
            out.update(json.loads(file.read_text()))
            self.aim("AdamW's share of copy bandwidth", out["adamw_share_of_copy"], 0.8)
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
        rates = self.result["parts"].get("rates", {}).get("matrix_tflops", {})
        of = rates.get("f32" if self.small else "bf16")
        for p2 in ["fused", "end"]:
            s, _ = self.train(dict(self.block_job(), **{"schedule.kind": "naive", "schedule.backward_p2": p2}))
            out[p2] = {k: s.get(k) for k in ["tflops", "tflops_busy", "step_seconds_median", "makespan_measured_seconds"]}
            if of and p2 == "fused":
                out["share_of_matrix_rate"] = out["fused"]["tflops_busy"][0] / of
                self.aim("block's share of the matrix rate", out["share_of_matrix_rate"], 0.6)
            self.partial("block", out)
        return out

    def torch(self):
        """The same blocks in PyTorch, eager, with its flash attention, on the same card, in a process of its own."""
        code, out, err = command([sys.executable, os.path.abspath(__file__), "--torch-blocks", json.dumps(self.block_job())], self.left(), env=self.env)
        if code:
            return {"ok": False, "error": err.strip()[-1500:]}
        found = json.loads(out.splitlines()[-1])
        ours = self.result["parts"].get("block", {}).get("fused", {}).get("makespan_measured_seconds")
        if ours and "seconds" in found:
            # The program's step has embedding, head and loss beside the blocks.
            found["pipetrain_over_pytorch"] = found["seconds"] / ours
            self.aim("blocks' speed over PyTorch's", found["pipetrain_over_pytorch"], 1.0)
        return found

    def memory(self):
        """What the arenas held against what was planned, and what of the card is gone against what was asked for."""
        s, _ = self.train({"parallel.stages": 2, "schedule.microbatches": 4, "train.steps": 2})
        out = {"ok": s["peak_bytes_measured"] == s["peak_bytes_predicted"], "planned": s["peak_bytes_predicted"],
               "measured": s["peak_bytes_measured"], "by_category": s["peak_bytes_by_category"]}
        self.partial("memory", out)
        file = pathlib.Path(self.tmp, "memory.json")
        card = self.test("^TestCardMemory$", PIPETRAIN_TEST_MEASURE=str(file))
        if file.exists():
            card.update(json.loads(file.read_text()))
        out["card"] = card
        out["ok"] = out["ok"] and card["ok"]
        return out

    def parity(self):
        """Two stages against the CPU, 50 steps of fp32."""
        small = {"parallel.stages": 2, "train.steps": 4 if self.small else 50, "schedule.microbatches": 4}
        if self.small:
            small.update({"model.layers": 2, "model.dim": 16, "model.seq": 8, "model.ffn": 32})
        _, want = self.train(dict(small, **{"device.kind": "cpu"}), device=False)
        _, got = self.train(small)
        worst = max(abs(g - w) / abs(w) for g, w in zip(got, want))
        return {"ok": len(got) == len(want) and worst < 1e-3, "steps": len(got), "largest_relative_difference": worst}

    @contextlib.contextmanager
    def mps(self):
        """NVIDIA's MPS for the ranks that share the card: one that runs, else one of its own until the end."""
        there = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
        control = shutil.which("nvidia-cuda-mps-control")
        if os.path.exists(os.path.join(there, "control")):
            yield self.env, "ran already"
            return
        if not control:
            yield None, "nvidia-cuda-mps-control is not installed"
            return
        # Its sockets' names must be short: /dev/shm or /tmp.
        folder = tempfile.mkdtemp(prefix="mps-", dir="/tmp")
        env = dict(self.env, CUDA_MPS_PIPE_DIRECTORY=folder, CUDA_MPS_LOG_DIRECTORY=folder)
        try:
            started = subprocess.run([control, "-d"], env=env, capture_output=True, text=True, timeout=20)
            if started.returncode or not os.path.exists(os.path.join(folder, "control")):
                yield None, f"MPS did not start: {(started.stdout + started.stderr).strip()[-300:]}"
                return
            yield env, "started for this"
        finally:
            with contextlib.suppress(Exception):
                subprocess.run([control], input="quit\n", env=env, capture_output=True, text=True, timeout=20)
            shutil.rmtree(folder, ignore_errors=True)

    def pipeline(self):
        """Ranks that share the card: the paper's schedules with and without 2BP, p2 concatenated or not, as graphs or not."""
        n = 2 if self.small else 4
        base = {"parallel.stages": n, "train.steps": 12}
        if self.small:
            base.update({"model.layers": n, "model.dim": 16, "model.seq": 8, "model.ffn": 32})
        else:
            base.update({"model.layers": 8, "model.dim": 1024, "model.heads": 16, "model.ffn": 2752, "model.seq": 1024, "train.precision": "bf16"})
        variants = {"without": None}
        for concat in ["1", "all"]:
            for graph in ["false", "true"]:
                variants[f"2BP, concat {concat}" + (", graphs" if graph == "true" else "")] = {"schedule.concat": concat, "device.p2_graph": graph}
        out = {"ok": True, "table": [], "left_out": []}
        with self.mps() as (env, why):
            out["mps"], out["mps_how"] = env is not None, why
            for name, (kind, p2, micro) in PAPER.items():
                row = {"schedule": name, "ranks": n}
                out["table"].append(row)
                sets = dict(base, **{"schedule.kind": kind, "schedule.microbatches": micro(n), "train.batch": (2 if self.small else 8) * micro(n)})
                for key, v in variants.items():
                    job = dict(sets, **({"schedule.backward_p2": p2, **v} if v else {"schedule.backward_p2": "fused"}))
                    try:
                        if out["mps"] and not out["table"][0].get("without"):
                            # The first job shows whether jobs run under this MPS at all.
                            try:
                                s, _ = self.train(job, env=env)
                            except RuntimeError as e:
                                out["mps"], out["mps_how"], env = False, f"{why}, but a job failed under it: {e}", None
                                s, _ = self.train(job)
                        else:
                            s, _ = self.train(job, env=env)
                    except OutOfTime as e:
                        out["left_out"].append(f"{name}, {key}: {e}")
                        out["ok"] = False
                        continue
                    except Exception as e:  # one job's failure must not lose the others' figures
                        row[key] = {"error": f"{type(e).__name__}: {e}"}
                        out["ok"] = False
                        continue
                    row[key] = {"makespan": s["makespan_measured_seconds"], "predicted": s["makespan_predicted_seconds"],
                                "step": s["step_seconds_median"], "bubble": s["bubble_measured"], "bubble_predicted": s["bubble_predicted"],
                                "peak_bytes": s["peak_bytes_measured"], "planned_bytes": s["peak_bytes_predicted"], "transfers": s.get("transfers")}
                    without = row.get("without", {})
                    if key != "without" and "makespan" in without:
                        row[key]["speedup"] = without["makespan"] / row[key]["makespan"]
                        row[key]["speedup_predicted"] = without["predicted"] / row[key]["predicted"]
                    self.partial("pipeline", out)
        return out

    def tables(self):
        """The figures that are looked at first, as Markdown, for docs/results."""
        r = self.result
        lines = [f"{r.get('version', '')}; `{r.get('command', '')}`; " + ", ".join(r.get("nvidia_smi", [])[1:]), "", "| | reached | aim |", "|---|---|---|"]
        lines += [f"| {name} | {a['got']:.3g} | {a['least']:g} |" for name, a in r["aims"].items()]
        p = r["parts"].get("pipeline", {})
        if p.get("table"):
            lines += ["", f"Ranks share the card; MPS: {p['mps_how']}. Seconds of a step, speed-up by 2BP as measured (as predicted).", ""]
            keys = list(max(p["table"], key=len))[2:]
            lines += ["| schedule | " + " | ".join(keys) + " |", "|---" * (len(keys) + 1) + "|"]
            for row in p["table"]:
                cells = []
                for key in keys:
                    c = row.get(key, {})
                    cell = f"{c['makespan']:.4f}" if "makespan" in c else "failed" if "error" in c else "not run"
                    cells.append(cell + (f" ×{c['speedup']:.2f} (×{c['speedup_predicted']:.2f})" if "speedup" in c else ""))
                lines.append(f"| {row['schedule']} | " + " | ".join(cells) + " |")
        return "\n".join(lines) + "\n"

    def partial(self, part, found):
        self.result["parts"][part] = dict(found, unfinished=True)
        self.save()

    def run(self):
        for part in self.args.only:
            print(f"=== {part}", flush=True)
            start = time.monotonic()
            self.part_end = start + PARTS[part]
            try:
                found = getattr(self, part)()
            except Exception as e:  # one part's failure must not lose the others' figures
                found = self.result["parts"].get(part, {})
                found.pop("unfinished", None)
                found.update(ok=False, error=f"{type(e).__name__}: {e}")
            found["seconds_taken"] = round(time.monotonic() - start, 1)
            self.result["parts"][part] = found
            good = found.get("ok", True)
            if not good:
                self.result["failed"].append(part)
            self.save()
            print(json.dumps(found, indent=1, default=str) if not good else f"    {'ok' if 'ok' in found else 'done'}, {found['seconds_taken']} s", flush=True)
        self.result["failed"] += [f"aim: {name}" for name, a in self.result["aims"].items() if a["reached"] is False]

    def describe(self, n):
        """What was tested, where; what cannot be found out is left out."""
        self.result.update(command=" ".join(sys.argv), kernel=platform.release(), gpus=n, small=self.small, cublaslt=self.args.cublaslt or "the loader's")
        with contextlib.suppress(Exception):
            self.result["version"] = command([str(self.args.bin / "pipetrain"), "--version"], 20)[1].strip()
        with contextlib.suppress(Exception):
            doctor = command([str(self.args.bin / "pipetrain"), "doctor", "--json"], 60, env=self.env)[1]
            self.result["doctor"] = [f for f in json.loads(doctor)["findings"] if f["check"].startswith("compute")]
        with contextlib.suppress(Exception):
            query = "name,driver_version,memory.total,memory.used,clocks.max.sm,power.limit,compute_mode,mig.mode.current"
            self.result["nvidia_smi"] = command(["nvidia-smi", "--query-gpu=" + query, "--format=csv"], 20)[1].strip().splitlines()


def torch_blocks(job):
    """Times forward and backward of the blocks in PyTorch and prints what was found as one line."""
    try:
        import torch
        import torch.nn.functional as F
    except ImportError:
        return {"left_out": "PyTorch is not installed"}
    if not torch.cuda.is_available():
        return {"left_out": "PyTorch sees no GPU"}
    dim, heads, ffn, seq, layers = (job["model." + k] for k in ["dim", "heads", "ffn", "seq", "layers"])
    batch = job["train.batch"]
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
        for w in [x] + [w for layer in weights for w in layer]:
            w.grad = None
        torch.cuda.synchronize()
        start = time.perf_counter()
        forward(x).sum().backward()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    seconds = sorted(times[2:])[len(times[2:]) // 2]
    # Of products and attention, as the program counts: backward twice the forward.
    tokens = batch * seq
    flops = 3 * layers * (2 * tokens * (4 * dim * dim + 3 * dim * ffn) + 2 * batch * dim * seq * seq)
    return {"version": torch.__version__, "seconds": seconds, "tflops": flops / seconds / 1e12}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--only", type=lambda s: s.split(","), default=list(PARTS), help="parts, with commas between: " + ",".join(PARTS))
    p.add_argument("--out", type=pathlib.Path, help="the JSON file; default: standard output")
    p.add_argument("--bin", type=pathlib.Path, default=ROOT / "bin", help="folder of pipetrain and cuda.test")
    p.add_argument("--job", type=pathlib.Path, default=ROOT / "jobs/examples/demo.toml", help="the job file whose keys are overridden")
    p.add_argument("--libcuda", help="path of the driver's library")
    p.add_argument("--cublaslt", help="path of cublasLt; default: the loader's, else one of a toolkit or of Python's packages")
    p.add_argument("--minutes", type=float, default=9.5, help="how long all of it may take; what is not done then is left out")
    p.add_argument("--small", action="store_true", help="tiny sizes, for an emulated GPU: tries this script, measures nothing")
    p.add_argument("--torch-blocks", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.torch_blocks:
        print(json.dumps(torch_blocks(json.loads(args.torch_blocks))))
        return 0
    if unknown := [x for x in args.only if x not in PARTS]:
        p.error(f"unknown parts {', '.join(unknown)}; known: {', '.join(PARTS)}")
    for name in ["pipetrain", "cuda.test"]:
        if not os.access(args.bin / name, os.X_OK):
            p.error(f"{args.bin / name} is not there: make build bin/cuda.test, or --bin")
    n, why = gpus(args.libcuda or "libcuda.so.1")
    if n == 0:
        print(f"cuda-check: no GPU here, so nothing was tested: {why}", file=sys.stderr)
        return 77
    args.bin = args.bin.resolve()
    if not args.cublaslt:
        args.cublaslt = find_cublaslt()
    # An end from outside is one that leaves what was found.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(124))
    c = Checks(args)
    try:
        c.describe(n)
        c.save()
        c.run()
    finally:
        c.save()
        shutil.rmtree(c.tmp, ignore_errors=True)
        print(f"written: {args.out}" if args.out else c.text(), end="\n" if args.out else "", flush=True)
    try:
        print(c.tables())
        if args.out:
            args.out.with_suffix(".md").write_text(c.tables())
    except Exception as e:  # the figures are in the file all the same
        print(f"cuda-check: the tables: {type(e).__name__}: {e}", file=sys.stderr)
    for name, a in c.result["aims"].items():
        print(f"    {name}: {a['got']:.3g}, aim {a['least']:g}: {'not judged' if a['reached'] is None else 'reached' if a['reached'] else 'MISSED'}")
    if c.result["failed"]:
        print(f"cuda-check: failed: {', '.join(c.result['failed'])}", file=sys.stderr)
    return 1 if c.result["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
