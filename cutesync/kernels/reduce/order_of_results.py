"""In which order results are numbered where they lie in another order than elements."""

from __future__ import annotations

from dataclasses import replace

from ...runtime.layout import Axis
from .copies import SECTOR_BYTES
from .strided_problem import StridedProblem

MIN_BLOCKED_BYTES = 1 << 22  # of results: those of less stay in the L2 cache until their sectors are whole
BLOCK_RESULTS, MIN_BLOCK_RESULTS = 1024, 64  # neighbours in the input of a block of results


def blocked(problem: StridedProblem) -> StridedProblem:
    """Return the problem with another order of results where these lie in another order than elements: blocks of
    neighbours in the input, and block after block along the axis of neighbours in the output. So the parts of a sector
    of results are written soon after each other, and the L2 cache joins them."""
    inputs, form, kept = problem.inputs, problem.form, problem.form.kept
    size = max(output.size for output in problem.outputs)
    if len(kept) < 2 or form.results * size < MIN_BLOCKED_BYTES or smallest_step(kept) < smallest_step(form.reduced):
        return problem  # a thread that has several neighbours in the input gains nothing
    *others, last = kept
    near = [i for i, axis in enumerate(others) if abs(axis.steps[inputs]) == 1 and any(axis.steps[:inputs])]
    most = next((n for n in range(BLOCK_RESULTS, MIN_BLOCK_RESULTS - 1, -1) if last.extent % n == 0), last.extent)
    if not near or abs(last.steps[inputs]) * size < SECTOR_BYTES:
        return problem
    stored = others.pop(near[0])
    outer = Axis(last.extent // most, tuple(step * most for step in last.steps))
    axes = [*others, outer, stored, Axis(most, last.steps)]
    return replace(problem, form=form._replace(kept=tuple(axis for axis in axes if axis.extent > 1)))


def smallest_step(axes: tuple[Axis, ...]) -> int:
    """Return the smallest step in memory along the last axis; a large number if there is none."""
    steps = [abs(axis.steps[0]) for axis in axes if axis.steps[0]]
    return min(steps, default=1 << 62)
