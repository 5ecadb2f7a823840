"""Which arrays of bytes are flagged between rows that lie apart by threads that join vectors of results."""

from __future__ import annotations

import math

from ..hardware import VECTOR_BYTES
from .form import Form
from .strided_choice import MAX_NARROW, Facts, PitchedPolicy, StridedChoice, TilePolicy, TransposedPolicy

# Results: of fewer, most warps would join the elements of two rows (H200, both bool (131072, 83), 161 apart, along its
# first axis: tiles 33.6 us, so 21.1 us; but difference int8 (273473, 64), 110 apart: 13.4 and 13.8 us).
MIN_ROW = 80
MIN_TILE = 4  # columns of tiles: these load and store words
# Results of one output, a quarter of them of each of two: threads of fewer take longer to find their rows than they
# save (H200, both int8 (125354, 1227), 1799 apart, along its first axis: tiles 418 us, so 176 us; tails bool (16384,
# 4096), 6419 apart: 70.8 and 45.3 us; int8 (8192, 4096), 4806 apart: 27.2 and 22.9 us; but heads uint8 (32768, 362),
# 521 apart: 12.3 and 13.4 us; both int8 (2942, 107): 1.6 and 3.9 us). Tiles of whole words of elements and of results
# are faster (both uint8 (65536, 512), 592 apart: 27.7 and 34.7 us).
MIN_PITCHED = 1 << 25


def choose_pitched(form: Form, facts: Facts, tiles: StridedChoice) -> StridedChoice | None:
    """Return the launch; None for others, or where ``tiles`` have vectors of elements and results."""
    policy, columns = tiles.policy, form.others[-1] if form.others else None
    if form.bits or facts.size > 1 or not facts.by_words or facts.periodic or facts.counted or columns is None:
        return None
    if not isinstance(policy, TilePolicy) or isinstance(policy, TransposedPolicy):
        return None
    if policy.loads == "vector" and policy.across and policy.columns >= MIN_TILE:
        return None
    if set(columns.steps) != {1} or facts.result_aligned % VECTOR_BYTES:
        return None
    if not MIN_ROW <= columns.extent <= MAX_NARROW:  # a thread counts the columns behind its own in 32 bits
        return None
    axes = columns, form.flagged, *form.others[-2::-1]
    total = math.prod(axis.extent for axis in axes)
    pace = columns.extent
    for axis in axes[1:]:
        if set(axis.steps[1:]) != {pace} or axis.steps[0] < 0:
            return None
        pace *= axis.extent
    if total * (len(columns.steps) - 1) ** 2 < MIN_PITCHED or form.flagged.steps[0] == 0:
        return None
    counts = tuple(axis.extent for axis in axes)
    return StridedChoice(PitchedPolicy(len(axes), total > MAX_NARROW), axes, counts)
