#!/usr/bin/env python3
"""ferry synth: families at scale, reproducible values, files by size, and nothing half written."""

import json
import resource
import signal
import struct

from support.checkpoints import TINY, header, state, synth, tensors
from support.harness import Run, check, equal, fails, ferry, finish, plan_json, progress, scratch

USAGE, FAILED = 2, 1
folder = scratch()

NEEDED = {
    "llama3-8b": ("llama", ["head_dim"]),
    "qwen3-30b-a3b": ("qwen3_moe", ["head_dim", "num_experts", "moe_intermediate_size"]),
    "mixtral-8x7b": ("mixtral", ["head_dim", "num_local_experts"]),
    "deepseek-v3": ("deepseek_v3", ["n_routed_experts", "moe_intermediate_size", "q_lora_rank", "kv_lora_rank",
                                    "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "first_k_dense_replace"]),
}
COMMON = """num_hidden_layers num_attention_heads num_key_value_heads hidden_size intermediate_size vocab_size
    tie_word_embeddings""".split()


def families():
    for model, (model_type, keys) in NEEDED.items():
        path = folder / model
        said = synth(path, model)
        config = json.loads((path / "config.json").read_text())
        equal(config["model_type"], model_type, f"model_type of {model}")
        for key in [*COMMON, *keys]:
            check(key in config, f"config.json of {model} has {key}")
        found = tensors(path)
        equal(said["tensors"], len(found), f"tensors of {model}")
        equal(said["bytes"], sum(len(data) for _, _, data in found.values()), f"bytes of {model}")
        equal(config["num_hidden_layers"], 4, f"layers of {model}")
        equal(found["model.embed_tokens.weight"][1], [config["vocab_size"], config["hidden_size"]], f"shape in {model}")
        equal(config["num_attention_heads"] % config["num_key_value_heads"], 0, f"heads of {model}")
        layers = {name.split(".")[2] for name in found if name.startswith("model.layers.")}
        equal(layers, {"0", "1", "2", "3"}, f"layers in the files of {model}")


def tied():
    said = synth(folder / "tied", "llama3.2-1b", "1/2000")
    check("lm_head.weight" not in tensors(folder / "tied"), "a tied model has no lm_head")
    check(json.loads((folder / "tied/config.json").read_text())["tie_word_embeddings"], "and says so")
    check(said["params"] > 0, "parameters")


def scales():
    """Layers go first, then experts, then widths; never more than the part that was asked for."""
    whole = {model["name"]: model for model in plan_json("plan", "--list-models")["models"]}
    for model in TINY:
        last = None
        for below in 30_000, 1_000_000, 3_000_000:
            path = folder / f"scale-{model}-{below}"
            said = synth(path, model, f"1/{below}")
            if last is None:
                check(0 < said["params"] <= whole[model]["params"] / below, f"{model} 1/{below}: {said['params']}")
            else:  # the smallest that there is may be larger
                check(said["params"] <= last, f"{model} 1/{below} is no larger than the scale before")
            last = said["params"]
            equal(said["layers"], 4, f"layers of {model} 1/{below}")
            equal(said["experts"], min(8, whole[model]["experts"]), f"experts of {model} 1/{below}")


def values():
    """The same everywhere: seed, name and element decide; files and dtypes do not."""
    first = tensors(folder / "llama3-8b")
    synth(folder / "again")
    equal(tensors(folder / "again"), first, "the same seed again")
    many = synth(folder / "many", "llama3-8b", None, "--max-file", "64K")
    check(many["files"] > 3, f"files of at most 64K: {many['files']}")
    equal(tensors(folder / "many"), first, "the same values in several files")
    synth(folder / "other", "llama3-8b", None, "--seed", "2")
    other = tensors(folder / "other")
    check(all(other[name][2] != first[name][2] for name in first), "another seed, other values")
    synth(folder / "f32", "llama3-8b", None, "--dtype", "f32")
    wide = tensors(folder / "f32")
    for name, (dtype, shape, data) in wide.items():
        equal((dtype, shape), ("F32", first[name][1]), f"dtype and shape of {name}")
        numbers = struct.unpack(f"<{len(data) // 4}f", data)
        middle = 1 if "norm" in name else 0
        check(all(abs(number - middle) < 0.08 for number in numbers), f"values of {name} look like weights")
    name = "model.layers.0.self_attn.q_proj.weight"
    numbers = struct.unpack(f"<{len(wide[name][2]) // 4}f", wide[name][2])
    mean = sum(numbers) / len(numbers)
    width = (sum(number * number for number in numbers) / len(numbers)) ** 0.5
    check(abs(mean) < 0.002 and 0.018 < width < 0.022, f"mean {mean}, width {width}")
    check(len(set(numbers)) > len(numbers) // 4, "values differ")
    for name in "model.norm.weight", "model.layers.0.mlp.up_proj.weight":
        data = wide[name][2]
        equal(list(struct.unpack(f"<{len(data) // 4}f", data))[:30], [value(1, name, i) for i in range(30)], name)


def f32(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


def value(seed, name, element):
    """The generator again, from its description: a counter is mixed, four draws of 16 bits are added."""
    ones, golden = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(x):
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & ones
        x = (x ^ x >> 27) * 0x94D049BB133111EB & ones
        return x ^ x >> 31

    key = mix(seed + golden & ones)
    for letter in name.encode():
        key = mix(key ^ letter) + golden & ones
    draw = mix(key + element * golden & ones)
    total = sum(draw >> shift & 0xFFFF for shift in (0, 16, 32, 48))
    step = f32(f32(f32(0.02) * f32(1.7320508)) / 65536)
    return f32((1 if "norm.weight" in name else 0) + f32((total - 2 * 0xFFFF) * step))


def index():
    text = json.loads((folder / "many/model.safetensors.index.json").read_text())
    files = {path.name for path in (folder / "many").glob("*.safetensors")}
    equal(set(text["weight_map"].values()), files, "files of the index")
    equal(text["metadata"]["total_size"], sum(len(data) for _, _, data in tensors(folder / "many").values()),
          "total_size")
    for name, file in text["weight_map"].items():
        check(name in header(folder / "many" / file)[0], f"{name} is in {file}")


def targets():
    """Existing places, --force, and what is left of runs that fail: nothing."""
    place = folder / "targets"
    place.mkdir()
    tiny = ["--model", "llama3-8b", "--scale", TINY["llama3-8b"]]
    (place / "empty").mkdir()
    ferry("synth", place / "empty", *tiny)
    before = state(place)
    fails(USAGE, "synth", place / "empty", *tiny, command="synth", says=[str(place / "empty"), "--force"])
    equal(state(place), before, "what was there stays")
    ferry("synth", place / "empty", *tiny, "--seed", "7", "--force")
    check(state(place) != before, "--force replaces it")
    equal([path.name for path in place.iterdir()], ["empty"], "nothing beside it")
    (place / "file").write_text("mine")
    fails(USAGE, "synth", place / "file", *tiny, "--force", command="synth", says="no folder")
    equal((place / "file").read_text(), "mine", "a file is never replaced")
    fails(FAILED, "synth", place / "no/such", *tiny, command="synth", says="No such file")
    fails(FAILED, "synth", "/proc/ferry", *tiny, command="synth", says="/proc/ferry")
    fails(USAGE, "synth", "", *tiny, command="synth", says="folder")
    equal(sorted(path.name for path in place.iterdir()), ["empty", "file"], "nothing is left behind")

    def small_disk():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    fails(FAILED, "synth", place / "full", *tiny, command="synth", says=".safetensors", preexec_fn=small_disk)
    check(not list(place.glob("full*")), "a file that cannot be written leaves nothing behind")


def bad_options():
    one = ["synth", folder / "never", "--model", "llama3-8b"]
    fails(USAGE, "synth", folder / "never", command="synth", says="--model")
    fails(USAGE, "synth", folder / "never", "--model", "llama3-8", command="synth", says="did you mean llama3-8b?")
    fails(USAGE, "synth", folder / "never", "--model", "xyzzy", command="synth", says="xyzzy")
    fails(USAGE, "synth", "--model", "llama3-8b", command="synth", says="DST")
    for scale in "0", "2", "x", "1/0", "1/", "/2", "-1", "1/16x", "", "nan":
        fails(USAGE, *one, f"--scale={scale}", command="synth", says="--scale")
    for dtype in "i8", "bool", "f33":
        fails(USAGE, *one, "--dtype", dtype, command="synth", says=["--dtype", dtype])
    for seed in "x", "-1", "18446744073709551616":
        fails(USAGE, *one, f"--seed={seed}", command="synth", says="--seed")
    for size in "0", "x":
        fails(USAGE, *one, "--max-file", size, command="synth", says="--max-file")
    check(not (folder / "never").exists(), "nothing was made")


def dtypes():
    for dtype, name in ("f64", "F64"), ("f16", "F16"), ("f8e4m3", "F8_E4M3"), ("f8e5m2", "F8_E5M2"):
        synth(folder / dtype, "deepseek-v3", None, "--dtype", dtype)
        found = {tensor: kind for tensor, (kind, _, _) in tensors(folder / dtype).items()}
        bias = {tensor for tensor in found if tensor.endswith("e_score_correction_bias")}
        check(bias and {found[tensor] for tensor in bias} == {"F32"}, "the router's bias stays f32")
        equal({found[tensor] for tensor in set(found) - bias}, {name}, f"dtype {dtype}")


def words():
    run = Run(["synth", folder / "words", "--model", "mixtral-8x7b", "--scale", TINY["mixtral-8x7b"]])
    equal((run.code, run.err), (0, ""), "a run that is not on a terminal is quiet when it is short", run)
    for word in "mixtral-8x7b", "8 experts", "4 layers", "seed 1":
        check(word in run.out, f"the summary says {word}", run)
    progress("synth", str(folder / "bar"), "--model", "llama3-8b", "--scale", TINY["llama3-8b"])


families()
tied()
scales()
values()
index()
targets()
bad_options()
dtypes()
words()
finish()
