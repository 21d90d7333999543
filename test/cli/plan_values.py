#!/usr/bin/env python3
"""The figures of `ferry plan --json` for cases small enough to work out by hand."""

import re
import time

from support.harness import check, equal, ferry, finish, plan_json

# What --json has in every case, and of which type.
FIELDS = {
    "tensors": int, "transfers": int, "bytes_total": int, "bytes_local": int, "bytes_wire": int,
    "bytes_host": int, "bytes_reduce": int, "max_send_bytes": int, "max_send_rank": int,
    "mean_send_bytes": (int, float), "max_recv_bytes": int, "max_recv_rank": int, "rounds": int,
    "rounds_lower_bound": int, "batches": int, "slot_bytes": int, "plan_seconds": float,
    "peak_rss_bytes": int, "hash": str, "checked": bool, "phases": dict, "source_ranks": int,
    "target_ranks": int,
}


def expect(args, **values):
    """Plans, and compares the named fields."""
    begin = time.monotonic()
    plan = plan_json("plan", *args)
    seconds = time.monotonic() - begin
    for field, kind in FIELDS.items():
        check(isinstance(plan.get(field), kind), f"{args}: {field} is {plan.get(field)!r}")
    for field, value in values.items():
        check(field in plan, f"{args}: no field {field}")
        equal(plan.get(field), value, f"{args}: {field}")
    check(re.fullmatch("[0-9a-f]{16}", plan.get("hash", "")), f"{args}: hash {plan.get('hash')!r}")
    check(0 < plan.get("plan_seconds", 0) <= seconds, f"{args}: plan_seconds {plan.get('plan_seconds')}")
    check(sum(plan.get("phases", {}).values()) <= plan.get("plan_seconds", 0) + 1e-5, f"{args}: phases")
    check(plan.get("peak_rss_bytes", 0) >= 1 << 20, f"{args}: peak_rss_bytes")
    equal(plan.get("rounds"), plan.get("rounds_lower_bound"), f"{args}: rounds")
    equal(plan.get("bytes_total"), plan.get("bytes_local", 0) + plan.get("bytes_wire", 0), f"{args}: total")
    return plan


def one_tensor():
    # Rows in halves on {0,2} and {1,3}; every target wants 32 columns: 2 transfers of 32 x 32 x 4.
    # Each half (16384 bytes) must leave its two holders: 8192 a port, as much as each target lacks.
    expect(["--shape", "64x128", "--dtype", "f32", "--from", "2x2:R,S0", "--to", "4:S1@4-7"],
           tensors=1, transfers=8, bytes_total=32768, bytes_local=0, bytes_wire=32768, bytes_host=0,
           bytes_reduce=0, max_send_bytes=8192, mean_send_bytes=8192, balance=1, max_recv_bytes=8192,
           lower_bound_bytes=8192, rounds=2, batches=8, source_ranks=4, target_ranks=4, model=None,
           name="tensor", shape=[64, 128], dtype="f32", to_dtype="f32", hosts=None, rank=None,
           checked=True, slot_bytes=256 << 20, **{"from": "2x2:R,S0", "to": "4:S1@4-7"})
    # Rank 0 has half of what it wants; rank 1 has nothing of it. 8 elements of 4 bytes.
    expect(["--shape", "8", "--from", "4:S0", "--to", "2:S0"],
           transfers=4, bytes_total=32, bytes_local=8, bytes_wire=24, max_send_bytes=8,
           mean_send_bytes=6, max_recv_bytes=16, max_recv_rank=1, lower_bound_bytes=16, rounds=2,
           bound_port={"rank": 1, "direction": "recv", "holders": 1})
    # Nothing moves.
    expect(["--shape", "8,2", "--from", "4:S0", "--to", "4:S0"],
           transfers=4, bytes_total=64, bytes_local=64, bytes_wire=0, max_send_bytes=0,
           mean_send_bytes=0, balance=None, lower_bound_bytes=0, bound_port=None, rounds=0, batches=0)
    # A scalar to two ranks: unicast sends it twice, the bound wants it out once.
    for shape in "scalar", "":
        expect(["--shape", shape, "--from", "1:R", "--to", "2:R@1-2"],
               transfers=2, bytes_wire=8, max_send_bytes=8, mean_send_bytes=8, max_recv_bytes=4,
               lower_bound_bytes=4, rounds=2, shape=[])
    # A dim of length 0: two sides without an element.
    expect(["--shape", "0x4", "--from", "2:S0", "--to", "2:S1@2-3"],
           transfers=0, bytes_total=0, max_send_bytes=0, max_recv_bytes=0, lower_bound_bytes=0,
           rounds=0, balance=None, shape=[0, 4])
    # One bit sizes differ: bool is a byte, f64 eight.
    expect(["--shape", "10", "--dtype", "bool", "--from", "1:R", "--to", "1:R@1"], bytes_wire=10)
    expect(["--shape=10", "--dtype=f64", "--from=1:R", "--to=1:R@1"], bytes_wire=80)


