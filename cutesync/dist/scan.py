"""Scans of sharded arrays: reduce the own part, exchange the aggregates, scan with what comes before the part.

Along other axes than the sharded one it is a call for each part. Otherwise every device reads its part twice, which
takes 12 bytes an element of 4 bytes where one device moves 8: a scan on many devices takes 1.5 times as long as that of
a part, unless parts stay in the caches. The last part (the first, in reverse) need not be reduced, but is: so that the
devices do the same work.

One scan a part takes its first state from device memory. With several (an array of several axes), the part is scanned
to states, and a second kernel puts the state before the part in front of each (``resume``).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..errors import ArgumentValueError, explain
from ..kernels.reduce.spec import ReduceSpec, Reduction
from ..kernels.scan.plan import plan
from ..kernels.scan.spec import ScanSpec, along
from ..kernels.states import Argument, Single, States
from ..runtime import arrays, device_array
from ..runtime.call import Family, Views, front_end
from ..runtime.view import View
from .group import Side
from .reduce import first_pass, states_of
from .resume import resume
from .sharded import Sharded, each_part


def scan(call: Callable, arguments: tuple, spec: ScanSpec, xs: tuple[Sharded, ...], stream: Any) -> Any:
    """Make a call whose whole arrays have the Spec ``spec``; ``call`` is the front end for one part."""
    first = xs[0]
    group, streams = first.group, first.group.streams(first, stream)
    if first.axis is None or (spec.axis is not None and first.axis != spec.axis):
        return each_part(call, arguments, xs, streams if stream is not None else None, first.axis)
    _check(spec, first)
    carries = _carries(spec, xs, streams)
    found = []
    for rank, ordinal in enumerate(group.ordinals):
        parts = tuple(x.parts[rank] for x in xs)
        with group.place.using(ordinal):
            found.append(_scan_part(spec, parts, carries[rank], streams[rank]))
    axis = 0 if spec.axis is None else first.axis
    results = tuple(Sharded(group, parts, axis) for parts in zip(*found))
    return results if len(results) > 1 else results[0]


def _check(spec: ScanSpec, first: Sharded) -> None:
    """Raise for what is not done along the sharded axis."""
    what = f"along the sharded axis {first.axis}"
    if spec.counted:
        raise ArgumentValueError(explain("n", what, "along other axes"))
    if spec.start_in_memory or (isinstance(spec.operation, States) and spec.operation.firsts):
        raise ArgumentValueError(explain("init", f"an array, {what}", "a number"))
    if None in spec.args:
        raise ArgumentValueError(explain("args", what, "along other axes"))
    if getattr(spec.operation, "takes_index", False) or getattr(spec.operation, "name", "") in ("cummax", "cummin"):
        raise ArgumentValueError(explain("transform", f"one that takes the index, {what}", "one of the element alone"))
    if spec.axis is None and math.prod(first.shape[: first.axis]) > 1:
        raise ArgumentValueError(
            explain("axis", f"None, of an array sharded along axis {first.axis}", "sharded axis 0")
        )


def _reduction(operation: Single | States) -> Reduction | States:
    """Return the operation of a scan as that of a reduction."""
    if isinstance(operation, Single):
        return Reduction(operation.op, operation.source, operation.accumulate, operation.output)
    return operation


def _carries(spec: ScanSpec, xs: tuple[Sharded, ...], streams: tuple[int, ...]) -> list[tuple]:
    """Launch the reductions of all parts and their exchange. Return the values of the states before each part; nothing
    for a part that comes first in a scan without a first state."""
    first, operation = xs[0], _reduction(spec.operation)
    group, axes = first.group, frozenset(range(first.ndim) if spec.axis is None else [spec.axis])
    whole = ReduceSpec(operation, first.shape, axes, False, None, args=spec.args)
    states = [states_of(whole, tuple(x.parts[rank] for x in xs), streams[rank]) for rank in range(group.size)]
    shape = tuple(n for axis, n in enumerate(first.shape) if axis not in axes)
    full = [rank for rank, found in enumerate(states) if found]
    carries, sides = [], []
    for rank, ordinal in enumerate(group.ordinals):
        before = [other for other in full if (other > rank if spec.reverse else other < rank)]
        values: tuple = ()
        if before or spec.start is not None:
            with group.place.using(ordinal):
                values = tuple(device_array.allocate(shape, t, ordinal, streams[rank]) for t in operation.values)
        address = arrays.adapter(first.parts[rank]).address
        outs = tuple(value.ptr for value in values) or (0,) * len(operation.values)
        sides.append(Side(tuple(map(address, states[rank])), outs, sum(1 << other for other in before), spec.args))
        carries.append(values)
    with group.together():
        between = operation.of_pass(1, 3)
        group.exchange(between, sides, math.prod(shape), streams, spec.start, last=spec.reverse)
    return carries


def _scan_part(spec: ScanSpec, parts: tuple, carry: tuple, stream: int) -> tuple:
    """Launch the scan of one part; ``carry`` has the values of the states before it, or is empty."""
    view = arrays.adapter(parts[0]).view(parts[0])
    operation = spec.operation
    if view.size == 0 or not carry:
        found = _front_end(len(parts), len(operation.results))(("plain", spec), parts[0], None, stream, parts[1:])
    elif carry[0].size == 1:
        call = _front_end(len(parts) + len(carry), len(operation.results))
        found = call(("carry", spec), parts[0], None, stream, (*parts[1:], *carry))
    else:
        call = _front_end(len(parts), len(operation.values))
        values = call(("values", spec), parts[0], None, stream, parts[1:])
        values = values if isinstance(values, tuple) else (values,)
        return resume(spec, _reduction(operation), values, carry, parts[0], stream)
    return found if isinstance(found, tuple) else (found,)


@functools.lru_cache(maxsize=64)
def _front_end(inputs: int, outputs: int) -> Callable:
    names = tuple(f"x{i or ''}" for i in range(inputs))
    return front_end(Family(f"part of a scan to {outputs}", names, _parse, plan, outputs=outputs, strided=True))


def _parse(arguments: tuple, views: Views, out: View | None) -> ScanSpec:
    """Return the Spec of one part: a scan as it is ("plain"), after a state in memory ("carry"), or to the values of
    states ("values")."""
    form, spec = arguments
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
        if operation.output is operation.accumulate:
            return replace(spec, start=None, start_in_memory=True)
        operation = States(
            operation.op, (operation.source,), (operation.accumulate,), (operation.output,), unpacked=True
        )
    firsts = tuple(range(len(operation.values)))
    memory = tuple(Argument(value, True) for value in operation.values)
    operation = replace(operation, args=(*operation.args, *memory), firsts=firsts)
    return replace(spec, operation=operation, start=(0,) * len(firsts), args=(*spec.args, *(None for _ in firsts)))
