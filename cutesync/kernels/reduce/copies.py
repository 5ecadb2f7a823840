"""How many equal results a thread of a reduction stores, along a kept axis along which the inputs are repeated."""

from __future__ import annotations

import math
from dataclasses import replace

from ...runtime.layout import Axis
from ..hardware import SMS, VECTOR_BYTES
from .strided_problem import THREADS, StridedChoice, StridedProblem

SECTOR_BYTES, MAX_FILL_BYTES = 32, 128  # of equal results side by side that a thread stores
LONG_ROW_BYTES, MAX_LONG_FILL_BYTES = 1 << 14, 1 << 12  # more, where each of the threads reads a long row for them
MAX_FACTOR, COPYING_THREADS = 64, 2 * SMS * THREADS  # of the search for copies; enough to fill the GPU
# Where only one copy of long rows would leave enough: the fewest of at least so many, if these leave a quarter of the
# threads, as else each copy is reduced again (H200, argmax float32 (19, 35136, 4) of equal elements along its first
# axis: 6.2 us, so 5.1 us; sum int64 (7, 36025, 6): 4.6 and 3.3 us; but where an eighth is left, squares int8 (17, 2,
# 21882): 2.0 and 2.3 us).
LEFT_OF_COPYING, MIN_FACTOR, MIN_LENGTH_OF_FEW = 4, 4, 1024
# Of so many results in a row that differ in their thread, neighbours store neighbours (H200, any uint32 (2, 99, 1,
# 49851) of equal elements along its last axis, along its first one: 80 us, so 4.1 us; but squares int16 (20, 6, 23108):
# 1.5 and 2.2 us).
MIN_BESIDE = 8


def copies(problem: StridedProblem, place: int) -> tuple[int, int] | None:
    """Return how many equal results a thread stores, and how many of them as a vector, along the kept axis at
    ``place``, a broadcast one: as many as leave enough threads, or fill a sector if they are neighbours in memory."""
    axis = problem.form.kept[place]
    steps, results = axis.steps[problem.inputs :], problem.form.results
    neighbours = set(steps) == {1}
    if any(abs(step) == 1 for step in steps) and not neighbours:
        return None
    factors = {n for k in range(1, MAX_FACTOR) for n in (k, axis.extent // k) if n and axis.extent % n == 0}
    threads = results * max(1, problem.form.length // 8)  # each has eight positions at least
    least = COPYING_THREADS if problem.form.length < 8 * THREADS else COPYING_THREADS // 2  # which blocks share
    counts = [n for n in factors if threads // n >= least]
    if counts == [1] and not neighbours and problem.form.length >= MIN_LENGTH_OF_FEW:
        fewer = (n for n in factors if n >= MIN_FACTOR and LEFT_OF_COPYING * threads // n >= least)
        counts.append(min(fewer, default=1))
    fill = 1
    if neighbours:
        size = max(output.size for output in problem.outputs)
        most = MAX_LONG_FILL_BYTES if problem.form.length * problem.size >= LONG_ROW_BYTES else MAX_FILL_BYTES
        counts = [n for n in factors if n * size <= most and (n in counts or n * size <= SECTOR_BYTES)]
        others = [
            step for i, each in enumerate(problem.form.kept) if i != place for step in each.steps[problem.inputs :]
        ]
        starts = [*others, *(output.begin // output.size for output in problem.outputs), max(counts)]
        fill = math.gcd(VECTOR_BYTES // size, *starts)
    count = max(counts, default=1)
    return (count, fill) if count > 1 else None


def without_copies(problem: StridedProblem, place: int, count: int, fill: int) -> StridedProblem:
    """Return the problem of threads that store each result ``count`` times along the kept axis at ``place``, ``fill``
    of them as a vector: with what is left of this axis, the last one if its results lie beside each other."""
    kept = list(problem.form.kept)
    axis = kept.pop(place)
    left = Axis(axis.extent // count, tuple(step * fill for step in axis.steps))  # neighbours store neighbours
    neighbours = set(axis.steps[problem.inputs :]) == {1}
    if left.extent > 1:
        kept.insert(len(kept) if neighbours and left.extent >= MIN_BESIDE else place, left)
    return replace(problem, form=problem.form._replace(kept=tuple(kept)), beside=count if neighbours else 1)


def copied(choice: StridedChoice, problem: StridedProblem, place: int, count: int, fill: int) -> StridedChoice:
    """Return the choice for that problem, as one for ``problem``."""
    axis = problem.form.kept[place]
    steps = axis.steps[problem.inputs :]
    policy = replace(choice.policy, copied=True, fill=fill)
    if any(step % (policy.bytes // problem.size) for step in steps):
        policy = replace(policy, store="element")
    far = tuple(step * fill * (axis.extent // count) for step in steps)
    return replace(choice, policy=policy, copies=(count // fill, *far))
