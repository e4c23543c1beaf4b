#!/usr/bin/env python3
"""Rehearses schedules with real processes and prints measured beside predicted makespans as Markdown.

    make && scripts/rehearse-results.py [--steps 8] [--out FILE.json] > docs/results/rehearsal.md

Only the standard library is used. Nothing is computed: each op takes the time given here, messages
are one word long, so that what is measured is the schedule, the engine and the transport's latency.
"""
import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = ROOT / "bin" / "pipetrain"
LAYERS = 16

# The 2BP paper's schedules (arXiv 2405.18047): kind, placement of p2, micro-batches for N ranks.
PAPER = {
    "naive": ("naive", "end", lambda n: 1),
    "GPipe": ("gpipe", "end", lambda n: n),
    "1F1B-1": ("1f1b", "cooldown", lambda n: n),
    "1F1B-2": ("1f1b", "cooldown", lambda n: 2 * n),
}


def profile(stages, f, i, w):
    per, at, out = LAYERS // stages, 0, []
    for s in range(stages):
        n = per + (s == 0) + (s == stages - 1)  # embedding, head
        out.append(dict(first=at, end=at + n, f=f, i=i, w=w, b=0, more=0, send_f=0, send_b=0, reduce=0))
        at += n
    return dict(format="pipetrain-profile", version=1, name="rehearsal", device="given", layers=LAYERS,
                dim=16, batch=1, seq=8, stages=out, overhead=0, steps=1)


def rehearse(kind, ranks, microbatches, p2, times, steps, concat="1", chunks=1):
    """Returns measured (median over steps) and predicted makespan in seconds."""
    with tempfile.TemporaryDirectory() as tmp:
        prof = pathlib.Path(tmp, "profile.json")
        prof.write_text(json.dumps(profile(ranks * chunks, *times)))
        sets = {
            "device.kind": "rehearse", "device.messages": "small", "schedule.profile": prof,
            "parallel.stages": ranks, "schedule.kind": kind, "schedule.microbatches": microbatches,
            "schedule.backward_p2": p2, "schedule.concat": concat, "train.batch": microbatches,
            "train.steps": steps, "optimizer.warmup": 0, "optimizer.clip": 0, "model.layers": LAYERS,
            "model.dim": 16, "model.heads": 2, "model.seq": 8, "data.kind": "synthetic",
        }
        args = [str(BINARY), "--quiet", "--out", str(pathlib.Path(tmp, "run"))]
        for key, value in sets.items():
            args += ["--set", f"{key}={value}"]
        r = subprocess.run(args + [str(ROOT / "jobs/examples/demo.toml")], capture_output=True, text=True)
        if r.returncode:
            sys.exit(f"{kind}: {r.stderr}")
        s = json.loads(pathlib.Path(tmp, "run", "summary.json").read_text())
        return s["makespan_measured_seconds"], s["makespan_predicted_seconds"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--out")
    a = p.parse_args()
    listing = json.loads(subprocess.run([BINARY, "schedule", "list", "--json"], capture_output=True, text=True, check=True).stdout)
    version = subprocess.run([BINARY, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    raw = dict(version=version, machine=platform.processor() or platform.machine(), cores=os.cpu_count(), paper=[], schedules=[])

    print("# Rehearsal: measured beside predicted\n")
    print(f"`scripts/rehearse-results.py --steps {a.steps}`, {version}, {os.cpu_count()} cores, {platform.system()} {platform.release()}. "
          "Real ranks (processes), real engine, real messages of one word over `local`; each op takes its time without using the "
          "processor. Makespans are medians over the steps after the first.\n")
    print("## What 2BP brings\n\nThe schedules of the 2BP paper (arXiv 2405.18047, table 1) with F = I = W = 10 ms, p2 concatenated: what is left of the paper's "
          "speed-up when times are equal and concatenation saves nothing.\n")
    print("| N | schedule | without, ms | predicted | with 2BP, ms | predicted | speed-up | theory |\n|---|---|---|---|---|---|---|---|")
    for n in (4, 8):
        for name, (kind, p2, m) in PAPER.items():
            without, wp = rehearse(kind, n, m(n), "fused", (0.01, 0.01, 0.01), a.steps)
            split, sp = rehearse(kind, n, m(n), p2, (0.01, 0.01, 0.01), a.steps, concat='"all"')
            raw["paper"].append(dict(n=n, schedule=name, without=without, without_predicted=wp, split=split, split_predicted=sp))
            print(f"| {n} | {name} | {without * 1e3:.1f} | {wp * 1e3:.0f} | {split * 1e3:.1f} | {sp * 1e3:.0f} | {without / split:.3f} | {wp / sp:.3f} |")
    print("\n## Every schedule\n\n8 ranks, 16 micro-batches; a rank's share of F, I, W is 10, 16 and 12 ms (stages of the kinds with 2 chunks take half).\n")
    print("| schedule | measured, ms | predicted, ms | ratio |\n|---|---|---|---|")
    worst = 0
    for info in listing["schedules"]:
        chunks = info["chunks"]
        t = tuple(x / chunks for x in (0.010, 0.016, 0.012))
        measured, predicted = rehearse(info["name"], 8, 16, "native", t, a.steps, chunks=chunks)
        worst = max(worst, abs(measured / predicted - 1))
        raw["schedules"].append(dict(kind=info["name"], measured=measured, predicted=predicted))
        print(f"| {info['name']} | {measured * 1e3:.1f} | {predicted * 1e3:.1f} | {measured / predicted:.3f} |")
    print(f"\nLargest difference: {100 * worst:.1f} %.")
    if a.out:
        pathlib.Path(a.out).write_text(json.dumps(raw, indent=1) + "\n")


if __name__ == "__main__":
    main()
