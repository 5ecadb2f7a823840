"""Tile states of a single-pass scan: every tile publishes its aggregate once, readers combine the earlier tiles'.

A warp reads a group of ``GROUP`` tiles at a time: lane l reads the tiles l * EACH, ... of the group and combines them
in order, then the lanes are combined in order. Which tile is combined with which depends on tile numbers alone. States
lie in the workspace's slots (``sync.gather``: value and tag in one word, relaxed) in an order that makes a warp's reads
contiguous. The number of a row's slots is a multiple of ``GROUP``.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ..warp import LANES, reduce_valid, zeros
from .gather import Slots, words

EACH = 4
GROUP = LANES * EACH


def slots_of(tiles):
    """How many slots the tiles of a row take."""
    return (tiles + GROUP - 1) // GROUP * GROUP


def place_of(tile):
    """The slot of a tile, counted from its row's first."""
    inside = tile % GROUP
    return tile - inside + inside % EACH * LANES + inside // EACH


def read_group(slots: Slots, at, lane):
    """The words of the group whose first slot is ``at``, published or not, for ``reduce_group``."""
    return tuple(word for j in range(EACH) for word in slots.read(at + j * LANES + lane))


@cute.jit
def reduce_group(slots: cutlass.Constexpr, at: Int64, reads, count: Int32, combine: cutlass.Constexpr, lane: Int32):
    """The aggregate of the group's first ``count`` > 0 tiles, in lane 0 at least; waits for them."""
    each = words(slots.types)
    reads = slots.wait_together(
        [at + (j * LANES + lane) for j in range(EACH)], reads, [lane * EACH + j < count for j in range(EACH)]
    )
    state = zeros(slots.types)
    for j in cutlass.range_constexpr(EACH):
        if lane * EACH + j < count:
            mine = slots.join(reads[j * each : (j + 1) * each])
            state = combine(state, mine) if j > 0 else mine
    return reduce_valid(state, (count + EACH - 1) // EACH, combine, lane)
