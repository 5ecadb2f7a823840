"""Tile states of a single-pass scan: every tile publishes its aggregate once, readers combine the earlier tiles'.

A warp reads a group of ``GROUP`` tiles at a time: lane l reads the tiles l * EACH, ... of the group and combines them
in order, then the lanes are combined in order. Which tile is combined with which depends on tile numbers alone. States
lie in the workspace's slots (``sync.gather``: value and tag in one word, relaxed) in an order that makes a warp's reads
contiguous. The number of a row's slots is a multiple of ``GROUP``.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ..monoid import choose
from ..warp import LANES, exchange, reduce_valid, select, zeros
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


def places_before(group, tile, lane):
    """The slots of a lane's tiles of a group, for ``reduce_before``; the slot before ``tile`` > 0 instead of those from
    ``tile`` on, so that all of them are published some time."""
    last = place_of(tile - 1)
    first, before = group * GROUP + lane, tile - (group * GROUP + lane * EACH)
    return [choose(before > j, first + j * LANES, last) for j in range(EACH)]


def reduce_before(slots: Slots, places: list, counts: list, combine, lane):
    """The aggregates of the first tiles of several groups, as many as ``counts`` says, in lane 0; waits for them. The
    groups are reduced side by side and without a branch. A count of 0 or less gives some state."""
    everything = [place for group in places for place in group]
    reads = [word for place in everything for word in slots.read(place)]
    reads = slots.wait_together(everything, reads, [Boolean(True)] * len(everything))
    each = words(slots.types)
    states = [slots.join(reads[k * each : (k + 1) * each]) for k in range(len(everything))]
    totals = []
    for k, count in enumerate(counts):
        total = states[k * EACH]
        for j in range(1, EACH):
            both = combine(total, states[k * EACH + j])
            total = select(lane * EACH + j < count, both, total)
        totals.append(total)
    for log in range(LANES.bit_length() - 1):
        others = [exchange(total, 1 << log) for total in totals]
        both = [combine(total, other) for total, other in zip(totals, others)]
        exists = [(lane + (1 << log)) * EACH < count for count in counts]
        totals = [select(*each) for each in zip(exists, both, totals)]
    return totals
