"""Which arrays of bytes are flagged between rows that lie apart by threads that join vectors of results."""

from __future__ import annotations

import math

from .form import Form
from .policy import VECTOR_BYTES
from .strided_choice import Facts, PitchedPolicy, StridedChoice, TilePolicy, TransposedPolicy
from .tile_policy import MAX_NARROW

MIN_ROW = 64  # results: of fewer, most warps would join the elements of two rows
MIN_TILE = 4  # columns of tiles: these load and store words
MIN_PITCHED = 1 << 17  # results in all


def choose_pitched(form: Form, facts: Facts, tiles: StridedChoice) -> StridedChoice | None:
    """Return the launch; None for others, or where ``tiles`` have vectors of elements and results."""
    policy, columns = tiles.policy, form.others[-1] if form.others else None
    if form.bits or not facts.by_words or facts.periodic or facts.counted or columns is None:
        return None
    if not isinstance(policy, TilePolicy) or isinstance(policy, TransposedPolicy):
        return None
    if policy.loads == "vector" and policy.across and policy.columns >= MIN_TILE:
        return None
    if set(columns.steps) != {1} or columns.extent < MIN_ROW or facts.result_aligned % VECTOR_BYTES:
        return None
    axes = columns, form.flagged, *form.others[-2::-1]
    total = math.prod(axis.extent for axis in axes)
    pace = columns.extent
    for axis in axes[1:]:
        if set(axis.steps[1:]) != {pace} or axis.steps[0] < 0:
            return None
        pace *= axis.extent
    if total < MIN_PITCHED or form.flagged.steps[0] == 0:
        return None
    counts = tuple(axis.extent for axis in axes)
    return StridedChoice(PitchedPolicy(len(axes), total > MAX_NARROW), axes, counts)
