"""Which slices of a strided array are reduced in shared memory, and how many a block holds: a pure function of the
normal form, types and alignment."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from ...runtime.layout import Axis
from ...sizes import ceil_div, power_of_two
from ..hardware import SMS, VECTOR_BYTES
from .policy import ORDERED_ROW_BYTES
from .strided_loads import resident
from .strided_problem import THREADS, StridedChoice, StridedPolicy, StridedProblem

STAGE_BYTES = 16384  # of slices in shared memory: eight blocks a multiprocessor
# Six of them are to fit its registers where there are more than the five that do anyway (H200, any bfloat16 rows of 3
# of 5: 50.8 us, so 46.1 us; squares int8 (854308, 33) of rows of 43: 30.9 and 23.3 us; eight: 47.8 and 23.1 us, but
# sum int8 (23401, 151, 14): 33.9 and 39.6 us; of fewer blocks, max float16 (229933, 3) of 6: 2.7 and 3.1 us).
RESIDENT_SLICES = (6, 5)
LINE_BYTES = 128  # smaller gaps are copied: every line has elements
MIN_BYTES, MIN_SLICES = 1 << 18, 64  # of an array: with less, threads reduce results from global memory
# Of a block; and of each of many blocks of rows (H200, a callable on int8 (27193, 48, 28) of groups of 1,344 bytes with
# gaps: 84 us, so 20 us; int16 (3855, 23, 23), 1,058 bytes: 13.3 and 3.4 us; but int8 (20504, 31, 79), 2,449 bytes: 71
# and 95 us).
MIN_BLOCK_BYTES, MIN_BLOCK_OF_ROWS, MANY_BLOCKS = 1024, 1536, 24 * SMS
MAX_SIZE = 2  # wider elements are read as fast from global memory
MAX_COLUMNS_BYTES = 64  # of neighbouring results; more fill whole lines
MAX_ROW_BYTES = 128  # longer rows are runs
# Of elements that keep their order, also longer ones, with gaps as long, unless rows begin on the same banks of shared
# memory: the multiple of bytes between rows, and bytes of an array (H200, lambda uint8 (200000, 300) with gaps of 40
# bytes: 224 us, so 29 us; float16 (862787, 49), of 12 elements: 558 and 40 us; but int8 (8192, 512) off by one: 5.8 and
# 14 us; uint16 (1024, 256): 1.6 and 3.6 us).
BANKS_BYTES, MIN_ORDERED_BYTES = 32, 1 << 20


@dataclass(frozen=True)
class SlicePolicy(StridedPolicy, kernel=".slices:SliceReduce"):
    """The last two kept axes are that of slices and that of the results of a slice. A block holds up to ``stage`` bytes
    of slices in shared memory, each followed by ``pad`` bytes. A choice's ``extent`` is how many slices."""

    stage: int = 0
    pad: int = 0


class Slices(NamedTuple):
    """The axes of a problem: those of groups of ``slices``, which lie beside each other with small gaps, that of the
    results inside, and that of the elements of a result. A slice is ``span`` elements long."""

    outer: tuple[Axis, ...]
    slices: Axis
    inner: Axis
    row: Axis
    span: int

    @property
    def pitch(self) -> int:
        """From slice to slice, in elements."""
        return self.slices.steps[0]


def choose(problem: StridedProblem) -> StridedChoice | None:
    """Return the choice of slices in shared memory; None if other kernels are faster."""
    axes = slices_of(problem)
    if axes is None or problem.size > MAX_SIZE:
        return None
    count = math.prod(axis.extent for axis in (*axes.outer, axes.slices))
    if count < MIN_SLICES or count * axes.span * problem.size < MIN_BYTES:
        return None
    if axes.inner.extent > 1 and axes.inner.extent * problem.size > MAX_COLUMNS_BYTES:
        return None
    if axes.inner.extent == 1 and axes.span * problem.size > most_of_row(problem):
        return None
    choice = choice_of(problem, axes)
    if choice is None:
        return None
    many = axes.inner.extent == 1 and choice.tiles > MANY_BLOCKS
    least = MIN_BLOCK_OF_ROWS if many else MIN_BLOCK_BYTES
    return choice if choice.extent * axes.pitch * problem.size >= least else None


