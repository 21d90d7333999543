#!/usr/bin/env python3
"""ferry reshard: round trips through layouts and forms, summaries, dry runs, and nothing half written."""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from support.checkpoints import TINY, header, same, state, synth, tensors, write_file
from support.harness import FERRY, Run, check, equal, fails, ferry, finish, plan_json, progress, scratch

USAGE, FAILED = 2, 1
folder = scratch()
SEED = int(os.environ.get("FERRY_SEED", "1"))
HASH = set("0123456789abcdef")


def reshard(source, target, to, *more):
    said = plan_json("reshard", source, target, "--to", to, *more)
    check(not list(target.parent.glob(f"{target.name}.ferry*")), f"nothing is left beside {target.name}")
    return said


def round_trips():
    """HF -> tp=4,pp=2 -> tp=3 -> (experts) -> HF, equal at every step, and byte for byte in the end."""
    for model in TINY:
        place = folder / model
        place.mkdir()
        synth(place / "hf", model)
        (place / "hf/tokenizer.json").write_text('{"mine": true}')
        steps = ["tp=4,pp=2", "tp=3"]
        steps += ["dp=2,tp=2"] if model == "llama3-8b" else ["tp=2,dp=2,ep=4", "pp=3,ep=2,dp=2"]
        source, digests = place / "hf", set()
        for number, spec in enumerate(steps):
            target = place / str(number)
            said = reshard(source, target, spec, "--verify")
            digests.add(said["digest"])
            ranks = said["target"]["files"]
            names = sorted(path.name for path in target.glob("*.safetensors"))
            equal(names, [f"rank-{i:05}-of-{ranks:05}.safetensors" for i in range(ranks)], f"files of {spec}")
            equal(same(place / "hf", target), said["digest"], f"the digest of {model} as {spec}")
            source = target
        said = reshard(source, place / "back", "hf", "--verify")
        digests.add(said["digest"])
        equal(len(digests), 1, f"{model} has one digest, however it is cut")
        equal(tensors(place / "back"), tensors(place / "hf"), f"{model} comes back, byte for byte")
        for name in "config.json", "tokenizer.json":
            equal((place / "back" / name).read_bytes(), (place / "hf" / name).read_bytes(), f"{name} goes along")


def forms():
    for model in TINY:
        source = folder / model / "hf"
        for form in "vllm", "megatron":
            target = folder / model / form
            said = reshard(source, target, "tp=2,pp=2", "--to-form", form)
            equal(said["target"]["form"], form, "the form")
            same(source, target)
            names = {name for path in target.glob("*.safetensors") for name in header(path)[0]}
            fused = {"vllm": ("qkv_proj", "fused_qkv_a_proj"), "megatron": ("linear_qkv", "linear_q_down_proj")}[form]
            check(any(word in name for name in names for word in fused), f"{form} has its own names: {sorted(names)}")
            reshard(target, folder / model / f"{form}-back", "hf")
            equal(tensors(folder / model / f"{form}-back"), tensors(source), f"{model} comes back from {form}")


def summaries():
    source = folder / "llama3-8b/hf"
    said = reshard(source, folder / "summary", "tp=2", "--verify", "--ranks", "3", "--mem", "256K")
    size = sum(len(data) for _, _, data in tensors(source).values())
    held = sum(entry["data_offsets"][1] - entry["data_offsets"][0]
               for path in (folder / "summary").glob("*.safetensors")
               for name, entry in header(path)[0].items() if name != "__metadata__")
    equal(said["bytes_written"], held, "bytes written are what the files hold")
    check(held > size and said["bytes_read"] >= size, "norms are written for each rank")
    equal((said["tensors"], said["workers"], said["dry_run"], said["verified"]), (39, 3, False, True), "figures")
    check(0 < said["memory_bytes"] <= 256 << 10, f"memory: {said['memory_bytes']}")
    check(len(said["digest"]) == 32 and set(said["digest"]) <= HASH, "digest")
    check(set(said["phases"]) == {"plan", "copy", "sync", "verify"}, f"phases: {said['phases']}")
    check(0 < sum(said["phases"].values()) <= said["seconds"] * 1.01 + 1e-5, "phases are parts of the whole")
    equal((said["source"]["layout"], said["target"]["layout"]), ("hf", "tp=2"), "layouts")
    run = Run(["reshard", source, folder / "words", "--to", "tp=3,pp=2"])
    equal((run.code, run.err), (0, ""), "a short run is quiet", run)
    for word in "read", "written", "GB/s", "memory", "digest", said["digest"], "uneven", "tp=3,pp=2", "6 files":
        check(word in run.out, f"the summary says {word}", run)
    equal(progress("reshard", str(source), str(folder / "shown"), "--to", "tp=2") is None, False, "on a terminal")


