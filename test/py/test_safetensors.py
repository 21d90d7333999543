#!/usr/bin/env python3
"""ferry's safetensors files against the safetensors package: each reads what the other writes, byte for byte.

Every dtype that the package can write, scalars, tensors without elements, none at all, names and metadata of all kinds;
then mutations of such files: what opens in ferry opens in the package. Skipped where the package is missing:
`tools/bootstrap python` brings it to build/venv, which this script finds by itself.
"""

import ctypes
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

TEST = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TEST / "cli"))
from support.harness import check, equal, finish, skip  # noqa: E402

try:
    import safetensors
except ImportError:
    venv = TEST.parent / "build/venv/bin/python"
    if venv.exists() and Path(sys.prefix) != venv.parents[1]:
        os.execv(venv, [str(venv), *sys.argv])
    skip("no safetensors for this Python (tools/bootstrap python installs it)")

HELPER = Path(os.environ.get("FERRY_BUILD", "build/release")) / "test/py.safetensors"
SEED = int(os.environ.get("FERRY_SEED", "1"))

# What the package calls a dtype when it writes: its text in the file, ferry's name, bytes of an element.
DTYPES = {
    "bool": ("BOOL", "bool", 1), "uint8": ("U8", "u8", 1), "int8": ("I8", "i8", 1),
    "uint16": ("U16", "u16", 2), "int16": ("I16", "i16", 2), "uint32": ("U32", "u32", 4),
    "int32": ("I32", "i32", 4), "uint64": ("U64", "u64", 8), "int64": ("I64", "i64", 8),
    "float16": ("F16", "f16", 2), "bfloat16": ("BF16", "bf16", 2), "float32": ("F32", "f32", 4),
    "float64": ("F64", "f64", 8), "float8_e4m3fn": ("F8_E4M3", "f8e4m3", 1),
    "float8_e5m2": ("F8_E5M2", "f8e5m2", 1), "float8_e8m0fnu": ("F8_E8M0", "e8m0", 1),
    "complex64": ("C64", "?", 8), "float8_e4m3fnuz": ("F8_E4M3FNUZ", "?", 1),
    "float8_e5m2fnuz": ("F8_E5M2FNUZ", "?", 1), "float4_e2m1fn_x2": ("F4", "?", 1),
}
KNOWN = {text for text, name, _ in DTYPES.values() if name != "?"}

rng = random.Random(SEED)


def helper(*args):
    done = subprocess.run([HELPER, *map(str, args)], capture_output=True, timeout=100)
    check(done.returncode == 0, f"safetensors {args[0]}: {done.stderr.decode()}")
    return done.stdout.decode()


def made(dtype, shape):
    """A tensor for the package, with random bytes: (dtype, shape, data)."""
    size = DTYPES[dtype][2]
    for extent in shape:
        size *= extent
    return dtype, list(shape), rng.randbytes(size)


def save(path, tensors, metadata):
    """Written by the package."""
    buffers = {name: ctypes.create_string_buffer(data, max(len(data), 1)) for name, (_, _, data) in tensors.items()}
    specs = {name: safetensors.TensorSpec(dtype=dtype, shape=shape, data_ptr=ctypes.addressof(buffers[name]),
                                          data_len=len(data)) for name, (dtype, shape, data) in tensors.items()}
    safetensors.serialize_file(specs, str(path), metadata=metadata)


def expected(tensors):
    """{name: (text, shape, data)}, as in the file: there two F4 are one byte."""
    result = {}
    for name, (dtype, shape, data) in tensors.items():
        if dtype == "float4_e2m1fn_x2":
            shape = [*shape[:-1], shape[-1] * 2]
        result[name] = DTYPES[dtype][0], shape, data
    return result


def load(path):
    """Read by the package."""
    tensors = {name: (view["dtype"], list(view["shape"]), bytes(view["data"]))
               for name, view in safetensors.deserialize(path.read_bytes())}
    with safetensors.safe_open(str(path), framework="np") as file:
        return tensors, file.metadata()


def dump(path):
    """Read by ferry; checks on the way that it knows the dtypes that it should."""
    tensors, notes = {}, {}

    def plain(word):
        return bytes.fromhex(word[1:])

    for line in helper("dump", path).splitlines():
        kind, *words = line.split(" ")
        if kind == "note":
            notes[plain(words[0]).decode()] = plain(words[1]).decode()
        else:
            name, dtype, text, shape, data = words
            name, text = plain(name).decode(), plain(text).decode()
            names = [known for known_text, known, _ in DTYPES.values() if known_text == text]
            equal(dtype, names[0] if names else "?", f"{path.name}, {name!r}: dtype of {text}")
            shape = [] if shape == "scalar" else [int(extent) for extent in shape.split("x")]
            tensors[name] = text, shape, plain(data)
    return tensors, notes


