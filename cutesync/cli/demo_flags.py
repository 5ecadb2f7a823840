"""The flags of the demo: heads and tails of all types, tiles and rows, callables, differences."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from ..dtypes import dtype as parse_dtype
from .demo_case import Case, of_array


def jump(a, b):
    """A step of more than one."""
    return b - a > 1


def jump_within_a_page(a, b, index):
    """A step of more than one, or the start of a page of 4096 items."""
    return (b - a > 1) | (index % 4096 == 0)


def cases(place: str) -> Iterator[Case]:
    """Yield the cases for a ``place``: "gpu" (2**24 elements and irregular sizes), "emulator" (small sizes), or
    "nowhere" (the large shapes, to be compiled)."""
    large = place != "emulator"
    full, odd = ((1 << 24,), (10**7 + 19,)) if large else ((1 << 13,), (10007,))
    rows, short = ((4099, 4097), (1 << 20, 10)) if large else ((67, 131), (1000, 10))
    case = functools.partial(of_array, make=runs)
    types = ("int32", "int8", "int64", "float16", "float32") if large else ("int32", "int8")
    yield from (case("head flags", source, full, "flag_heads") for source in types)
    yield from (
        case("head flags", "uint16", odd, "flag_heads"),
        case("tail flags", "int32", full, "flag_tails"),
        case("tail flags, with a successor", "float64", odd, "flag_tails", successor=2),
        case("head flags, 32 to a word", "int32", full, "flag_heads", dtype="bits"),
        case("tail flags, 32 to a word", "uint8", odd, "flag_tails", dtype="bits"),
        case("head flags as int32", "int32", full, "flag_heads", dtype="int32", predecessor=1),
        case("head flags of tiles of 512", "int32", full, "flag_heads", tile=512),
        case("head flags of tiles of 1000", "int32", odd, "flag_heads", tile=1000),
        case("head flags of rows", "int32", rows, "flag_heads"),
        case("head flags of short rows", "float32", short, "flag_heads"),
        case("Python: steps above 1", "int32", full, "flag_heads", op=jump),
        case("Python: steps, with the index", "int32", odd, "flag_heads", op=jump_within_a_page),
        case("adjacent difference", "int32", full, "adjacent_difference"),
        case("adjacent difference, reverse", "float16", rows, "adjacent_difference", reverse=True),
    )


def runs(generator: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return runs of small values, four items long on average, with some steps of one."""
    count = int(np.prod(shape))
    values = generator.integers(0, 6, count + 1)
    return values[np.cumsum(generator.random(count) < 0.25)].astype(parse_dtype(name).numpy).reshape(shape)
