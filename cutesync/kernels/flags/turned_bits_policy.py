"""Which arrays whose bits lie in another order than their elements are flagged by blocks that turn words."""

from __future__ import annotations

import math
from dataclasses import replace

from ...sizes import ceil_div
from ..hardware import LANES, SECTOR_BYTES, WORD_BYTES
from .form import Form
from .order import pace_out
from .strided_choice import THREADS, Facts, StridedChoice, TilePolicy, TurnedBitsPolicy
from .tile_policy import ROWS_OF_BITS

# Words of an array, and the extent of both axes (H200, bits int32 (2, 320084, 43) transposed, along its first axis: 454
# us, so 73 us; float16 (2, 1384, 1341): 29.3 us, so 6.1 us; int32 (3, 105, 988), of 104 thousand words: 2.9 us, so 1.5
# us; int32 (25, 1891, 128): 13.1 us, so 11.2 us; fewer words were not measured)
MIN_WORDS, MIN_SIDE = 1 << 15, 16
MAX_COLUMNS, MAX_HELD = 4, 16  # of a tile, and the elements of a thread
EACH = 4, 2, 1  # tiles of a thread


def choose_turned_bits(form: Form, facts: Facts, tiles: StridedChoice) -> StridedChoice | None:
    """Return the launch of blocks that turn words, as the threads of ``tiles`` would store them one by one far apart:
    of rows of a word, which are less than what is stored; None for others."""
    policy, axes = tiles.policy, tiles.axes
    beside = next((k for k, axis in enumerate(axes) if axis is not form.flagged and set(axis.steps[1:]) == {1}), 0)
    if not form.bits or type(policy) is not TilePolicy or beside == 0 or facts.counted or facts.periodic:
        return None
    columns, words = axes[0], form.rows
    far = pace_out(columns) * WORD_BYTES >= SECTOR_BYTES and min(columns.extent, axes[beside].extent) >= MIN_SIDE
    short = form.flagged.extent <= ROWS_OF_BITS and policy.along == policy.row > 0 and not policy.equal
    if not (far and short and words >= MIN_WORDS):
        return None
    wide = min(policy.columns, MAX_COLUMNS)
    if policy.loads == "run" and wide < policy.columns:
        return None
    each = next((n for n in EACH if n * wide * policy.rows <= MAX_HELD), 1)
    sizes = {0: wide * LANES, policy.row: policy.rows, beside: THREADS // LANES * each}
    counts = tuple(ceil_div(axis.extent, sizes.get(k, 1)) for k, axis in enumerate(axes))
    tile = replace(policy, columns=wide, across=False, wide=math.prod(counts) >= 1 << 31, threads=THREADS)
    return replace(tiles, policy=TurnedBitsPolicy(**vars(tile), beside=beside, each=each), counts=counts)
