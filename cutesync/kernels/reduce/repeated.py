"""Elements that are repeated along a reduced axis behind others, of an operator that keeps the order: two launches.

The first one reduces the repeated axis and all behind it: equal states are combined by doubling
(``strided_base.power``). The second one reduces the axes before it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from ...runtime.call import Views
from ...runtime.launch import Run, in_turn
from ...runtime.view import View
from .launches import repeats_first_is_faster
from .spec import ReduceSpec, Reduction


def repeats_first(spec: ReduceSpec, views: Views, outs: Views, stream: int, plan: Callable) -> Run | None:
    """Return the launches, each as ``plan`` says; None if no such axis has many elements."""
    reduction, x = spec.reduction, views[0]
    if not isinstance(reduction, Reduction) or isinstance(reduction.op, str) or reduction.op.fn is None:
        return None  # others are combined in any order
    gone = [i for i in sorted(spec.axes) if spec.shape[i] > 1]
    first = next((i for i in gone if x.steps[i]), gone[-1] if gone else 0)
    place = next((i for i in gone if i > first and x.steps[i] == 0), None)
    if place is None:
        return None
    inside = frozenset(i for i in spec.axes if i >= place)
    repeats = math.prod(spec.shape[i] for i in inside if x.steps[i] == 0)
    if not repeats_first_is_faster(math.prod(spec.shape), math.prod(spec.shape[i] for i in gone), repeats):
        return None
    once = tuple(1 if step == 0 and i not in inside else n for i, (n, step) in enumerate(zip(spec.shape, x.steps)))
    between = View(0, tuple(1 if i in inside else n for i, n in enumerate(once)), reduction.between, x.device, True)
    given = replace(spec, reduction=reduction.of_pass(0, 2), shape=once, axes=inside, keepdims=True, init=None)
    reduced, _ = plan(given, (replace(x, shape=once, strides=x.steps, contiguous=False),), (between,), stream)
    left = tuple(1 if i in inside else n for i, n in enumerate(spec.shape))
    steps = tuple(0 if n > own else step for n, own, step in zip(left, between.shape, between.steps))
    again = replace(between, shape=left, strides=steps, contiguous=left == between.shape)
    rest, _ = plan(replace(spec, reduction=reduction.of_pass(1, 2), shape=left), (again,), outs, stream)
    return in_turn([(reduced, (0, 2)), (rest, (2, 1))], [between.nbytes], x.device)
