"""Which boxes flag arrays whose elements and results are runs along different axes, or along several."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...runtime.layout import Axis
from ...sizes import ceil_div, power_of_two
from ..axes import NUMBER_BITS
from ..hardware import LINE_BYTES, VECTOR_BYTES, WORD_BYTES
from .form import Form
from .order import FAR, pace_in, pace_out
from .strided_choice import BoxPolicy, Facts, StridedChoice, TransposedPolicy

MIN_ELEMENTS = 1 << 17  # of an array; with fewer, tiles of threads take less time
# A run of so few bytes, whose continuation lies so far away in the other array, takes whole lines from memory, and they
# are gone when the rest is wanted (H200, both uint16 (236, 327, 696, 2) along its first axis, read in the order of axes
# 3, 0, 1, 2: tiles 1845 us, boxes 197 us; tails float32 (2355, 26534, 2), in that of 0, 1, 2: 1113 us, 197 us). Threads
# read short runs together that are one run of so many bytes (difference int8 (8, 8, 4194304), in the order of 0, 1, 2:
# 178 us, 442 us).
SHORT_BYTES, FAR_BYTES, THREAD_BYTES = 24, 512, 64
# Of a box (H200, heads float32 (17, 5000, 9, 5) along its third axis, read in the order of 2, 1, 3, 0: 0.19, tiles 51
# us, boxes 22 us). Tiles load equal elements once (heads int32 (105489, 35, 20), repeated along its second axis: tiles
# 44 us, boxes 132 us).
MIN_FILLED = 0.15
# In place of so many times as many blocks that transpose, which are almost empty then (H200, difference uint64 (4055,
# 15, 6, 4) along its third axis, read in the order of 3, 1, 0, 2: 63 times, 75 us, so 9.0 us)
MIN_FEWER = 32
# Short rows that are no vectors, in arrays with so many elements if these are less than words (H200, both uint32 (10,
# 25015, 3) transposed: tiles 9.8 us, boxes 4.4 us; tails int64 (8, 40175, 6): 13.5 and 8.6 us; both uint8 (4, 154879,
# 6): 21.8 and 18.9 us; but int8 (12, 9783, 3): 3.0 and 3.4 us; tails float16 (12, 15281, 4): 1.7 and 2.9 us), and so
# many bytes of results for an element, or runs of so many bytes (tails int16 (5, 1166639, 5): 79.5 and 111 us).
MAX_ROW, MIN_ELEMENTS_OF_FEW, BYTES, MIN_COLUMNS, MIN_RUN_BYTES = 8, 1 << 20, 2, 4, 64
# In arrays of so many elements, results like elements, of two bytes and more (differences), may have longer rows, and
# those of words shorter runs (float32 (12, 279039, 12): 204 and 107 us; int32 (3, 144831, 5): 16.0 and 11.3 us; float32
# (6, 2800001, 5): 1411 and 312 us; smaller arrays and runs are not measured).
MIN_DIFFERENCES, MAX_WIDE_ROW, MIN_WIDE_RUN_BYTES = 1 << 21, 12, 12
BOX, BOX_BYTES = 1 << 12, 1 << 14  # elements, about, and their bytes
DEPTH = 8  # positions along the flagged axis, at least: one more is loaded for each side
MOST_AXES = 4
EACH = 4  # results of a thread that are neighbours


def choose_boxes(form: Form, facts: Facts, tiles: StridedChoice) -> StridedChoice | None:
    """Return the launch with boxes; None where ``tiles`` read and store whole lines in some order."""
    axes = sorted((form.flagged, *form.others), key=pace_in)
    stored = sorted(axes, key=pace_out)
    few = len(axes) == 1 or form.flagged.extent == 1 or math.prod(axis.extent for axis in axes) < MIN_ELEMENTS
    if form.bits or facts.periodic or facts.counted or few or form.flagged.steps[0] == 0:
        return None
    scattered = _short(axes, pace_in, facts.size) and pace_out(axes[1]) * facts.result >= FAR_BYTES
    scattered &= axes[0].extent * axes[1].extent * facts.size > THREAD_BYTES and pace_in(stored[0]) < FAR
    gathered = _short(stored, pace_out, facts.result) and pace_in(stored[1]) * facts.size >= FAR_BYTES
    short = scattered or gathered or _narrow(axes, stored, form.flagged, facts)
    if not (short or isinstance(tiles.policy, TransposedPolicy)):
        return None
    sizes = dict.fromkeys(axes, 1)
    _take(sizes, axes, LINE_BYTES // facts.size, pace_in)
    _take(sizes, stored, LINE_BYTES // facts.result, pace_out)
    sizes[form.flagged] = max(sizes[form.flagged], min(power_of_two(form.flagged.extent), DEPTH))
    most = min(BOX, BOX_BYTES // facts.size)
    _grow(sizes, axes, most)
    _shrink(sizes, form.flagged, stored, 2 * most)
    boxed = [axis for axis in axes if sizes[axis] > 1]
    others = [axis for axis in axes if sizes[axis] == 1]
    filled = math.prod(min(1, axis.extent / sizes[axis]) for axis in boxed)
    if len(boxed) > MOST_AXES or math.prod(sizes.values()) > 2 * most or filled < MIN_FILLED:
        return None
    digits = *boxed, *others
    order = tuple(sorted(range(len(boxed)), key=lambda k: pace_out(boxed[k])))
    first = boxed[order[0]]
    unit = set(first.steps[1:]) == {1}
    each = min(EACH, sizes[first]) if unit else 1
    apart = [step for axis in digits if axis is not first and axis.extent > 1 for step in axis.steps[1:]]
    wide = min(each * facts.result, VECTOR_BYTES)
    vector = each > 1 and not any(step % each for step in apart) and facts.result_aligned % wide == 0
    counts = tuple(ceil_div(axis.extent, sizes[axis]) for axis in digits)
    if not short and math.prod(counts) * MIN_FEWER > tiles.grid:
        return None
    repeated = tuple(axis.steps[0] == 0 for axis in boxed)
    box = tuple(sizes[axis] for axis in boxed)
    numbers = math.prod(counts) >= 1 << NUMBER_BITS
    along = boxed.index(form.flagged)
    policy = BoxPolicy(
        len(digits), along, box, order, repeated, each, vector, numbers, piece=_piece(digits, box[0], along, facts)
    )
    return StridedChoice(policy, digits, counts)


def _piece(axes: Sequence[Axis], size: int, along: int, facts: Facts) -> int:
    """Return the elements of a load: of a word if these are neighbours on the first axis, along which a box has
    ``size``, wherever rows begin, and that is not the flagged one."""
    count, (first, *others) = WORD_BYTES // facts.size, axes
    steps = [axis.steps[0] for axis in others if axis.extent > 1]
    fits = 1 < count <= size and along > 0 and first.steps[0] == 1 and facts.begin % WORD_BYTES == 0
    return count if fits and first.extent % count == 0 and not any(step % count for step in steps) else 1


def _narrow(axes: Sequence[Axis], stored: Sequence[Axis], flagged: Axis, facts: Facts) -> bool:
    """Return whether results are short rows, side by side along an axis that lies between a short one and the flagged
    one in the input: tiles would store single results."""
    length, total = flagged.extent, math.prod(axis.extent for axis in axes)
    alike = facts.result == facts.size > 1 and len(flagged.steps) == 2  # one output
    wide = alike and total >= MIN_DIFFERENCES
    if stored[0] is not flagged or not 2 < length <= (MAX_WIDE_ROW if wide else MAX_ROW) or length & (length - 1) == 0:
        return False
    beside = pace_out(stored[1]) == length and pace_in(stored[1]) == axes[0].extent
    run = axes[0].extent * facts.size
    short = run < LINE_BYTES and pace_out(axes[0]) * facts.result >= FAR_BYTES
    two = facts.result * (len(flagged.steps) - 1) == BYTES and axes[0].extent >= MIN_COLUMNS
    stores = two or run >= (MIN_WIDE_RUN_BYTES if wide and facts.result >= WORD_BYTES else MIN_RUN_BYTES)
    return beside and short and stores and (facts.size >= WORD_BYTES or total >= MIN_ELEMENTS_OF_FEW)


def _shrink(sizes: dict[Axis, int], flagged: Axis, stored: Sequence[Axis], most: int) -> None:
    """Make the box smaller, if it is too large: along the flagged axis, then along that of the results' runs."""
    for axis in (flagged, *stored[1:2]):
        while sizes[axis] > 2 and math.prod(sizes.values()) > most:
            sizes[axis] //= 2


def _short(axes: Sequence[Axis], pace: Callable[[Axis], int], size: int) -> bool:
    """Return whether the first of these axes is a short run."""
    return pace(axes[0]) == 1 and axes[0].extent * size <= SHORT_BYTES


def _take(sizes: dict[Axis, int], axes: Sequence[Axis], count: int, pace: Callable[[Axis], int]) -> None:
    """Give the box so many neighbours along the first axes, of which each begins where the one before ends."""
    following = 1
    for axis in axes:
        if count == 1 or pace(axis) != following:
            break
        size = min(power_of_two(axis.extent), count)
        sizes[axis] = max(sizes[axis], size)
        count, following = (count // size if size >= axis.extent else 1), pace(axis) * axis.extent


def _grow(sizes: dict[Axis, int], axes: Sequence[Axis], most: int) -> None:
    """Make the box larger along axes that it has, the fastest first."""
    for axis in axes:
        while 1 < sizes[axis] < axis.extent and math.prod(sizes.values()) < most:
            sizes[axis] *= 2
