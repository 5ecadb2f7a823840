"""Reductions of sharded arrays: each device reduces its part to states, which are then exchanged.

A reduction along other axes than the sharded one is a call for each part. Otherwise there are two launches a device:
the first pass of a reduction of two passes, and ``exchange``, which combines the states of all parts in the order of
ranks. If the result is one element and no part is empty, both are one launch (``fused``). The bits of the result follow
from the lengths of the parts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..dtypes import INT64
from ..errors import ArgumentValueError, explain
from ..kernels.args import plan_with_numbers
from ..kernels.named import Named
from ..kernels.reduce.named import Arguments as NamedArguments
from ..kernels.reduce.plan import places, plan
from ..kernels.reduce.spec import IN_MEMORY, ReduceSpec, Reduction
from ..kernels.reduce.strided_plan import of_nothing
from ..kernels.states import Argument, States
from ..ops import Operator
from ..runtime import arrays
from ..runtime.call import Family, Views, front_end
from ..runtime.view import View
from .counted import Counted as CountedStates, with_nothing
from .exchange import Exchange, Side
from .fused import FusedReduce
from .inputs import Inputs, More, bits_of, places_of
from .leading import Counted, leading, leading_lengths
from .parts import Apart, Key, Results
from .sharded import Ragged, Sharded
from .work import Work


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


class ReducePlan:
    """A reduction along the sharded axis: its launches, and what makes its results."""

    results = Results(None)

    def __init__(self, spec: ReduceSpec, xs: tuple[Sharded, ...], full: list[int], inputs: Inputs | None) -> None:
        first = xs[0]
        self.group, take, self.inputs = first.group, sum(1 << rank for rank in full), inputs
        self.like = list(zip(*(self.group.allocators(first, shape, dtype) for shape, dtype in spec.results)))
        self.count = len(spec.results)
        sides = [Side(rank in full, take, _args(spec, first, rank)) for rank in range(self.group.size)]
        self.passes = passes_of(spec, _last(spec), xs, sides, counted=inputs is not None and inputs.counted)

    def run(
        self,
        xs: tuple[Sharded, ...],
        streams: tuple[int, ...],
        explicit: bool,
        outs: tuple[Sharded, ...] | None = None,
        ragged: Ragged | None = None,
    ) -> Any:
        group, results, targets, more = self.group, [], [], None
        with Work(group, streams, explicit) as work:
            if self.inputs is not None:
                xs, more = self.inputs.data(xs), self.inputs.more(xs, ragged, work)
            if outs is not None:
                targets = [at for of_rank in zip(*[y.pointers for y in outs]) for at in of_rank]
                self.passes.launch_all(xs, targets, work, more)
                return outs
            at = work.at
            for rank, like in enumerate(self.like):
                at(rank)
                for library, empty in like:
                    y = empty(streams[rank], explicit)
                    results.append(y)
                    targets.append(library.address(y))
            self.passes.launch_all(xs, targets, work, more)
        count = self.count
        if count == 1:
            return Sharded.of_results(group, results, None)
        return tuple([Sharded.of_results(group, results[i::count], None) for i in range(count)])


def passes_of(
    spec: ReduceSpec,
    last: Reduction | States,
    xs: tuple[Sharded, ...],
    sides: list[Side],
    backward: bool = False,
    counted: bool = False,
) -> FusedReduce | TwoPasses:
    """Return what reduces each part to states and exchanges them: one launch a device where that is possible. ``last``
    is the operation on the states; ``init`` comes behind them if ``backward``. ``counted``: only the devices know how
    many elements of each part count; without ``init``, the result of none is the operator's identity, if it has one."""
    one = math.prod(spec.results[0][0]) == 1 and spec.init is None and None not in spec.args
    if counted:
        init = spec.init or spec.reduction.identity()
        operation: Any = CountedStates(last, spec.init is not None)
        sides = [replace(side, args=(*side.args, None)) for side in sides]
        spec = replace(spec, reduction=with_nothing(spec.reduction, init), n=IN_MEMORY)
        exchange = Exchange(xs[0].group, operation, math.prod(spec.results[0][0]), sides, init, backward)
        return TwoPasses(Partials(spec, xs, [rank for rank, side in enumerate(sides) if side.own]), exchange, spec)
    if one and all(side.own for side in sides) and all(view.contiguous for x in xs for view in x.views):
        return FusedReduce(part_spec(spec.reduction, spec.shape, spec.axes, spec.args), last, xs, sides)
    exchange = Exchange(xs[0].group, last, math.prod(spec.results[0][0]), sides, spec.init, backward)
    return TwoPasses(Partials(spec, xs, [rank for rank, side in enumerate(sides) if side.own]), exchange, spec)


class TwoPasses:
    """Two launches a device."""

    def __init__(self, partials: Partials, exchange: Exchange, spec: ReduceSpec) -> None:
        self.partials, self.exchange = partials, exchange
        self.operation, self.args = spec.reduction, spec.args

    def launch_all(self, xs: tuple[Sharded, ...], targets: Sequence[int], work: Work, more: More | None = None) -> None:
        """Launch on all devices. ``targets`` are the addresses of the results: all of the first device, then all of
        the next."""
        held, addresses = [], []  # until the exchange that reads them is enqueued
        count = len(targets) // len(work.streams)
        for rank, stream in enumerate(work.streams):
            work.at(rank)
            values, partials = self.partials.launch(rank, xs, stream if work.explicit else None, more)
            held.append(partials)
            given = () if more is None else self._given(more, rank)
            addresses.append((*values, *given, *targets[rank * count : (rank + 1) * count]))
        self.exchange.launch_all(addresses, work)

    def _given(self, more: More, rank: int) -> list[int]:
        """Return what the exchange takes of the call's other inputs."""
        found = bits_of(self.operation, self.args, more.args[rank])
        return found if more.counts is None else [*found, arrays.adapter(more.counts[rank]).address(more.counts[rank])]


