#!/usr/bin/env python3
"""ferry bench reshard on few tensors: every way of moving them runs and verifies, its JSON says so, and bad
input is one line."""

from support.harness import Run, check, equal, fails, ferry, finish, plan_json, progress

CASES = ["llama3-8b-tp", "llama3-8b-cast", "qwen3-ep", "llama3-8b-mxfp8", "tiny-700"]
FAILED, USAGE = 1, 2
NUMBER = (int, float)
BENCH = ["bench", "reshard"]
PHASES = {"reduce", "pack", "move", "unpack", "commit", "refresh", "meet"}

# One layer of a small model, its K projections: 512 x 2048, in bf16 2 MiB, and a norm of 2048.
ONE_LAYER = ["--model", "llama3.2-1b", "--scale", "layers=1", "--rounds", "2"]
K_PROJ = [*ONE_LAYER, "--only", "k_proj", "--from", "tp=4", "--to", "tp=2"]
ELEMENTS = 512 * 2048


def run_one(*args):
    """The only case of a run."""
    value = plan_json(*BENCH, *args)
    cases = value.get("cases", [])
    equal(len(cases), 1, f"{args}: one case")
    return cases[0]


def check_case(case, what):
    """What holds for any case that is not the latency of small tensors."""
    half = (case["bytes_read"] + case["bytes_written"]) // 2
    equal(case["bytes"], half, f"{what}: bytes are the mean of those read and written")
    seconds = case["seconds"]
    check(0 < seconds["min"] <= seconds["median"] <= seconds["max"], f"{what}: seconds {seconds}")
    check(abs(case["bytes"] / seconds["median"] / 1e9 / case["gbps"] - 1) < 0.01, f"{what}: gbps fits seconds")
    check(abs(case["gbps"] / case["limit_gbps"] / case["ratio_to_limit"] - 1) < 0.01, f"{what}: the ratio")
    limit = case["limit_seconds"]["median"]
    check(abs(limit / seconds["median"] / case["ratio_to_limit"] - 1) < 0.01, f"{what}: the limit's seconds")
    check(isinstance(case["limit_method"], str), f"{what}: limit_method")
    for field in "cold_seconds", "keep_seconds", "plan_seconds":
        check(isinstance(case[field], NUMBER) and case[field] > 0, f"{what}: {field} is {case[field]!r}")
    equal(set(case["phases"]), PHASES, f"{what}: phases")
    check(0 < sum(case["phases"].values()) < 10 * seconds["max"], f"{what}: phases {case['phases']}")
    check(case["phases"]["move"] > 0, f"{what}: something moves")
    equal((case["peers"], case["helped_bytes"], case["latency_us"]), ({}, None, None), f"{what}: of other benches")
    check(case["passes"] >= 1, f"{what}: passes")


def plain():
    case = run_one(*K_PROJ)
    check_case(case, "plain")
    equal((case["name"], case["model"], case["from"], case["to"]), ("llama3.2-1b", "llama3.2-1b", "tp=4", "tp=2"),
          "what was asked for")
    equal((case["dtype"], case["to_dtype"], case["mxfp8"], case["scales"], case["commit"]),
          ("bf16", "bf16", None, None, None), "nothing else was")
    equal((case["ranks"], case["rounds"], case["tensors"]), (4, 2, 1), "ranks, rounds, tensors")
    equal((case["layers"], case["all_layers"], case["experts"], case["all_experts"]), (1, 16, 0, 0), "the scale")
    equal((case["bytes_read"], case["bytes_written"]), (2 * ELEMENTS, 2 * ELEMENTS), "bytes")
    equal(sum(case["paths"].values()), 2 * ELEMENTS, "bytes by path")
    equal(sum(case["writeback_bytes"].values()), 2 * ELEMENTS, "bytes by writeback")
    equal(case["writeback_bytes"]["direct"], 2 * ELEMENTS, "straight into the targets")
    equal((case["targets"], case["version"], case["commit_bytes"]), ([], 0, 0), "no targets, no commit")


def casts():
    case = run_one(*K_PROJ, "--dtype", "f32", "--to-dtype", "bf16")
    check_case(case, "a cast")
    equal((case["dtype"], case["to_dtype"]), ("f32", "bf16"), "dtypes")
    equal((case["bytes_read"], case["bytes_written"]), (4 * ELEMENTS, 2 * ELEMENTS), "bytes of a cast")
    case = run_one(*K_PROJ, "--dtype", "bf16", "--to-dtype", "f64")
    equal((case["bytes_read"], case["bytes_written"]), (2 * ELEMENTS, 8 * ELEMENTS), "bytes of a wider target")


