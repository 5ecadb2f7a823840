"""Tile states of a single-pass scan: every tile publishes its fold once, and readers fold the tiles before theirs.

Tiles are read a group of ``GROUP`` at a time by a warp: lane l gets the tiles l * EACH, ... of the group, folds them in order, and the
lanes are folded in order. Which tile is folded with which depends on tile numbers alone. States lie in the workspace's slots
(``sync.gather``: value and tag in one word, relaxed) in an order in which a warp's reads are contiguous; a row's slots are a multiple of ``GROUP``.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ..warp import LANES, reduce_valid
from .gather import await_state, first_reads, words

EACH = 4
GROUP = LANES * EACH


def slots_of(tiles):
    """How many slots the tiles of a row take."""
    return (tiles + GROUP - 1) // GROUP * GROUP


def place_of(tile):
    """The slot of a tile, counted from its row's first."""
    inside = tile % GROUP
    return tile - inside + inside % EACH * LANES + inside // EACH


def read_group(slots, at, stride, types, lane):
    """Read the states of the group whose first slot is ``at`` once, whatever they are: a tuple of words for ``fold_group``."""
    return tuple(word for j in range(EACH) for word in first_reads(slots, at + j * LANES + lane, stride, types))


@cute.jit
def fold_group(
    slots: cute.Pointer,
    at: Int64,
    stride: Int64,
    reads,
    count: Int32,
    tag: Int32,
    types: cutlass.Constexpr,
    combine: cutlass.Constexpr,
    lane: Int32,
):
    """The fold of the group's first ``count`` > 0 tiles, in lane 0 at least; waits for them."""
    each = words(types)
    state = tuple(t(0) for t in types)
    for j in cutlass.range_constexpr(EACH):
        if lane * EACH + j < count:
            mine = await_state(slots, at + j * LANES + lane, stride, types, reads[j * each : (j + 1) * each], tag)
            state = combine(state, mine) if j > 0 else mine
    return reduce_valid(state, (count + EACH - 1) // EACH, combine, lane)
