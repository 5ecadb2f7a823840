"""In which order results are numbered where they lie in another order than elements."""

from __future__ import annotations

import math
from dataclasses import replace

from ...runtime.layout import Axis
from ..hardware import VECTOR_BYTES
from .copies import SECTOR_BYTES
from .strided_problem import StridedProblem

MIN_BLOCKED_BYTES = 1 << 22  # of results: those of less stay in the L2 cache until their sectors are whole
BLOCK_RESULTS, MIN_BLOCK_RESULTS = 1024, 64  # neighbours in the input of a block of results
# The same of vectors of columns: bytes of neighbours in the input, of small elements and of wider ones. Neighbouring
# threads then store neighbours (H200, along axis 1 of transposed arrays: argmax float32 (4096, 8, 512, 2) 187 us, so
# 40 us, by 64 bytes 51 us; sum uint8 (2048, 3, 4096) 191 us, so 68 us, by 128 bytes 127 us).
BLOCK_BYTES, WIDE_BLOCK_BYTES = 64, 128

# Few elements of a small array are in the L1 cache for the threads that are neighbours in the output: neighbours there,
# elements of a result, and bytes that are read (H200, any uint16 (2, 2, 103, 202) along its first axis, transposed: 3.2
# us, so 1.7 us; a callable on float16 (3747, 2, 89), equal along its last axis: 6.2 and 1.3 us; but argmax uint64 (49,
# 11, 144) along axis 1, transposed, 0.6 MB: 1.7 and 2.2 us).
MIN_STORED, MAX_STORED_LENGTH, MAX_STORED_BYTES = 32, 16, 1 << 19


def blocked(problem: StridedProblem) -> StridedProblem:
    """Return the problem with another order of results where these lie in another order than elements: blocks of
    neighbours in the input, and block after block along the axis of neighbours in the output. So the parts of a sector
    of results are written soon after each other, and the L2 cache joins them."""
    inputs, form, kept = problem.inputs, problem.form, problem.form.kept
    size = max(output.size for output in problem.outputs)
    if len(kept) < 2:
        return problem
    if form.results * size < MIN_BLOCKED_BYTES:
        return _as_stored(problem) if len(problem.outputs) == 1 else problem
    *others, last = kept
    near = [i for i, axis in enumerate(others) if abs(axis.steps[inputs]) == 1 and any(axis.steps[:inputs])]
    if not near or abs(last.steps[inputs]) * size < SECTOR_BYTES:
        return problem
    columns, width = smallest_step(kept) < smallest_step(form.reduced), VECTOR_BYTES // problem.size
    if columns and last.extent % width:
        return problem  # a thread that has several neighbours in the input gains nothing
    counts = range(BLOCK_RESULTS, MIN_BLOCK_RESULTS - 1, -1)
    if columns:
        counts = range((WIDE_BLOCK_BYTES if problem.size >= 4 else BLOCK_BYTES) // problem.size, width - 1, -width)
    most = next((n for n in counts if last.extent % n == 0), last.extent)
    stored = others.pop(near[0])
    outer = Axis(last.extent // most, tuple(step * most for step in last.steps))
    axes = [*others, outer, stored, Axis(most, last.steps)]
    if columns:
        axes = [outer, *sorted(others, key=lambda axis: -abs(axis.steps[inputs])), *axes[-2:]]
    return replace(problem, form=form._replace(kept=tuple(axis for axis in axes if axis.extent > 1)))


def _as_stored(problem: StridedProblem) -> StridedProblem:
    """Return the problem with results in the order of the output, if they are of few elements of a small array."""
    inputs, form = problem.inputs, problem.form
    *others, last = form.kept
    read = math.prod(axis.extent for axis in form.kept if any(axis.steps[:inputs])) * form.length * problem.size
    near = any(abs(axis.steps[inputs]) == 1 and axis.extent >= MIN_STORED for axis in others)
    apart = abs(last.steps[inputs]) * problem.outputs[0].size >= SECTOR_BYTES
    if not (near and apart) or form.length > MAX_STORED_LENGTH or read > MAX_STORED_BYTES:
        return problem
    kept = tuple(sorted(form.kept, key=lambda axis: -abs(axis.steps[inputs])))
    return replace(problem, form=form._replace(kept=kept))


def smallest_step(axes: tuple[Axis, ...]) -> int:
    """Return the smallest step in memory along the last axis; a large number if there is none."""
    steps = [abs(axis.steps[0]) for axis in axes if axis.steps[0]]
    return min(steps, default=1 << 62)
