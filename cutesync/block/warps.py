"""Scan of one state a warp over a block: what block-wide scans and scan tiles do between their warps."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32

from ..monoid import choose
from ..warp import LANES, broadcast, combine_valid, scan_states
from .reduce import get, put


def leave(storage, place, have, state) -> None:
    """Leave a state, and whether it is one, at ``place`` of a state array whose last member is the flag. One lane calls."""
    put(storage, place, (*state, Int32(have)))


@cute.jit
def around(storage, first: Int32, warps: cutlass.Constexpr, warp: Int32, lane: Int32, types: cutlass.Constexpr, combine: cutlass.Constexpr):
    """``(any before, state before, any, total)``: the fold of the states that the warps before ``warp`` left at ``first``, ``first + 1``,
    ..., and of all ``warps`` (above 32 a multiple of 32). All lanes of the warp call; a barrier since the states were left is the caller's."""
    members, each = (*types, Int32), max(1, warps // LANES)
    joined = lambda a, b: combine_valid(a, b, combine)  # noqa: E731
    lanes = min(warps, LANES)
    width = 1 << (lanes - 1).bit_length()
    place = first + cutlass.min(lane & (width - 1), lanes - 1) * each
    state = get(storage, place, members)
    for i in cutlass.range_constexpr(1, each):
        state = joined(state, get(storage, place + i, members))
    state = scan_states(state, joined, lane, width)
    total = broadcast(state, lanes - 1)
    before = broadcast(state, cutlass.max(warp // each - 1, 0))
    flag = choose(warp >= each, before[-1], Int32(0))
    before = (*before[:-1], flag)
    for i in cutlass.range_constexpr(each - 1):
        if i < warp % each:
            before = joined(before, get(storage, first + warp // each * each + i, members))
    return before[-1] != 0, before[:-1], total[-1] != 0, total[:-1]


@cute.jit
def after(known: Boolean, start, have: Boolean, state, combine: cutlass.Constexpr):
    """``(any, state)`` of ``start`` (if ``known``) followed by ``state`` (if ``have``)."""
    *joined, flag = combine_valid((*start, Int32(known)), (*state, Int32(have)), combine)
    return flag != 0, tuple(joined)
