#!/usr/bin/env python3
"""Help, man page and completion come from one table: they name the same commands and options."""

import os
import pty
import re
import shutil
import subprocess

from support.harness import Run, check, equal, ferry, finish, read_terminal, scratch

COMMANDS = ["reshard", "inspect", "verify", "synth", "plan", "plan show", "plan diff", "bench", "bench reshard", "doctor",
            "help", "version", "completion"]
PLAN_OPTIONS = """--shape --dtype --from --to --name --to-dtype --allow-cast --model --collocated --disjoint
    --list-models --rank --hosts --slot --strict --json --out --transfers --help""".split()


def options_of(text):
    return set(re.findall(r"^  (--[a-z][a-z0-9-]*)", text, re.MULTILINE))


def helps():
    text = ferry("--help")
    equal(text, ferry("help"), "ferry help and ferry --help")
    equal(text, ferry("-h"), "ferry -h")
    for command in COMMANDS:
        check(re.search(rf"^  {command} ", text, re.MULTILINE), f"--help names {command}")
        own = ferry("help", *command.split())
        equal(own, ferry(*command.split(), "--help"), f"ferry help {command} and --help")
        check(own.startswith(f"ferry {command}: "), f"help of {command}: {own}")
    for word in "FERRY_DEBUG", "NO_COLOR", "--version", "Exit codes":
        check(word in text, f"--help names {word}")
    own = ferry("help", "plan")
    check(set(PLAN_OPTIONS) <= options_of(own), f"options missing: {set(PLAN_OPTIONS) - options_of(own)}")
    wide = [line for line in own.splitlines() if len(line) > 84]
    check(not wide, f"lines too wide: {wide}")
    # --help wins over what is missing or comes later.
    equal(ferry("plan", "--shape", "8", "--help", "--nonsense"), own, "--help among other options")
    equal(ferry("plan", "show", "--help"), ferry("help", "plan", "show"), "--help without the file")
    version = ferry("--version")
    equal(version, ferry("version"), "ferry version and ferry --version")
    check(re.match(r"ferry \d+\.\d+\.\d+\b", version), f"version: {version}")


def man_page(folder):
    page = ferry("help", "--man")
    equal(page, ferry("help", "--man"), "the man page twice")
    check(page.isascii() and page.startswith(".\\\""), "the man page is ASCII roff")
    path = folder / "ferry.1"
    path.write_text(page)
    readers = [["mandoc", "-Tlint", path], ["groff", "-man", "-ww", "-z", "-Tutf8", path]]
    tried = [reader for reader in readers if shutil.which(reader[0])]
    for reader in tried:
        done = subprocess.run(reader, capture_output=True, text=True, timeout=60)
        equal((done.returncode, done.stdout + done.stderr), (0, ""), f"{reader[0]} on the man page")
    if not tried:
        print("skipped: neither mandoc nor groff is here to lint the man page")
    plain = page.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "").replace("\\fI", "")
    for command in COMMANDS:
        check(f".SS ferry {command}\n" in plain, f"the man page has {command}")
        for option in options_of(ferry("help", *command.split())) - {"--help"}:
            check(re.search(rf"^{option}\b", plain, re.MULTILINE), f"the man page explains {option}")
    for section in "NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "ENVIRONMENT", "EXAMPLES":
        check(f".SH {section}\n" in page, f"the man page has {section}")


