"""Reductions of sharded arrays: each device reduces its part to states, which are then exchanged.

A reduction along other axes than the sharded one is a call for each part. Otherwise there are two launches a device:
the first pass of a reduction of two passes, and ``exchange``, which combines the states of all parts in the order of
ranks. The bits of the result follow from the lengths of the parts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..dtypes import INT64
from ..errors import ArgumentValueError, explain
from ..kernels.named import Named
from ..kernels.reduce.plan import places, plan
from ..kernels.reduce.spec import ReduceSpec, Reduction
from ..kernels.states import Argument, States
from ..ops import Operator
from ..runtime import arrays, backend
from ..runtime.call import Family, Views, front_end
from ..runtime.view import View
from .group import Side
from .sharded import Sharded, each_part


class FirstPasses(Named):
    """A named operation whose last pass, which makes the results, is done elsewhere."""

    def of_pass(self, number: int, passes: int) -> Named:
        return super().of_pass(number, passes + 1)


class LastOfArg(Named):
    """argmin or argmax: the pass over the states of all devices. Its run-time arguments make the index of an element in
    its part one in the whole array (see ``arg_exchange``)."""

    def monoid(self) -> Any:
        from .arg_exchange import ArgExchange

        return ArgExchange(self)


def reduce(call: Callable, arguments: tuple, spec: ReduceSpec, xs: tuple[Sharded, ...], stream: Any) -> Any:
    """Make a call whose whole arrays have the Spec ``spec``; ``call`` is the front end for one part."""
    first = xs[0]
    group, axis = first.group, first.axis
    streams = group.streams(first, stream)
    if axis not in spec.axes:
        return _apart(call, arguments, spec, xs, streams, stream is not None)
    _check(spec, axis)
    states = [states_of(spec, tuple(x.parts[rank] for x in xs), streams[rank]) for rank in range(group.size)]
    if not any(states):  # no elements at all
        return _apart(call, arguments, spec, xs, streams, stream is not None)
    results = [group.empty(first, shape, dtype, streams, stream is not None) for shape, dtype in spec.results]
    address = arrays.adapter(first.parts[0]).address
    take = sum(1 << rank for rank, found in enumerate(states) if found)
    sides = [
        Side(tuple(map(address, found)), tuple(address(of[rank]) for of in results), take, _args(spec, first, rank))
        for rank, found in enumerate(states)
    ]
    with group.together():
        group.exchange(_last(spec), sides, math.prod(spec.results[0][0]), streams, spec.init)
    found = tuple(Sharded(group, parts, None) for parts in results)
    return found if len(found) > 1 else found[0]


def _apart(call: Callable, arguments: tuple, spec: ReduceSpec, xs: tuple, streams: tuple, explicit: bool) -> Any:
    """Make the call for each part."""
    axis = xs[0].axis
    if axis is not None:
        kept = axis - (0 if spec.keepdims else sum(reduced < axis for reduced in spec.axes))
        axis = None if axis in spec.axes else kept
    return each_part(call, arguments, xs, streams if explicit else None, axis)


def _check(spec: ReduceSpec, axis: int) -> None:
    """Raise for what is not done along the sharded axis."""
    what, allowed = f"along the sharded axis {axis}", "that of each device alone"
    if spec.n is not None:
        raise ArgumentValueError(explain("n", what, "along other axes"))
    if spec.algorithm != "auto":
        raise ArgumentValueError(explain("algorithm", f"{spec.algorithm!r} of a Sharded", "'auto'"))
    if None in spec.args:
        raise ArgumentValueError(explain("args", what, allowed))
    operation = spec.reduction
    if getattr(operation, "takes_index", False):
        raise ArgumentValueError(explain("transform", f"one that takes the index, {what}", "one of the element alone"))
    before = any(other < axis and spec.shape[other] > 1 for other in spec.axes)
    if before and not isinstance(operation.op, str) and operation.op.fn is not None:
        came = f"a callable, along axis {axis}, which is sharded, and one before it"
        raise ArgumentValueError(explain("op", came, "a named operator, or shards along the first reduced axis"))


def states_of(spec: ReduceSpec, parts: tuple, stream: int) -> tuple:
    """Launch the reduction of one part to the values of its states. Return them; nothing for an empty part."""
    if arrays.adapter(parts[0]).view(parts[0]).size == 0:
        return ()
    call = _front_end(len(parts), 2 if isinstance(spec.reduction.op, str) else len(spec.reduction.values))
    own = (spec.reduction, spec.axes, spec.args)
    ordinal = arrays.adapter(parts[0]).view(parts[0]).device
    with backend.of(ordinal).using(ordinal):
        found = call(own, parts[0], None, stream, parts[1:])
    return found if isinstance(found, tuple) else (found,)


@functools.lru_cache(maxsize=64)
def _front_end(inputs: int, outputs: int) -> Callable:
    names = tuple(f"x{i or ''}" for i in range(inputs))
    return front_end(Family(f"part of a reduction to {outputs}", names, _parse, plan, outputs=outputs, strided=True))


def _parse(arguments: tuple, views: Views, out: View | None) -> ReduceSpec:
    reduction, axes, args = arguments
    spec = ReduceSpec(reduction, views[0].shape, axes, False, None, args=args)
    if isinstance(reduction.op, str):
        spec = places(spec)
    return replace(spec, reduction=first_pass(spec.reduction))


def first_pass(operation: Reduction | States) -> Reduction | States:
    """Return the operation whose results are the values of states."""
    found = operation.of_pass(0, 2)
    if not isinstance(found, Named):
        return found
    return FirstPasses(**{name: getattr(found, name) for name in found.__dataclass_fields__})


def _last(spec: ReduceSpec) -> Reduction | States:
    """Return the operation on the values of states."""
    operation = spec.reduction
    if not isinstance(operation.op, str):
        return operation.of_pass(1, 2)
    (source,) = operation.sources
    values = (source.accumulator, INT64)
    arguments = (Argument(INT64, False),) * 3
    return LastOfArg(Operator(operation.name), values, values, (INT64,), args=arguments, number=1, passes=2)


def _args(spec: ReduceSpec, first: Sharded, rank: int) -> tuple:
    """Return the run-time arguments of the exchange on one device."""
    if not isinstance(spec.reduction.op, str):
        return spec.args
    axis = first.axis
    inner = math.prod(
        n for other, n in enumerate(spec.shape) if other in spec.axes and axis is not None and other > axis
    )
    return max(first.lengths[rank], 1) * inner, first.offsets[-1] * inner, first.offsets[rank] * inner
