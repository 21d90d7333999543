#!/usr/bin/env python3
"""Whatever the memory suffices for: the tool ends with a whole answer or with one line of error."""

import resource

from support.harness import Run, check, equal, finish, scratch, skip

MIB = 1 << 20
CASE = ["plan", "--model", "llama3-8b", "--from", "tp=4,dp=2", "--to", "tp=2,pp=2", "--disjoint"]


def limited(size, *args):
    return Run(args, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size)))


def smallest():
    """From where on the program starts at all; sanitizers reserve terabytes."""
    for size in range(2 * MIB, 64 * MIB, MIB // 2):
        if limited(size, "version").code == 0:
            return size
    return skip("the tool needs more than 64 MiB of address space to start (a sanitizer?)")


def sweep(*args, file=None):
    """Grows the limit until the run succeeds; before that, every run fails properly."""
    size = smallest()
    failed = 0
    while True:
        run = limited(size, *args)
        check(run.code in (0, 1), f"exit code with {size} bytes", run)
        if run.code != 1:
            break
        failed += 1
        equal((run.out, run.err.count("\n")), ("", 1), f"one line with {size} bytes", run)
        check("memory" in run.err, f"the reason with {size} bytes", run)
        check(file is None or not any(file.parent.iterdir()), f"no file with {size} bytes", run)
        size += MIB // 8
        if size > 512 * MIB:
            break
    equal(run.err, "", "standard error of the run that succeeds", run)
    check(failed > 0, f"{args}: no limit was too small")
    check(file is None or file.exists(), "the file is there")


path = scratch() / "a.plan"
sweep(*CASE, "--json", "--out", path, file=path)
sweep("plan", "show", path, "--transfers")
sweep("plan", "show", path, "--transfers", "--json")
finish()
