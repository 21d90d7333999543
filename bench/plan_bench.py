#!/usr/bin/env python3
"""Times `ferry plan` as a user sees it: wall time of whole processes, start to exit.

Every case runs several times; the median counts, the spread is shown. The last part runs one case at
growing sizes and fits the exponent with which time grows in the number of transfers. Exits 1 when a
target is missed.

    bench/plan_bench.py --ferry build/ferry [--runs 7] [--json FILE]
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

# name, arguments, most seconds, most bytes of memory (None: no target)
CASES = [
    ("llama3-70b 64+64", "llama3-70b tp=8,dp=8 tp=4,dp=16", 0.1, None),
    ("llama3-70b 1024+1024", "llama3-70b tp=8,dp=128 tp=4,dp=256", 2.0, None),
    ("llama3-70b 1024+1024, rank 700", "llama3-70b tp=8,dp=128 tp=4,dp=256 --rank 700", 0.02, None),
    ("llama3-70b 1024+1024, rank 1500", "llama3-70b tp=8,dp=128 tp=4,dp=256 --rank 1500", 0.02, None),
    ("deepseek-v3 256->128", "deepseek-v3 tp=4,pp=8,dp=8,ep=32 tp=8,dp=16,ep=32", 0.2, None),
    ("deepseek-v3 2048->1024", "deepseek-v3 tp=4,pp=8,dp=64,ep=32 tp=8,dp=128,ep=32", 10.0, 2 << 30),
]

# The same exchange at growing sizes.
SCALING = [("llama3-70b", f"tp=8,dp={n}", f"tp=4,dp={2 * n}") for n in (8, 16, 32, 64, 128, 256)]
MAX_EXPONENT = 1.1


def command(ferry, model, source, target, *more):
    return [ferry, "plan", "--model", model, "--from", source, "--to", target, "--disjoint", "--json",
            *more]


def run(argv, runs):
    """Wall seconds of each run, and what the last one printed."""
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        done = subprocess.run(argv, stdout=subprocess.PIPE, check=True)
        seconds.append(time.perf_counter() - start)
    return seconds, json.loads(done.stdout)


def machine():
    """The processor's name and how many of it we may use."""
    name = "unknown processor"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    return f"{len(os.sched_getaffinity(0))} cores of {name}"


def bench_cases(ferry, runs):
    print(machine())
    print(f"{'case':34} {'median':>9} {'min':>9} {'max':>9} {'target':>7}  "
          f"{'transfers':>10} {'memory':>8}")
    results = []
    for name, spec, limit, memory in CASES:
        seconds, plan = run(command(ferry, *spec.split()), runs)
        median = statistics.median(seconds)
        rss = plan["peak_rss_bytes"]
        fine = median < limit and (memory is None or rss < memory)
        print(f"{name:34} {median * 1e3:7.1f}ms {min(seconds) * 1e3:7.1f}ms {max(seconds) * 1e3:7.1f}ms "
              f"{limit:6g}s  {plan['transfers']:10,} {rss / 1e6:5.0f} MB  "
              f"{'met' if fine else 'MISSED'}", flush=True)
        results.append({"name": name, "seconds": seconds, "median": median, "target": limit,
                        "transfers": plan["transfers"], "peak_rss_bytes": rss, "met": fine})
    return results


def fit_exponent(points):
    """Slope of log(seconds) over log(transfers), least squares."""
    xs = [math.log(n) for n, _ in points]
    ys = [math.log(s) for _, s in points]
    mx, my = statistics.mean(xs), statistics.mean(ys)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys)) / sum((x - mx) ** 2 for x in xs)


def bench_scaling(ferry, runs):
    print(f"\n{'growth: ' + SCALING[0][0]:34} {'median':>9}  {'transfers':>10}  per transfer")
    points = []
    for model, source, target in SCALING:
        seconds, plan = run(command(ferry, model, source, target), runs)
        median = statistics.median(seconds)
        points.append((plan["transfers"], median))
        print(f"{source + ' -> ' + target:34} {median * 1e3:7.1f}ms  {plan['transfers']:10,}  "
              f"{median / plan['transfers'] * 1e9:6.0f} ns", flush=True)
    exponent = fit_exponent(points)
    fine = exponent <= MAX_EXPONENT
    print(f"time grows with exponent {exponent:.2f} in the number of transfers "
          f"(target {MAX_EXPONENT}): {'met' if fine else 'MISSED'}")
    return {"points": points, "exponent": exponent, "target": MAX_EXPONENT, "met": fine}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ferry", default="build/ferry", help="the tool to time")
    parser.add_argument("--runs", type=int, default=7, help="runs of each case")
    parser.add_argument("--json", help="write all figures to this file")
    options = parser.parse_args()
    cases = bench_cases(options.ferry, options.runs)
    scaling = bench_scaling(options.ferry, options.runs)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"cases": cases, "scaling": scaling}, file, indent=1)
    return 0 if scaling["met"] and all(case["met"] for case in cases) else 1


if __name__ == "__main__":
    sys.exit(main())
