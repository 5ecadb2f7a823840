"""The flags of the demo: heads and tails of all types, tiles and rows, callables, differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from .. import reference
from ..dtypes import dtype as parse_dtype

if TYPE_CHECKING:
    from .demo import Case


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
    full, odd = ((1 << 24,), (10**7 + 19,)) if large else ((1 << 14,), (10007,))
    rows, short = ((4099, 4097), (1 << 20, 10)) if large else ((67, 131), (1000, 10))
    for source in ("int32", "int8", "int64", "float16", "float32"):
        yield _case("head flags", source, full)
    yield _case("head flags", "uint16", odd)
    yield _case("tail flags", "int32", full, "flag_tails")
    yield _case("tail flags, with a successor", "float64", odd, "flag_tails", successor=2)
    yield _case("head flags, 32 to a word", "int32", full, dtype="bits")
    yield _case("tail flags, 32 to a word", "uint8", odd, "flag_tails", dtype="bits")
    yield _case("head flags as int32", "int32", full, dtype="int32", predecessor=1)
    yield _case("head flags of tiles of 512", "int32", full, tile=512)
    yield _case("head flags of tiles of 1000", "int32", odd, tile=1000)
    yield _case("head flags of rows", "int32", rows)
    yield _case("head flags of short rows", "float32", short)
    yield _case("Python: steps above 1", "int32", full, op=jump)
    yield _case("Python: steps, with the index", "int32", odd, op=jump_within_a_page)
    yield _case("adjacent difference", "int32", full, "adjacent_difference")
    yield _case("adjacent difference, reverse", "float16", rows, "adjacent_difference", reverse=True)


def _case(operation: str, source: str, shape: tuple[int, ...], name: str = "flag_heads", **options) -> Case:
    from .demo import Case
    from .demo_reduce import _words

    return Case(
        operation,
        source,
        _words(shape),
        lambda generator: (_runs(generator, source, shape),),
        _call(name, options),
        lambda x: getattr(reference, name)(x, **options),
    )


def _call(name: str, options: dict) -> Callable:
    import cutesync as cs

    return lambda x, out=None: getattr(cs, name)(x, out=out, **options)


def _runs(generator: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return runs of small values, four items long on average, with some steps of one."""
    count = int(np.prod(shape))
    values = generator.integers(0, 6, count + 1)
    return values[np.cumsum(generator.random(count) < 0.25)].astype(parse_dtype(name).numpy).reshape(shape)
