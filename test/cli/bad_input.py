#!/usr/bin/env python3
"""Wrong input: one line that names the place, exit code 2, nothing written."""

from support.harness import Run, check, equal, fails, finish, scratch

folder = scratch()
OUT = folder / "bad.plan"
USAGE = 2


def bad(args, says=(), command="plan"):
    """Fails as usage, and leaves no file though one is asked for."""
    fails(USAGE, *args, "--out", OUT, says=says, command=command)
    check(list(folder.iterdir()) == [], f"{args}: left {list(folder.iterdir())}")


def tensor(source, target, *more, shape="8x8", says=()):
    bad(["plan", "--shape", shape, "--from", source, "--to", target, *more], says)


def model(source, target, *more, name="llama3-8b", says=()):
    bad(["plan", "--model", name, "--from", source, "--to", target, *more], says)


def layouts():
    for side in ("--from", "--to"):
        def either(text, says=(), shape="8x8", place=side):
            ends = (text, "2:S0") if place == "--from" else ("2:S0", text)
            tensor(*ends, shape=shape, says=says)

        either("2:Q", says=[side, "Q"])  # unknown placement
        either("2:S0@1,1", says=[side, "1"])  # rank listed twice
        either("4:S0@0-2", says=[side])  # mesh size against rank list
        either("2x2:S0", says=[side])  # one placement for two axes
        either("2:S7", says=["7"])  # dim out of range
        either("2:S0/sizes(3,4)", says=["sizes"])  # 3 + 4 is not 8
        either("2:S0/ragged(3,4)", says=["ragged"])
        either("2:S0/ragged(8)", says=["ragged"])  # one length for two ranks
        either("2:S0/cyclic(0)")
        either("2:S0/unknown(3)", says=[side, "unknown"])
        either("", says=[side])
        either("2:", says=[side])
        either(":S0", says=[side])
        either("0:S0", says=[side])
        either("2:S0,", says=[side])
        either("2:S0@0-", says=[side])
        either("2:S0 junk", says=[side])
        either("2:S0\nS1", says=[side])
        either("99999999999999999999:S0", says=[side])  # past 64 bits
        either("1:R@1048576", says=[side, "1048575"])  # past the rank field of a task id
        either("4294967295x4294967295:R,R", says=[side])
        either("é:S0", says=[side])
    tensor("2:S0", "2:P(sum)", says="artial")  # Partial target
    tensor("2:P(median)", "2:S0", says=["--from", "median"])
    # More pieces for one target than a task id can number: 2^21 of them.
    tensor("2:S0/cyclic(1)", "1:R", shape="2097152x2")


def tensors():
    one = ["plan", "--from", "2:S0", "--to", "2:S0"]
    for shape in "8y8", "8x", "x8", "8x-1", "8xx8", "abc", "18446744073709551616", " 8", "8x8 ":
        bad([*one, "--shape", shape], says="--shape")
    bad([*one, "--shape", "x".join(["2"] * 17)], says=["--shape", "16"])
    tensor("2:S0", "2:S0", shape="4294967296x4294967296x2")  # elements past 64 bits
    tensor("2:S0", "2:S0", "--dtype", "f64", shape="4294967296x1073741824")  # bytes past 64 bits
    tensor("2:S0", "2:S0", "--dtype", "f33", says=["--dtype", "f33", "did you mean f32?"])
    tensor("2:S0", "2:S0", "--to-dtype", "zzzzzzz", says=["--to-dtype", "zzzzzzz"])
    tensor("2:S0", "2:S0", "--to-dtype", "bf16", says=["tensor", "f32", "bf16"])  # not allowed
    tensor("2:S0", "2:S0", "--to-dtype", "bf16", "--name", "layers.7.w1", says="layers.7.w1")
    tensor("2:S5", "2:S0", "--name", "layers.7.w1", says="layers.7.w1")


def models():
    model("tp=2", "tp=1", name="llama3-70", says=["--model", "llama3-70", "did you mean llama3-70b?"])
    model("tp=2", "tp=1", name="no-such-model", says=["--model", "no-such-model"])
    for side in range(2):
        def either(text, *says, name="llama3-8b", place=side):
            ends = (text, "tp=2") if place == 0 else ("tp=2", text)
            model(*ends, name=name, says=[("--from", "--to")[place], *says])

        either("xp=2", "xp")
        either("tp=0")
        either("tp=", "tp")
        either("tp")
        either("tp=2,tp=2", "tp")
        either("tp=2,", )
        either("tp=2;dp=2")
        either("tp=4294967296")
        either("tp=65536,dp=65536")
        either("tp=1048576,dp=2")
        either("tp=2,dp=2,ep=3", "ep", name="mixtral-8x7b")  # 3 does not divide 4
        either("tp=2,ep=2,etp=2", "ep", name="mixtral-8x7b")  # 4 does not divide 2
        either("tp=2,order=tp-pp", "order")
        either("tp=2,order=tp-cp-ep-dp-xx", "order")
        either("4:S0")
        either("")
    # Together past the largest rank.
    model("tp=8,dp=65536", "tp=8,dp=131072", "--disjoint", says="--to")