def conversions_and_sums():
    # The narrower dtype travels, in both directions.
    for pair in ("f32", "bf16"), ("bf16", "f32"):
        expect(["--shape", "8", "--dtype", pair[0], "--to-dtype", pair[1], "--allow-cast",
                "--from", "1:R", "--to", "1:R@1"], bytes_wire=16, dtype=pair[0], to_dtype=pair[1])
    # Two summands of 4 x 4 bytes: the sum goes out once, the other summand goes to who makes the sum.
    expect(["--shape", "4", "--from", "2:P(sum)", "--to", "1:R@2"],
           bytes_total=16, bytes_wire=16, bytes_reduce=16, max_recv_bytes=16)


def hosts():
    # Ranks 0,1 | 2,3: each target has a replica beside it.
    expect(["--shape", "8", "--from", "2:R@0,2", "--to", "2:R@1,3", "--hosts", "2"],
           bytes_wire=64, bytes_host=64, max_send_bytes=32, hosts=2)
    # The same ranks in blocks of one: no two share a host.
    expect(["--shape", "8", "--from", "2:R@0,2", "--to", "2:R@1,3", "--hosts", "4"],
           bytes_wire=64, bytes_host=0, hosts=4)
    # Five ranks on two hosts: blocks of ceil(5/2) = 3, so 0 and 2 share one, 0 and 4 do not.
    expect(["--shape", "8", "--from", "1:R", "--to", "2:R@2,4", "--hosts", "2"],
           bytes_wire=64, bytes_host=32, hosts=2)


def parts():
    case = ["--shape", "8", "--from", "4:S0", "--to", "2:S0"]
    whole = expect(case)
    # Rank 1 gives its two elements to rank 0 and gets two each from ranks 2 and 3.
    part = expect([*case, "--rank", "1"], rank=1, is_source=True, is_target=True, transfers=3,
                  send_transfers=1, recv_transfers=2, local_transfers=0, send_bytes=8, recv_bytes=16,
                  local_bytes=0, lower_bound_bytes=None, bound_port=None, balance=None, rounds=2)
    equal(part.get("hash"), whole.get("hash"), "the hash of a part and of the whole")
    expect([*case, "--rank", "0"], local_transfers=1, recv_transfers=1, send_transfers=0, local_bytes=8)
    expect([*case, "--rank", "3"], is_target=False, send_transfers=1, recv_transfers=0, rounds=1)


def slots():
    case = ["--shape", "1024", "--dtype", "u8", "--from", "1:R", "--to", "1:R@1"]
    for slot, size, rounds in [("100", 100, 11), ("1K", 1024, 1), ("1KiB", 1024, 1), ("512B", 512, 2),
                               ("1KB", 1000, 2), ("2M", 2 << 20, 1), ("1G", 1 << 30, 1), ("1T", 1 << 40, 1)]:
        expect([*case, "--slot", slot], slot_bytes=size, rounds=rounds, batches=rounds)


