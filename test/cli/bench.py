#!/usr/bin/env python3
"""ferry bench at small scales: every case runs and verifies, its JSON and trace say so, errors are one
line, and nothing stays behind."""

import json
import os
import signal
import stat
import subprocess
import time
from pathlib import Path

from support.harness import FERRY, Run, check, equal, fails, ferry, finish, plan_json, progress, scratch

CASES = ["row-col-2", "row-col-4", "row-col-8", "row-col-4-heap", "small-tensors", "block-cyclic",
         "row-col-4-pipeline", "tiny"]
RANKS = dict(zip(CASES, (2, 4, 8, 4, 4, 4, 4, 2)))
SMALL = ["--scale", "0.001", "--rounds", "2"]
FAILED, USAGE = 1, 2
NUMBER = (int, float)

folder = scratch()


def left_behind(mark):
    """Processes that have this word in their environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in place.read_bytes():
                found.append(place.parent.name)
        except OSError:
            pass  # it has ended, or is not ours
    return found


def wait_gone(mark, seconds):
    end = time.monotonic() + seconds
    while left_behind(mark) and time.monotonic() < end:
        time.sleep(0.05)
    return left_behind(mark)


def check_case(case):
    name = case["name"]
    equal(case["ranks"], RANKS[name], f"{name}: ranks")
    equal(case["rounds"], 2, f"{name}: rounds")
    for field in "gbps", "cold_seconds", "keep_seconds":
        check(isinstance(case[field], NUMBER) and case[field] > 0, f"{name}: {field} is {case[field]!r}")
    for field in "bytes", "helped_bytes", "staging_bytes":
        check(isinstance(case[field], int), f"{name}: {field} is {case[field]!r}")
    seconds = case["seconds"]
    check(0 < seconds["min"] <= seconds["median"] <= seconds["max"], f"{name}: seconds {seconds}")
    check(abs(case["bytes"] / seconds["median"] / 1e9 / case["gbps"] - 1) < 0.01, f"{name}: gbps fits seconds")
    equal(case["peers"], {}, f"{name}: peers that nobody asked for")
    paths = case["paths"]
    equal(set(paths), {"direct", "read", "pipeline"}, f"{name}: paths")
    equal(sum(paths.values()), case["bytes"], f"{name}: bytes by path")
    check((case["staging_bytes"] > 0) == (paths["pipeline"] > 0), f"{name}: slots are for the pipeline")
    for target in case["targets"]:
        check(isinstance(target["what"], str) and isinstance(target["wanted"], NUMBER) and
              isinstance(target["got"], NUMBER) and isinstance(target["met"], bool), f"{name}: {target}")
    check(case["targets"], f"{name}: has a target")
    if name == "tiny":
        equal((case["limit_gbps"], case["ratio_to_limit"], case["limit_method"]), (None,) * 3, "tiny: no limit")
        check(abs(case["latency_us"] - seconds["median"] * 1e6) < 0.01 * case["latency_us"], "tiny: latency")
        equal(case["bytes"], 4096, "tiny: bytes")
        return
    equal(case["latency_us"], None, f"{name}: latency")
    ratio = case["gbps"] / case["limit_gbps"]
    check(abs(case["ratio_to_limit"] / ratio - 1) < 0.01, f"{name}: ratio to the limit")
    check(isinstance(case["limit_method"], str), f"{name}: limit_method")
    check(isinstance(case["limit_seconds"]["median"], NUMBER), f"{name}: limit_seconds")
    # A heap tensor goes across processes, or through slots where that is forbidden; a shared one directly.
    if name == "row-col-4-pipeline":
        equal(paths["pipeline"], case["bytes"] * 3 // 4, f"{name}: all but own copies")
    elif name == "row-col-4-heap":
        equal(paths["read"] + paths["pipeline"], case["bytes"] * 3 // 4, f"{name}: all but own copies")
        check((case["readv_gbps"] is None) == (case["ratio_to_readv"] is None), f"{name}: readv")
    else:
        equal((paths["direct"], case["readv_gbps"]), (case["bytes"], None), f"{name}: direct")


class Trace:
    """The events of a trace file, with times as whole nanoseconds."""

    def __init__(self, path):
        self.events = json.loads(path.read_text())["traceEvents"]
        for event in self.events:
            if event["ph"] == "X":
                event["begin"] = round(event["ts"] * 1000)
                event["end"] = event["begin"] + round(event["dur"] * 1000)
        self.processes = self.names("process_name", "pid")
        self.pids = {name: pid for pid, name in self.processes.items()}
        equal(len(self.pids), len(self.processes), "each process has its own name")
        self.rows = self.names("thread_name", "pid", "tid")

    def names(self, what, *key):
        """What the rows of the trace are called; each is named once."""
        found = [event for event in self.events if event["name"] == what]
        named = {tuple(event[k] for k in key) if key[1:] else event[key[0]]: event["args"]["name"] for event in found}
        equal(len(named), len(found), f"{what}: named once")
        return named

    def phases(self, process, case):
        """The phases of a case in a process, by name; the case itself is one of them."""
        mine = [event for event in self.events if event["ph"] == "X" and event["pid"] == self.pids[process] and
                self.rows[event["pid"], event["tid"]] == "phases"]
        whole = [event for event in mine if event["name"] == case]
        equal(len(whole), 1, f"{process}: {case} is there once")
        return {event["name"]: event for event in mine if inside(event, whole[0])}

    def steps(self, case):
        """The steps of all ranks in a case, in the order in which they began."""
        found = []
        for rank in range(RANKS[case]):
            whole = self.phases(f"rank {rank}", case)[case]
            found += [event for event in self.events if event["ph"] == "X" and event["pid"] == rank and
                      self.rows[rank, event["tid"]] != "phases" and inside(event, whole)]
        return sorted(found, key=lambda event: event["begin"])


def inside(event, whole):
    return whole["begin"] <= event["begin"] and event["end"] <= whole["end"]


def named(steps, *names):
    return [step for step in steps if step["name"] in names]


def moved(steps, *names):
    return sum(step["args"]["bytes"] for step in named(steps, *names))


def check_slots(steps, ranks, case):
    """Into each slot of each receiver goes a put, then comes its unpack, and so on, whoever sends."""
    for rank in range(ranks):
        for slot in 0, 1:
            puts = [put for put in named(steps, "put") if put["args"]["peer"] == rank and put["args"]["slot"] == slot]
            unpacks = [step for step in named(steps, "unpack") if step["pid"] == rank and step["args"]["slot"] == slot]
            where = f"{case}: slot {slot} of rank {rank}"
            equal([put["pid"] for put in puts], [step["args"]["peer"] for step in unpacks], f"{where}: senders in order")
            check(len(puts) > 1, f"{where} is used again")
            for put, unpack, after in zip(puts, unpacks, puts[1:] + [None]):
                check(put["begin"] <= unpack["begin"], f"{where}: {unpack} before its {put}")
                check(after is None or unpack["end"] <= after["begin"], f"{where}: {after} before the end of {unpack}")


def check_steps(trace, case):
    """What the ranks did adds up to what has to move in 5 runs (cold, warm, 2 rounds, check)."""
    name, ranks = case["name"], RANKS[case["name"]]
    runs = 1 + 200 + 2 * 1000 if name == "tiny" else 5
    steps = trace.steps(name)
    for step in steps:
        equal(step["name"], trace.rows[step["pid"], step["tid"]], f"{name}: a row for each kind of step")
        args = step["args"]
        check(args["slot"] in (0, 1) and args["round"] >= 0 and args["bytes"] >= 0, f"{name}: {step}")
        check(step["name"] == "wait" or 0 <= args["peer"] < ranks, f"{name}: {step}")
        check(step["name"] != "wait" or step["dur"] >= 5, f"{name}: {step}")
    # A part of a copy says its share of the whole, rounded down; a batch fills whole lines of its slot.
    for way, kinds in ("direct", ("copy", "help")), ("read", ("read",)), ("pipeline", ("unpack",)):
        wanted = runs * case["paths"][way]
        got = moved(steps, *kinds)
        check(abs(got - wanted) <= 0.02 * wanted, f"{name}: {way} of {wanted} bytes, and {kinds} of {got}")
    equal(moved(steps, "put"), moved(steps, "unpack"), f"{name}: what is put is unpacked")
    equal(moved(steps, "put"), moved(steps, "pack"), f"{name}: what is put was packed")
    check(case["helped_bytes"] == 0 or named(steps, "help"), f"{name}: helpers are seen")
    if case["paths"]["pipeline"] > 0:
        for kind in "pack", "put", "unpack":
            equal({step["pid"] for step in named(steps, kind)}, set(range(ranks)), f"{name}: {kind} of every rank")
        check_slots(steps, ranks, name)


def check_trace(path, cases):
    trace = Trace(path)
    equal(sorted(trace.processes.values()),
          sorted([f"rank {i}" for i in range(max(RANKS.values()))] + ["limit", "process_vm_readv"]),
          "a process of the trace for each rank")
    for rank in range(max(RANKS.values())):
        equal(trace.processes.get(rank), f"rank {rank}", "the number of a rank is that of its process")
    for event in trace.events:
        check(event["ph"] == "M" or (event["ph"] == "X" and event["dur"] > 0 and event["ts"] > 0), f"{event}")
    for case in cases:
        for rank in range(RANKS[case["name"]]):
            done = set(trace.phases(f"rank {rank}", case["name"]))
            check({"keep", "cold run", "round 1", "round 2"} <= done, f"{case['name']}: rank {rank} did {done}")
        check_steps(trace, case)
    steps = sum(event.get("cat") == "step" for event in trace.events)
    equal(sum(len(trace.steps(case)) for case in CASES), steps, "every step is in a case")
    # Ours and the limit take turns.
    ours, limit = trace.phases("rank 0", "row-col-2"), trace.phases("limit", "row-col-2")
    turns = [lane[name]["begin"] for name in ("round 1", "round 2") for lane in (ours, limit)]
    equal(turns, sorted(turns), "rounds are interleaved")


def overlap():
    """While one rank packs or unpacks, others do."""
    if len(os.sched_getaffinity(0)) < 2:
        print("skipped: on one core nothing happens at once")
        return
    path = folder / "trace.json"
    plan_json("bench", "row-col-4-pipeline", "--scale", "0.1", "--rounds", "2", "--trace", path)
    # How much they overlap depends on who else uses the machine; one after the other, nobody would.
    every = Trace(path).steps("row-col-4-pipeline")
    steps = named(every, "pack", "unpack")
    for rank in range(4):
        mine = [step for step in steps if step["pid"] == rank]
        check(any(one["begin"] < other["end"] and other["begin"] < one["end"]
                  for one in mine for other in steps if other["pid"] != rank), f"rank {rank} works beside others")
    check_slots(every, 4, "a larger pipeline")
    path.unlink()


def all_cases():
    path = folder / "trace.json"
    value = plan_json("bench", *SMALL, "--trace", path)
    equal([case["name"] for case in value["cases"]], CASES, "all cases, in their order")
    equal((value["rounds"], value["scale"], value["share"]), (2, 0.001, "processes"), "what was asked for")
    check(isinstance(value["targets_met"], bool) and isinstance(value["isa"], str), "the rest of the root")
    for case in value["cases"]:
        check_case(case)
    check_trace(path, value["cases"])
    path.unlink()


def sharing():
    for share in "none", "threads", "processes":
        value = plan_json("bench", "row-col-4", "small-tensors", *SMALL, "--share", share)
        equal(value["share"], share, "share")
        if share != "processes":
            equal([case["helped_bytes"] for case in value["cases"]], [0, 0], f"{share}: nobody helps")


def texts():
    run = Run(["bench", "row-col-2", "tiny", *SMALL])
    equal(run.code, 0, "exit code", run)
    # A busy machine is said so in one more line.
    lines = [line for line in run.out.splitlines() if not line.startswith("Other programs")]
    equal([line.split()[0] for line in lines], ["case", "row-col-2", "tiny"], "the table", run)
    check(max(map(len, lines)) < 100, "the table is narrow", run)
    equal([line.split()[1] for line in run.err.splitlines()], ["row-col-2:", "tiny:"], "a line a case", run)
    check("\r" not in run.err and "\033" not in run.err, "no bar in a file", run)
    check(ferry("bench", "tiny", "--rounds", "1", "--quiet").startswith("case "), "--quiet")


def bars():
    text = progress("bench", "row-col-2", *SMALL)
    if text is not None:
        check(b"1/1 row-col-2 " in text and b"####" in text, f"a bar: {text}")
        check(text.endswith(b"\r\033[K"), f"the bar is removed: {text}")


def script(name, body):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def peers():
    noted = folder / "noted"
    fast = script("fast", f'echo "$@" >> {noted}\n'
                  """echo '{"peer":"openmpi","gbps":1e6}'; echo noise; echo '{"peer":"mpich","gbps":2.5}'""")
    run = Run(["bench", "row-col-2", "tiny", *SMALL, "--json", "--check-targets", "--peers-from", fast])
    equal((run.code, run.err), (FAILED, ""), "a target that nobody can reach", run)
    value = json.loads(run.out)
    equal(value["cases"][0]["peers"], {"openmpi": 1e6, "mpich": 2.5}, "peers")
    equal(value["cases"][1]["peers"], {}, "none for tiny")
    equal(value["targets_met"], False, "targets_met")
    missed = [target for target in value["cases"][0]["targets"] if "Alltoallw" in target["what"]]
    check(len(missed) == 1 and missed[0]["wanted"] == 2 and not missed[0]["met"], f"the target: {missed}")
    equal(noted.read_text(), "row-col-2 2 --rounds 2 --scale 0.001\n", "how the program is called")
    run = Run(["bench", "row-col-2", *SMALL, "--quiet", "--check-targets", "--peers-from", fast])
    equal(run.code, FAILED, "the same as text", run)
    check("openmpi 1000000.0" in run.out and "missed: row-col-2" in run.out, "as text", run)
    noted.unlink()
    absent = script("absent", "echo 'peers: none' >&2; exit 77")
    equal(plan_json("bench", "row-col-2", *SMALL, "--peers-from", absent)["cases"][0]["peers"], {}, "no peers")
    broken = script("broken", "exit 3")
    fails(FAILED, "bench", "row-col-2", *SMALL, "--quiet", "--peers-from", broken, command="bench",
          says=["row-col-2", "broken"])
    fails(FAILED, "bench", "row-col-2", "--peers-from", folder / "none", command="bench", says=["none"])
    for path in fast, absent, broken:
        path.unlink()


def bad_input():
    def bad(*args, says=()):
        fails(USAGE, "bench", *args, command="bench", says=says)
    bad("row-col-3", says=["row-col-3", "did you mean row-col-"])
    bad("row-col-2", "nonsense", says=["nonsense", "ferry help bench"])
    bad("", says=["unknown case"])
    for scale in "0", "-1", "1.01", "nan", "inf", "x", "0.5x", "":
        bad("tiny", "--scale", scale, says=["--scale"])
    for rounds in "0", "1001", "-1", "x", "99999999999999999999":
        bad("tiny", "--rounds", rounds, says=["--rounds"])
    bad("tiny", "--share", "all", says=["--share all"])
    bad("tiny", "--nonsense", says=["--nonsense"])
    bad("tiny", "--trace", says=["--trace"])
    # Known before anything runs: nothing about progress is on standard error.
    fails(FAILED, "bench", "tiny", "--trace", folder / "no" / "trace.json", command="bench", says=["trace.json"])
    fails(FAILED, "bench", "tiny", "--trace", folder, command="bench", says=[str(folder)])
    if os.geteuid() != 0:
        folder.chmod(0o500)
        fails(FAILED, "bench", "tiny", "--trace", folder / "trace.json", command="bench", says=["trace.json"])
        folder.chmod(0o700)
    with open("/dev/full", "wb") as full:
        run = Run(["bench", "tiny", "--rounds", "1", "--quiet"], stdout=full)
    check(run.code == 1 and run.err.count("\n") == 1, "/dev/full", run)
    run = Run(["bench", "tiny", "--rounds", "1", "--quiet", "--trace", "/dev/null"])
    equal((run.code, run.err), (0, ""), "a trace to a device", run)


def killed(number):
    """Whatever ends the tool ends its ranks."""
    mark = f"FERRY_TEST_MARK={os.getpid()}.{number}"
    tool = subprocess.Popen([FERRY, "bench", "row-col-4", "--scale", "0.1", "--rounds", "1000", "--quiet"],
                            env={**os.environ, "FERRY_TEST_MARK": mark.split("=")[1]},
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 20
    while len(left_behind(mark)) < 5 and time.monotonic() < end:
        time.sleep(0.05)
    check(len(left_behind(mark)) >= 5, "the tool and four ranks are there")
    tool.send_signal(number)
    equal(tool.wait(timeout=30), -number, f"ended by signal {number}")
    equal(wait_gone(mark, 10), [], f"processes after signal {number}")


def shared_names():
    """All but the folders of the checkpoint tests, which run beside this one (test/support/ckpt_files.c)."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("ckpt-test-")}


shared = shared_names()
os.environ["FERRY_TEST_MARK"] = f"{os.getpid()}.all"
all_cases()
overlap()
sharing()
texts()
bars()
peers()
bad_input()
killed(signal.SIGKILL)
killed(signal.SIGTERM)
me = str(os.getpid())
equal([pid for pid in left_behind(f"FERRY_TEST_MARK={me}.all") if pid != me], [], "processes at the end")
equal(list(folder.iterdir()), [], "files at the end")
equal(shared_names() - shared, set(), "/dev/shm at the end")
finish()
