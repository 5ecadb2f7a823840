"""Scans of sharded arrays: reduce the own part, exchange the aggregates, scan with what comes before the part.

Along other axes than the sharded one it is a call for each part. Otherwise every device reads its part twice, which
takes 12 bytes an element of 4 bytes where one device moves 8: a scan on many devices takes 1.5 times as long as that of
a part, unless parts stay in the caches. The last part (the first, in reverse) need not be reduced, but is: so that the
devices do the same work.

A scan takes its first operand from device memory, one for each row. States of several values and 16-bit floats do so
for one row only: with more, the part is scanned to states, and a second kernel puts the state before the part in front
of each (``resume``).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..errors import ArgumentValueError, explain
from ..kernels.args import plan_with_numbers
from ..kernels.reduce.spec import ReduceSpec, Reduction
from ..kernels.scan.plan import plan
from ..kernels.scan.spec import ScanSpec, along, start_rows
from ..kernels.states import Argument, Single, States
from ..runtime.call import Family, Views, front_end
from ..runtime.view import View
from .exchange import Side
from .inputs import Inputs, places_of
from .leading import Counted, leading, leading_lengths
from .parts import Apart, Key, Results, part_of
from .reduce import first_pass, full_ranks, passes_of
from .resume import resume
from .sharded import Ragged, Sharded
from .work import Work


class ScanPlan:
    """A scan along the sharded axis. ``before`` has the ranks whose parts come before each part."""

    in_place = True

    def __init__(self, spec: ScanSpec, xs: tuple[Sharded, ...], inputs: Inputs | None = None) -> None:
        first, operation, self.inputs = xs[0], reduction_of(spec.operation), inputs
        counted = inputs is not None and inputs.counted
        spec = replace(spec, n=None, n_in_memory=counted)
        self.results = Results(spec.axis or 0, first.lengths)
        self.spec, self.group, self.operation, self.first = spec, first.group, operation, spec.start is not None
        axes = frozenset(range(first.ndim) if spec.axis is None else [spec.axis])
        full = full_ranks(first)
        self.shape = tuple(n for axis, n in enumerate(first.shape) if axis not in axes)
        self.before = [
            [other for other in full if (other > rank if spec.reverse else other < rank)]
            for rank in range(self.group.size)
        ]
        sides = [
            Side(rank in full, sum(1 << other for other in before), spec.args)
            for rank, before in enumerate(self.before)
        ]
        self.like = list(zip(*(self.group.allocators(first, self.shape, t) for t in operation.values)))
        of_parts = ReduceSpec(operation, first.shape, axes, False, spec.start, args=spec.args)
        self.passes = passes_of(of_parts, operation.of_pass(1, 3), xs, sides, spec.reverse, counted)
        self.places = places_of(operation, spec.args)
        self.keys = {form: (Key(form, spec),) for form in ("plain", "carry", "values")}
        arrays = len(xs) + (0 if inputs is None else len(inputs.args))
        self.calls = [self._call(rank, first, arrays) for rank in range(self.group.size)]

    def run(
        self,
        xs: tuple[Sharded, ...],
        streams: tuple[int, ...],
        explicit: bool,
        outs: tuple[Sharded, ...] | None = None,
        ragged: Ragged | None = None,
    ) -> Any:
        group, more = self.group, None
        found, carries, targets = [], [], []  # type: tuple[list, list, list]
        with Work(group, streams, explicit) as work:
            if self.inputs is not None:
                xs, more = self.inputs.data(xs), self.inputs.more(xs, ragged, work)
            for rank, stream in enumerate(streams):
                work.at(rank)
                made = []
                for library, empty in self.like[rank]:
                    y = empty(stream, explicit)
                    made.append(y)
                    targets.append(library.address(y))
                carries.append(tuple(made))
            self.passes.launch_all(xs, targets, work, more)
            for rank, stream in enumerate(streams):
                work.at(rank)
                out, raw = part_of(outs, rank), stream if explicit else None
                key, call, first = self.calls[rank]
                x, *others = [x.parts[rank] for x in xs]
                if more is not None:
                    others += more.args[rank]
                if key == "values":
                    found.append(self.resumed((x, *others), carries[rank], out, (stream, explicit)))
                    continue
                others += carries[rank] if key == "carry" else ()
                others += first if more is None or more.counts is None else (*first, more.counts[rank])
                found.append(call(self.keys[key], x, out, raw, tuple(others)))
        if ragged is not None:
            return ragged.results(self.results.of(group, found, None))
        return self.results.of(group, found, outs)

    def _call(self, rank: int, x: Sharded, arrays: int) -> tuple[str, Callable, tuple]:
        """Return the form of the scan of one part, its front end, which takes so many ``arrays`` beside the values of
        states and a count, and what it takes for a first operand that is not given."""
        operation = self.spec.operation
        single, counted = isinstance(operation, Single), self.spec.n_in_memory
        alone = x.views[rank].size == 0 or not (self.before[rank] or self.first)
        if not alone and math.prod(self.shape) > 1 and not takes_rows(operation):
            return "values", _front_end(arrays, len(self.operation.values), ()), ()
        takes = single or operation.op.name == "linear_recurrence"
        first = (None,) if counted and takes and (alone or not single) else ()
        inputs = arrays + (0 if alone else len(self.operation.values)) + len(first) + counted
        call = _front_end(inputs, len(operation.results), self.places)
        return "plain" if alone else "carry", call, first

    def resumed(self, parts: tuple, carry: tuple, out: Any, where: tuple[int, bool]) -> Any:
        """Launch the scan of one part to states, and the kernel that puts ``carry`` before them; ``where``: the stream,
        and whether the caller gave it. Return the results, one or a tuple."""
        raw, explicit = where
        call = _front_end(len(parts), len(self.operation.values), ())
        values = call(self.keys["values"], parts[0], None, raw if explicit else None, parts[1:])
        values = values if isinstance(values, tuple) else (values,)
        made = None if out is None else out if isinstance(out, tuple) else (out,)
        made = resume(self.spec, self.operation, (values, carry, made), parts[0], raw, explicit)
        return made if len(made) > 1 else made[0]


def plan_of(
    call: Callable, arguments: tuple, spec: ScanSpec, xs: tuple[Sharded, ...], inputs: Inputs
) -> ScanPlan | Counted | Apart:
    """Return the plan of a call whose whole arrays have the Spec ``spec``; ``call`` is the front end for one part."""
    axis = xs[0].axis
    if axis is None or (spec.axis is not None and axis != spec.axis):
        return Apart(call, arguments, Results(axis, xs[0].lengths))
    _check(spec, xs[0], inputs)
    more = inputs if inputs.counted or None in spec.args else None
    xs = inputs.data(xs)
    if spec.n is None:
        return ScanPlan(spec, xs, more)
    lengths = leading_lengths(xs[0], spec.n)
    if not any(lengths):
        return Apart(call, arguments, Results(axis, xs[0].lengths))
    taken = tuple(leading(x, lengths) for x in xs)
    plan = ScanPlan(replace(spec, n=None, **along(spec.axis, taken[0].shape)), taken)
    return Counted(plan, xs[0], lengths, spec.operation.results)


def _check(spec: ScanSpec, first: Sharded, inputs: Inputs) -> None:
    """Raise for what is not done along the sharded axis."""
    what = f"along the sharded axis {first.axis}"
    if inputs.counted and (first.ndim > 1 and not _takes_leading(spec, first.shape)):
        came = f"an array, of states, rows and columns {what}"
        raise ArgumentValueError(explain("n", came, "elements of axis 0, or of one row"))
    none = reduction_of(spec.operation).identity() is None and spec.start is None
    if inputs.counted and (inputs.ragged or spec.reverse) and none:
        came = f"what may be no elements, scanned with {spec.operation.op.name!r}, which has no identity"
        raise ArgumentValueError(explain("n", came, "an operator that has one", "give init= or identity="))
    if isinstance(spec.n, int) and None in spec.args:
        raise ArgumentValueError(explain("n", f"a number, with args, {what}", "an array"))
    if None in spec.args and math.prod(first.shape) != first.shape[first.axis or 0]:
        raise ArgumentValueError(explain("args", f"{what}, of several rows", "one row"))
    if spec.n is not None and first.ndim > 1 and not _takes_leading(spec, first.shape):
        came = f"a number, of states, rows and columns {what}"
        raise ArgumentValueError(explain("n", came, "a number of elements of axis 0, or of one row"))
    if spec.start_in_memory or (isinstance(spec.operation, States) and spec.operation.firsts):
        raise ArgumentValueError(explain("init", f"an array, {what}", "a number"))
    if getattr(spec.operation, "name", "") in ("cummax", "cummin"):
        came = f"a Sharded, for {spec.operation.op.name} {what}"
        raise ArgumentValueError(explain("x", came, "other axes", "cs.scan(x, 'max') has no indices"))
    if getattr(spec.operation, "takes_index", False):
        raise ArgumentValueError(explain("transform", f"one that takes the index, {what}", "one of the element alone"))
    if spec.axis is None and math.prod(first.shape[: first.axis]) > 1:
        raise ArgumentValueError(
            explain("axis", f"None, of an array sharded along axis {first.axis}", "sharded axis 0")
        )


def _takes_leading(spec: ScanSpec, shape: tuple[int, ...]) -> bool:
    """Return whether results of the first elements along the axis may lie apart: unless ``resume`` writes them."""
    if spec.axis is None:
        return False
    before, behind = math.prod(shape[: spec.axis]), math.prod(shape[spec.axis + 1 :])
    return before == 1 or before * behind == 1 or takes_rows(spec.operation)


def takes_rows(operation: Single | States) -> bool:
    """Return whether a scan takes a first operand for each row from memory, in the type of its states."""
    return isinstance(operation, Single) and operation.output is operation.accumulate


def reduction_of(operation: Single | States) -> Reduction | States:
    """Return the operation of a scan as that of a reduction."""
    if isinstance(operation, Single):
        return Reduction(operation.op, operation.source, operation.accumulate, operation.output)
    return operation


@functools.lru_cache(maxsize=64)
def _front_end(inputs: int, outputs: int, places: tuple[int, ...]) -> Callable:
    """Return the front end of parts; ``places`` are those of run-time arguments that are numbers."""
    names = tuple(f"x{i or ''}" for i in range(inputs))
    made = plan_with_numbers(plan, places, lambda spec: spec.operation.args) if places else plan
    what = f"part of a scan to {outputs}, numbers at {places}"
    return front_end(Family(what, names, _parse, made, outputs=outputs, strided=True))


def _parse(arguments: tuple, views: Views, out: View | None) -> ScanSpec:
    """Return the Spec of one part: a scan as it is ("plain"), after a state in memory ("carry"), or to the values of
    states ("values")."""
    form, spec = arguments[0].given
    spec, operation = replace(spec, **along(spec.axis, views[0].shape)), spec.operation
    if form == "plain":
        return spec
    if form == "values":
        if isinstance(operation, Single):
            values: Single | States = replace(operation, output=operation.accumulate)
        else:
            values = first_pass(operation)  # type: ignore[assignment]
        return replace(spec, operation=values, exclusive=False, start=None)
    if isinstance(operation, Single):
        if takes_rows(operation):
            what, first = along(spec.axis, views[0].shape), views[-2 if spec.n_in_memory else -1]
            rows = None if first.size == 1 else start_rows(first, what, operation.output)
            return replace(spec, start=None, start_in_memory=rows is None, start_rows=rows)
        operation = States(
            operation.op, (operation.source,), (operation.accumulate,), (operation.output,), unpacked=True
        )
    firsts = tuple(range(len(operation.values)))
    memory = tuple(Argument(value, True) for value in operation.values)
    operation = replace(operation, args=(*operation.args, *memory), firsts=firsts)
    return replace(spec, operation=operation, start=(0,) * len(firsts), args=(*spec.args, *(None for _ in firsts)))
