"""Which threads scan short axes of strided arrays whose elements, and whose results, are neighbours in memory along the
columns or along the axis, not necessarily along the same one."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...runtime.kernel import Scalar
from ...sizes import ceil_div, power_of_two, power_of_two_below
from ..axes import NUMBER_BITS, numbers, parameters
from ..policy import Policy
from .layout import Layout
from .problem import SMS, VECTOR_BYTES, Choice, Problem

THREADS = 256
MAX_LENGTH, MAX_BYTES = 16, 64  # of a column
WORD_BYTES = 4  # a thread has a word of neighbouring columns, and a vector of elements if these are not more
# Runs of results that are no words, in arrays that caches do not hold, are left to the kernel that turns tiles (H200,
# float16 (26153272, 7), transposed: 432 us, so 301 us).
ODD_BYTES = 1 << 25
MIN_APART_BYTES = 1 << 23  # slices with large gaps are read as tiles, in runs of their rows (``column_policy.suits``)
SECTOR_BYTES = 32  # neighbouring threads load parts of the same sectors if their elements lie no further apart
STEPS = ("x_step", "x_next", "out_step")


@dataclass(frozen=True)
class ShortPolicy(Policy, kernel=".short:ShortScan"):
    """A thread has the ``length`` positions of ``width`` neighbouring columns. It loads ``load`` neighbours at once,
    which are positions if ``along``, else columns; it stores ``store`` at once: of all its results, which are one run
    of memory, if ``dense``, else of a position's. ``rank`` axes of columns."""

    rank: int
    length: int
    width: int
    along: bool
    load: int
    dense: bool
    store: int


def short(problem: Problem, layout: Layout) -> Choice | None:
    """Return the policy and the launch; None for other arrays."""
    if problem.several or problem.counted or layout.firsts or len(layout.scanned) != 1 or not layout.columns:
        return None
    length, (x_step, out_step) = layout.scanned[0]
    *others, (extent, (x_next, out_next)) = layout.columns
    dense, along = (out_step, out_next) == (1, length), x_next != 1
    near = x_step == 1 and 0 < x_next * problem.source <= max(SECTOR_BYTES, 2 * length * problem.source)
    each = length * problem.wide
    if length > MAX_LENGTH or each > MAX_BYTES or not (dense or out_next == 1) or (along and not near):
        return None
    if dense and each % WORD_BYTES and layout.count * each > ODD_BYTES:
        return None
    run = length * extent * problem.source  # a slice, if it is one
    apart = (x_step, x_next) == (extent, 1) and others and abs(others[-1].steps[0]) * problem.source >= 2 * run
    if apart and extent * problem.source < SECTOR_BYTES and layout.count * each >= MIN_APART_BYTES:
        return None
    width = power_of_two_below(max(1, VECTOR_BYTES // each, WORD_BYTES // problem.wide))
    width = math.gcd(width, extent)
    while width > 1 and layout.count // width < SMS * THREADS:
        width //= 2
    x_steps, out_steps = ([axis.steps[k] for axis in others] for k in range(2))
    x_steps.append(x_next if along else x_step)
    out_steps.append(width * length if dense else out_step)
    load = _vector(problem.source, problem.xs[0], length if along else width, x_steps)
    store = _vector(problem.results[0], problem.outs[0], width * length if dense else width, out_steps)
    count = layout.count // width
    if count + THREADS >= 1 << NUMBER_BITS:
        return None
    policy = ShortPolicy(power_of_two(len(layout.columns)), length, width, along, load, dense, store)
    axes = [*layout.columns[:-1], layout.columns[-1]._replace(extent=extent // width)]
    axes[-1] = axes[-1]._replace(steps=(x_next * width, out_next * width))
    names = [*(Scalar(name, "Int64") for name in STEPS), *parameters("axis", policy.rank, 2, False)]
    values = [x_step, x_next, out_step, *numbers(axes, policy.rank, 2, False)]
    return Choice(policy, count, ceil_div(count, THREADS), layout=dict(zip(names, values, strict=True)))


def _vector(size: int, address: int, count: int, steps: list[int]) -> int:
    """Return how many of ``count`` neighbours are accessed at once."""
    return math.gcd(VECTOR_BYTES // size, address // size, count, *steps)