def options():
    one = ["plan", "--shape", "8", "--from", "2:S0", "--to", "2:S0"]
    many = ["plan", "--model", "llama3-8b", "--from", "tp=2", "--to", "tp=2"]
    bad([*one, "--shap", "8"], says="unknown option --shap (did you mean --shape?)")
    bad([*one, "--hots", "8"], says="did you mean --hosts?")
    bad([*one, "--jason"], says="did you mean --json?")
    bad([*one, "--xyzzy"], says="unknown option --xyzzy")
    bad([*one, "-x"], says="-x")
    bad([*one, "--json=1"], says="--json takes no value")
    bad([*one, "--shape", "8"], says="--shape is given twice")
    bad([*one, "--rank", "--json"], says="--rank needs a value")
    bad([*one, "extra"], says="'extra'")
    bad([*one, "--", "--json"], says="'--json'")
    for value in "x", "-1", "", "1.5", "1048576", "99999999999999999999":
        bad([*one, f"--rank={value}"], says="--rank")
    bad([*one, "--rank", "2"], says=["2", "rank"])  # a number, but not one of the ranks
    for value in "0", "x", "-1", "", "99999999999":
        bad([*one, f"--hosts={value}"], says="--hosts")
    for value in "0", "x", "-1", "", "1Q", "1Kb", "1 K", "18446744073709551616", "16777216T":
        bad([*one, f"--slot={value}"], says="--slot")
    bad([*one, "--disjoint"], says="--disjoint goes with --model")
    bad([*one, "--collocated"], says="--collocated goes with --model")
    bad([*many, "--name", "x"], says="--name goes with --shape")
    bad([*many, "--collocated", "--disjoint"], says="exclude")
    bad([*many, "--shape", "8"], says="exclude")
    bad(["plan"], says="--model")
    bad(["plan", "--shape", "8"], says="--from")
    bad(["plan", "--shape", "8", "--from", "2:S0"], says="--to")
    fails(USAGE, *one, "--out", says="--out needs a value")
    # Whatever is typed, the error stays one line.
    fails(USAGE, *one, "--new\nline", says="unknown option")
    fails(USAGE, *one, "--" + "long" * 5000, says="unknown option")
    fails(USAGE, "plan", "--shape", "8", "--from", "2:" + "R" * 100000, "--to", "2:S0", says="--from")


def commands():
    fails(USAGE, command="", says="command")
    fails(USAGE, "pln", command="", says="unknown command 'pln' (did you mean plan?)")
    fails(USAGE, "frobnicate", command="", says="unknown command 'frobnicate'")
    fails(USAGE, "--verison", command="", says="--verison")
    fails(USAGE, "", command="", says="''")
    fails(USAGE, "plan\nshow", command="")
    fails(USAGE, "help", "pla", command="help", says="did you mean plan?")
    fails(USAGE, "help", "--man", "plan", command="help")
    fails(USAGE, "completion", command="completion", says="bash")
    fails(USAGE, "completion", "fish", command="completion", says="fish")
    fails(USAGE, "version", "x", command="version")
    fails(USAGE, "plan", "show", command="plan show", says="FILE")
    fails(USAGE, "plan", "show", "a", "b", command="plan show", says="'b'")
    fails(USAGE, "plan", "diff", "a", command="plan diff", says="A B")
    fails(USAGE, "plan", "diff", "a", "b", "c", command="plan diff", says="'c'")


def environment():
    for value in "LOUD", "warn", "1":
        fails(USAGE, "version", command="", says=["FERRY_DEBUG", value], env={"FERRY_DEBUG": value})
    for value in "", "WARN", "INFO", "TRACE":
        run = Run(["version"], env={"FERRY_DEBUG": value})
        equal(run.code, 0, f"FERRY_DEBUG={value}", run)


layouts()
tensors()
models()
options()
commands()
environment()
finish()