def uneven():
    """A tp that does not divide, or is larger than a dim, is legal and said."""
    source = folder / "llama3-8b/hf"
    equal(plan_json("reshard", source, folder / "none", "--to", "tp=2", "--dry-run")["uneven"], {"tensors": 0}, "tp=2")
    said = reshard(source, folder / "seven", "tp=3,pp=2", "--verify")["uneven"]
    check(said["tensors"] > 0 and said["least"] < said["most"] <= said["length"], f"uneven: {said}")
    # 128 ranks cut an up_proj of fewer rows.
    rows = tensors(source)["model.layers.0.mlp.up_proj.weight"][1][0]
    check(rows < 128, f"the test needs fewer rows than 128: {rows}")
    said = reshard(source, folder / "many", "tp=128")["uneven"]
    equal((said["least"], said["tensors"] > 0), (0, True), "some ranks hold nothing")
    same(source, folder / "many")


def dry_runs():
    before = state(folder)
    for to, form in ("tp=4,pp=2", "hf"), ("hf", "hf"), ("tp=2", "vllm"):
        args = ["reshard", folder / "mixtral-8x7b/hf", folder / "dry", "--to", to, "--to-form", form]
        told = plan_json(*args, "--dry-run")
        equal(told["dry_run"], True, "dry_run")
        check(not (folder / "dry").exists(), "a dry run makes nothing")
        done = plan_json(*args)
        for key in "bytes_read", "bytes_written":
            equal(told[key], done[key], f"{key} of {to} as told")
        equal(told["target"], done["target"], "the target as told")
        check(told["memory_bytes"] >= done["memory_bytes"], "memory is at most what was told")
        check(told["expected_seconds"] is None or told["expected_seconds"] > 0, "expected_seconds")
        shutil.rmtree(folder / "dry")
    equal(state(folder), before, "nothing else has changed")
    run = Run(["reshard", folder / "mixtral-8x7b/hf", folder / "dry", "--to", "tp=2", "--dry-run"])
    for word in "dry run", "writes", "2 files", "memory", "time":
        check(word in run.out, f"a dry run says {word}", run)
    # What would fail later fails now.
    source = folder / "mixtral-8x7b/hf"
    fails(USAGE, "reshard", source, folder / "seven", "--to", "tp=2", "--dry-run", command="reshard", says="--force")
    fails(FAILED, "reshard", source, folder / "no/such", "--to", "tp=2", "--dry-run", command="reshard",
          says="No such file")
    fails(USAGE, "reshard", source, folder / "dry", "--to", "tp=2", "--dry-run", "--to-form", "fused",
          command="reshard", says=["--to-form fused", "vllm, megatron"])


def files_and_dtypes():
    source = folder / "llama3-8b/hf"
    said = reshard(folder / "llama3-8b/0", folder / "files", "hf", "--max-file", "50K")
    check(said["target"]["files"] > 3, "several files")
    index = json.loads((folder / "files/model.safetensors.index.json").read_text())
    equal(set(index["weight_map"]), set(tensors(source)), "the index has all tensors")
    equal(tensors(folder / "files"), tensors(source), "in several files")
    reshard(source, folder / "wide", "tp=2", "--dtype", "f32", "--verify")
    equal({dtype for dtype, _, _ in tensors(folder / "wide").values()}, {"F32"}, "cast to f32")
    reshard(folder / "wide", folder / "narrow", "hf", "--dtype", "bf16")
    equal(tensors(folder / "narrow"), tensors(source), "bf16 -> f32 -> bf16 loses nothing")


