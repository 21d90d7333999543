#!/usr/bin/env python3
"""Measures `ferry reshard` against `cp -r`, and `ferry verify` against two `dd`, over one checkpoint.

Rounds are interleaved, each ends with `sync -f`, and every target is removed before the next. What counts is the ratio of
the medians. Targets: a reshard takes at most 1.15 times as long as cp; verify reads at no less than 0.8 of dd's speed.
"""

import argparse
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

RESHARD_TARGET = 1.15
VERIFY_TARGET = 0.8


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def seconds(*commands):
    """Wall time of commands that run one after the other."""
    begin = time.monotonic()
    for command in commands:
        run(*command)
    return time.monotonic() - begin


def at_once(commands):
    """Wall time of commands that run side by side."""
    begin = time.monotonic()
    children = [subprocess.Popen(c, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for c in commands]
    if any([child.wait() != 0 for child in children]):
        sys.exit("dd failed")
    return time.monotonic() - begin


def measure(args, folder):
    model, copy, cut = folder / "model", folder / "copy", folder / "tp4"
    run(args.ferry, "synth", model, "--model", "llama3-8b", "--scale", args.scale, "--quiet")
    size = sum(f.stat().st_size for f in model.iterdir())
    times = {"cp": [], "reshard": [], "dd": [], "verify": []}
    for _ in range(args.rounds):
        for name, target, command in (
            ("cp", copy, ("cp", "-r", "--reflink=never", model, copy)),
            ("reshard", cut, (args.ferry, "reshard", model, cut, "--to", "tp=4", "--quiet")),
        ):
            shutil.rmtree(target, ignore_errors=True)
            run("sync")
            times[name].append(seconds(command, ("sync", "-f", target)))
        files = sorted(model.glob("*.safetensors")) + sorted(cut.glob("*.safetensors"))
        halves = [files[0::2], files[1::2]] if len(files) > 1 else [files]
        times["dd"].append(at_once([("sh", "-c", 'for f; do dd if="$f" of=/dev/null bs=1M; done', "dd", *half)
                                    for half in halves]))
        times["verify"].append(seconds((args.ferry, "verify", model, cut, "--quiet")))
    return size, {name: statistics.median(t) for name, t in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ferry", type=lambda p: pathlib.Path(p).resolve(), default="build/ferry")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/bench-ckpt"))
    parser.add_argument("--scale", default="1/4", help="of llama3-8b; 1/4 is about 4 GB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check-targets", action="store_true")
    args = parser.parse_args()
    shutil.rmtree(args.folder, ignore_errors=True)
    args.folder.mkdir(parents=True)
    try:
        size, median = measure(args, args.folder)
    finally:
        shutil.rmtree(args.folder, ignore_errors=True)
    reshard = median["reshard"] / median["cp"]
    verify = median["dd"] / median["verify"]
    print(f"checkpoint of {size / 1e9:.2f} GB, medians of {args.rounds}, each with sync")
    print(f"cp -r                 {median['cp']:6.2f} s")
    print(f"ferry reshard tp=4    {median['reshard']:6.2f} s   {reshard:.2f} of cp (at most {RESHARD_TARGET})")
    print(f"two dd, both folders  {median['dd']:6.2f} s   {2 * size / median['dd'] / 1e9:.1f} GB/s")
    print(f"ferry verify          {median['verify']:6.2f} s   {verify:.2f} of dd's speed (at least {VERIFY_TARGET})")
    missed = reshard > RESHARD_TARGET or verify < VERIFY_TARGET
    print("missed" if missed else "met")
    return 1 if missed and args.check_targets else 0


if __name__ == "__main__":
    sys.exit(main())
