#!/usr/bin/env python3
"""ferry's casts and its MXFP8 against ml_dtypes and numpy, bit for bit, on every instruction set here.

All codes of the narrow types; of the wide ones random bits and, for every target, its values, the middles
between them and the neighbours of both. Skipped where the two packages are missing: `tools/bootstrap
python` brings them to build/venv, which this script finds by itself.
"""

import os
import subprocess
import sys
from pathlib import Path

TEST = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TEST / "cli"))
from support.harness import check, finish, skip  # noqa: E402

try:
    import ml_dtypes
    import numpy as np
except ImportError:
    venv = TEST.parent / "build/venv/bin/python"
    if venv.exists() and Path(sys.prefix) != venv.parents[1]:
        os.execv(venv, [str(venv), *sys.argv])
    skip("no numpy or ml_dtypes for this Python (tools/bootstrap python installs them)")

CONVERT = Path(os.environ.get("FERRY_BUILD", "build/release")) / "test/py.convert"
SEED = int(os.environ.get("FERRY_SEED", "1"))
TYPES = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
}
BITS = {8: np.uint64, 4: np.uint32, 2: np.uint16, 1: np.uint8}
BLOCK = 32

rng = np.random.default_rng(SEED)
np.seterr(all="ignore")


def codes(values):
    return values.view(BITS[values.dtype.itemsize])


def convert(*args, stdin, isa):
    done = subprocess.run([CONVERT, *map(str, args)], input=stdin, capture_output=True, timeout=100,
                          env={**os.environ, "FERRY_ISA": isa})
    check(done.returncode == 0, f"FERRY_ISA={isa} convert {args}: {done.stderr.decode()}")
    return done.stdout


def usable(isa):
    done = subprocess.run([CONVERT, "cast", "f32", "f16"], input=b"", capture_output=True,
                          env={**os.environ, "FERRY_ISA": isa})
    check(done.returncode == 0 or b"UNSUPPORTED" in done.stderr, f"{isa}: {done.stderr.decode()}")
    return done.returncode == 0


# --- the other implementation ------------------------------------------------------------------------


def odd(values):
    """f64 as f32, cut off, with the last bit set where something was lost. ml_dtypes goes from f64 by way of
    f32 and so rounds twice; from a number that was rounded to odd, its second rounding is the only one."""
    near = values.astype(np.float32)
    back = near.astype(np.float64)
    bits = codes(near).copy()
    bits[np.abs(back) > np.abs(values)] -= 1
    lost = (back != values) & ~np.isnan(values)
    bits[lost] |= 1
    return bits.view(np.float32)


def cast(values, to):
    if values.dtype == np.float64 and to not in (np.float64, np.float32, np.float16):
        values = odd(values)
    elif values.dtype != np.float64:
        values = values.astype(np.float32)  # holds them all
    return values.astype(to)


def saturated(values):
    wide = values.astype(np.float64)
    return cast(np.clip(wide, -448.0, 448.0), ml_dtypes.float8_e4m3fn)


def quantise(values):
    """(data, scales) of rows of blocks."""
    wide = values.astype(np.float64).reshape(-1, BLOCK)
    amax = np.fmax.reduce(np.abs(wide), axis=1, initial=0.0)
    exponent = np.frexp(amax)[1] - 1 - 8
    exponent = np.where(amax == 0, -127, np.where(np.isinf(amax), 120, np.maximum(exponent, -127)))
    scales = np.ldexp(1.0, exponent)
    data = saturated(wide / scales[:, None])
    return data, scales.astype(ml_dtypes.float8_e8m0fnu)


# --- numbers -----------------------------------------------------------------------------------------


def every(dtype):
    size = np.dtype(dtype).itemsize
    return np.arange(1 << (8 * size), dtype=np.uint64).astype(BITS[size]).view(dtype)


def random_bits(dtype, count):
    size = np.dtype(dtype).itemsize
    return np.frombuffer(rng.bytes(count * size), dtype=BITS[size]).view(dtype)


def around(source, target):
    """Numbers of a wide type at which the rounding to the target turns."""
    if np.dtype(target).itemsize > 2:
        exact = random_bits(np.float32, 1 << 16)
    else:
        exact = every(target)
    exact = np.unique(exact.astype(np.float64)[np.isfinite(exact.astype(np.float64))])
    points = np.concatenate([exact, (exact[1:] + exact[:-1]) / 2, exact[[0, -1]] * 1.03125,
                             exact[[0, -1]] * 1.0625])
    if np.dtype(target).itemsize > 2:  # the middles of neighbours, not of numbers picked at random
        up = np.nextafter(exact.astype(np.float32), np.float32(np.inf)).astype(np.float64)
        points = np.concatenate([points, (exact + up) / 2])
    points = points.astype(source)
    return np.concatenate([points, np.nextafter(points, source(np.inf)), np.nextafter(points, source(-np.inf))])


