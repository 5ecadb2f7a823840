"""``reduce_by_key`` of sharded keys and values: each device reduces its part, then runs are joined across the seams.

Every device sends its number of runs, the keys at its edges, and the state of its last run. A run that goes on in the
next part that has elements is given up by the device that began it: the device where it ends combines it with its own
first run. So every result stays where it is, but for one element a device. ``init`` and ``finish`` come last, when runs
are whole, in one more pass over the results.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..dtypes import INT64, DType
from ..errors import ArgumentValueError, explain
from ..kernels.layouts import strided
from ..kernels.reduce import plan as reduce_plan
from ..kernels.reduce.spec import ReduceSpec
from ..kernels.segments import plan as segments_plan
from ..kernels.segments.spec import Heads, SegmentsSpec
from ..kernels.states import Argument, States, words_of
from ..runtime.call import Family, Views, front_end
from ..runtime.view import View
from .exchange import Exchange, Side
from .leading import Counted, leading, leading_lengths
from .parts import Key
from .reduce import full_ranks
from .sharded import Ragged, Sharded
from .work import Work


@dataclass(frozen=True)
class RunSeam:
    """What the kernel computes. The inputs are the number of runs of the part, then of each array of keys the first
    element and the last one. The outputs are that number without a run given up, the number of runs before the part and
    of all, then the keys and the states of the part's runs, of which it reads the last and changes the first."""

    heads: Heads
    operation: States

    @property
    def sources(self) -> tuple[DType, ...]:
        return (INT64, *self.heads.sources, *self.heads.sources)

    @property
    def results(self) -> tuple[DType, ...]:
        return (INT64, INT64, INT64, *self.heads.sources, *self.operation.values)

    @property
    def registers(self) -> tuple[str, ...]:
        return self.operation.registers

    @property
    def args(self) -> tuple[Argument, ...]:
        return ()

    @property
    def slot_words(self) -> int:
        keys = sum(2 if source.size == 8 else 1 for source in self.heads.sources)
        return 2 + 3 * keys + words_of(self.registers)

    @property
    def key(self) -> tuple:
        """Identifies the machine code in caches."""
        return ("run seam", *self.heads.key, *self.operation.key)

    def monoid(self) -> Any:
        from .by_key_kernel import Runs

        return Runs(self)


class ByKeyPlan:
    """A reduction by keys that lie in parts."""

    def __init__(self, spec: SegmentsSpec, xs: tuple[Sharded, ...]) -> None:
        first, operation = xs[0], spec.operation
        self.group, self.full = first.group, full_ranks(first)
        self.keys, self.keyed = len(spec.heads.sources), spec.keyed
        between = operation.of_pass(0, 2)
        self.finished = spec.start is None and operation.finish is None and operation.results == between.results
        outputs = self.keys + len(between.results) + 1
        self.call = _part_front_end(len(xs), outputs)
        self.key = (Key(replace(spec, operation=between, start=None, keyed=True), not self.finished),)
        self.finish = _finish_front_end(len(between.results), len(operation.results))
        self.finish_key = (Key(operation.of_pass(1, 2), spec.start),)
        take = sum(1 << rank for rank in self.full)
        sides = [Side(rank in self.full, take) for rank in range(self.group.size)]
        seam: Any = RunSeam(spec.heads, operation.of_pass(1, 3))
        self.exchange = Exchange(self.group, seam, 1, sides)
        self.like = self.group.allocators(first, (), INT64)

    def run(self, xs: tuple[Sharded, ...], streams: tuple[int, ...], explicit: bool) -> tuple:
        found, places, numbers = [], [], []  # type: tuple[list, list, list]
        with Work(self.group, streams, explicit) as work:
            for rank, stream in enumerate(streams):
                work.at(rank)
                x, *others = (y.parts[rank] for y in xs)
                made = self.call(self.key, x, None, stream if explicit else None, tuple(others))
                address, empty = self.like[rank][0].address, self.like[rank][1]
                offset, total = empty(stream, explicit), empty(stream, explicit)
                *results, count = map(address, made)
                edges = self._edges([y.views[rank] for y in xs[-self.keys :]])
                places.append((count, *edges, count, address(offset), address(total), *results))
                found.append(made)
                numbers.append((made[-1], offset, total))
            self.exchange.launch_all(places, work)
            values = [made[self.keys : -1] for made in found]
            if not self.finished:
                for rank, stream in enumerate(streams):
                    work.at(rank)
                    x, *others = values[rank]
                    one = self.finish(self.finish_key, x, None, stream if explicit else None, tuple(others))
                    values[rank] = one if isinstance(one, tuple) else (one,)
        counts, offsets, totals = zip(*numbers)
        results = [(*(made[: self.keys] if self.keyed else ()), *own) for made, own in zip(found, values)]
        ragged = [Ragged(Sharded.of_results(self.group, parts, 0), counts, offsets) for parts in zip(*results)]
        return *ragged, Sharded.of_results(self.group, totals, None)

    def _edges(self, keys: list[View]) -> list[int]:
        """Return the addresses of the first elements of a part's keys, then of the last ones; 0 of an empty part."""
        if keys[0].size == 0:
            return [0] * (2 * len(keys))
        ends = [sum((n - 1) * step for n, step in zip(view.shape, view.steps)) * view.dtype.size for view in keys]
        return [view.ptr for view in keys] + [view.ptr + end for view, end in zip(keys, ends)]


