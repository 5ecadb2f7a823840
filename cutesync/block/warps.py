"""Scan of one partial a warp over a block: what block-wide scans and scan tiles do between their warps."""

from __future__ import annotations

import cutlass
from cutlass import Int32, cute

from ..warp import Maybe, broadcast, combine_valid, scan_states
from .reduce import get


@cute.jit
def scan_partials(
    partials,
    first: Int32,
    warps: cutlass.Constexpr,
    warp: Int32,
    lane: Int32,
    types: cutlass.Constexpr,
    combine: cutlass.Constexpr,
):
    """``(prefix, aggregate)`` of the partials at ``first`` to ``first + warps - 1``, one a warp; the prefix is that of
    ``warp``.

    All lanes of the warp call. The caller has passed a barrier since the partials were stored."""
    width = 1 << (warps - 1).bit_length()
    place = cutlass.min(lane & (width - 1), warps - 1)
    state = scan_states(
        get(partials, first + place, (*types, Int32)), lambda a, b: combine_valid(a, b, combine), lane, width
    )
    before = broadcast(state, cutlass.max(warp - 1, 0))
    total = broadcast(state, warps - 1)
    return Maybe(before[:-1], (warp > 0) & (before[-1] != 0)), Maybe.unpack(total)
