"""Words of 32 bits in memory, for kernels whose arrays begin anywhere."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Uint32


def funnel_shift(low, high, bits):
    """The word that begins ``bits`` (0 to 31) after ``low``, of two words that lie side by side."""
    return _funnel("r", low, high, bits)


def funnel_shift_left(low, high, bits):
    """The word that begins ``bits`` (0 to 31) before ``high``, of two words that lie side by side."""
    return _funnel("l", low, high, bits)


def _funnel(direction: str, low, high, bits):
    funnel = f"shf.{direction}.wrap.b32 {{$w0}}, {{$r0}}, {{$r1}}, {{$r2}};"
    kind = type(low)
    return kind(cute.arch.inline_ptx(funnel, write_only_types=[kind], read_only_args=[low, high, bits]))


def shifted(words: list, skew) -> list:
    """The 4 words of two aligned vectors, 8 words, that begin ``skew`` (its lowest 4 bits) bytes behind the first."""
    for hop in (2, 1):
        moved = (skew & (4 * hop)) != 0
        words = [Uint32(cutlass.select_(moved, *pair)) for pair in zip(words[hop:], words)]
    return [funnel_shift(*pair, (skew & 3) * 8) for pair in zip(words, words[1:])]
