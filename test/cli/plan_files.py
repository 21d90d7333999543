#!/usr/bin/env python3
"""Plan files: written whole or not at all, shown as they were planned, compared, and never trusted."""

import json
import os
import signal
import stat
import subprocess
import time

from support.harness import FERRY, Run, check, equal, fails, ferry, finish, plan_json, scratch

folder = scratch()
SMALL = ["--shape", "8", "--from", "4:S0", "--to", "2:S0"]
VOLATILE = {"plan_seconds", "phases", "peak_rss_bytes", "file", "model", "from", "to"}


def write(name, *args):
    path = folder / name
    ferry("plan", *args, "--out", path)
    return path


def steady(plan):
    """What does not depend on when, where and how it was planned."""
    return {key: value for key, value in plan.items() if key not in VOLATILE}


def round_trips():
    cases = [
        SMALL,
        ["--shape", "scalar", "--from", "1:R", "--to", "2:R@1-2"],
        ["--shape", "0x4", "--from", "2:S0", "--to", "2:S1@2-3"],
        ["--shape", "64x128", "--from", "2x2:R,S0/stride(2)", "--to", "4:S1/cyclic(3)@4-7", "--hosts", "2"],
        ["--shape", "12", "--from", "3:P(avg)", "--to", "2:S0", "--dtype", "f64", "--to-dtype", "f16",
         "--allow-cast", "--strict", "--name", "ünï code"],
        ["--model", "llama3-8b", "--from", "tp=4", "--to", "tp=2,pp=2", "--disjoint"],
        ["--model", "mixtral-8x7b", "--from", "tp=2,dp=4,ep=8", "--to", "tp=2", "--rank", "1"],
    ]
    for number, case in enumerate(cases):
        planned = plan_json("plan", *case, "--transfers")
        path = write(f"{number}.plan", *case)
        shown = plan_json("plan", "show", path, "--transfers")
        equal(steady(shown), steady(planned), f"{case}: shown and planned")
        equal(shown.get("file"), str(path), "the file's name")
        equal(path.read_bytes(), write("again.plan", *case).read_bytes(), f"{case}: written twice")
        equal(ferry("plan", "diff", path, path).count("equal"), 1, f"{case}: diff with itself")
        equal(path.stat().st_mode & 0o777, 0o666 & ~umask(), "mode of the file")
        text = ferry("plan", "show", path)
        check(planned["hash"] in text and len(text.splitlines()) <= 25, f"{case}: {text}")
    listed = ferry("plan", "show", folder / "0.plan", "--transfers")
    check(len(listed.splitlines()) > len(ferry("plan", "show", folder / "0.plan").splitlines()) + 4,
          f"four transfers are listed: {listed}")


def umask():
    value = os.umask(0)
    os.umask(value)
    return value


def parts_of_files():
    gaps = ["--shape", "8", "--from", "2:R@0,2", "--to", "2:S0@1,5", "--hosts", "2"]
    for case, ranks in (gaps, [0, 1, 2, 5]), (SMALL, range(4)):
        whole = write("whole.plan", *case)
        for rank in ranks:
            part = plan_json("plan", *case, "--rank", rank, "--transfers")
            equal(steady(plan_json("plan", "show", whole, "--rank", rank, "--transfers")), steady(part),
                  f"rank {rank} of a whole plan of {case}")
    fails(2, "plan", "show", whole, "--rank", "4", command="plan show", says="4")
    one = write("one.plan", *SMALL, "--rank", "1")
    plan_json("plan", "show", one, "--rank", "1")
    fails(2, "plan", "show", one, "--rank", "2", command="plan show", says=["2", "rank 1"])


def diff(a, b):
    """The object of diff --json; the exit code agrees with it."""
    run = Run(["plan", "diff", a, b, "--json"])
    found = json.loads(run.out)
    equal(run.code, 0 if found["equal"] else 1, "exit code of diff", run)
    equal(run.err, "", "standard error of diff", run)
    text = Run(["plan", "diff", a, b])
    equal(text.code, run.code, "exit code of diff as text", text)
    check(str(a) in text.out and str(b) in text.out, "diff names both files", text)
    return found


def differences():
    base = write("a.plan", *SMALL)
    found = diff(base, base)
    equal(found["transfers"], {"same": 4, "changed": 0, "removed": 0, "added": 0}, "equal plans")
    # Target ranks swapped: rank 1 wants what rank 0 wanted; all four are others.
    found = diff(base, write("b.plan", "--shape", "8", "--from", "4:S0", "--to", "2:S0@1,0"))
    equal(found["tensors"], {"same": 0, "changed": 1, "removed": 0, "added": 0}, "tensors of another layout")
    equal(found["transfers"], {"same": 0, "changed": 4, "removed": 0, "added": 0}, "swapped targets")
    # One target rank more: cuts move from 4+4 to 3+3+2.
    found = diff(base, write("c.plan", "--shape", "8", "--from", "4:S0", "--to", "3:S0"))
    equal(sum(found["transfers"][key] for key in ("same", "changed", "removed")), 4, "all of a")
    equal(sum(found["transfers"][key] for key in ("same", "changed", "added")),
          plan_json("plan", "show", folder / "c.plan")["transfers"], "all of c")
    check(found["inputs_differ"], "inputs of c")
    # Another name: one tensor went, one came.
    found = diff(base, write("d.plan", *SMALL, "--name", "other"))
    equal(found["tensors"], {"same": 0, "changed": 0, "removed": 1, "added": 1}, "renamed")
    equal(found["first_tensors"], ["other", "tensor"], "names of tensors that differ")
    equal(found["transfers"], {"same": 0, "changed": 0, "removed": 4, "added": 4}, "renamed")
    # A host map, where nothing was known: all four ranks differ.
    found = diff(base, write("e.plan", *SMALL, "--hosts", "2"))
    equal(found["hosts_differ"], 4, "ranks with another host")
    found = diff(base, write("f.plan", *SMALL, "--strict"))
    check(found["options_differ"] and not found["equal"], f"strict: {found}")
    # A part of a plan against the whole.
    found = diff(base, write("g.plan", *SMALL, "--rank", "1"))
    equal(found["transfers"], {"same": 3, "changed": 0, "removed": 1, "added": 0}, "part of rank 1")
    equal((found["a"]["rank"], found["b"]["rank"]), (None, 1), "ranks of the plans")
    # Models: more target ranks leave the transfers of the others as they were.
    small = write("m1.plan", "--model", "llama3-8b", "--from", "tp=2", "--to", "tp=4", "--disjoint")
    large = write("m2.plan", "--model", "llama3-8b", "--from", "tp=2", "--to", "tp=4,dp=2", "--disjoint")
    found = diff(small, large)
    equal((found["transfers"]["changed"], found["transfers"]["removed"]), (0, 0), "more target ranks")
    check(found["transfers"]["added"] > 0, f"more target ranks: {found}")


