"""Counts of the elements of sharded arrays, by value or between edges, and places in sorted arrays whose parts lie on
several devices: each device counts its own, then the numbers of all are added in the order of ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..errors import ArgumentValueError, explain
from ..kernels.histogram.spec import CountSpec
from ..kernels.reduce.spec import Reduction
from ..kernels.segments.search import SearchSpec
from ..ops import operator
from .exchange import Exchange, Side
from .inputs import Inputs
from .leading import leading_lengths
from .parts import Apart, Results, part_of
from .sharded import Ragged, Sharded
from .work import Work


class SumPlan:
    """A call for each part, whose first result is then added to those of the others. ``arguments`` are those of each
    part."""

    results = Results(None)

    def __init__(self, call: Callable, arguments: list[tuple], x: Sharded, inputs: Inputs, result: tuple) -> None:
        self.call, self.arguments, self.group, self.inputs = call, arguments, x.group, inputs
        shape, dtype = result
        everyone = [Side(True, (1 << x.group.size) - 1)] * x.group.size
        add = Reduction(operator("add"), dtype, dtype.accumulator, dtype)
        self.exchange = Exchange(x.group, add, math.prod(shape), everyone)
        self.libraries = [library for library, _ in x.group.allocators(x, (), dtype)]

    def run(
        self,
        xs: tuple[Sharded, ...],
        streams: tuple[int, ...],
        explicit: bool,
        outs: tuple[Sharded, ...] | None = None,
        ragged: Ragged | None = None,
    ) -> Any:
        found, places = [], []
        with Work(self.group, streams, explicit) as work:
            more, n = self.inputs.more(xs, ragged, work), self.inputs.n_at
            for rank, stream in enumerate(streams):
                work.at(rank)
                parts = [None if y is None else y.parts[rank] for y in xs]
                if n is not None and more.counts is not None:
                    parts = [*parts, *[None] * (n - len(parts)), None][: n + 1]
                    parts[n] = more.counts[rank]
                x, *others = parts
                raw = stream if explicit else None
                one = self.call(self.arguments[rank], x, part_of(outs, rank), raw, tuple(others))
                sums = self.libraries[rank].address(one[0] if isinstance(one, tuple) else one)
                found.append(one)
                places.append((sums, sums))
            self.exchange.launch_all(places, work)
        return self.results.of(self.group, found, outs)


def plan_of(call: Callable, arguments: tuple, spec: CountSpec, xs: tuple, inputs: Inputs) -> SumPlan | Apart:
    """Return the plan of ``bincount`` or ``histogram``; ``call`` is the front end for one part."""
    first, (*given, n) = xs[0], arguments
    if first.axis is None:
        return Apart(call, arguments, Results(None))
    if spec.counting.density:
        raise ArgumentValueError(explain("density", "True, for a Sharded", "False", "divide the counts by their sum"))
    counted = n is not None or inputs.counted
    if counted and math.prod(first.shape[: first.axis]) > 1:
        raise ArgumentValueError(explain("n", f"a number, along axis {first.axis}", "shards along axis 0"))
    numbers: list = [None] * first.group.size
    if n is not None:
        inner = math.prod(first.shape[first.axis + 1 :])
        numbers = [min(max(n - at * inner, 0), length * inner) for at, length in zip(first.offsets, first.lengths)]
    return SumPlan(call, [(*given, number) for number in numbers], first, inputs, spec.results[0])


def search_plan_of(call: Callable, arguments: tuple, spec: SearchSpec, xs: tuple, inputs: Inputs) -> SumPlan | Apart:
    """Return the plan of ``searchsorted``. Among the parts of a sharded array, an element's place is the sum of its
    places in each."""
    a, v, sorter, *_ = (*xs, None, None)
    if a.axis is None:
        return Apart(call, arguments, Results(v.axis, v.lengths))
    if sorter is not None:
        raise ArgumentValueError(explain("sorter", "an array, for a Sharded a", "None"))
    side, n = arguments
    lengths: list = [None] * a.group.size if n is None else leading_lengths(a, n)
    return SumPlan(call, [(side, length) for length in lengths], a, inputs, spec.results[0])


def check_search(a: Sharded, v: Sharded) -> None:
    """Raise unless one of the arrays of ``searchsorted`` is whole on each device."""
    if a.axis is not None and v.axis is not None:
        came, advice = "a Sharded along an axis, as a is", "v.reshard(None) makes it whole on each device"
        raise ArgumentValueError(explain("v", came, "an array that is whole on each device", advice))
