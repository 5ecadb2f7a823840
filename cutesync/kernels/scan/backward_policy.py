"""Which columns that run backwards in the input, but not in the results, are scanned as those that do not."""

from __future__ import annotations

from dataclasses import replace

from ...runtime.layout import Axis
from ...sizes import ceil_div
from . import column_policy
from .column_policy import MAX_UNROLLED_ROWS, ColumnPolicy, ColumnTilePolicy
from .layout import STEPS, Layout
from .problem import VECTOR_BYTES, WORD_BYTES, Choice, Problem
from .strided_policy import StridedPolicy

MAX_FLAT_ROWS, MIN_LANES, MAX_CHAINS = 8, 9, 3


def is_backward(problem: Problem, layout: Layout) -> bool:
    """Return whether the only input runs backwards along the columns that are neighbours."""
    if problem.several or problem.counted or layout.firsts or len(layout.scanned) != 1 or not layout.columns:
        return False
    return layout.columns[-1].steps == (-1, 1)


def backward_columns(problem: Problem, layout: Layout, other: Choice) -> tuple[Choice, tuple[int, int, int]] | None:
    """Return the policy, the launch and the extents; None if strided tiles, the ``other`` choice, are better. An
    address of the input that counts is that behind the first column of a row."""
    *others, last = layout.columns
    form = replace(layout, columns=(*others, Axis(last.extent, (1, 1)))).form(1)
    if form is None:
        return None
    rows, length, inner = form.extents
    if form.view is None:
        form = form._replace(view="pitched", steps=(length * inner, inner) * 2)
    form = form.gathered()
    xs = tuple((x + size) % VECTOR_BYTES for x, size in zip(problem.xs, problem.sources))
    view = "backward"
    seen = replace(
        problem, rows=rows, length=length, inner=inner, xs=xs, view=view, pitches=form.pitches, group=form.group
    )
    if not column_policy.suits(seen):
        return None
    choice = column_policy.columns(seen)
    if not _gains(seen, choice, other):
        return None
    steps = dict(zip(STEPS, (*form.steps, form.group, *form.next)))
    return replace(choice, layout=steps, view=view), form.extents


def _gains(problem: Problem, choice: Choice, other: Choice) -> bool:
    """Return whether a choice is faster than the ``other``, of strided tiles."""
    policy, strided = choice.policy, other.policy
    if isinstance(policy, ColumnPolicy):
        return problem.length <= (MAX_FLAT_ROWS if policy.flat else MAX_UNROLLED_ROWS)
    assert isinstance(policy, ColumnTilePolicy) and isinstance(strided, StridedPolicy)
    if policy.lanes < MIN_LANES or (strided.alone and not policy.alone):
        return False
    singly = policy.width == 1 and problem.source < WORD_BYTES and not policy.alone
    return not singly or ceil_div(problem.rows * problem.inner, strided.lanes) <= MAX_CHAINS