def writing():
    path = folder / "kept.plan"
    ferry("plan", *SMALL, "--out", path)
    before = path.read_bytes()
    # An error leaves the old file; so does an output that cannot be written.
    fails(2, "plan", "--shape", "8", "--from", "2:S9", "--to", "2:S0", "--out", path)
    equal(path.read_bytes(), before, "the old file after an error")
    with open("/dev/full", "wb") as full:
        fails(1, "plan", "--shape", "9", "--from", "2:S0", "--to", "2:S0", "--out", path, stdout=full)
    equal(path.read_bytes(), before, "the old file after a full disk")
    # A link stays one.
    link = folder / "link.plan"
    link.symlink_to("kept.plan")
    ferry("plan", "--shape", "9", "--from", "2:S0", "--to", "2:S0", "--out", link)
    check(link.is_symlink() and path.read_bytes() != before, "written through the link")
    # What is no file is written to, not replaced.
    ferry("plan", *SMALL, "--out", "/dev/null")
    check(stat.S_ISCHR(os.stat("/dev/null").st_mode), "/dev/null is still a device")
    fails(1, "plan", *SMALL, "--out", folder, says=str(folder))
    fails(1, "plan", *SMALL, "--out", folder / "no" / "such" / "x.plan", says="no/such/x.plan")
    fails(1, "plan", *SMALL, "--out", "/dev/full", says="/dev/full")
    fails(2, "plan", *SMALL, "--out", "", says="--out")
    left = sorted(entry.name for entry in folder.iterdir() if ".tmp" in entry.name)
    equal(left, [], "temporary files left behind")
    os.chmod(folder, 0o500)
    if os.geteuid() != 0:
        fails(1, "plan", *SMALL, "--out", folder / "new.plan", says="new.plan")
    os.chmod(folder, 0o700)


def reading():
    for command in ["show"], ["diff", folder / "a.plan"]:
        def broken(path, says, extra=command):
            fails(1, "plan", *extra, path, command=f"plan {extra[0]}", says=[str(path), says])

        broken(folder / "absent.plan", "No such file")
        broken(folder, "no file")
        broken("/dev/zero", "no file")
        broken("/dev/null", "no file")
        text = folder / "text.plan"
        text.write_text("this is no plan, but a text of some length that goes on and on and on\n" * 9)
        broken(text, "")
    # From a pipe as well.
    with open(folder / "a.plan", "rb") as plan:
        piped = subprocess.run([FERRY, "plan", "show", "/dev/stdin"], input=plan.read(),
                               capture_output=True, timeout=60)
    equal(piped.returncode, 0, f"a plan from a pipe: {piped.stderr}")


def damage():
    """Every truncation and every altered byte of a small plan is noticed."""
    good = (folder / "a.plan").read_bytes()
    path = folder / "damaged.plan"
    for length in range(len(good)):
        path.write_bytes(good[:length])
        fails(1, "plan", "show", path, command="plan show", says=str(path))
    for extra in b"\0", b"x" * 100:
        path.write_bytes(good + extra)
        fails(1, "plan", "show", path, command="plan show", says=str(path))
    versions = 0
    for offset in range(len(good)):
        for flip in 0x01, 0x80:
            altered = bytearray(good)
            altered[offset] ^= flip
            path.write_bytes(altered)
            line = fails(1, "plan", "show", path, command="plan show", says=str(path))
            versions += "version" in line
    check(0 < versions <= 16, f"a plan from another version is called so: {versions}")
    equal(Run(["plan", "diff", folder / "a.plan", path]).code, 1, "diff with a damaged plan")


def interruptions():
    """A signal while the report waits for its reader: the file that was staged is gone."""
    path = folder / "interrupted.plan"
    for ending in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        # More than a pipe holds, and nobody reads it.
        command = [FERRY, "plan", "--model", "llama3-8b", "--from", "tp=8", "--to", "tp=6",
                   "--transfers", "--out", str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as run:
            until = time.monotonic() + 30
            while not list(folder.glob("interrupted.plan*")) and time.monotonic() < until:
                time.sleep(0.01)
            check(list(folder.glob("interrupted.plan*")), "a staged file")
            run.send_signal(ending)
            equal(run.wait(30), -ending, f"ended by signal {ending}")
        equal(list(folder.glob("interrupted.plan*")), [], f"files left behind by signal {ending}")


round_trips()
parts_of_files()
interruptions()
differences()
writing()
reading()
damage()
finish()
