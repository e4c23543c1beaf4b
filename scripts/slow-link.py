#!/usr/bin/env python3
"""Trains one job over two hosts apart, as a pipeline and data-parallel, over links of several speeds,
and prints step times measured beside predicted as Markdown.

    make && scripts/slow-link.py [--rates 100mbit,300mbit,1gbit] [--steps 6] > docs/results/slow-link.md

The hosts are two nodes of the test cluster (scripts/cluster: namespaces joined by veth, no shared
memory between them; the link's rate is tc's tbf). Needs root, Slurm and Open MPI
(scripts/install-test-deps.sh). Predicted is what `pipetrain plan` says of the op times that the same
run took over the unlimited link (`pipetrain profile --run`) and a link of that rate.
"""
import argparse
import json
import os
import pathlib
import platform
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = ROOT / "bin" / "pipetrain"
DIM, LAYERS, SEQ, BATCH, MICRO = 256, 4, 64, 8, 4
LATENCY = "50us"  # of a TCP message between namespaces, both ends woken

JOB = f"""
name = "slow-link"
[model]
kind = "transformer"
layers = {LAYERS}
dim = {DIM}
heads = 4
seq = {SEQ}
[data]
kind = "text"
path = "corpus.txt"
[train]
batch = {BATCH}
[optimizer]
kind = "sgd"
lr = 1e-3
[schedule]
kind = "1f1b"
microbatches = {MICRO}
[device]
kind = "cpu"
threads = 1
[checkpoint]
every = 0
"""


def bits(rate):
    return float(rate[:-4]) * {"mbit": 1e6, "gbit": 1e9}[rate[-4:]]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rates", default="100mbit,300mbit,1gbit")
    p.add_argument("--steps", type=int, default=16)
    a = p.parse_args()
    env = dict(os.environ, PIPETRAIN_CLUSTER=os.environ.get("PIPETRAIN_CLUSTER", "1"), OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

    def cluster(*args, **kw):
        return subprocess.run([str(ROOT / "scripts" / "cluster"), *args], check=True, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, **kw)

    ways = {"pipeline of 2 stages": (2, 1), "data parallel, 2 replicas": (1, 2)}
    results = {}
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        (tmp / "job.toml").write_text(JOB)
        (tmp / "corpus.txt").write_text("".join(f.read_text() for f in sorted(ROOT.glob("launcher/*.go"))))
        cluster("up", "--nodes", "2", "--cpus", "2")
        try:
            for rate in ["max", *a.rates.split(",")]:
                cluster("rate", rate)
                for name, (stages, replicas) in ways.items():
                    out = tmp / f"{rate}-{stages}"
                    cluster("run", "srun", "-K1", "--mpi=pmix", "-N2", "-n2", str(BINARY), "--quiet", "--out", str(out),
                            "--set", f"train.steps={a.steps}", "--set", f"parallel.stages={stages}", "--set", f"parallel.replicas={replicas}",
                            "--set", f"schedule.microbatches={MICRO // replicas}", str(tmp / "job.toml"), timeout=240)
                    s = results[rate, name] = json.loads((out / "summary.json").read_text())
                    if rate == "max":
                        subprocess.run([str(BINARY), "profile", "--run", str(out), "-o", str(tmp / f"{stages}.json")], check=True, capture_output=True)
                        continue
                    plan = subprocess.run([str(BINARY), "plan", "--json", "--profile", str(tmp / f"{stages}.json"), "--link-gbps", str(bits(rate) / 8e9), "--link-latency", LATENCY,
                                           "--node-ranks", "1", str(out / "job.toml")], check=True, capture_output=True, text=True)
                    s["predicted"] = json.loads(plan.stdout)["step_time"]
        finally:
            cluster("down")
    parameters = results["max", "pipeline of 2 stages"]["parameters"]
    bytes_of = {
        "pipeline of 2 stages": 4 * BATCH * SEQ * DIM,  # a step's activations, one way; the gradients go the other way at once
        "data parallel, 2 replicas": 4 * parameters,  # each sends half of its gradients and half of the sums
    }
    version = results["max", "pipeline of 2 stages"]["version"]
    print("# A pipeline and data parallelism over one slow link\n")
    print(f"`scripts/slow-link.py --rates {a.rates} --steps {a.steps}`, pipetrain version {version}, {os.cpu_count()} cores shared by both ranks, Linux {platform.release()}. "
          f"Two ranks on two nodes of the test cluster (namespaces joined by veth, no memory shared), Open MPI over TCP, the link limited by `tc tbf`. "
          f"A transformer of {parameters:,} parameters ({LAYERS} layers, dim {DIM}), {BATCH} sequences of {SEQ} tokens a step. Median step times.\n")
    print("| link | training | MB a step, one way | measured, ms | predicted, ms |\n|---|---|---|---|---|")
    for (rate, name), s in results.items():
        predicted = "–"
        if rate != "max":
            predicted = f"{1e3 * s['predicted']:.0f}"
        print(f"| {'not limited' if rate == 'max' else rate} | {name} | {bytes_of[name] / 1e6:.1f} | {1e3 * s['step_seconds_median']:.0f} | {predicted} |")


if __name__ == "__main__":
    main()
