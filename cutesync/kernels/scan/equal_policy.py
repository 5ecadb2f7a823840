"""Which threads scan arrays whose elements are equal along the scanned axis (its stride is 0)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...runtime.kernel import Scalar
from ...runtime.layout import Axis
from ...sizes import ceil_div, power_of_two, power_of_two_below
from ..axes import NUMBER_BITS, numbers, parameters
from ..hardware import LANES, LINE_BYTES, VECTOR_BYTES, WORD_BYTES
from ..policy import Policy
from .layout import Layout
from .problem import Choice, Problem
from .short_policy import short

THREADS = 256
# Vectors of a column up to which the results of all columns are one run of vectors: each begins by a power of its own
# (H200, bfloat16, columns of 12, 33, 233 and 673 results: 557, 482, 59.6 and 358 us, so 110, 123, 28.3 and 202 us; but
# int64, of 512: 17.0 us, so 30.8 us).
MAX_FLAT_VECTORS = 128
FLAT_UNROLL, FLAT_VECTORS = 4, 1 << 20  # vectors of a thread there, if there are so many
MAX_UNROLL = 4  # vectors of a thread along a long axis
MAX_HEIGHT, MIN_THREADS = 32, 1 << 15  # positions of a thread across it; fewer, so that there are so many threads
# Rows of columns that are not whole lines: neighbouring threads have neighbouring positions, NEAR_LANES of them, so a
# warp stores whole lines, if a warp has several rows, or a block has, and threads store words or 16 bytes (H200, rows
# of 13 uint64: 8.5 us, so 5.6 us; of 38 and 161 float32: 157 and 35.9 us, so 73.3 and 25.5 us; of 66 and 402 float64:
# 106 and 35.0 us, so 96.7 and 30.7 us; but of 151 uint8: 152 us, so 180 us; of 130 float32, in pairs: 18.8 us, so 20.8
# us).
# Of axes below MIN_LONG positions fewer are neighbours, so that a thread has about MIN_NEAR of them: its first result
# takes as long as many others (exclusive bfloat16 (1676, 24, 21, 3) along axis 2: 23.4 us, so 6.8 us, of two or eight
# positions 10.8 and 8.2 us; int8 (104578, 4, 6): 75.4 and 4.5 us; but lambda bfloat16 (729, 73, 24): 3.0 and 3.3 us).
NEAR_LANES, MIN_NEAR, MIN_LONG = 32, 4, 64


@dataclass(frozen=True)
class EqualPolicy(Policy, kernel=".equal:EqualScan"):
    """Compile-time choices of the kernel: the axes of a thread's number, and how a vector of ``width`` results lies:
    "along" the scanned axis, where a thread has ``unroll`` vectors, ``lanes`` vectors apart; "across" it, where it has
    ``unroll`` positions, ``lanes`` apart; or "flat", anywhere in the results of all columns, which are one run of
    memory and no shorter than a vector each: a thread has ``unroll`` vectors there, too."""

    rank: int
    way: str
    width: int
    unroll: int
    lanes: int


def equal(problem: Problem, layout: Layout) -> Choice | None:
    """Return the policy and the launch; None for other arrays."""
    if problem.several or problem.counted or len(layout.scanned) != 1:
        return None
    length, (x_step, out_step) = layout.scanned[0]
    if x_step != 0 or out_step <= 0:
        return None
    few = short(problem, layout) if out_step == 1 and length * problem.results[0] < VECTOR_BYTES else None
    if few is not None:
        return few
    found = (_flat(problem, layout) or _along(problem, layout)) if out_step == 1 else _across(problem, layout)
    if found is None:
        return None
    axes, (way, width, unroll, lanes) = found
    count = math.prod(axis.extent for axis in axes)
    if max(count, length + width * unroll * lanes) >= 1 << NUMBER_BITS:
        return None
    policy = EqualPolicy(power_of_two(len(axes)), way, width, unroll, lanes)
    if way == "flat":
        count = ceil_div(ceil_div(count, width) + 1, unroll)  # the first and the last vector may be partial
    names = [Scalar("out_step", "Int64"), *parameters("axis", policy.rank, 3, False)]
    values = [out_step, *numbers(axes, policy.rank, 3, False)]
    return Choice(policy, count, ceil_div(count, THREADS), layout=dict(zip(names, values, strict=True)))


def _flat(problem: Problem, layout: Layout):
    """Return the axes of results, with the strides of the input and the position beside that of the output; None if
    columns are not one run of memory, long, or shorter than a vector."""
    width, run = VECTOR_BYTES // problem.results[0], layout.length
    if not width <= layout.length <= MAX_FLAT_VECTORS * width:
        return None
    for axis in reversed(layout.columns):
        if axis.steps[1] != run:
            return None
        run *= axis.extent
    axes = [*(Axis(n, (*steps, 0)) for n, steps in layout.columns), Axis(layout.length, (0, 1, 1))]
    return axes, ("flat", width, FLAT_UNROLL if run >= FLAT_VECTORS * width else 1, 1)


def _along(problem: Problem, layout: Layout):
    """Return the axes of threads whose results are neighbours along the scanned axis: columns, runs of vectors, and
    vectors of a run; each with the strides of the input, the output and the position."""
    width = VECTOR_BYTES // problem.results[0]
    units = ceil_div(layout.length, width) + 1  # vectors on their boundaries; the first and the last may be partial
    lanes = min(LANES, power_of_two(units))
    unroll = max(1, min(MAX_UNROLL, units // (2 * LANES)))
    runs = ceil_div(units, lanes * unroll)
    columns = [Axis(n, (*steps, 0)) for n, steps in layout.columns]
    axes = [*columns, Axis(runs, (0, 0, lanes * unroll * width)), Axis(lanes, (0, 0, width))]
    return axes, ("along", width, unroll, lanes)


def _across(problem: Problem, layout: Layout):
    """Return the axes of threads whose results are neighbours along the last axis of columns: other columns, runs of
    positions, and vectors of columns. None if columns are not neighbours."""
    if not layout.columns or layout.columns[-1].steps[1] != 1:
        return None
    *others, (last, (x_step, _)) = layout.columns
    strides = [axis.steps[1] for axis in (*others, layout.scanned[0])]
    width = math.gcd(VECTOR_BYTES // problem.results[0], last, problem.outs[0] // problem.results[0], *strides)
    vectors = last // width
    threads = math.prod(axis.extent for axis in others) * vectors
    height = MAX_HEIGHT
    while height > 1 and threads * ceil_div(layout.length, height) < MIN_THREADS:
        height //= 2
    size = problem.results[0]
    several = vectors < LANES or (vectors < THREADS and width * size in (WORD_BYTES, VECTOR_BYTES))
    near = height > 1 and last * size % LINE_BYTES != 0 and several
    few = power_of_two_below(ceil_div(layout.length, MIN_NEAR)) if layout.length < MIN_LONG else NEAR_LANES
    lanes = few if near else 1
    runs = ceil_div(layout.length, height * lanes)
    axes = [Axis(n, (*steps, 0)) for n, steps in others]
    axes += [Axis(runs, (0, 0, height * lanes)), Axis(vectors, (x_step * width, width, 0))]
    if near:
        axes.insert(-1, Axis(lanes, (0, 0, 1)))
    return axes, ("across", width, height, lanes)
