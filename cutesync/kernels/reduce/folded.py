"""Columns whose rows begin anywhere, in two launches: some rows that together end on a boundary are one, the columns of
which the first launch reduces in whole vectors. The second one reduces what is left of these rows.

An array that begins behind a boundary has so many elements less in its first row: what the first vector has of them are
the last columns, behind which its results come, too."""

from __future__ import annotations

from dataclasses import replace

from ...runtime.call import Views
from ...runtime.launch import Run, in_turn
from ...runtime.layout import Axis
from ...runtime.view import View
from ...sizes import ceil_div
from ..hardware import VECTOR_BYTES
from .launches import rows_at_once
from .normal import Normal
from .problem import Problem
from .spec import ReduceSpec, Reduction
from .strided_plan import form_of, launch, order_of, problem_of_form, shifted, strided
from .strided_policy import choose


def folded(spec: ReduceSpec, problem: Problem, views: Views, outs: Views, stream: int) -> Run | None:
    """Return the launches of a contiguous array; None if its rows are not reduced some at once."""
    reduction = spec.reduction
    if not isinstance(reduction, Reduction) or not order_of(reduction)[0]:
        return None
    rows = rows_at_once(problem, reduction.between.size)
    if rows == 0:
        return None
    outer, length, inner = problem.outer, problem.length, problem.inner
    device, columns = views[0].device, rows * inner
    lead = views[0].ptr % VECTOR_BYTES // problem.size  # elements between a boundary and the first
    between = View(0, (outer, rows, inner), reduction.between, device, True)
    first = replace(spec, reduction=reduction.of_pass(0, 2), init=None)
    kept = [Axis(outer, (length * inner, columns))] if outer > 1 else []
    kept.append(Axis(columns, (1, 1)))
    positions = ceil_div(lead + length * inner, columns)
    form = Normal(tuple(kept), (Axis(positions, (columns,)),), (-lead, 0))
    choice = choose(problem_of_form(first, form, views, (between,)))
    left = lead + length * inner - (positions - 1) * columns
    if lead > 0 or left < columns:  # of one slice
        choice = replace(choice, policy=replace(choice.policy, ragged=True), extent=left * VECTOR_BYTES + lead)
    reduced = shifted(launch(choice, first, None, device, stream).run, form, reduction)
    axis = frozenset({1})
    last = replace(spec, reduction=reduction.of_pass(1, 2), shape=between.shape, axes=axis, keepdims=False)
    (out,) = (replace(out, shape=(outer, inner), strides=None) for out in outs)
    order = form_of(last, (between,), (out,))
    rest = strided(last, order._replace(starts=(lead, *order.starts[1:])), (between,), (out,), stream)
    size = between.nbytes + VECTOR_BYTES * reduction.between.size  # the first vector comes behind the last one, too
    return in_turn([(reduced, (0, 2)), (rest, (2, 1))], [size], device)
