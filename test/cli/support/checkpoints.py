"""What the tests of checkpoints share: tiny folders, and files that are taken apart without ferry."""

import hashlib
import json
import struct

from .harness import Run, check, equal, plan_json

# Every family, each small enough for a test: a few MB and less.
TINY = {
    "llama3-8b": "1/30000",
    "qwen3-30b-a3b": "1/30000",
    "mixtral-8x7b": "1/30000",
    "deepseek-v3": "1/600000",
}


def synth(folder, model="llama3-8b", scale=None, *more):
    """Makes a folder; returns what --json says of it."""
    return plan_json("synth", folder, "--model", model, "--scale", scale or TINY[model], *more)


def header(path):
    """The header of a safetensors file, and where its data begin."""
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        return json.loads(file.read(length)), 8 + length


def tensors(folder):
    """All tensors of the files of a folder: name -> (dtype, shape, bytes)."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        entries, begin = header(path)
        data = path.read_bytes()[begin:]
        for name, entry in entries.items():
            if name != "__metadata__":
                low, high = entry["data_offsets"]
                found[name] = (entry["dtype"], entry["shape"], data[low:high])
    return found


def write_file(path, entries, data):
    """A safetensors file out of a header (an object, or bytes as they are) and data."""
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def flip(path, tensor, element, width, bit=0):
    """Turns one bit of an element of a tensor around."""
    entries, begin = header(path)
    with open(path, "r+b") as file:
        file.seek(begin + entries[tensor]["data_offsets"][0] + element * width)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1 << bit]))


def state(folder):
    """Names and contents of all that is in a folder, to see that nothing changed."""
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
            for path in sorted(folder.rglob("*"))}


def same(a, b):
    """ferry verify says that two folders are equal; returns their digest."""
    run = Run(["verify", a, b])
    equal((run.code, run.err), (0, ""), f"{a} and {b} are equal", run)
    check(run.out.startswith("equal: ") and run.out.count("\n") == 1, "one line says so", run)
    return run.out.split("digest ")[1].split(",")[0] if "digest " in run.out else None
