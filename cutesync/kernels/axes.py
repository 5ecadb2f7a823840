"""Axes of strided arrays as parameters of a kernel: for each its extent, what divides by it, and the stride of each
array. What a kernel does with them is in ``coordinates``.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ..runtime.kernel import Scalar
from ..runtime.layout import Axis

NUMBER_BITS = 31  # of the number of a position, unless it is wide


def divisor(count: int) -> tuple[int, int]:
    """Return ``(factor, shift)``, which divide numbers below 2**31 by ``count``: the quotient of n is
    ``(n * factor // 2**32 + n) >> shift`` (Granlund and Montgomery 1994)."""
    shift = (count - 1).bit_length()
    return ((1 << 32) * ((1 << shift) - count) // count + 1) & 0xFFFFFFFF, shift & 31


@functools.lru_cache(maxsize=256)
def parameters(name: str, rank: int, arrays: int, wide: bool) -> tuple[Scalar, ...]:
    """Return the kernel's parameters for ``rank`` axes of ``arrays`` arrays. With ``wide``, positions are counted in 64
    bits."""
    number = "Int64" if wide else "Int32"
    found: list[Scalar] = []
    for i in range(rank):
        found += [Scalar(f"{name}{i}_extent", number), Scalar(f"{name}{i}_factor", "Uint32")]
        found += [Scalar(f"{name}{i}_shift", "Uint32"), *(Scalar(f"{name}{i}_step{k}", "Int64") for k in range(arrays))]
    return tuple(found)


def numbers(axes: Sequence[Axis], rank: int, arrays: int, wide: bool) -> list[int]:
    """Return the values of these parameters. Axes of extent 1 come first where there are fewer than ``rank``."""
    found: list[int] = []
    for extent, steps in [Axis(1, (0,) * arrays)] * (rank - len(axes)) + list(axes):
        found += [extent, *((1, 0) if wide else divisor(max(extent, 1))), *steps]
    return found