def most_of_row(problem: StridedProblem) -> int:
    """Return the most bytes of a row that is read in slices."""
    large = problem.form.results * problem.form.length * problem.size >= MIN_ORDERED_BYTES
    return ORDERED_ROW_BYTES if large and not problem.in_turn else MAX_ROW_BYTES


def slices_of(problem: StridedProblem) -> Slices | None:
    """Return the axes as those of slices; None if the elements of a result are far apart."""
    form, arrays = problem.form, len(problem.outputs) + 1
    if problem.inputs > 1 or len(form.reduced) > 1 or form.weights:
        return None
    blank = Axis(1, (0,) * arrays)
    row = form.reduced[0] if form.reduced else Axis(1, (0,))
    inside = [axis for axis in form.kept if 0 < axis.steps[0] < row.steps[0]] if form.reduced else list(form.kept[-1:])
    near = LINE_BYTES // problem.size
    outside = list(form.kept[: len(form.kept) - len(inside)])
    if row.extent == 0 or row.steps[0] < 0 or len(inside) > 1 or inside != list(form.kept[len(outside) :]):
        return None
    inner = inside[0] if inside else blank
    span = 1
    for extent, steps in (inner, row):
        if extent > 1 and not 0 <= steps[0] - span < near:
            return None
        span += (extent - 1) * steps[0]
    slices = Axis(1, (span, *blank.steps[1:]))
    far = max(near, span) if inner is blank and not problem.in_turn else near
    if outside and 0 <= outside[-1].steps[0] - span < far:
        slices = outside.pop()
    return Slices(tuple(outside), slices, inner, row, span)


def choice_of(problem: StridedProblem, axes: Slices) -> StridedChoice | None:
    """Return the choice of the axes; None if a slice does not fit shared memory."""
    size, pitch = problem.size, axes.pitch * problem.size
    pad = 0
    if problem.begin == 0 and pitch % 128 == 0 and all(axis.steps[0] * size % VECTOR_BYTES == 0 for axis in axes.outer):
        pad = ceil_div(axes.inner.extent * size, VECTOR_BYTES) * VECTOR_BYTES % 128 or VECTOR_BYTES
    long = axes.inner.extent == 1 and axes.span * size > MAX_ROW_BYTES
    if long and pad == 0 and pitch % BANKS_BYTES == 0:
        return None
    stage = STAGE_BYTES if pitch + pad <= STAGE_BYTES else 3 * STAGE_BYTES
    if pitch + pad > stage:
        return None
    groups_of_slices = math.prod(axis.extent for axis in axes.outer)
    each = min(stage // (pitch + pad), ceil_div(axes.slices.extent * groups_of_slices, 4 * SMS), axes.slices.extent)
    results, length = each * axes.inner.extent, axes.row.extent
    groups = next(g for g in (128, 64, 32, 16, 4, 1) if g == 1 or (g * results <= THREADS and 4 * g <= length))
    kept = (*axes.outer, axes.slices, axes.inner)
    tiles = groups_of_slices * ceil_div(axes.slices.extent, each)
    policy = SlicePolicy(
        power_of_two(len(kept)),
        1,
        True,
        "element",
        size,
        THREADS // groups,
        groups,
        8,
        problem.in_turn,
        False,
        False,
        repeated=problem.form.repeats > 1,
        resident=resident(tiles, RESIDENT_SLICES) if stage == STAGE_BYTES else 1,
        stage=stage,
        pad=pad,
    )
    return StridedChoice(policy, 1, tiles, kept, (axes.row,), extent=each, repeats=problem.form.repeats)