def round_trip(folder, what, tensors, metadata):
    theirs, ours = folder / "theirs.safetensors", folder / "ours.safetensors"
    save(theirs, tensors, metadata)
    want = expected(tensors)
    for path, source in (theirs, "the package"), (ours, "ferry"):
        if path is ours:
            helper("copy", theirs, ours)
        got, notes = dump(path)
        equal(got, want, f"{what}: tensors written by {source}, read by ferry")
        equal(notes, metadata or {}, f"{what}: metadata written by {source}, read by ferry")
        got, notes = load(path)
        equal(got, want, f"{what}: tensors written by {source}, read by the package")
        equal(notes or {}, metadata or {}, f"{what}: metadata written by {source}, read by the package")
    raw = ours.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    equal(start % 64, 0, f"{what}: ferry's data start")
    equal(sorted(path.name for path in folder.iterdir()), ["ours.safetensors", "theirs.safetensors"], "files")


def check_round_trips(folder):
    for dtype in DTYPES:
        round_trip(folder, dtype, {"a": made(dtype, (3, 5)), "b": made(dtype, (1, 1, 2))}, {"format": "pt"})
    round_trip(folder, "all dtypes", {dtype: made(dtype, (7, 3)) for dtype in DTYPES}, None)
    known = [dtype for dtype in DTYPES if dtype != "float4_e2m1fn_x2"]
    round_trip(folder, "scalars", {dtype: made(dtype, ()) for dtype in known}, None)
    round_trip(folder, "no elements", {f"{dtype}{i}": made(dtype, shape) for dtype in known for i, shape in
                                       enumerate([(0,), (4, 0, 3), (2, 2), (0, 0)])}, {"k": "v"})
    round_trip(folder, "no tensors", {}, None)
    round_trip(folder, "only metadata", {}, {"k": "v", "": "", "x": "y" * 10000})
    strange = ["", " ", "a/b", "../c", "ä€😀", "\"quoted\"", "back\\slash", "tab\tnew\nline", "\x01\x1f\x7f",
               "\u2028", "{\"json\": [1]}", "n" * 5000]
    round_trip(folder, "strange names", {name: made("uint8", (2,)) for name in strange},
               {name: name[::-1] for name in strange})
    for i in range(20):
        tensors = {f"layers.{j}": made(rng.choice(known), [rng.randrange(5) for _ in range(rng.randrange(5))])
                   for j in range(rng.randrange(40))}
        round_trip(folder, f"random file {i} (FERRY_SEED={SEED})", tensors, None)


def mutated(raw):
    """The same file with a few changes to its header, whose length is put right; sometimes to its end."""
    length = int.from_bytes(raw[:8], "little")
    header, data = bytearray(raw[8:8 + length]), raw[8 + length:]
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(header))
        kind = rng.randrange(4)
        if kind == 0:
            header[at] = rng.choice(b'0123456789"{}[]:,\\ -.eu')
        elif kind == 1:
            header.insert(at, rng.choice(b'0123456789"{}[]:,\\ -.eu'))
        elif kind == 2:
            del header[at:at + rng.randrange(1, 4)]
        else:
            digits = [i for i, c in enumerate(header) if chr(c).isdigit()]
            if digits:
                header[rng.choice(digits)] = rng.choice(b"0123456789")
    if rng.random() < 0.2:
        data = data[:-1] if rng.random() < 0.5 else data + b"!"
    return len(header).to_bytes(8, "little") + bytes(header) + data


def check_mutations(folder):
    seeds = []
    for tensors, metadata in (({"a": made("uint8", (2, 2)), "bb": made("bfloat16", (3,))}, {"k": "v"}),
                              ({"x": made("int64", ()), "y": made("float32", (0, 2))}, None), ({}, {"k": "v"})):
        save(folder / "seed", tensors, metadata)
        seeds.append((folder / "seed").read_bytes())
    (folder / "seed").unlink()
    paths = [folder / f"m{i}" for i in range(1500)]
    for path in paths:
        path.write_bytes(mutated(rng.choice(seeds)))
    answers = helper("open", *paths).split()
    opened = 0
    for path, answer in zip(paths, answers, strict=True):
        raw = path.read_bytes()
        if answer == "OK" and {text for text, _, _ in dump(path)[0].values()} <= KNOWN:
            opened += 1
            try:
                safetensors.deserialize(raw)
            except safetensors.SafetensorError as error:
                check(False, f"ferry opens what the package refuses (FERRY_SEED={SEED}): {raw!r}: {error}")
    check(50 < opened < len(paths) / 2, f"{opened} of {len(paths)} mutations open: they try nothing")
    return opened


with tempfile.TemporaryDirectory() as name:
    check_round_trips(Path(name))
with tempfile.TemporaryDirectory() as name:
    opened = check_mutations(Path(name))
print(f"safetensors {safetensors.__version__}; {opened} mutations opened in both")
finish()
