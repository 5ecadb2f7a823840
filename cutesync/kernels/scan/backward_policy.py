"""Which columns that run backwards in the input, but not in the results, are scanned as those that do not."""

from __future__ import annotations

from dataclasses import replace

from ...runtime.layout import Axis
from . import column_policy
from .layout import STEPS, Layout
from .problem import VECTOR_BYTES, Choice, Problem


def is_backward(problem: Problem, layout: Layout) -> bool:
    """Return whether the only input runs backwards along the columns that are neighbours."""
    if problem.several or problem.counted or layout.firsts or len(layout.scanned) != 1 or not layout.columns:
        return False
    return layout.columns[-1].steps == (-1, 1)


def backward_columns(problem: Problem, layout: Layout) -> tuple[Choice, tuple[int, int, int]] | None:
    """Return the policy, the launch and the extents; None if strided tiles are better. An address of the input that
    counts is that behind the first column of a row."""
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
    steps = dict(zip(STEPS, (*form.steps, form.group, *form.next)))
    return replace(column_policy.columns(seen), layout=steps, view=view), form.extents