def transfer_lists():
    plan = expect(["--shape", "8", "--from", "4:S0", "--to", "2:S0", "--transfers"])
    moves = [(t["target"], t["source"], t["piece"], t["source_lo"], t["target_lo"], t["extent"], t["bytes"])
             for t in plan.get("transfer_list", [])]
    equal(sorted(moves), [(0, 0, 0, [0], [0], [2], 8), (0, 1, 1, [0], [2], [2], 8),
                          (1, 2, 0, [0], [0], [2], 8), (1, 3, 1, [0], [2], [2], 8)], "transfer_list")
    ids = [t["task_id"] for t in plan.get("transfer_list", [])]
    check(ids == sorted(set(ids)), f"task ids ascend: {ids}")


def models():
    # 8,030,261,248 parameters of two bytes; one rank to another.
    size = 2 * 8030261248
    case = ["--model", "llama3-8b", "--from", "tp=1", "--to", "tp=1"]
    expect([*case, "--disjoint"], tensors=291, transfers=291, bytes_total=size, bytes_wire=size,
           max_send_bytes=size, max_recv_bytes=size, lower_bound_bytes=size, model="llama3-8b")
    expect([*case, "--dtype", "f32", "--disjoint"], bytes_wire=2 * size)
    expect([*case, "--to-dtype", "f8e4m3", "--allow-cast", "--disjoint"], bytes_wire=size // 2)
    expect(case, bytes_local=size, bytes_wire=0)
    expect([*case, "--collocated"], bytes_local=size, bytes_wire=0)
    # The same cut on both sides, side by side: every target rank has its twin, and gets all it needs.
    plan = expect(["--model", "llama3-8b", "--from", "tp=2,dp=2", "--to", "tp=2,dp=2", "--disjoint"],
                  source_ranks=4, target_ranks=4)
    check(plan["max_send_bytes"] <= 1.05 * plan["mean_send_bytes"], f"balance {plan['balance']}")
    # At least the models of the issue.
    names = {model["name"] for model in plan_json("plan", "--list-models")["models"]}
    wanted = {"llama3-8b", "llama3-70b", "llama3-405b", "qwen3-32b", "qwen3-235b-a22b", "mixtral-8x7b",
              "deepseek-v3", "kimi-k2"}
    check(wanted <= names, f"missing models: {wanted - names}")
    equal(ferry("plan", "--model", "list"), ferry("plan", "--list-models"), "--model list")


def screens():
    """For people: a screen at most, and figures that agree with the JSON."""
    cases = [
        ["--shape", "64x128", "--from", "2x2:R,S0", "--to", "4:S1@4-7"],
        ["--shape", "0", "--from", "2:S0", "--to", "2:S0"],
        ["--shape", "scalar", "--from", "1:R", "--to", "2:R@1-2", "--rank", "1"],
        ["--shape", "4096", "--from", "2x32:P(sum),S0", "--to", "100:S0@100-199", "--hosts", "4"],
        ["--model", "llama3-70b", "--from", "tp=8,dp=8", "--to", "tp=4,dp=16", "--disjoint", "--hosts", "16"],
        ["--model", "deepseek-v3", "--from", "tp=2,pp=4,ep=8,dp=8", "--to", "tp=8,ep=8", "--rank", "9"],
    ]
    for case in cases:
        for locale in "C", "C.UTF-8":
            text = ferry("plan", *case, env={"LC_ALL": locale})
            lines = text.splitlines()
            check(len(lines) <= 25, f"{case}: {len(lines)} lines:\n{text}")
            wide = [line for line in lines if len(line) > 80]
            check(not wide, f"{case}: lines wider than 80 columns: {wide}")
            check("\033" not in text, f"{case}: colours without a terminal")
            check(locale != "C" or text.isascii(), f"{case}: more than ASCII in the C locale")
            check("nan" not in text and "inf" not in text.replace("inference", ""), f"{case}: {text}")
            check(f"hash      {plan_json('plan', *case)['hash']}" in text, f"{case}: the hash in\n{text}")


one_tensor()
conversions_and_sums()
hosts()
parts()
slots()
transfer_lists()
models()
screens()
finish()