def plan_of(spec: SegmentsSpec, xs: tuple[Sharded, ...]) -> ByKeyPlan | Counted | None:
    """Return the plan of a call whose whole arrays have the Spec ``spec``; None for other calls than
    ``reduce_by_key``."""
    if not spec.reduced or spec.heads.kind != "keys":
        return None
    axis = xs[0].axis
    refused = (
        (axis is None, "keys", "an array that is whole on every device"),
        (any(math.prod(x.shape[:axis]) > 1 for x in xs), "keys", f"arrays of several rows, sharded along axis {axis}"),
        (spec.counted, "n", "an array"),
        (bool(spec.args), "args", "values"),
        (bool(spec.operation.firsts), "init", "an array"),
        (spec.operation.takes_index, "transform", "a callable that takes the index"),
        (spec.fill is not None, "size", f"{spec.capacity}"),
    )
    for wrong, name, came in refused:
        if wrong:
            raise ArgumentValueError(explain(name, f"{came}, for a Sharded", "one device", "np.asarray(x) copies it"))
    if spec.length == spec.whole:
        return ByKeyPlan(spec, xs)
    lengths = leading_lengths(xs[0], spec.length)
    taken = tuple(leading(x, lengths) for x in xs)
    return Counted(ByKeyPlan(replace(spec, length=sum(lengths), whole=sum(lengths)), taken), xs[0], lengths)


@functools.lru_cache(maxsize=64)
def _part_front_end(inputs: int, outputs: int) -> Callable:
    names = tuple(f"x{i or ''}" for i in range(inputs))
    what = f"part of a reduction by key to {outputs}"
    return front_end(Family(what, names, _parse_part, segments_plan.plan, outputs=outputs, strided=True, partial=True))


def _parse_part(arguments: tuple, views: Views, out: View | None) -> SegmentsSpec:
    """Return the Spec of one part, whose results are the values of states. What is read again is filled."""
    spec, filled = arguments[0].given
    size, keys = views[0].size, len(spec.heads.sources)
    fill = (0,) * (keys + len(spec.operation.results)) if filled else None
    read = (*views[-keys:], *views[:-keys])
    return replace(spec, length=size, whole=size, capacity=size, fill=fill, strided=strided(read) if size else None)


@functools.lru_cache(maxsize=64)
def _finish_front_end(inputs: int, outputs: int) -> Callable:
    names = tuple(f"x{i or ''}" for i in range(inputs))
    what = f"results of runs to {outputs}"
    return front_end(Family(what, names, _parse_finish, reduce_plan.plan, outputs=outputs))


def _parse_finish(arguments: tuple, views: Views, out: View | None) -> ReduceSpec:
    operation, start = arguments[0].given
    return ReduceSpec(operation, views[0].shape, frozenset(), False, start)
