"""How many equal results a thread of a reduction stores, along a kept axis along which the inputs are repeated."""

from __future__ import annotations

import math

from .policy import SMS, VECTOR_BYTES
from .strided_problem import THREADS, StridedProblem

SECTOR_BYTES, MAX_FILL_BYTES = 32, 128  # of equal results side by side that a thread stores
LONG_ROW_BYTES, MAX_LONG_FILL_BYTES = 1 << 14, 1 << 12  # more, where each of the threads reads a long row for them
MAX_FACTOR, COPYING_THREADS = 64, 2 * SMS * THREADS  # of the search for copies; enough to fill the GPU


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
