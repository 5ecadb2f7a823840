"""Words of 32 bits in memory, for kernels whose arrays begin anywhere."""

from __future__ import annotations

import cutlass.cute as cute


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
