"""``n=``: only the first elements of a sharded axis count, which are the first ones of each part."""

from __future__ import annotations

from typing import Any

from ..dtypes import DType
from ..runtime import arrays
from .parts import Results
from .recorder import allocator
from .sharded import Sharded


def leading_lengths(x: Sharded, n: int) -> list[int]:
    """Return how many elements of each part count."""
    return [min(max(n - before, 0), length) for before, length in zip(x.offsets, x.lengths)]


def leading(x: Sharded, lengths: list[int]) -> Sharded:
    """Return views of the first elements of each part along the sharded axis."""
    before = (slice(None),) * (x.axis or 0)
    parts = [part[(*before, slice(length))] for part, length in zip(x.parts, lengths)]
    return Sharded.of_results(x.group, parts, x.axis)


class Counted:
    """A call of which the first elements of each part count; ``plan`` is that of arrays which have no others.
    ``outputs`` are the types of results of the shape of ``x``, whose other elements are left as they are; without any,
    results are whole on each device."""

    def __init__(self, plan: Any, x: Sharded, lengths: list[int], outputs: tuple[DType, ...] = ()) -> None:
        self.plan, self.lengths, self.in_place = plan, lengths, getattr(plan, "in_place", False)
        self.results = Results(x.axis, x.lengths) if outputs else getattr(plan, "results", None)
        pairs = list(zip(x.parts, x.views))
        self.like = [
            [allocator(arrays.adapter(part), view.shape, t, view.device) for part, view in pairs] for t in outputs
        ]

    def run(
        self, xs: tuple[Sharded, ...], streams: tuple[int, ...], explicit: bool, outs: tuple[Sharded, ...] | None = None
    ) -> Any:
        taken = tuple(leading(x, self.lengths) for x in xs)
        if not self.like:
            return self.plan.run(taken, streams, explicit, *(() if outs is None else (outs,)))
        with xs[0].group.together() as work:
            if outs is None:
                made: list[list] = [[] for _ in self.like]
                for rank, stream in enumerate(streams):
                    work.at(rank)
                    for parts, like in zip(made, self.like):
                        parts.append(like[rank](stream, explicit))
                outs = tuple(Sharded.of_results(xs[0].group, parts, xs[0].axis) for parts in made)
            self.plan.run(taken, streams, explicit, tuple(leading(y, self.lengths) for y in outs))
        return outs if len(outs) > 1 else outs[0]
