"""Scan of one state a warp over a block: what block-wide scans and scan tiles do between their warps."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32

from ..warp import broadcast, combine_valid, scan_states
from .reduce import get, put


def leave(storage, place, have, state) -> None:
    """Leave a state, and whether it is one, at ``place`` of a state array whose last member is the flag. One lane calls."""
    put(storage, place, (*state, Int32(have)))


@cute.jit
def around(
    storage,
    first: Int32,
    warps: cutlass.Constexpr,
    warp: Int32,
    lane: Int32,
    types: cutlass.Constexpr,
    combine: cutlass.Constexpr,
):
    """``(any before, state before, any, total)``: the fold of the states that the warps before ``warp`` left at ``first``, ``first + 1``,
    ..., and of all ``warps``. All lanes of the warp call; a barrier since the states were left is the caller's."""
    width = 1 << (warps - 1).bit_length()
    place = cutlass.min(lane & (width - 1), warps - 1)
    state = scan_states(
        get(storage, first + place, (*types, Int32)), lambda a, b: combine_valid(a, b, combine), lane, width
    )
    before = broadcast(state, cutlass.max(warp - 1, 0))
    total = broadcast(state, warps - 1)
    return (warp > 0) & (before[-1] != 0), before[:-1], total[-1] != 0, total[:-1]


@cute.jit
def after(known: Boolean, start, have: Boolean, state, combine: cutlass.Constexpr):
    """``(any, state)`` of ``start`` (if ``known``) followed by ``state`` (if ``have``)."""
    *joined, flag = combine_valid((*start, Int32(known)), (*state, Int32(have)), combine)
    return flag != 0, tuple(joined)
