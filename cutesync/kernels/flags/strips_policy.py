"""Which arrays of short rows are flagged by threads that have a few whole ones, as their elements lie apart."""

from __future__ import annotations

import math

from ...sizes import ceil_div
from ..axes import NUMBER_BITS
from .form import Form
from .order import FAR, pace_in
from .policy import VECTOR_BYTES, alignment
from .strided_choice import Facts, StridedChoice, StripPolicy

# Elements of a row, of the short axis, bytes of those of a thread, and of a result (H200, both float64 (6, 3794476, 6)
# transposed: tiles 1007 us, boxes 687 us, strips of 192 bytes 434 us, of 384 489 us; difference uint16 (5, 977520, 5):
# 95.6, 92.9 and 45.4 us; but uint64 (10, 629078, 7): 524, 276 and 411 us).
MAX_LENGTH, MAX_SIDE, MAX_STRIP, MAX_RESULT = 8, 8, 192, 2
ROWS = 8, 4, 2  # of a thread
# Bytes of results that are stored at once (heads int8 (7, 2305468, 3) transposed, of 4: tiles 150 us, strips 70.2 us;
# tails bfloat16 (3, 5018415, 6), of 2: 181 and 510 us).
MIN_UNIT = 4
MIN_SIDE = 3  # heads int64 (2, 3000000, 3) transposed: tiles 38.5 us, strips 49.8 us
# Of an array: smaller ones have too few threads (tails int64 (8, 40175, 6) transposed, of 17 MB: boxes 8.6 us, strips
# 19.2 us).
MIN_STRIP_BYTES = 1 << 26


def choose_strips(form: Form, facts: Facts) -> StridedChoice | None:
    """Return the launch; None for others, where rows begin side by side in the input, or far apart, and where a
    row's results are a vector, which tiles store."""
    length = form.flagged.extent
    if form.bits or facts.periodic or facts.counted or facts.result > MAX_RESULT:
        return None
    if not 1 < length <= MAX_LENGTH or len(form.others) < 2:
        return None
    inner, rows = min(form.others, key=pace_in), form.others[-1]
    if inner is rows or inner.steps[0] != 1 or not MIN_SIDE <= inner.extent <= MAX_SIDE or length & (length - 1) == 0:
        return None
    beside = rows.steps[0] == inner.extent and inner.extent < pace_in(form.flagged) < FAR
    if not beside or set(form.flagged.steps[1:]) != {1} or set(rows.steps[1:]) != {length}:
        return None
    if form.rows * length * (facts.size + facts.result * (len(rows.steps) - 1)) < MIN_STRIP_BYTES:
        return None
    others = [axis for axis in form.others if axis is not inner and axis is not rows]
    steps = [step for axis in (inner, *others) for step in axis.steps[1:]]
    for count in ROWS:
        bytes_of = count * length * facts.result
        unit = math.gcd(bytes_of, facts.result_aligned, VECTOR_BYTES, alignment(math.gcd(*steps) * facts.result))
        if count * length * facts.size > MAX_STRIP or unit < MIN_UNIT:
            continue
        axes = inner, rows, form.flagged, *others[::-1]
        counts = inner.extent, ceil_div(rows.extent, count), 1, *(axis.extent for axis in others[::-1])
        wide = math.prod(counts) >> NUMBER_BITS > 0
        policy = StripPolicy(len(axes), length, count, unit // facts.result, wide)
        return StridedChoice(policy, axes, counts)
    return None