def numbers(source, target):
    if np.dtype(source).itemsize <= 2:
        return every(source)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 5e-324, 1e-45, 3.5e38], dtype=np.float64)
    small = (rng.standard_normal(1 << 16) * np.exp2(rng.integers(-30, 20, 1 << 16))).astype(source)
    return np.concatenate([special.astype(source), around(source, target), small, random_bits(source, 1 << 17)])


def blocks(dtype):
    """Rows of four blocks: of all sizes, with zeros, NaN, infinities, subnormals and powers of two."""
    count = 1 << 13
    exponents = rng.integers(-160, 130, (count, 1)) if dtype != np.float16 else rng.integers(-30, 18, (count, 1))
    values = rng.standard_normal((count, BLOCK)) * np.exp2(exponents.astype(np.float64))
    values[rng.random(values.shape) < 0.3] *= 2.0**-9
    values[::16] = np.exp2(np.floor(np.log2(np.abs(values[::16]))))
    values[1::64] = 0.0
    values[2::64, 5] = np.nan
    values[3::64, 7] = -np.inf
    values[4::64] = np.nan
    values[5::64, :] = values[5::64, :1] * 1.9375  # near the next power of two
    return cast(values.reshape(-1), dtype)


# --- the comparisons -----------------------------------------------------------------------------------


def same(got, expected, what, inputs=None):
    """Equal codes; of NaN only that it is one, and its sign."""
    if not check(len(got) == len(expected), f"{what}: {len(got)} elements, expected {len(expected)}"):
        return
    nan = np.isnan(expected.astype(np.float64))
    sign = np.asarray(1 << (8 * got.dtype.itemsize - 1), dtype=codes(got).dtype)
    wrong = np.where(nan, ~np.isnan(got.astype(np.float64)) | ((codes(got) ^ codes(expected)) & sign != 0),
                     codes(got) != codes(expected))
    at = np.flatnonzero(wrong)
    check(len(at) == 0, f"{what}: {len(at)} of {len(got)} differ" + ("" if len(at) == 0 else
          f", the first from {inputs[at[0]] if inputs is not None else at[0]!r}: "
          f"{codes(got)[at[0]]:#x}, expected {codes(expected)[at[0]]:#x} (FERRY_SEED={SEED})"))


def check_casts(isa):
    for source, source_type in TYPES.items():
        for target, target_type in TYPES.items():
            if source == target:
                continue
            values = numbers(source_type, target_type)
            out = convert("cast", source, target, stdin=values.tobytes(), isa=isa)
            same(np.frombuffer(out, target_type), cast(values, target_type), f"{isa}: {source} -> {target}", values)
            if target == "f8e4m3":
                out = convert("cast", source, target, "saturate", stdin=values.tobytes(), isa=isa)
                same(np.frombuffer(out, target_type), saturated(values), f"{isa}: {source} -> {target}, saturated",
                     values)


def check_mx(isa):
    for source in "f32", "f16", "bf16":
        values = blocks(TYPES[source])
        data, scales = quantise(values)
        out = convert("quantise", source, 4 * BLOCK, stdin=values.tobytes(), isa=isa)
        split = len(values)
        same(np.frombuffer(out[:split], ml_dtypes.float8_e4m3fn), data.reshape(-1), f"{isa}: data of {source}", values)
        got = np.frombuffer(out[split:], ml_dtypes.float8_e8m0fnu)
        same(got, scales, f"{isa}: scales of {source}")
        for target in "f32", "f16", "bf16":
            back = data.astype(np.float64) * scales.astype(np.float64)[:, None]
            out_back = convert("dequantise", target, 4 * BLOCK, stdin=out, isa=isa)
            same(np.frombuffer(out_back, TYPES[target]), cast(back.reshape(-1), TYPES[target]),
                 f"{isa}: {source} quantised, back to {target}")


tried = [isa for isa in ("plain", "avx2", "avx512") if usable(isa)]
check("plain" in tried, "plain C runs everywhere")
for each in tried:
    check_casts(each)
    check_mx(each)
print(f"numpy {np.__version__}, ml_dtypes {ml_dtypes.__version__}; {', '.join(tried)}")
finish()
