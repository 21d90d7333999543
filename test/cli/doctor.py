#!/usr/bin/env python3
"""ferry doctor: each finding has an answer and a meaning, figures are numbers, and only what ferry needs
makes it fail."""

import json
import os
import resource
import shutil

from support.harness import FERRY, Run, check, equal, fails, ferry, finish, plan_json, scratch

FINDINGS = """cores instruction_set memory memory_limit address_space file_size locked_memory open_files
    shared_memory first_touch huge_pages huge_pages_shared huge_pages_reserved pidfd processes
    cross_process_reads futex_round_trip copy_one_core copy_all_cores""".split()
COUNTS = "cores cores_online memory_bytes available_bytes".split()
LIMITS = """cgroup_memory_bytes limit_address_space_bytes limit_file_bytes limit_locked_bytes
    limit_open_files""".split()
FLAGS = "memfd fallocate pidfd cross_process_reads".split()
FIGURES = "futex_round_trip_us first_touch_gbps copy_one_core_gbps copy_all_cores_gbps".split()
READS = "read_long_gbps read_short_gbps".split()
NOBODY = 65534


def findings(value):
    return {finding["name"]: finding for finding in value["findings"]}


def whole():
    value = plan_json("doctor")
    equal(value["ok"], True, "all is there")
    found = findings(value)
    equal([name for name in found if name != "cpu_quota"], FINDINGS, "findings")
    for name, finding in found.items():
        check(isinstance(finding["answer"], str) and finding["answer"], f"{name}: answer")
        check(isinstance(finding["meaning"], str) and len(finding["meaning"]) > 20, f"{name}: meaning")
        equal(finding["missing"], False, f"{name}: missing")
    facts = value["facts"]
    for name in COUNTS:
        check(isinstance(facts[name], int) and facts[name] > 0, f"{name}: {facts[name]!r}")
    for name in LIMITS:
        check(facts[name] is None or isinstance(facts[name], int), f"{name}: {facts[name]!r}")
    for name in FLAGS:
        check(isinstance(facts[name], bool), f"{name}: {facts[name]!r}")
    for name in FIGURES:
        check(isinstance(facts[name], float) and facts[name] > 0, f"{name}: {facts[name]!r}")
    for name in READS:
        check((facts[name] > 0) == facts["cross_process_reads"], f"{name}: {facts[name]!r}")
    equal(facts["cores"], len(os.sched_getaffinity(0)), "cores")
    check(facts["isa"] in ("avx512", "avx2", "plain"), f"isa: {facts['isa']}")
    equal(found["instruction_set"]["answer"], facts["isa"], "isa in words")


def text():
    out = ferry("doctor")
    lines = out.splitlines()
    for name in FINDINGS:
        check(any(line.startswith(name.replace("_", " ") + " ") for line in lines), f"a line for {name}")
    check(lines[-1] == "All that ferry needs is here.", f"the last line: {lines[-1]}")


def one_core():
    core = min(os.sched_getaffinity(0))
    run = Run(["doctor", "--json"], preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    equal((run.code, run.err), (0, ""), "on one core", run)
    equal(json.loads(run.out)["facts"]["cores"], 1, "cores, when we may use one")


def isa():
    facts = json.loads(Run(["doctor", "--json"], env={"FERRY_ISA": "plain"}).out)["facts"]
    equal(facts["isa"], "plain", "FERRY_ISA")
    run = Run(["doctor", "--json"], env={"FERRY_ISA": "nonsense"})
    equal((run.code, run.err), (1, ""), "no instruction set", run)
    value = json.loads(run.out)
    equal((value["ok"], value["facts"]["isa"]), (False, None), "nothing to copy with")
    equal(findings(value)["instruction_set"]["missing"], True, "that is what is missing")


def limits():
    """Without room for a shared file nothing works, and doctor says so."""
    def forbid():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    run = Run(["doctor", "--json"], preexec_fn=forbid)
    equal((run.code, run.err), (1, ""), "no shared memory", run)
    value = json.loads(run.out)
    found = findings(value)
    equal((value["ok"], value["facts"]["fallocate"]), (False, False), "shared memory is missing")
    equal(value["facts"]["limit_file_bytes"], 0, "the limit")
    equal((found["shared_memory"]["missing"], found["processes"]["missing"]), (True, True), "what is missing")
    run = Run(["doctor"], preexec_fn=forbid)
    equal(run.code, 1, "the same as text", run)
    check("Something that ferry needs is missing." in run.out, "the last line", run)


def unprivileged():
    """As a user without rights it still ends well, whatever is allowed."""
    if os.geteuid() != 0:
        print("skipped: not root, so every run is one of an ordinary user")
        return
    folder = scratch()
    folder.chmod(0o755)
    tool = folder / "ferry"
    shutil.copy(FERRY, tool)
    tool.chmod(0o755)

    def drop():
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    run = Run(["doctor", "--json"], executable=tool, preexec_fn=drop, cwd="/")
    equal((run.code, run.err), (0, ""), "as nobody", run)
    check("as this user" in findings(json.loads(run.out))["cross_process_reads"]["answer"], "whose reads", run)


fails(2, "doctor", "nonsense", command="doctor", says=["nonsense"])
fails(2, "doctor", "--nonsense", command="doctor", says=["--nonsense"])
def shared_names():
    """All but the folders of the checkpoint tests, which run beside this one (test/support/ckpt_files.c)."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("ckpt-test-")}


shared = shared_names()
whole()
text()
one_core()
isa()
limits()
unprivileged()
equal(shared_names() - shared, set(), "/dev/shm at the end")
finish()
