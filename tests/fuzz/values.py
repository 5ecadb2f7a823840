"""Extents and values for random calls: those at which kernels change, and those that arithmetic treats apart."""

from __future__ import annotations

import math

import numpy as np

from cutesync.dtypes import BY_NAME, DType

EXTENTS = (
    0,
    1,
    2,
    3,
    5,
    7,
    8,
    16,
    31,
    32,
    33,
    63,
    64,
    65,
    127,
    128,
    129,
    255,
    256,
    257,
    509,
    512,
    1009,
    1023,
    1024,
    1025,
    2048,
    4095,
    4096,
    4099,
    65521,
    65536,
    65537,
    299993,
    1048573,
    1048576,
)
NUMBERS = tuple(BY_NAME.values())
KINDS = ("exact", "exact", "wide", "special", "runs")


def pick(rng: np.random.Generator, options):
    """One of a sequence, as it is: ``rng.choice`` would make a NumPy value of it."""
    return options[int(rng.integers(len(options)))]


def extent(rng: np.random.Generator, most: int) -> int:
    """Log-uniform up to ``most``, or as often one of the special extents."""
    special = [n for n in EXTENTS if n <= most]
    return pick(rng, special) if rng.random() < 0.5 else int(math.exp(rng.uniform(0, math.log(most + 1))))


def shape(rng: np.random.Generator, axes: int, most: int) -> tuple[int, ...]:
    """``axes`` extents whose product is at most ``most``."""
    found, room = [1] * axes, most
    for axis in rng.permutation(axes):
        found[axis] = extent(rng, max(room, 1))
        room //= max(found[axis], 1)
    return tuple(found)


def values(
    rng: np.random.Generator, extents: tuple[int, ...], element: DType, kind: str, op: str = "add"
) -> np.ndarray:
    """Of ``kind`` "exact": sums and products round nowhere, and results depend on every element; "wide": magnitudes far
    apart, the whole range of integers; "special": that, and in a few places what IEEE treats apart; "runs": few values,
    which repeat."""
    if kind == "runs":
        few = values(rng, (3,), element, pick(rng, ("exact", "special")), op)
        runs = np.cumsum(rng.random(math.prod(extents)) < 0.3) if extents else np.zeros(1, int)
        return few[rng.integers(0, 3, runs.size + 1)[runs]].reshape(extents)
    if element.kind == "b":
        rare = min(0.5, 1.5 / max(math.prod(extents), 1))
        return rng.random(extents) < pick(rng, (rare, 0.5, 1 - rare))
    found = _integers(rng, extents, element, op) if element.kind in "iu" else _floats(rng, extents, element, kind, op)
    if kind == "special" and found.size:
        places = rng.integers(0, found.size, 1 + found.size // 50)
        found.reshape(-1)[places] = _special(element)[rng.integers(0, len(_special(element)), len(places))]
    return found


def _integers(rng, extents, element: DType, op: str) -> np.ndarray:
    info = np.iinfo(element.numpy)
    found = rng.integers(info.min, info.max, extents, element.numpy, endpoint=True)
    few = rng.random(extents) < 2 / max(math.prod(extents), 1)
    if op in ("and", "all"):
        return np.where(
            few, found & ~element.numpy.type(1), element.numpy.type(-1 if element.kind == "i" else info.max)
        )
    if op in ("or", "any"):
        return np.where(few, found, element.numpy.type(0))
    return found | element.numpy.type(1) if op == "mul" else found


def _floats(rng, extents, element: DType, kind: str, op: str) -> np.ndarray:
    if op == "mul":  # the product of all magnitudes stays far from both ends of the range
        spread = 0.0 if kind == "exact" else 8 / max(math.prod(extents), 1)
        return (rng.choice([-1.0, 1.0], extents) * np.exp2(rng.uniform(-spread, spread, extents))).astype(element.numpy)
    if kind == "exact":
        return rng.integers(-3, 4, extents).astype(element.numpy)
    return (rng.standard_normal(extents) * np.exp2(rng.uniform(-9, 4, extents))).astype(element.numpy)


def _special(element: DType) -> np.ndarray:
    if element.kind in "iu":
        info = np.iinfo(element.numpy)
        return np.array([info.min, info.max, 0, 1, info.max - 1], element.numpy)
    ends = {
        "float16": (65504.0, 6e-8),
        "bfloat16": (3.3e38, 1e-40),
        "float32": (3.4e38, 1e-45),
        "float64": (1.7e308, 5e-324),
    }
    most, least = ends.get(element.name, (448.0, 0.002))
    return np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, most, -most, least, -least]).astype(element.numpy)


def convertible(x: np.ndarray, source: DType, target: DType) -> np.ndarray:
    """``x`` with what has no defined conversion to ``target`` replaced: floats that no integer of that type is near."""
    if source.kind != "f" or target.kind not in "iu":
        return x
    info = np.iinfo(target.numpy)
    wide = x.astype(np.float64)
    fits = np.isfinite(wide) & (wide > max(info.min, -(2**62))) & (wide < min(info.max, 2**62)) & (np.abs(wide) < 1e6)
    return np.where(fits, x, x.dtype.type(1))


def number(rng: np.random.Generator, element: DType):
    """A Python number that ``element`` holds exactly, small enough to keep exact sums exact."""
    if element.kind == "b":
        return bool(rng.integers(2))
    if element.kind == "f":
        return pick(rng, (0.0, 1.0, -2.5, 3.0, -0.0))
    info = np.iinfo(element.numpy)
    return pick(rng, (0, 1, 2, 3, 100, int(info.max), int(info.min)))
