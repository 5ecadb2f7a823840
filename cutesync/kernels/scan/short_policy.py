"""Which threads scan short axes of strided arrays whose elements, and whose results, are neighbours in memory along the
columns or along the axis, not necessarily along the same one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...runtime.kernel import Scalar
from ...runtime.layout import Axis
from ...sizes import ceil_div, power_of_two, power_of_two_below
from ..axes import NUMBER_BITS, numbers, parameters
from ..hardware import SMS, VECTOR_BYTES
from ..policy import Policy
from .layout import Layout
from .problem import Choice, Problem

THREADS = 256
PACES = (2, 4)  # elements so far apart are loaded as vectors of memory, with what lies between them
MAX_PACE = 4
MAX_LENGTH, MAX_BYTES = 16, 64  # of a column
WORD_BYTES = 4  # a thread has a word of neighbouring columns, and a vector of elements if these are not more
# Runs of results that are no words, in arrays that caches do not hold, are left to the kernel that turns tiles (H200,
# float16 (26153272, 7), transposed: 432 us, so 301 us); not columns that are one run of so many bytes in both arrays
# (max int16 (3000, 40, 127, 5), the third axis backwards: 427 us, so 96 us; but exclusive uint16 (979690, 2, 9), runs
# of 36 bytes: 77 and 90 us).
ODD_BYTES, MIN_ONE_RUN_BYTES = 1 << 25, 128
MIN_APART_BYTES = 1 << 23  # slices with large gaps are read as tiles, in runs of their rows (``column_policy.suits``)
SECTOR_BYTES = 32  # neighbouring threads load parts of the same sectors if their elements lie no further apart
# Columns that are loaded backwards or with what lies between, of more positions: results of a position that are
# neighbours are a sector (H200, reverse int16 (256, 2048, 8, 2) along its third axis, columns two apart: 23.8 us by
# strided tiles, so 34.5 us; but (200000, 4, 4) along its second: 11.3 us, so 6.2 us).
MAX_APART_LENGTH = 4
STEPS = ("x_step", "x_next", "out_step", "edge")


@dataclass(frozen=True)
class ShortPolicy(Policy, kernel=".short:ShortScan"):
    """A thread has the ``length`` positions of ``width`` neighbouring columns. It loads ``load`` neighbours at once,
    which are positions if ``along``, and columns behind them if these are neighbours, too; else columns. It stores
    ``store`` at once: of all its results, which are one run of memory, if ``dense``, else of a position's. ``rank``
    axes of columns.

    ``backward``: whether elements run backwards along positions, and along columns. Columns whose elements lie ``gap``
    elements apart are loaded with what lies between them, from ``phase`` elements before the lowest on; the thread with
    number ``edge``, whose vectors would reach beyond the array, loads its elements one by one. ``gap`` 0: a thread's
    columns are the same, of which it loads one."""

    rank: int
    length: int
    width: int
    along: bool
    load: int
    dense: bool
    store: int
    backward: tuple[bool, bool] = (False, False)
    gap: int = 1
    phase: int = 0


def short(problem: Problem, layout: Layout) -> Choice | None:
    """Return the policy and the launch; None for other arrays."""
    if problem.several or problem.counted or layout.firsts or len(layout.scanned) != 1 or not layout.columns:
        return None
    length, (x_step, out_step) = layout.scanned[0]
    *others, (extent, (x_next, out_next)) = layout.columns
    size, each = problem.source, length * problem.wide
    dense = (out_step, out_next) == (1, length)
    near = abs(x_step) == 1 and 0 < abs(x_next) * size <= max(SECTOR_BYTES, 2 * length * size)
    along = abs(x_next) != 1 and near
    if length > MAX_LENGTH or each > MAX_BYTES or not (dense or out_next == 1):
        return None
    if not along and abs(x_next) > MAX_PACE:
        return None
    run = length * extent * size  # a slice, if it is one
    apart = (x_step, x_next) == (extent, 1) and others and abs(others[-1].steps[0]) * size >= 2 * run
    if apart and extent * size < SECTOR_BYTES and layout.count * each >= MIN_APART_BYTES:
        return None
    one_run = along and dense and abs(x_next) == length and extent * each >= MIN_ONE_RUN_BYTES
    if dense and each % WORD_BYTES and layout.count * each > ODD_BYTES and not one_run:
        return None
    width = power_of_two_below(max(1, VECTOR_BYTES // each, WORD_BYTES // problem.wide))
    if x_next == 0 and not dense:
        width = VECTOR_BYTES // problem.results[0]
    width = math.gcd(width, extent)
    while width > 1 and layout.count // width < SMS * THREADS:
        width //= 2
    out_steps = [*(axis.steps[1] for axis in others), width * length if dense else out_step]
    store = _vector(
        problem.results[0], problem.outs[0] // problem.results[0], width * length if dense else width, out_steps
    )
    found = _loads(problem, layout, width, along)
    fresh = any(found.backward) or not (along or abs(x_next) == 1)
    moved = store * problem.results[0] if x_next == 0 else found.load * size
    together = dense or bool(others and others[-1].steps[1] == extent)  # with results of other columns
    beside = together or length <= MAX_APART_LENGTH or extent * problem.results[0] >= SECTOR_BYTES
    if fresh and (moved < WORD_BYTES or not beside):
        return None
    count = layout.count // width
    if count + THREADS >= 1 << NUMBER_BITS:
        return None
    policy = replace(found, dense=dense, store=store)
    axes = [*others, Axis(extent // width, (x_next * width, out_next * width))]
    names = [*(Scalar(name, "Int64") for name in STEPS), *parameters("axis", policy.rank, 2, False)]
    edge = _edge(axes, policy.phase > 0)
    values = [x_step, x_next, out_step, edge, *numbers(axes, policy.rank, 2, False)]
    return Choice(policy, count, ceil_div(count, THREADS), layout=dict(zip(names, values, strict=True)))


def _loads(problem: Problem, layout: Layout, width: int, along: bool) -> ShortPolicy:
    """Return the policy of threads with ``width`` columns as far as the input determines it."""
    length, (x_step, _) = layout.scanned[0]
    *others, (_, (x_next, _)) = layout.columns
    size, steps = problem.source, [axis.steps[0] for axis in others]
    backward = x_step < 0 and along, x_next < 0
    low = problem.xs[0] // size + (width - 1) * x_next * backward[1]  # the lowest of a thread's places
    policy = ShortPolicy(power_of_two(len(layout.columns)), length, width, along, 1, False, 1, backward)
    if along:
        low -= (length - 1) * backward[0]
        if abs(x_next) == length:
            return replace(policy, load=_vector(size, low, width * length, steps))
        return replace(policy, load=_vector(size, low, length, [*steps, x_next]))
    gap, steps = abs(x_next), [*steps, x_step]
    if gap == 0:
        return replace(policy, gap=0)
    if gap == 1:
        return replace(policy, load=_vector(size, low, width, steps))
    phase = low % gap
    load = _vector(size, low - phase, width * gap, steps) // gap
    if gap not in PACES or load < 2 or phase not in (0, gap - 1) or 0 in steps:
        return policy
    return replace(policy, load=load, gap=gap, phase=phase)


def _edge(axes: Sequence[Axis], lowest: bool) -> int:
    """Return the number, along axes, of the input's lowest element, or of its highest."""
    number = 0
    for extent, (step, _) in axes:
        number = number * extent + (0 if (step > 0) == lowest else extent - 1)
    return number


def _vector(size: int, first: int, count: int, steps: Sequence[int]) -> int:
    """Return how many of ``count`` neighbours are accessed at once, from element ``first`` on."""
    return math.gcd(VECTOR_BYTES // size, first, count, *steps)
