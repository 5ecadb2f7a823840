"""Which threads scan axes of one element, where each element is alone after the first operand, if there is one."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...sizes import ceil_div, power_of_two
from ..axes import NUMBER_BITS, numbers, parameters
from ..hardware import SMS, VECTOR_BYTES, WORD_BYTES
from ..policy import Policy
from .layout import Layout
from .problem import Choice, Problem

THREADS = 256
MAX_UNROLL, SM_BLOCKS = 4, 8  # vectors of a thread, if so many blocks an SM have as many
# Of smaller arrays a thread has one result: vectors of them would take longer than those of the other threads (H200,
# uint8 (566, 1, 3): 1.1 us, in vectors 1.7 us; uint32 (19310, 2) from its second element on: 0.8 and 1.0 us).
MIN_BYTES = 1 << 17
NEAR_BYTES = 32  # neighbouring results whose elements lie no further apart are read from the same lines


@dataclass(frozen=True)
class LonePolicy(Policy, kernel=".lone:LoneScan"):
    """The results of all columns are one run of memory, of which a thread has ``unroll`` vectors of ``width`` results.
    ``rank`` axes of columns. Where the elements of a vector are neighbours, too, they are read in units of ``unit``
    bytes: of 4 to 16, or, if it is less than 4, in words that begin elsewhere; 0: elements are read one by one."""

    rank: int
    width: int
    unroll: int
    unit: int


def lone(problem: Problem, layout: Layout, reads: bool) -> Choice | None:
    """Return the policy and the launch; None for other arrays. Without ``reads`` results are the first operand."""
    if problem.several or problem.counted or layout.firsts or layout.length > 1 or not _is_one_run(layout):
        return None
    (source,), (size,) = problem.sources, problem.results
    width, count, columns = VECTOR_BYTES // size, layout.count, layout.columns
    if count + (MAX_UNROLL * THREADS + 1) * width >= 1 << NUMBER_BITS:
        return None
    if layout.extents() is not None and problem.vector(width) == (width, 0):
        return None  # ``slice_policy.single`` divides no numbers
    if count * size < MIN_BYTES:
        width = 1
    lead = problem.outs[0] // size % width  # of results that the first vector does not have
    unit = 0
    if columns and reads:
        if not _are_near(layout, source):
            return None
        if columns[-1].steps[0] == 1 and columns[-1].extent >= width > 1 and source == size:
            skews = [size * (x_step - out_step) for _, (x_step, out_step) in columns]
            unit = math.gcd(VECTOR_BYTES, problem.xs[0] - lead * size, *skews)
        if unit < WORD_BYTES and any(axis.steps[0] <= 0 for axis in columns):
            unit = 0  # the elements at the array's ends would not be those of the first and the last result
    unroll = MAX_UNROLL
    while unroll > 1 and count < SMS * SM_BLOCKS * THREADS * width * unroll:
        unroll //= 2
    policy = LonePolicy(power_of_two(max(1, len(columns))), width, unroll, unit)
    vectors = ceil_div(lead + count, width)
    names = parameters("axis", policy.rank, 2, False)
    values = numbers(columns, policy.rank, 2, False)
    return Choice(policy, vectors, ceil_div(vectors, THREADS * unroll), layout=dict(zip(names, values, strict=True)))


def _is_one_run(layout: Layout) -> bool:
    """Return whether the results of all columns are one run of memory, in their order."""
    run = 1
    for axis in reversed(layout.columns):
        if axis.steps[1] != run:
            return False
        run *= axis.extent
    return True


def _are_near(layout: Layout, size: int) -> bool:
    """Return whether neighbouring results are those of elements as near to each other as any."""
    steps = [abs(axis.steps[0]) for axis in layout.columns]
    return steps[-1] * size <= NEAR_BYTES or steps[-1] == min(step for step in steps if step)
