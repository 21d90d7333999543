"""What the tests of the tool share: running it, and saying what was expected.

A test is a script that makes checks and ends with finish(). Every failed check is printed; the exit code
is then 1. $FERRY is the tool.
"""

import json
import os
import pty
import subprocess
import sys
import tempfile
from pathlib import Path

FERRY = os.environ.get("FERRY", "build/ferry")
SKIPPED = 77
failures = 0
checks = 0


class Run:
    """One finished run: exit code, standard output, standard error."""

    def __init__(self, args, **options):
        self.args = [str(arg) for arg in args]
        env = {key: value for key, value in os.environ.items() if key not in ("FERRY_DEBUG", "NO_COLOR")}
        env.update(options.pop("env", {}))
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.PIPE)
        done = subprocess.run([FERRY, *self.args], stderr=subprocess.PIPE, env=env, timeout=100, **options)
        self.code = done.returncode
        self.out = (done.stdout or b"").decode("utf-8", "replace")
        self.err = done.stderr.decode("utf-8", "replace")

    def __str__(self):
        return f"ferry {' '.join(self.args)}\n  exit {self.code}\n  stdout: {self.out!r}\n  stderr: {self.err!r}"


def check(true, what, run=None):
    """Notes a failure when `true` is not."""
    global checks, failures
    checks += 1
    if not true:
        failures += 1
        print(f"FAILED: {what}" + (f"\n  {run}" if run else ""), flush=True)
    return true


def equal(got, expected, what, run=None):
    return check(got == expected, f"{what}: got {got!r}, expected {expected!r}", run)


def ferry(*args, **options):
    """A run that must succeed quietly; returns its standard output."""
    run = Run(args, **options)
    check(run.code == 0 and run.err == "", "should succeed with nothing on standard error", run)
    return run.out


def plan_json(*args):
    """The object that --json prints."""
    text = ferry(*args, "--json")
    try:
        value = json.loads(text)
    except ValueError as error:
        check(False, f"{args}: no JSON: {error}: {text!r}")
        return {}
    check(isinstance(value, dict), f"{args}: an object is expected")
    return value


def fails(code, *args, says=(), command="plan", **options):
    """A run that must fail: this exit code, one line on standard error that names its place, and
    nothing on standard output. Returns the line."""
    run = Run(args, **options)
    equal(run.code, code, "exit code", run)
    equal(run.out, "", "standard output after an error", run)
    lines = run.err.splitlines()
    equal(len(lines), 1, "lines on standard error", run)
    line = lines[0] if lines else ""
    prefix = f"ferry {command}: " if command else "ferry: "
    check(line.startswith(prefix), f"the line should begin with {prefix!r}", run)
    for word in (says,) if isinstance(says, str) else says:
        check(word in line, f"the line should say {word!r}", run)
    return line


def read_terminal(end):
    """All that was written to a terminal whose other end is closed."""
    text = b""
    try:
        while part := os.read(end, 4096):
            text += part
    except OSError:
        pass  # Linux ends a terminal without writers with EIO
    os.close(end)
    return text


def progress(*args):
    """What a run that must succeed writes to standard error when that is a terminal; None: there is none to
    be had."""
    try:
        mine, theirs = pty.openpty()
    except OSError as why:
        print(f"skipped: no terminal to be had ({why})")
        return None
    done = subprocess.run([FERRY, *args], stdin=subprocess.DEVNULL, timeout=60, stdout=subprocess.PIPE, stderr=theirs,
                          env={**os.environ, "TERM": "xterm", "LC_ALL": "C"})
    os.close(theirs)
    text = read_terminal(mine)
    equal(done.returncode, 0, f"{args} on a terminal")
    return text


def scratch():
    """A folder that goes away with the test."""
    folder = tempfile.TemporaryDirectory(prefix="ferry-test-")
    _kept.append(folder)
    return Path(folder.name)


_kept = []


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def finish():
    for folder in _kept:
        folder.cleanup()
    print(f"{checks} checks, {failures} failed")
    sys.exit(1 if failures or not checks else 0)
