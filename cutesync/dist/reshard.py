"""Sharded arrays spread anew: along another axis, in parts of other lengths, or whole on some devices; and arrays of
one shape combined, with a part of the result on each device."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ..dtypes import element_type
from ..errors import ArgumentTypeError, ArgumentValueError, explain
from ..kernels.reduce.spec import Reduction
from ..ops import operator
from ..runtime import arrays
from .pull import NOTHING, Part, Pull, geometry
from .recorder import allocator
from .repeat import Prepared
from .sharded import Sharded, axis_number
from .staged import Staged, staged_view
from .work import Work

Box = tuple[tuple[int, int], ...]
"""A part of an array: where it begins and ends along each axis."""


class PullPlan:
    """A call in which each device gets ``boxes[q]`` of an array, or has no result if that is None. ``held[r]`` is the
    box that rank ``r`` has."""

    def __init__(
        self, x: Sharded, held: Sequence[Box], boxes: Sequence[Box | None], reduction: Reduction | None = None
    ) -> None:
        group = x.group
        shapes = [None if box is None else tuple(stop - start for start, stop in box) for box in boxes]
        dtype = x.dtype if reduction is None else reduction.result
        libraries = [arrays.adapter(part) for part in x.parts]
        self.like = [
            None if shape is None else (library.address, allocator(library, shape, dtype, at))
            for library, shape, at in zip(libraries, shapes, group.ordinals)
        ]
        alone = x.axis is None and reduction is None  # every device has all that it needs
        blocks = []
        for q, (box, shape) in enumerate(zip(boxes, shapes)):
            of_rank = [NOTHING] * group.size
            for r, (own, view) in enumerate(zip(held, x.views)):
                if box is not None and shape is not None and (not alone or q == r):
                    held_view = view if group.team is None else staged_view(view)
                    of_rank[r] = geometry(_shared(own, box), held_view, shape)
            blocks.append(tuple(of_rank))
        self.staged = None if group.team is None else Staged(group.team, x)
        self.pull = Pull(group, x.dtype, blocks, [0] if self.staged else [at & 15 for at in x.pointers], reduction)

    def run(self, xs: tuple[Sharded, ...], streams: tuple[int, ...], explicit: bool) -> list:
        """Return the result of each device, None where there is none."""
        (x,) = xs
        results, targets = [], []
        with Work(x.group, streams, explicit) as work:
            for rank, like in enumerate(self.like):
                work.at(rank)
                y = None if like is None else like[1](streams[rank], explicit)
                results.append(y)
                targets.append(0 if like is None else like[0](y))
            sources = x.pointers if self.staged is None else self.staged.copy(x, work)
            self.pull.launch_all(sources, targets, work)
        return results


def _shared(own: Box, wanted: Box) -> Part:
    """Return the block that two boxes share."""
    starts = [max(a, c) for (a, _), (c, _) in zip(own, wanted)]
    stops = [min(b, d) for (_, b), (_, d) in zip(own, wanted)]
    extents = tuple(max(stop - start, 0) for start, stop in zip(starts, stops))
    source = tuple(start - a for start, (a, _) in zip(starts, own))
    return Part(source, tuple(start - c for start, (c, _) in zip(starts, wanted)), extents)


def _boxes(shape: tuple[int, ...], axis: int | None, lengths: Sequence[int]) -> list[Box]:
    """Return the box of each part of an array: of ``lengths`` along ``axis``, or the whole array for each length."""
    whole = tuple((0, n) for n in shape)
    if axis is None:
        return [whole] * len(lengths)
    ends = list(itertools.accumulate(lengths))
    return [(*whole[:axis], (stop - n, stop), *whole[axis + 1 :]) for stop, n in zip(ends, lengths)]


def reshard(x: Sharded, axis: int | None, lengths: Sequence[int] | None, stream: Any) -> Sharded:
    """See ``Sharded.reshard``."""
    axis = None if axis is None else axis_number(axis, x.ndim)
    lengths = None if axis is None else x.group.lengths(x.shape[axis], lengths)
    key = ("reshard", axis, lengths, x.key)
    plan = x.group.plans.get(key)
    if plan is None:
        to = _boxes(x.shape, axis, lengths or [0] * x.group.size)
        held = _boxes(x.shape, x.axis, x.lengths or [0] * x.group.size)
        plan = x.group.plans[key] = Prepared(PullPlan(x, held, to))
    found = plan.run((x,), (x.group, x.group.streams(x, stream), stream is not None))
    return Sharded.of_results(x.group, found, axis)


def gather(x: Sharded, rank: int, stream: Any) -> Any:
    """See ``Sharded.gather``."""
    size = x.group.size
    if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < size:
        kind = ArgumentValueError if type(rank) is int else ArgumentTypeError
        raise kind(explain("rank", repr(rank), f"0 to {size - 1}"))
    key = ("gather", rank, x.key)
    plan = x.group.plans.get(key)
    if plan is None:
        (whole, *_) = _boxes(x.shape, None, [0])
        to = [whole if r == rank else None for r in range(size)]
        plan = x.group.plans[key] = Prepared(PullPlan(x, _boxes(x.shape, x.axis, x.lengths or [0] * size), to))
    found = plan.run((x,), (x.group, x.group.streams(x, stream), stream is not None))[rank]
    return found if x.group.rank in (None, rank) else None


def shift(x: Sharded, streams: tuple[int, ...]) -> Sharded:
    """Return on each device a copy of the part of the rank before it, sharded along the same axis."""
    key = ("shift", x.key)
    plan = x.group.plans.get(key)
    if plan is None:
        held = _boxes(x.shape, x.axis, x.lengths)
        plan = x.group.plans[key] = Prepared(PullPlan(x, held, [held[rank - 1] for rank in range(x.group.size)]))
    return Sharded.of_results(x.group, plan.run((x,), (x.group, streams, True)), x.axis)


def reduce_scatter_plan(given: Sharded, what: tuple[Any, Any], axis: int, lengths: Sequence[int] | None) -> PullPlan:
    """Return the plan of ``Group.reduce_scatter``; ``what`` has the operator and the type of the result."""
    op, dtype = what
    source, parsed = given.dtype, operator(op)
    result = source if dtype is None else element_type(dtype, "dtype")
    axis = axis_number(axis, given.ndim)
    lengths = given.group.lengths(given.shape[axis], lengths)
    parsed.check(source)
    held = _boxes(given.shape, None, [0] * given.group.size)
    reduction = Reduction(parsed, source, source.accumulator, result)
    return PullPlan(given, held, _boxes(given.shape, axis, lengths), reduction)
