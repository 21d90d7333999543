#!/usr/bin/env python3
"""ferry inspect: what a folder or a file holds and where, in columns and as JSON.

(Not called inspect.py: that would stand before Python's own module for every test of this folder.)
"""

from support.checkpoints import TINY, header, synth, tensors, write_file
from support.harness import check, equal, fails, ferry, finish, plan_json, scratch

USAGE, FAILED = 2, 1
folder = scratch()
BITS = {"BF16": "bf16", "F32": "f32"}


def whole_tensors():
    for model in TINY:
        path = folder / model
        synth(path, model, None, "--max-file", "1M")
        said = plan_json("inspect", path)
        found = tensors(path)
        equal((said["kind"], said["layout"], said["form"], said["ranks"]), ("hf", "hf", "hf", 1), "what it is")
        equal([entry["name"] for entry in said["tensors"]], sorted(found), "names, in order")
        for entry in said["tensors"]:
            dtype, shape, data = found[entry["name"]]
            equal((entry["dtype"], entry["shape"], entry["bytes"]), (BITS[dtype], shape, len(data)), entry["name"])
            check(entry["name"] in header(path / entry["file"])[0], f"{entry['name']} is in {entry['file']}")
        equal(said["bytes"], sum(len(data) for _, _, data in found.values()), "bytes")
        equal(sorted(file["name"] for file in said["files"]), sorted(file.name for file in path.glob("*.safetensors")),
              "files")
        equal(sum(file["tensors"] for file in said["files"]), len(found), "tensors of the files")


def rank_files():
    path = folder / "cut"
    plan_json("reshard", folder / "mixtral-8x7b", path, "--to", "tp=2,dp=2,ep=4")
    said = plan_json("inspect", path)
    equal((said["kind"], said["layout"], said["form"], said["rules"], said["ranks"], len(said["files"])),
          ("ranks", "tp=2,dp=2,ep=4", "hf", "mixtral", 4, 4), "what it is")
    found = tensors(folder / "mixtral-8x7b")
    equal({entry["name"]: entry["shape"] for entry in said["tensors"]},
          {name: shape for name, (_, shape, _) in found.items()}, "whole names and shapes")
    lines = {line.split()[0]: line for line in ferry("inspect", path).splitlines() if line}
    for name, where in (("model.layers.0.self_attn.k_proj.weight", "ranks 0-3, dim 0 in 2, 2 copies"),
                        ("model.layers.0.input_layernorm.weight", "ranks 0-3, whole"),
                        ("model.layers.0.block_sparse_moe.experts.5.w1.weight", "rank 2, whole")):
        check(lines.get(name, "").endswith(where), f"{name} is on {where}: {lines.get(name)}")
    check("tp=2,dp=2,ep=4" in ferry("inspect", path).splitlines()[0], "the first line has the layout")
    plan_json("reshard", folder / "mixtral-8x7b", folder / "fused", "--to", "tp=2", "--to-form", "vllm")
    said = plan_json("inspect", folder / "fused")
    equal(said["form"], "vllm", "the form")
    equal({entry["name"] for entry in said["tensors"]}, set(found), "names of the whole tensors, whatever the form")


def one_file():
    path = folder / "cut/rank-00001-of-00004.safetensors"
    said = plan_json("inspect", path)
    entries, begin = header(path)
    metadata = entries.pop("__metadata__")
    equal((said["kind"], said["metadata"]), ("file", metadata), "a file and its metadata")
    equal({entry["name"]: entry["offset"] - begin for entry in said["tensors"]},
          {name: entry["data_offsets"][0] for name, entry in entries.items()}, "offsets")
    text = ferry("inspect", path)
    check("ferry.rank: 1\n" in text and "ferry.ranks: 4\n" in text, f"notes: {text[:400]}")
    check(all(len(line) < 200 for line in text.splitlines()), "long notes are cut short")


def odd_files():
    path = folder / "odd.safetensors"
    write_file(path, {"a\x1b[31m\nb": {"dtype": "STRANGE", "shape": [2, 3], "data_offsets": [0, 5]},
                      "scalar": {"dtype": "F64", "shape": [], "data_offsets": [5, 13]}}, bytes(13))
    said = {entry["name"]: entry for entry in plan_json("inspect", path)["tensors"]}
    equal(said["a\x1b[31m\nb"]["dtype"], "STRANGE", "a dtype that ferry does not know")
    text = ferry("inspect", path)
    check("\x1b" not in text and "a?[31m?b" in text, f"names give the terminal no orders: {text!r}")
    check("scalar" in text, "a scalar")
    write_file(path, {}, b"")
    equal(plan_json("inspect", path)["tensors"], [], "no tensors")
    path.write_bytes(b"\x05")
    fails(FAILED, "inspect", path, command="inspect", says="odd.safetensors")
    path.write_bytes(b"\xff" * 100)
    fails(FAILED, "inspect", path, command="inspect", says="odd.safetensors")
    write_file(path, b'{"a": nonsense}', b"")
    fails(FAILED, "inspect", path, command="inspect", says="odd.safetensors")
    fails(FAILED, "inspect", folder / "absent", command="inspect", says="absent")
    (folder / "nothing").mkdir()
    fails(USAGE, "inspect", folder / "nothing", command="inspect", says="no checkpoint")
    fails(USAGE, "inspect", command="inspect", says="PATH")


whole_tensors()
rank_files()
one_file()
odd_files()
finish()
