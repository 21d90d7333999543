#!/usr/bin/env python3
"""ferry verify: equal folders are equal however they are cut; one flipped bit is found and named."""

import json
import os
import random
import re
import shutil

from support.checkpoints import TINY, flip, header, same, synth, tensors, write_file
from support.harness import Run, check, equal, fails, finish, plan_json, progress, scratch

FAILED, USAGE = 1, 2
SEED = int(os.environ.get("FERRY_SEED", "1"))
folder = scratch()


def differ(a, b, *says, json_too=True):
    """Exit code 1 and one line on standard output; returns it."""
    run = Run(["verify", a, b])
    equal((run.code, run.err, run.out.count("\n")), (FAILED, "", 1), "different folders", run)
    check(run.out.startswith("different: "), "the line says so", run)
    for word in says:
        check(word in run.out, f"the line says {word!r}", run)
    if json_too:
        run = Run(["verify", a, b, "--json"])
        equal((run.code, run.err), (FAILED, ""), "different folders, as JSON", run)
        said = json.loads(run.out)
        equal(said["equal"], False, "equal")
        check(said["difference"] in Run(["verify", a, b]).out, "the same text", run)
    return run.out


def equal_folders():
    for model in TINY:
        synth(folder / model, model)
        plan_json("reshard", folder / model, folder / f"{model}-cut", "--to", "tp=2,pp=2")
        digest = same(folder / model, folder / f"{model}-cut")
        equal(same(folder / f"{model}-cut", folder / model), digest, "either way")
        equal(same(folder / model, folder / model), digest, "a folder and itself")
        said = plan_json("verify", folder / model, folder / f"{model}-cut", "--ranks", "3")
        held = sum(entry["data_offsets"][1] - entry["data_offsets"][0]
                   for part in (folder / model, folder / f"{model}-cut") for path in part.glob("*.safetensors")
                   for name, entry in header(path)[0].items() if name != "__metadata__")
        equal((said["equal"], said["digest"], said["bytes"]), (True, digest, held), "each byte is read once")
        equal(said["tensors"], len(tensors(folder / model)), "tensors")
    check(same(folder / "llama3-8b", folder / "llama3-8b") != same(folder / "mixtral-8x7b", folder / "mixtral-8x7b"),
          "different folders, different digests")


def flipped_whole():
    """Bits of whole tensors, at random places and at both ends."""
    rng = random.Random(SEED)
    source, bad = folder / "llama3-8b", folder / "bad"
    found = tensors(source)
    for _ in range(12):
        shutil.rmtree(bad, ignore_errors=True)
        shutil.copytree(source, bad)
        name = rng.choice(sorted(found))
        count = len(found[name][2]) // 2
        element = rng.choice([0, count - 1, rng.randrange(count)])
        flip(bad / "model.safetensors", name, element, 2, rng.randrange(8))
        line = differ(source, bad, f"tensor {name}:", str(bad))
        check(re.search(rf"element {element}\b", line), f"seed {SEED}: {name} element {element}: {line}")
        differ(folder / "llama3-8b-cut", bad, f"tensor {name}:", f"element {element}", json_too=False)


def flipped_shard():
    """A bit of one rank's shard: the element is counted in the whole tensor."""
    name = "model.layers.0.self_attn.q_proj.weight"
    rank = "rank-00001-of-00004.safetensors"
    source, bad = folder / "llama3-8b", folder / "bad-cut"
    shutil.copytree(folder / "llama3-8b-cut", bad)
    rows, columns = tensors(source)[name][1]
    flip(bad / rank, name, 3 * columns + 5, 2)
    differ(source, bad, f"tensor {name}:", f"element {(rows // 2 + 3) * columns + 5}")
    # A copy that is not like the others is damage, whatever it is compared with.
    flip(bad / rank, name, 3 * columns + 5, 2)
    same(source, bad)
    flip(bad / rank, "model.layers.0.input_layernorm.weight", 1, 2)
    fails(FAILED, "verify", source, bad, command="verify", says=["input_layernorm", "different copies"])


def first_of_several():
    source, bad = folder / "llama3-8b", folder / "several"
    shutil.copytree(source, bad)
    for name, element in ("model.norm.weight", 0), ("lm_head.weight", 9), ("lm_head.weight", 7):
        flip(bad / "model.safetensors", name, element, 2)
    differ(source, bad, "tensor lm_head.weight:", "element 7")


def other_tensors():
    """Missing tensors, other dtypes, other shapes."""
    source, bad = folder / "llama3-8b", folder / "other"
    entries, begin = header(source / "model.safetensors")
    data = (source / "model.safetensors").read_bytes()[begin:]
    bad.mkdir()

    def changed(change):
        copy = json.loads(json.dumps(entries))
        change(copy)
        write_file(bad / "model.safetensors", copy, data)

    changed(lambda copy: copy.update(renamed=copy.pop("model.norm.weight")))
    differ(source, bad, "model.norm.weight", f"only {source}")
    differ(bad, source, "model.norm.weight", f"only {source}")
    changed(lambda copy: copy["lm_head.weight"].update(dtype="F16"))
    differ(source, bad, "lm_head.weight", "bf16", "f16")
    changed(lambda copy: copy["lm_head.weight"]["shape"].reverse())
    differ(source, bad, "lm_head.weight", "shape")
    changed(lambda copy: None)
    same(source, bad)


def bad_options():
    one = folder / "llama3-8b"
    fails(USAGE, "verify", one, command="verify", says="A B")
    fails(USAGE, "verify", one, one, one, command="verify")
    for number in "0", "x":
        fails(USAGE, "verify", one, one, "--ranks", number, command="verify", says="--ranks")
    fails(FAILED, "verify", one, folder / "absent", command="verify", says="absent")
    fails(USAGE, "verify", one, one / "config.json", command="verify", says="no folder")
    progress("verify", str(one), str(one))


equal_folders()
flipped_whole()
flipped_shard()
first_of_several()
other_tensors()
bad_options()
finish()
