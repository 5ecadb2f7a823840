"""``segmented_reduce`` of sharded arrays.

By offsets or lengths, each device reduces its elements of every segment to states; then states are exchanged, of all
segments, and combined in the order of ranks: every device has every result. By heads, the number of a segment is its
key, and the results are those of ``reduce_by_key``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..dtypes import INT64
from ..errors import ArgumentValueError, explain
from ..kernels.args import plan_with_numbers
from ..kernels.layouts import strided
from ..kernels.scan import scan
from ..kernels.segments import plan as segments_plan, reduce_by_key
from ..kernels.segments.spec import Heads, SegmentsSpec
from ..runtime import arrays
from ..runtime.call import Family, Views, front_end
from ..runtime.view import View
from .counted import Present
from .exchange import Exchange, Side
from .inputs import Inputs, bits_of, places_of
from .offsets import LocalOffsets
from .parts import Key, Results
from .sharded import Sharded
from .work import Work


class OffsetsPlan:
    """A reduction of segments that offsets give. Results are whole on each device."""

    results = Results(None)

    def __init__(self, spec: SegmentsSpec, given: tuple, inputs: Inputs) -> None:
        xs, operation, self.inputs = inputs.data(given), spec.operation, inputs
        self.group, self.args, self.operation = xs[0].group, spec.args, operation
        self.offsets = LocalOffsets(spec, xs[0], given[-1])
        between = operation.of_pass(0, 2)
        places = places_of(between, spec.args)
        arrays_of_part = len(xs) + len(inputs.args) + 1
        self.call = _part_front_end(arrays_of_part, len(between.results), places)
        self.key = (Key(replace(spec, operation=between, start=None, counted=False)),)
        everyone = (1 << self.group.size) - 1
        sides = [Side(True, everyone, spec.args)] * self.group.size
        state: Any = Present(operation.of_pass(1, 2), spec.start is not None)
        self.exchange = Exchange(self.group, state, spec.segments, sides, spec.start or spec.nothing)
        shape = (spec.segments,)
        self.like = list(zip(*(self.group.allocators(xs[0], shape, t) for t in operation.results)))

    def run(
        self, xs: tuple[Sharded, ...], streams: tuple[int, ...], explicit: bool, outs: tuple[Sharded, ...] | None = None
    ) -> Any:
        found, places, held = [], [], []  # type: tuple[list, list, list]
        data = self.inputs.data(xs)
        with Work(self.group, streams, explicit) as work:
            for rank, stream in enumerate(streams):
                work.at(rank)
                offsets = self.offsets.make(rank, xs, work)
                args = tuple(xs[i].parts[rank] for i in self.inputs.args)
                x, *others = (y.parts[rank] for y in data)
                raw = stream if explicit else None
                made = self.call(self.key, x, None, raw, (*others, *args, offsets))
                states = made if isinstance(made, tuple) else (made,)
                held.append((offsets, states))
                if outs is None:
                    own = tuple([empty(stream, explicit) for _, empty in self.like[rank]])
                else:
                    own = tuple(y.parts[rank] for y in outs)
                at = self.offsets.like[rank][0].address(offsets)
                read = [arrays.adapter(array).address(array) for array in states]
                written = [library.address(y) for (library, _), y in zip(self.like[rank], own)]
                given = bits_of(self.operation, self.args, args)
                places.append((*read, at, at + INT64.size, *given, *written))
                found.append(own if len(own) > 1 else own[0])
            self.exchange.launch_all(places, work)
        return self.results.of(self.group, found, outs)


class HeadsPlan:
    """A reduction of segments that a mask gives."""

    def __init__(self, spec: SegmentsSpec) -> None:
        operation = spec.operation
        values = tuple(t.name for t in operation.values)
        self.arrays, self.single = len(operation.sources), operation.unpacked and len(operation.sources) == 1
        self.n = spec.length if spec.length != spec.whole else None
        self.options: dict[str, Any] = {
            "op": operation.op.fn or operation.op.name,
            "dtype": values[0] if operation.unpacked else values,
            "transform": operation.transform,
            "init": spec.start if spec.start is None or len(spec.start) > 1 else spec.start[0],
        }
        if operation.finish is not None:
            self.options |= {"finish": operation.finish, "out_dtype": tuple(t.name for t in operation.results)}

    def run(self, xs: tuple[Sharded, ...], streams: tuple[int, ...], explicit: bool) -> tuple:
        *values, mask = xs
        stream: Any = streams if explicit else None
        with mask.group.together():
            keys = scan(mask, transform=_is_head, dtype="int64", stream=stream)
            found = reduce_by_key(
                keys, values[0] if self.single else tuple(values), n=self.n, stream=stream, **self.options
            )
        results = found.values if isinstance(found.values, tuple) else (found.values,)
        return (*results, found.count)


def _is_head(flag: Any) -> Any:
    """1 for an element of a mask that is not 0."""
    return flag != 0


@functools.lru_cache(maxsize=64)
def _part_front_end(inputs: int, outputs: int, places: tuple[int, ...]) -> Callable:
    names = tuple(f"x{i or ''}" for i in range(inputs))
    plan = segments_plan.plan
    made: Callable = plan_with_numbers(plan, places, lambda spec: spec.operation.args) if places else plan
    what = f"part of segments to {outputs}, numbers at {places}"
    return front_end(Family(what, names, _parse_part, made, outputs=outputs, strided=True, partial=True))


def _parse_part(arguments: tuple, views: Views, out: View | None) -> SegmentsSpec:
    """Return the Spec of one part, whose results are the values of states."""
    (spec,), size = arguments[0].given, views[0].size
    read = strided(views[: len(spec.operation.sources)]) if size else None
    nothing = tuple(0 for _ in spec.operation.values)
    heads = Heads("offsets", (), offsets=INT64)
    return replace(spec, heads=heads, length=size, whole=size, nothing=nothing, strided=read)


def plan_of(spec: SegmentsSpec, given: tuple, inputs: Inputs) -> OffsetsPlan | HeadsPlan:
    """Return the plan of a call whose whole arrays have the Spec ``spec``: by offsets, lengths or heads."""
    xs, offsets, operation = inputs.data(given), spec.heads.kind == "offsets", spec.operation
    axis = xs[0].axis
    refused = (
        (axis is None, "x", "an array that is whole on every device"),
        (any(math.prod(x.shape[:axis]) > 1 for x in xs), "x", f"arrays of several rows, sharded along axis {axis}"),
        (bool(operation.firsts), "init", "an array"),
        (operation.takes_index, "transform", "a callable that takes the index"),
        (not offsets and spec.counted, "n", "an array, with heads="),
        (not offsets and bool(spec.args), "args", "values, with heads="),
    )
    for wrong, name, came in refused:
        if wrong:
            raise ArgumentValueError(explain(name, f"{came}, for a Sharded", "one device", "np.asarray(x) copies it"))
    return OffsetsPlan(spec, given, inputs) if offsets else HeadsPlan(spec)