def odd_tensors():
    """Dtypes that ferry does not know go whole; scalars and empty ones go, too; --unmatched takes them."""
    place = folder / "odd"
    shutil.copytree(folder / "llama3-8b/hf", place)
    data = bytes(range(48))
    entries = {"x.unknown": {"dtype": "F4_STRANGE", "shape": [3, 5], "data_offsets": [0, 12]},
               "x.scalar": {"dtype": "I64", "shape": [], "data_offsets": [12, 20]},
               "x.empty": {"dtype": "U8", "shape": [0, 7], "data_offsets": [20, 20]},
               "x.bool": {"dtype": "BOOL", "shape": [28], "data_offsets": [20, 48]}}
    (place / "model.safetensors").rename(place / "model-00001-of-00002.safetensors")
    write_file(place / "model-00002-of-00002.safetensors", entries, data)
    names = {name: f"model-0000{i}-of-00002.safetensors" for i in (1, 2)
             for name in header(place / f"model-0000{i}-of-00002.safetensors")[0] if name != "__metadata__"}
    (place / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    line = fails(USAGE, "reshard", place, folder / "odd-2", "--to", "tp=2", command="reshard", says="x.scalar")
    check("4 tensors" in line, f"all of them are counted: {line}")
    reshard(place, folder / "odd-2", "tp=2", "--unmatched", "replicate")
    reshard(place, folder / "odd-hf", "hf")
    equal(tensors(folder / "odd-hf"), tensors(place), "odd tensors, whole")
    same(place, folder / "odd-2")  # ferry.json says that they were accepted
    reshard(folder / "odd-2", folder / "odd-back", "hf")
    equal(tensors(folder / "odd-back"), tensors(place), "odd tensors, from rank files")


def shards_of_others():
    """Files of shards without a ferry.json, under names of their own: --from says what they are."""
    for model in TINY:
        source, place = folder / model / "hf", folder / f"others-{model}"
        reshard(source, place, "tp=2,pp=2")
        (place / "ferry.json").unlink()
        for number, path in enumerate(sorted(place.glob("*.safetensors"))):
            entries, begin = header(path)
            del entries["__metadata__"]
            data = path.read_bytes()[begin:]
            path.unlink()
            write_file(place / f"part.{number}.safetensors", entries, data)
        fails(USAGE, "reshard", place, folder / "none", "--to", "hf", command="reshard", says="no checkpoint")
        reshard(place, folder / f"others-{model}-hf", "hf", "--from", "tp=2,pp=2")
        equal(tensors(folder / f"others-{model}-hf"), tensors(source), f"{model} out of shards by others")
        fails(USAGE, "reshard", place, folder / "none", "--to", "hf", "--from", "tp=8", command="reshard",
              says="--from")
        check(Run(["reshard", place, folder / "none", "--to", "hf", "--from", "tp=4"]).code != 0, "not tp=4")
        check(not (folder / "none").exists(), "nothing was made")


def rules():
    source = folder / "llama3-8b/hf"
    reshard(source, folder / "named", "tp=2", "--rules", "llama")
    fails(USAGE, "reshard", source, folder / "r", "--to", "tp=2", "--rules", "lama", command="reshard",
          says=["--rules", "lama", "llama"])
    mine = folder / "my.rules"
    mine.write_text("rules mine\nnonsense\n")
    fails(USAGE, "reshard", source, folder / "r", "--to", "tp=2", "--rules", mine, command="reshard",
          says=["my.rules", "line 2"])
    mine.write_text("rules mine\nnumber layers = num_hidden_layers\n"
                    "tensor model.layers.{layer}.self_attn.(q|k|v|o)_proj.weight  tp 1\n"
                    "tensor model.layers.{layer}.mlp.(gate|up|down)_proj.weight  tp 1\n"
                    "tensor model.layers.{layer}.(input|post_attention)_layernorm.weight  whole\n"
                    "tensor (model.embed_tokens|lm_head).weight  tp 1 on first\n"
                    "tensor model.norm.weight  tp 0 on last\n")
    run = Run(["reshard", source, folder / "mine", "--to", "tp=2", "--rules", mine])
    if equal(run.code, 0, "rules of one's own", run):
        same(source, folder / "mine")  # they are in ferry.json
        shape = header(folder / "mine/rank-00000-of-00002.safetensors")[0]["model.embed_tokens.weight"]["shape"]
        whole = tensors(source)["model.embed_tokens.weight"][1]
        equal(shape, [whole[0], whole[1] // 2], "cut as they say")


def targets():
    """DST: absent, empty, there, forced, unwritable. What was there stays until the new one is whole."""
    source = folder / "llama3-8b/hf"
    place = folder / "targets"
    (place / "empty").mkdir(parents=True)
    reshard(source, place / "empty", "tp=2")
    before = state(folder)
    fails(USAGE, "reshard", source, place / "empty", "--to", "tp=4", command="reshard", says=["empty", "--force"])
    fails(USAGE, "reshard", source, source, "--to", "tp=4", "--force", command="reshard", says="one folder")
    fails(FAILED, "reshard", source, place / "no/such", "--to", "tp=4", command="reshard", says="No such file")
    fails(FAILED, "reshard", source, "/proc/ferry", "--to", "tp=4", command="reshard", says="/proc/ferry")
    fails(USAGE, "reshard", source, "", "--to", "tp=4", command="reshard")
    file = source / "config.json"
    fails(USAGE, "reshard", source, file, "--to", "tp=4", "--force", command="reshard", says="no folder")
    equal(state(folder), before, "nothing has changed")
    reshard(source, place / "empty", "tp=4", "--force")
    equal(len(list((place / "empty").glob("*.safetensors"))), 4, "--force replaces all of it")
    reshard(source, Path(f"{place}/slash/"), "tp=2")
    (place / "link").symlink_to(place / "empty")
    before = state(place)
    for name in "link", "link/":
        fails(USAGE, "reshard", source, f"{place}/{name}", "--to", "tp=2", "--force", command="reshard",
              says="no folder")
    equal(state(place), before, "what a link leads to stays")
    (place / "link").unlink()

    def small_disk():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    before = state(place)
    for more in [], ["--force"]:
        target = place / ("empty" if more else "full")
        fails(FAILED, "reshard", source, target, "--to", "hf", *more, command="reshard", says=".safetensors",
              preexec_fn=small_disk)
        equal(state(place), before, "a file that cannot be written leaves all as it was")


def bad_options():
    source = folder / "llama3-8b/hf"
    one = ["reshard", source, folder / "never"]
    before = state(folder)

    def bad(*more, says=()):
        fails(USAGE, *one, *more, command="reshard", says=says)

    bad(says="--to")
    for spec in "xp=2", "tp=0", "tp", "", "tp=2,tp=2", "tp=99999999999", "HF":
        bad(f"--to={spec}", says="--to")
    bad("--to", "ep=2,dp=2", says="ep")
    bad("--to", "pp=5", says="pp")
    bad("--to", "hf", "--to-form", "vllm", says="--to-form")
    bad("--to", "tp=2", "--to-form", "fused", says="fused")
    bad("--to", "tp=2", "--from", "tp=4", says="--from")
    bad("--to", "tp=2", "--from", "zp=4", says=["--from", "zp"])
    bad("--to", "tp=2", "--dtype", "i8", says="--dtype")
    bad("--to", "tp=2", "--unmatched", "drop", says="--unmatched")
    for number in "0", "x", "100000":
        bad("--to", "tp=2", "--ranks", number, says="--ranks")
    for size in "0", "x", "5Q":
        bad("--to", "tp=2", "--mem", size, says="--mem")
        bad("--to", "tp=2", "--max-file", size, says="--max-file")
    cut = ["reshard", folder / "llama3-8b/0", folder / "never", "--to", "hf"]
    fails(USAGE, *cut, "--from", "tp=2", command="reshard", says=["--from tp=2", "tp=4,pp=2"])
    fails(USAGE, *cut, "--from", "hf", command="reshard", says="--from hf")
    fails(USAGE, *cut, "--from-form", "vllm", command="reshard", says=["--from-form", "vllm"])
    equal(state(folder), before, "nothing was made")
    ferry(*cut, "--from", "tp=4,pp=2", "--from-form", "hf", "--quiet")


def bad_sources():
    """Damaged and missing files: one line with file and tensor, exit code 1, and nothing left behind."""
    whole, cut = folder / "llama3-8b/hf", folder / "llama3-8b/0"
    rank = "rank-00003-of-00008.safetensors"

    def broken(source, change, *says, code=FAILED):
        place = scratch()
        shutil.copytree(source, place / "src")
        change(place / "src")
        before = state(place)
        fails(code, "reshard", place / "src", place / "dst", "--to", "tp=2", command="reshard", says=says)
        equal(state(place), before, "source as it was, no target")
        fails(code, "inspect", place / "src", command="inspect", says=says)
        fails(code, "verify", place / "src", source, command="verify", says=says)

    def cut_short(name, most):
        return lambda place: os.truncate(place / name, most)

    size = (whole / "model.safetensors").stat().st_size
    broken(whole, cut_short("model.safetensors", size - 1), "model.safetensors", "model.norm.weight")
    broken(whole, cut_short("model.safetensors", 100), "model.safetensors")
    broken(whole, cut_short("model.safetensors", 3), "model.safetensors")
    broken(whole, lambda place: write_file(place / "model.safetensors", b"{" * 1000, b""), "model.safetensors")
    broken(whole, lambda place: write_file(place / "model.safetensors", b"[1]", b""), "model.safetensors")
    overlap = {"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},
               "b": {"dtype": "U8", "shape": [4], "data_offsets": [2, 6]}}
    broken(whole, lambda place: write_file(place / "model.safetensors", overlap, bytes(6)), "model.safetensors")
    twice = b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}'
    broken(whole, lambda place: write_file(place / "model.safetensors", twice, bytes(2)), "model.safetensors", "a")
    broken(whole, lambda place: (place / "config.json").write_text("{"), "config.json")
    broken(whole, lambda place: (place / "model.safetensors.index.json").write_text(
        '{"weight_map": {"x": "model-9.safetensors"}}'), "model-9.safetensors")
    broken(whole, lambda place: (place / "model.safetensors.index.json").write_text(
        '{"weight_map": {"x": "../model.safetensors"}}'), "index.json")
    broken(whole, lambda place: (place / "model.safetensors.index.json").write_text(
        '{"weight_map": {"x": "model.safetensors"}}'), "model.safetensors", "tensor x")
    broken(whole, lambda place: (place / "model.safetensors").unlink(), "no checkpoint", code=USAGE)
    broken(cut, lambda place: (place / rank).unlink(), rank)
    broken(cut, cut_short(rank, 2000), rank)
    broken(cut, lambda place: shutil.copy(place / "rank-00007-of-00008.safetensors", place / rank), rank)
    broken(cut, lambda place: (place / "ferry.json").write_text("{}"), "ferry.json")
    for spec in "tp=8", "tp=3", "nonsense":
        text = (cut / "ferry.json").read_text()
        check('"parallel": "tp=4' in text, "ferry.json has its spec")
        broken(cut, lambda place: (place / "ferry.json").write_text(text.replace("tp=4", spec)))
    place = folder / "dcp"
    place.mkdir()
    (place / ".metadata").write_text("")
    fails(USAGE, "reshard", place, folder / "never", "--to", "tp=2", command="reshard", says="torch distributed")
    fails(FAILED, "reshard", folder / "absent", folder / "never", "--to", "tp=2", command="reshard", says="absent")


def killed():
    """kill -9 at random moments: the source is as it was, the target absent or whole, and the next run works."""
    place = folder / "killed"
    place.mkdir()
    synth(place / "src", "deepseek-v3", "1/60000")
    before = state(place / "src")
    rng = random.Random(SEED)
    begin = time.monotonic()
    reshard(place / "src", place / "dst", "tp=2,pp=2")
    whole = time.monotonic() - begin
    was = state(place / "dst")
    for number in range(10):
        there = number % 2 == 1  # then --force replaces it
        if not there:
            shutil.rmtree(place / "dst", ignore_errors=True)
        args = [FERRY, "reshard", place / "src", place / "dst", "--to", "tp=2,pp=2", "--quiet", *["--force"] * there]
        run = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        time.sleep(rng.random() * whole)
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        equal(state(place / "src"), before, f"the source after kill {number} (seed {SEED})")
        if (place / "dst").exists():
            equal(state(place / "dst"), was, f"the target is whole after kill {number} (seed {SEED})")
        reshard(place / "src", place / "dst", "tp=2,pp=2", "--force")
        equal(state(place / "dst"), was, "the next run makes the same")


PACKAGE = """
import sys
import time
from pathlib import Path
from safetensors import deserialize, safe_open
for folder in sys.argv[1:]:
    for path in sorted(Path(folder).glob("*.safetensors")):
        with safe_open(path, "np") as file:
            assert len(list(file.keys())) > 0, path
        for name, tensor in deserialize(path.read_bytes()):
            print(path.name, name, tensor["dtype"], tensor["shape"], bytes(tensor["data"]).hex()[:64])
"""


def package():
    """The safetensors package opens what was written, and sees the same."""
    venv = Path(__file__).resolve().parents[2] / "build/venv/bin/python"
    for python in sys.executable, venv:
        known = subprocess.run([python, "-c", "import safetensors"], capture_output=True).returncode if Path(
            python).exists() else 1
        if known == 0:
            break
    else:
        print("skipped: no safetensors package (tools/bootstrap python installs it)")
        return
    for model in TINY:
        seen = []
        for name in "hf", "back", "0":
            done = subprocess.run([python, "-c", PACKAGE, folder / model / name], capture_output=True, text=True)
            check(done.returncode == 0 and done.stdout != "", f"the package opens {model} {name}: {done.stderr}")
            seen.append(sorted(done.stdout.splitlines()))
        equal(seen[0], seen[1], f"the package sees the same {model}")


round_trips()
forms()
summaries()
uneven()
dry_runs()
files_and_dtypes()
odd_tensors()
shards_of_others()
rules()
targets()
bad_options()
bad_sources()
killed()
package()
finish()
