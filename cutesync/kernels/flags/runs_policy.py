"""Which arrays of short rows are flagged between rows by threads that have several whole ones: a pure function of
extents, strides, types and alignment, not of the GPU."""

from __future__ import annotations

import math

from ...sizes import ceil_div
from ..axes import NUMBER_BITS
from ..hardware import VECTOR_BYTES, WORD_BYTES
from .form import Form
from .policy import alignment
from .strided_choice import Facts, RunPolicy, StridedChoice, TilePolicy

MAX_SIZE = 4  # of an element, in bytes
# Of a thread, whose rows and what lies between them are up to so many bytes of memory, as the loads of a warp lie that
# far apart (H200, along their first axes, difference uint8 (3535875, 6) backwards: 26.3 us, so 12.3 us; heads uint8
# (10661369, 3), seven apart: 73.8 us, so 26.0 us, of eight rows 30.3 us; but of more bytes, both uint16 (3889660, 7)
# backwards: 52.7 and 79.6 us)
ROWS, MAX_BYTES = 4, 32
# Of an array (tails bfloat16 (99122, 3), four apart: 1.3 and 1.9 us); of threads of a slice
MIN_ELEMENTS, MIN_GROUPS = 1 << 20, 64
MAX_TILE_BYTES = 8  # of a row of tiles: wider ones load and store vectors


def choose_runs(form: Form, facts: Facts, tiles: StridedChoice) -> StridedChoice | None:
    """Return the launch; None for others, or where ``tiles`` have vectors of elements and results."""
    flagged, columns = form.flagged, form.others[-1] if form.others else None
    if form.bits or columns is None or facts.counted or facts.periodic or facts.size > MAX_SIZE:
        return None
    width, pitch, others = columns.extent, flagged.steps[0], form.others[:-1]
    together = set(columns.steps[1:]) == {1} and set(flagged.steps[1:]) == {width} and abs(columns.steps[0]) == 1
    if not together or pitch < width or width == 1 or flagged.extent * form.rows < MIN_ELEMENTS:
        return None
    if not isinstance(tiles.policy, TilePolicy) or tiles.policy.columns * facts.size >= min(
        MAX_TILE_BYTES, width * facts.size
    ):
        return None
    back = columns.steps[0] < 0
    begin = facts.begin - (width - 1) * facts.size * back
    run, groups = ROWS * pitch * facts.size, ceil_div(flagged.extent, ROWS)
    starts = [axis.steps[0] * facts.size for axis in others]
    piece = alignment(math.gcd(run, begin % VECTOR_BYTES or VECTOR_BYTES, *starts))
    ends = [step * facts.result for axis in others for step in axis.steps[1:]]
    stored = alignment(math.gcd(ROWS * width * facts.result, facts.result_aligned, *ends))
    if run > MAX_BYTES or min(piece, stored) < WORD_BYTES or groups < MIN_GROUPS:
        return None
    counts = groups, *(axis.extent for axis in others[::-1])
    wide = math.prod(counts) >> NUMBER_BITS > 0
    loads = back, piece // facts.size, stored // facts.result
    policy = RunPolicy(len(counts), ROWS, width, pitch, *loads, wide)
    return StridedChoice(policy, (flagged, *others[::-1]), counts)