class Partials:
    """The launches that reduce each part to the values of states; ``full`` are the ranks whose parts have elements."""

    def __init__(self, spec: ReduceSpec, xs: tuple[Sharded, ...], full: list[int]) -> None:
        self.values = 2 if isinstance(spec.reduction.op, str) else len(spec.reduction.values)
        places = places_of(spec.reduction, spec.args)
        inputs = len(xs) + spec.args.count(None) - len(places) + (spec.n is not None)
        self.call = _front_end(inputs, self.values, places)
        self.key, self.full = (Key(spec.reduction, spec.axes, spec.args, spec.n),), full

    def launch(
        self, rank: int, xs: tuple[Sharded, ...], stream: int | None, more: More | None
    ) -> tuple[tuple[int, ...], Any]:
        """Launch the reduction of one part; ``stream`` None is the current one. Return the addresses of the values, and
        the arrays that hold them."""
        if rank not in self.full:
            return (0,) * self.values, None
        x, *others = (y.parts[rank] for y in xs)
        found = self.call(self.key, x, None, stream, (*others, *(() if more is None else more.of(rank))))
        address = arrays.adapter(x).address
        return tuple(map(address, found if isinstance(found, tuple) else (found,))), found


def plan_of(
    call: Callable, arguments: tuple, spec: ReduceSpec, xs: tuple[Sharded, ...], inputs: Inputs
) -> ReducePlan | Apart | Counted:
    """Return the plan of a call whose whole arrays have the Spec ``spec``; ``call`` is the front end for one part."""
    first = xs[0]
    axis, full = first.axis, full_ranks(first)
    if axis is None or axis not in spec.axes:
        reduced = sum(other < axis for other in spec.axes) if axis is not None and not spec.keepdims else 0
        return Apart(call, arguments, Results(None) if axis is None else Results(axis - reduced, first.lengths))
    _check(spec, axis)
    if inputs.ragged and spec.n is None and isinstance(spec.reduction, Named) and spec.args:
        spec = replace(spec, args=(float(NamedArguments(*arguments).ddof),))  # subtracted from what counts
    if inputs.counted:
        of_nothing(replace(spec, n=IN_MEMORY))
    if not full:
        return Apart(call, arguments, Results(None))
    if isinstance(spec.n, int):
        return _counted(call, arguments, spec, inputs.data(xs))
    return ReducePlan(spec, inputs.data(xs), full, inputs if inputs.counted or None in spec.args else None)


def _counted(call: Callable, arguments: tuple, spec: ReduceSpec, xs: tuple[Sharded, ...]) -> Counted | Apart:
    """Return the plan of a call of which the first ``spec.n`` elements of the sharded axis count."""
    first, n = xs[0], max(int(spec.n or 0), 0)
    lengths, args = leading_lengths(first, n), spec.args
    if isinstance(spec.reduction, Named) and args:  # what the number of elements is divided by
        args = (max(sum(lengths) - args[0], 0.0),)
    taken = tuple(leading(x, lengths) for x in xs)
    full = full_ranks(taken[0])
    if not full:
        return Apart(call, arguments, Results(None))
    spec = replace(spec, shape=taken[0].shape, args=args, n=None)
    return Counted(ReducePlan(spec, taken, full, None), first, lengths)


def full_ranks(x: Sharded) -> list[int]:
    """Return the ranks whose parts have elements."""
    return [rank for rank, view in enumerate(x.views) if view.size]


def _check(spec: ReduceSpec, axis: int) -> None:
    """Raise for what is not done along the sharded axis."""
    what = f"along the sharded axis {axis}"
    if spec.algorithm != "auto":
        raise ArgumentValueError(explain("algorithm", f"{spec.algorithm!r} of a Sharded", "'auto'"))
    if isinstance(spec.n, int) and None in spec.args:
        raise ArgumentValueError(explain("n", f"a number, with args, {what}", "an array"))
    operation = spec.reduction
    if getattr(operation, "takes_index", False):
        raise ArgumentValueError(explain("transform", f"one that takes the index, {what}", "one of the element alone"))
    before = any(other < axis and spec.shape[other] > 1 for other in spec.axes)
    if before and not isinstance(operation.op, str) and operation.op.fn is not None:
        came = f"a callable, along axis {axis}, which is sharded, and one before it"
        raise ArgumentValueError(explain("op", came, "a named operator, or shards along the first reduced axis"))


@functools.lru_cache(maxsize=64)
def _front_end(inputs: int, outputs: int, places: tuple[int, ...]) -> Callable:
    """Return the front end of parts; ``places`` are those of run-time arguments that are numbers."""
    names = tuple(f"x{i or ''}" for i in range(inputs))
    made = plan_with_numbers(plan, places, lambda spec: spec.reduction.args) if places else plan
    what = f"part of a reduction to {outputs}, numbers at {places}"
    return front_end(Family(what, names, _parse, made, outputs=outputs, strided=True))


def _parse(arguments: tuple, views: Views, out: View | None) -> ReduceSpec:
    reduction, axes, args, n = arguments[0].given
    return part_spec(reduction, views[0].shape, axes, args, n)


def part_spec(
    reduction: Reduction | States,
    shape: tuple[int, ...],
    axes: frozenset[int],
    args: tuple,
    n: str | None = None,
) -> ReduceSpec:
    """Return the Spec of the reduction of a part to states."""
    spec = ReduceSpec(reduction, shape, axes, False, None, args=args, n=n)
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
