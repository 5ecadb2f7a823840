"""Which arrays of short rows are flagged by threads that have a few whole ones, as their elements lie apart."""

from __future__ import annotations

import math

from ...sizes import ceil_div
from ..axes import NUMBER_BITS
from .form import Form
from .order import FAR, pace_in
from .policy import VECTOR_BYTES, alignment
from .strided_choice import Facts, StridedChoice, StripPolicy

MAX_LENGTH, MAX_STRIP = 8, 192  # elements of a row, and bytes of those of a thread
ROWS = 8, 4, 2  # of a thread
MIN_UNIT, MIN_STRIPS = 2, 1 << 17  # bytes of results that are stored at once; elements of an array
LINE_BYTES = 128


def choose_strips(form: Form, facts: Facts) -> StridedChoice | None:
    """Return the launch; None for others, or where rows begin side by side in the input, or far apart."""
    length = form.flagged.extent
    if form.bits or facts.periodic or facts.counted or not 1 < length <= MAX_LENGTH or len(form.others) < 2:
        return None
    inner, rows = min(form.others, key=pace_in), form.others[-1]
    if inner is rows or inner.steps[0] != 1 or inner.extent * facts.size >= LINE_BYTES:
        return None
    beside = rows.steps[0] == inner.extent and inner.extent < pace_in(form.flagged) < FAR
    if not beside or set(form.flagged.steps[1:]) != {1} or set(rows.steps[1:]) != {length}:
        return None
    if form.rows * length < MIN_STRIPS:
        return None
    others = [axis for axis in form.others if axis is not inner and axis is not rows]
    steps = [step for axis in (inner, *others) for step in axis.steps[1:]]
    for count in ROWS:
        bytes_of = count * length * facts.result
        unit = math.gcd(bytes_of, facts.result_aligned, VECTOR_BYTES, alignment(math.gcd(*steps) * facts.result))
        if count * length * facts.size > MAX_STRIP or unit < max(MIN_UNIT, facts.result):
            continue
        axes = inner, rows, form.flagged, *others[::-1]
        counts = inner.extent, ceil_div(rows.extent, count), 1, *(axis.extent for axis in others[::-1])
        wide = math.prod(counts) >> NUMBER_BITS > 0
        policy = StripPolicy(len(axes), length, count, unit // facts.result, wide)
        return StridedChoice(policy, axes, counts)
    return None