def complete(folder, *words):
    """What bash offers for the last word."""
    script = """
        source "$1"; shift
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
        _ferry; printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(["bash", "--norc", "-c", script, "bash", folder / "ferry.bash", "ferry", *words],
                          capture_output=True, text=True, cwd=folder, timeout=60)
    equal((done.returncode, done.stderr), (0, ""), f"completing {words}")
    return set(done.stdout.split())


def completions(folder):
    (folder / "ferry.bash").write_text(ferry("completion", "bash"))
    (folder / "some.plan").write_text("")
    if shutil.which("shellcheck"):
        done = subprocess.run(["shellcheck", folder / "ferry.bash"], capture_output=True, text=True, timeout=60)
        equal((done.returncode, done.stdout), (0, ""), "shellcheck on the completion")
    loaded = subprocess.run(["bash", "--norc", "-c", 'source "$1"; complete -p ferry', "bash",
                             folder / "ferry.bash"], capture_output=True, text=True, timeout=60)
    equal(loaded.stdout, "complete -F _ferry ferry\n", f"sourcing: {loaded.stderr}")
    equal(complete(folder, "pl"), {"plan"}, "ferry pl<TAB>")
    check({"plan", "help", "version", "completion", "--help"} <= complete(folder, ""), "ferry <TAB>")
    equal(complete(folder, "plan", ""), {"show", "diff"}, "ferry plan <TAB>")
    equal(complete(folder, "bench", ""), {"reshard"}, "ferry bench <TAB>")
    equal(complete(folder, "bench", "reshard", "--model", "llama3-7"), {"llama3-70b"}, "bench reshard --model <TAB>")
    equal(complete(folder, "plan", "--mod"), {"--model"}, "ferry plan --mod<TAB>")
    check(set(PLAN_OPTIONS) <= complete(folder, "plan", "--"), "ferry plan --<TAB>")
    equal(complete(folder, "plan", "--model", "llama3-7"), {"llama3-70b"}, "--model llama3-7<TAB>")
    equal(complete(folder, "plan", "--model", "=", "deep"), {"deepseek-v3"}, "--model=deep<TAB>")
    check("kimi-k2" in complete(folder, "plan", "--model", "="), "--model=<TAB>")
    equal(complete(folder, "plan", "--json", "--dtype", "bf"), {"bf16"}, "--dtype bf<TAB>")
    equal(complete(folder, "plan", "--to-dtype", "f8"), {"f8e4m3", "f8e5m2"}, "--to-dtype f8<TAB>")
    equal(complete(folder, "plan", "--out", "some"), {"some.plan"}, "--out some<TAB>")
    equal(complete(folder, "plan", "show", "so"), {"some.plan"}, "plan show so<TAB>")
    equal(complete(folder, "plan", "diff", "some.plan", "so"), {"some.plan"}, "plan diff some.plan so<TAB>")
    check("--rank" in complete(folder, "plan", "show", "--r"), "plan show --r<TAB>")
    equal(complete(folder, "plan", "--rank", "x"), set(), "--rank x<TAB>")
    equal(complete(folder, "completion", ""), {"bash"}, "completion <TAB>")
    equal(complete(folder, "help", "pl"), {"plan"}, "help pl<TAB>")
    equal(complete(folder, "nonsense", ""), set(), "nonsense <TAB>")


def standard_output():
    """Failures of standard output are noticed; a reader that leaves early is none."""
    with open("/dev/full", "wb") as full:
        run = Run(["version"], stdout=full)
    check(run.code == 1 and run.err.count("\n") == 1 and "standard output" in run.err, "/dev/full", run)
    run = Run(["version"], stdout=None, preexec_fn=lambda: os.close(1))
    check(run.code == 1 and run.err.count("\n") == 1 and "standard output" in run.err, "closed", run)
    ends = os.pipe()
    os.close(ends[0])
    run = Run(["help", "--man"], stdout=ends[1])
    os.close(ends[1])
    check(run.code == 0 and run.err == "", "a reader that has left", run)


def on_terminal(**env):
    """What `ferry plan` shows on a terminal."""
    mine, theirs = pty.openpty()
    run = Run(["plan", "--shape", "8", "--from", "2:S0", "--to", "2:S0@2-3"], stdout=theirs,
              env={"TERM": "xterm", **env})
    os.close(theirs)
    equal((run.code, run.err), (0, ""), f"on a terminal with {env}", run)
    return read_terminal(mine).decode()


def terminals():
    try:
        for end in pty.openpty():
            os.close(end)
    except OSError as why:
        print(f"skipped: no terminal to be had ({why})")
        return
    check("\033[1m" in on_terminal(), "colours on a terminal")
    check("\033" not in on_terminal(NO_COLOR="1"), "none with NO_COLOR")
    check("\033" not in on_terminal(TERM="dumb"), "none with TERM=dumb")
    check("█" in on_terminal(LC_ALL="C.UTF-8"), "blocks in UTF-8")
    check("#####" in on_terminal(LC_ALL="C", NO_COLOR="1"), "signs in ASCII")


def main():
    folder = scratch()
    helps()
    man_page(folder)
    completions(folder)
    standard_output()
    terminals()
    finish()


main()