def quantised():
    for where in "receiver", "sender":
        for scales in "rows", "swizzled":
            case = run_one(*K_PROJ, "--mxfp8", where, "--scales", scales)
            what = f"MXFP8 on the {where}, {scales}"
            check_case(case, what)
            equal((case["mxfp8"], case["scales"]), (where, scales), what)
            equal((case["bytes_read"], case["bytes_written"]), (2 * ELEMENTS, ELEMENTS + ELEMENTS // 32),
                  f"{what}: bytes")
            check(case["chunks"]["transform"] > 0 and case["chunks"]["direct"] == 0, f"{what}: {case['chunks']}")
    # A norm has one dim, so it is left as it is.
    case = run_one(*ONE_LAYER, "--only", "layernorm", "--from", "tp=2", "--to", "tp=2", "--mxfp8", "receiver")
    equal((case["chunks"]["transform"], case["tensors"]), (0, 2), "norms are not quantised")


def commits():
    for mode in "flip", "gate":
        case = run_one(*K_PROJ, "--commit", mode)
        check_case(case, mode)
        # cold, warm, 2 rounds; the run that is checked comes after the last round
        equal((case["commit"], case["version"]), (mode, 4), f"{mode}: the version of the last round")
        check(case["commit_bytes"] >= 2 * ELEMENTS, f"{mode}: its memory is {case['commit_bytes']}")
    case = run_one(*K_PROJ, "--commit", "flip", "--mxfp8", "receiver")
    equal(case["version"], 4, "a flip of quantised targets")


def ways():
    case = run_one(*K_PROJ, "--check")
    check_case(case, "--check")
    check(case["buckets_checked"] > 0, "hashes travel")
    free = run_one(*K_PROJ, "--mxfp8", "sender")
    budget = 256 << 10
    case = run_one(*K_PROJ, "--mxfp8", "sender", "--budget", "256K")
    check_case(case, "--budget")
    equal((free["budget_bytes"], case["budget_bytes"]), (0, budget), "the budget")
    check(case["passes"] > free["passes"], f"a budget costs passes: {free['passes']}, then {case['passes']}")
    check(case["staging_bytes"] <= case["ranks"] * budget < free["staging_bytes"], "a budget is kept")
    case = run_one(*K_PROJ, "--disjoint", "--share", "none")
    check_case(case, "--disjoint")
    equal((case["ranks"], case["disjoint"]), (6, True), "other ranks")
    # Uneven: 8 K/V heads over 3 ranks.
    case = run_one(*ONE_LAYER, "--only", "k_proj", "--from", "tp=2,dp=2", "--to", "tp=3", "--disjoint")
    equal(case["ranks"], 7, "TP2 x DP2 to TP3")


def experts():
    """Layers and experts that are left are spread, so that every rank keeps its share."""
    args = ["--model", "qwen3-30b-a3b", "--only", "experts", "--rounds", "1", "--from", "pp=2,tp=2,ep=2",
            "--to", "tp=2,ep=2,dp=2", "--scale"]
    case = run_one(*args, "layers=2,experts=2")
    check_case(case, "experts")
    equal((case["layers"], case["experts"], case["tensors"]), (2, 2, 2 * 2 * 3), "what is left")
    equal((case["all_layers"], case["all_experts"]), (48, 128), "what there is")
    expert = 3 * 2048 * 768
    equal(case["bytes_written"], 2 * 2 * 2 * expert * 2, "two copies of each expert, of full size")
    # The least part is one layer, and of it one expert.
    case = run_one(*args, "0.000001")
    equal((case["layers"], case["experts"], case["tensors"]), (1, 1, 3), "fewer layers, then fewer experts")


def small():
    case = run_one("tiny-700", "--rounds", "2")
    equal((case["model"], case["ranks"], case["tensors"], case["bytes"]), (None, 2, 700, 700 * 64), "tiny-700")
    check(abs(case["latency_us"] - case["seconds"]["median"] * 1e6) < 0.01 * case["latency_us"], "its latency")
    equal((case["limit_gbps"], case["ratio_to_limit"]), (None, None), "no limit")
    equal([(target["what"], target["wanted"]) for target in case["targets"]], [("us a run", 1000)], "its target")
    run = Run([*BENCH, "tiny-700", "--rounds", "1", "--check-targets", "--quiet", "--check"])
    equal(run.code, 0, "other options, no targets", run)


def texts():
    run = Run([*BENCH, *K_PROJ])
    equal(run.code, 0, "exit code", run)
    lines = [line for line in run.out.splitlines() if not line.startswith("Other programs")]
    equal([line.split()[0] for line in lines], ["case", "llama3.2-1b", "llama3.2-1b,"], "the table", run)
    check("1 of 16 layers, tp=4 -> tp=2, bf16; 1 tensors, 2.10 MB read, 2.10 MB written" in lines[2], "the case", run)
    check("move " in lines[1], "phases", run)
    equal([line.split()[1] for line in run.err.splitlines()], ["llama3.2-1b:"], "a line a case", run)
    check("\r" not in run.err and "\033" not in run.err, "no bar in a file", run)
    text = ferry("help", *BENCH)
    for name in CASES:
        check(name in text, f"the help names {name}")
    for option in ("--model --from --to --disjoint --scale --only --dtype --to-dtype --mxfp8 --scales --budget --check "
                   "--commit --rounds --share --check-targets --json --quiet").split():
        check(f"\n  {option} " in text, f"the help explains {option}")
    check("read plus written" in " ".join(text.split()), "the help says what the ratio is")
    check(max(map(len, text.splitlines())) < 110, "the help is narrow")


def bars():
    text = progress(*BENCH, *K_PROJ)
    if text is not None:
        check(b"1/1 llama3.2-1b " in text and b"####" in text and b"find the limit" in text, f"a bar: {text}")
        check(text.endswith(b"\r\033[K"), f"the bar is removed: {text}")


def bad(code, *args, says):
    return fails(code, *BENCH, *args, says=says, command="bench reshard")


def bad_input():
    model = ["--model", "llama3.2-1b"]
    sides = [*model, "--from", "tp=2", "--to", "tp=4"]
    bad(USAGE, "llama3-8b-tq", says="did you mean llama3-8b-tp?")
    bad(USAGE, "nonsense", says=["nonsense", "ferry help bench reshard"])
    bad(USAGE, "--model", "llama9", "--from", "tp=2", "--to", "tp=1", says=["--model", "llama9"])
    bad(USAGE, *model, "--from", "tp=2", says="--to is missing")
    bad(USAGE, *model, "--to", "tp=2", says="--from is missing")
    for option in ["--from", "tp=2"], ["--only", "x"], ["--dtype", "f32"], ["--mxfp8", "sender"], ["--disjoint"]:
        bad(USAGE, *option, says=[option[0], "goes with --model"])
    bad(USAGE, *sides, "tiny-700", says=["tiny-700", "--model"])
    bad(USAGE, *model, "--from", "tp=32", "--to", "tp=2", says=["32 ranks", "at most 16"])
    bad(USAGE, *model, "--from", "tp=8,dp=2", "--to", "tp=2", "--disjoint", says=["18 ranks", "at most 16"])
    bad(USAGE, *model, "--from", "tp=2,ep=3", "--to", "tp=2", says=["--from", "ep"])
    bad(USAGE, *model, "--from", "tp=2", "--to", "xp=2", says=["--to", "xp"])
    for scale in "layers=0", "layers=", "layers=1,", "layers=1,layers=2", "0", "1.5", "-1", "0.5x", "heads=2", "":
        bad(USAGE, *sides, "--scale", scale, says=["--scale", "layers=N"])
    bad(USAGE, *sides, "--scale", "layers=17", says=["--scale", "16 layers"])
    bad(USAGE, *sides, "--scale", "experts=2", says=["--scale", "no experts"])
    bad(USAGE, *sides, "--only", "nowhere", says=["--only", "nowhere"])
    bad(USAGE, *sides, "--dtype", "i32", says=["i32", "bf16"])
    bad(USAGE, *sides, "--to-dtype", "bf61", says=["--to-dtype", "bf61"])
    bad(USAGE, *sides, "--mxfp8", "both", says=["--mxfp8", "receiver or sender"])
    bad(USAGE, *sides, "--mxfp8", "sender", "--scales", "columns", says=["--scales", "rows or swizzled"])
    bad(USAGE, *sides, "--scales", "rows", says=["--scales", "--mxfp8"])
    bad(USAGE, *sides, "--mxfp8", "sender", "--dtype", "f64", says=["--mxfp8", "f64"])
    bad(USAGE, *sides, "--commit", "now", says=["--commit", "flip or gate"])
    bad(USAGE, *sides, "--budget", "some", says=["--budget", "some"])
    bad(USAGE, *sides, "--budget", "0", says=["--budget", "one byte"])
    bad(USAGE, *sides, "--rounds", "0", says=["--rounds"])
    bad(USAGE, *sides, "--share", "all", says=["--share", "none, threads or processes"])
    bad(USAGE, *sides, "--peers", says=["--peers"])
    # What memory does not hold, a slice that is no whole block, a budget without room for a row.
    bad(FAILED, "--model", "kimi-k2", "--from", "tp=8", "--to", "tp=4", "--scale", "1", "--quiet",
        says=["kimi-k2", "memory", "--scale"])
    bad(USAGE, *ONE_LAYER, "--only", "down_proj", "--from", "tp=2", "--to", "tp=3", "--mxfp8", "receiver", "--quiet",
        says=["down_proj", "32"])
    bad(FAILED, *K_PROJ, "--mxfp8", "sender", "--budget", "16", "--quiet", says=["k_proj", "budget", "16 bytes"])
    bad(FAILED, *K_PROJ, "--commit", "gate", "--budget", "300K", "--quiet", says=["budget", "gate"])


def main():
    plain()
    casts()
    quantised()
    commits()
    ways()
    experts()
    small()
    texts()
    bars()
    bad_input()
    finish()


main()
