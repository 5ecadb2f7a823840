"""Which arrays are flagged as bits by votes of warps, whose lanes have an item each."""

from __future__ import annotations

import math

from ...sizes import ceil_div
from ..hardware import LANES, LINE_BYTES, VECTOR_BYTES
from ..policy import Policy
from .form import Form
from .order import pace_in
from .policy import alignment
from .strided_choice import (
    LARGE,
    MAX_MOVED,
    MAX_NARROW,
    MIN_LARGE,
    THREADS,
    WARPS,
    BallotPolicy,
    Facts,
    StridedChoice,
    TilePolicy,
)
from .tile_policy import FEW_THREADS, ROWS_OF_BITS

MAX_BALLOTS, MIN_BALLOTS = 8, 4  # words of a warp: a sector at most; shorter rows have no warps of their own
# The same of arrays with few elements, where a warp that loads a row side by side takes less time than a thread
MIN_BALLOT_BITS, MAX_FEW_BITS = 16, 1 << 18
# Bytes of a lane that has items of few columns (H200, bits bfloat16 (208, 13, 4689, 2) along its third axis: tiles 53.9
# us, votes 20.0 us; int64 (186, 2831, 2), heads and tails: 5.4 us, of 32 bytes a lane 3.8 us, of 64 4.7 us; but int8
# (220692, 128, 2), whose tiles are loaded in vectors: 19.7 and 50.3 us), and of its loads (uint8 (2353, 391, 3): 3.5
# and 3.9 us).
MAX_ITEMS, MIN_ITEM_PIECE = 32, 2


def choose_ballots(form: Form, facts: Facts) -> StridedChoice | None:
    """Return the launch with a lane an item, or None if these are no neighbours, or have few words."""
    length, others = form.flagged.extent, form.others
    words = ceil_div(length, ROWS_OF_BITS)
    pace = abs(form.flagged.steps[0])
    near = pace > 0 and pace * facts.size < LINE_BYTES and all(pace <= pace_in(axis) for axis in others)
    few = words < MIN_BALLOTS and (length < MIN_BALLOT_BITS or form.rows * length > MAX_FEW_BITS)
    if not form.bits or not near or few:
        return None
    unroll = MAX_BALLOTS
    while unroll > 1 and (unroll > words or form.rows * ceil_div(words, unroll) * LANES < FEW_THREADS):
        unroll //= 2
    runs = ceil_div(words, unroll)
    wide = runs * form.rows * LANES * unroll > MAX_NARROW
    policy = BallotPolicy(1 + len(others), unroll, facts.periodic, facts.counted, wide)
    axes = (form.flagged, *others[::-1])
    return StridedChoice(policy, axes, (runs, *(axis.extent for axis in axes[1:])))


def choose_columns(form: Form, facts: Facts, tile: Policy) -> StridedChoice | None:
    """Return the launch with a lane an item of few columns, which lie side by side in both arrays; None for others, and
    where the ``tile`` of a thread is a run of bytes, or bytes would be loaded one by one."""
    length, others, columns = form.flagged.extent, form.others[:-1], form.others[-1] if form.others else None
    if not form.bits or columns is None or facts.periodic or set(columns.steps) != {1}:
        return None
    if isinstance(tile, TilePolicy) and tile.loads == "run" and facts.size == 1:
        return None
    count, pace = columns.extent, form.flagged.steps[0]
    width = count * facts.size
    words = ceil_div(length, ROWS_OF_BITS)
    if count == 1 or width > VECTOR_BYTES or pace < count or pace * facts.size >= LINE_BYTES:
        return None
    starts = math.gcd(pace, *(axis.steps[0] for axis in others)) * facts.size
    piece = max(1, min(count & -count, min(facts.aligned, alignment(starts)) // facts.size))
    if words < MIN_BALLOTS or piece * facts.size < MIN_ITEM_PIECE:
        return None
    unroll = MAX_BALLOTS
    while unroll > 1 and (
        unroll * count > LANES
        or unroll * width > MAX_ITEMS
        or unroll > words
        or form.rows // count * ceil_div(words, unroll) * LANES < FEW_THREADS
    ):
        unroll //= 2
    runs = ceil_div(words, unroll)
    warps = runs * form.rows // count
    moved = WARPS * unroll * (LANES * width + count * facts.result)
    threads = LARGE if moved < MAX_MOVED and warps >= MIN_LARGE * LARGE // LANES else THREADS
    wide = warps * LANES * unroll > MAX_NARROW
    policy = BallotPolicy(1 + len(others), unroll, False, facts.counted, wide, threads, count, piece)
    axes = (form.flagged, *others[::-1])
    return StridedChoice(policy, axes, (runs, *(axis.extent for axis in axes[1:])))
