#!/usr/bin/env python3
"""Proves with CP-SAT what schedule.kind = "auto" is held against: the least makespan of scheduling problems.

Usage: auto-oracle.py [--seconds N] [--only ID] schedule/testdata/auto-problems.jsonl

Each line of the file is a problem; one of two chunks a rank takes the better of the interleaved loop and
the V. Prints what it finds beside the file's figure; exit code 1 where they contradict each other.
Needs ortools (make peer puts it into a virtual environment).
"""
import argparse
import json
import sys

from ortools.sat.python import cp_model


def solve(p, place, seconds):
    """Returns (makespan, bound) of a problem with stages on ranks as place says; None where nothing fits."""
    model = cp_model.CpModel()
    stages, count = len(place), p["microbatches"]
    horizon = 2 * count * (sum(p["F"]) + sum(p["I"]) + sum(p["W"]) + sum(p["send_f"]) + sum(p["send_b"]))
    start, end, on_rank = {}, {}, {r: [] for r in range(p["ranks"])}
    for s in range(stages):
        for k in range(count):
            for kind in "FIW":
                x = model.new_int_var(0, horizon, f"{s}{kind}{k}")
                start[kind, s, k], end[kind, s, k] = x, x + p[kind][s]
                on_rank[place[s]].append((kind, s, k, model.new_fixed_size_interval_var(x, p[kind][s], "")))
    for s in range(stages):
        for k in range(count):
            if s > 0:
                lag = p["send_f"][s - 1] if place[s - 1] != place[s] else 0
                model.add(start["F", s, k] >= end["F", s - 1, k] + lag)
            if s + 1 < stages:
                lag = p["send_b"][s + 1] if place[s + 1] != place[s] else 0
                model.add(start["I", s, k] >= end["I", s + 1, k] + lag)
            else:
                model.add(start["I", s, k] >= end["F", s, k])
            model.add(start["W", s, k] >= end["I", s, k])
            if k > 0:  # micro-batches are alike: each stage takes them in order
                for kind in "FIW":
                    model.add(start[kind, s, k] >= end[kind, s, k - 1])
    for r, ops in on_rank.items():
        model.add_no_overlap([interval for *_, interval in ops])
        if p["limit"] is None:
            continue
        # What is held from F to I, from F to W and from I to W, each while the op runs.
        held, bytes_ = [], []
        for kind, s, k, _ in ops:
            if kind != "F":
                continue
            until_input, until_weight, from_input, _ = p["bytes"][s]
            for since, until, n in (("F", "I", until_input), ("F", "W", until_weight), ("I", "W", from_input)):
                length = model.new_int_var(0, horizon, "")
                held.append(model.new_interval_var(start[since, s, k], length, end[until, s, k], ""))
                bytes_.append(n)
        fixed = sum(p["bytes"][s][3] for s in range(stages) if place[s] == r)
        model.add_cumulative(held, bytes_, p["limit"] - fixed)
    makespan = model.new_int_var(0, horizon, "makespan")
    model.add_max_equality(makespan, [end["W", s, k] for s in range(stages) for k in range(count)])
    model.minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return int(solver.objective_value), int(solver.best_objective_bound)


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("file")
    a.add_argument("--seconds", type=float, default=60, help="for each map of stages to ranks")
    a.add_argument("--only", default="", help="problems whose id contains this")
    args = a.parse_args()
    wrong = 0
    for line in open(args.file, encoding="utf-8"):
        p = json.loads(line)
        if args.only not in p["id"] or p["id"].startswith("scale") and not args.only:
            continue
        ranks, stages = p["ranks"], p["ranks"] * p["chunks"]
        maps = [[s % ranks for s in range(stages)]]
        if p["chunks"] > 1:
            maps.append([min(s % (2 * ranks), 2 * ranks - 1 - s % (2 * ranks)) for s in range(stages)])
        found = [x for x in (solve(p, m, args.seconds) for m in maps) if x]
        best, bound = min(x[0] for x in found), min(x[1] for x in found)
        known = p.get("optimum") or p.get("found") or best
        verdict = "proven" if best == bound else f"at least {bound}"
        if known < bound or p.get("optimum") and best < known:
            verdict, wrong = "CONTRADICTS THE FILE", 1
        print(f"{p['id']:12} file {known}, found {best}, {verdict}", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
