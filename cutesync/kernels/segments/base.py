"""What the kernels of segments share: one argument list and one launch."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass.cute as cute

from ..gather import Gather, Stepped
from ..plain import PlainKernel
from ..tiled import positions
from .spec import SegmentsSpec
from .states import SegmentStates

# A launch's arguments.
#
# ``heads`` has the arrays of keys, or the mask, and ``x`` the inputs of the operation: ``length`` elements each, of
# which only the first ``count`` are looked at. ``keys`` and ``out`` have the results, of ``capacity`` elements where
# segments are reduced; ``found`` then points to the number of segments. ``fill`` has the number that each key and
# result is filled with. ``offsets`` has where ``segments`` segments begin, ``cuts`` where tiles do.
Arguments = namedtuple(
    "Arguments", "heads x keys out found fill slots counters length count capacity offsets cuts segments"
)


class SegmentKernel(PlainKernel):
    """A compiled call by segments. A subclass defines ``body``, which gets the ``Arguments``."""

    name = "segments"

    def __init__(self, spec: SegmentsSpec, threads: int, smem: int) -> None:
        super().__init__(threads, smem)
        self.spec, self.states = spec, SegmentStates(spec)
        self.gather: Any = None if spec.strided is None else Gather(spec.strided.layout)

    def arguments(self, arrays: tuple, numbers: tuple, slots: cute.Pointer, counters: cute.Pointer) -> Arguments:
        """The parameters of a launch, of the kernel that is traced."""
        spec = self.spec
        found, length_at, offsets, cuts, *rest = arrays
        groups = []
        for group in (spec.heads.sources, spec.operation.sources, spec.keys, spec.operation.results):
            groups.append(tuple(rest[: len(group)]))
            rest = rest[len(group) :]
        length, capacity, segments, *rest = numbers
        fills = 0 if spec.fill is None else len(spec.fill)
        fill, rest = tuple(rest[:fills]), rest[fills:]
        if spec.heads.stepped:
            offsets, rest = Stepped(offsets, rest[0]), rest[1:]
        if spec.stepped:
            groups[-2], rest = tuple(map(Stepped, groups[-2], rest)), rest[len(groups[-2]) :]
            groups[-1], rest = tuple(map(Stepped, groups[-1], rest)), rest[len(groups[-1]) :]
        if self.gather is not None:
            rest = self.gather.bind(rest)
        values = len(spec.operation.values)
        self.states.bind(rest[:values], rest[values:])
        count = length
        if spec.counted and spec.by_offsets:
            segments = positions(segments, length_at)
        elif spec.counted:
            count = positions(length, length_at)
        heads, x, keys, out = groups
        return Arguments(
            heads, x, keys, out, found, fill, slots, counters, length, count, capacity, offsets, cuts, segments
        )
