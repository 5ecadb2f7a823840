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
# result is filled with. ``bits`` say where segments begin, if offsets do.
Arguments = namedtuple("Arguments", "heads x keys out found fill slots counters length count capacity bits")


class SegmentKernel(PlainKernel):
    """A compiled call by segments. A subclass defines ``body``, which gets the ``Arguments``."""

    name = "segments"

    def __init__(self, spec: SegmentsSpec, threads: int, smem: int) -> None:
        super().__init__(threads, smem)
        self.spec, self.states, self.reads_at_once = spec, SegmentStates(spec), spec.reads_at_once
        self.gather: Any = None if spec.strided is None else Gather(spec.strided.layout)

    def arguments(self, arrays: tuple, numbers: tuple, slots: cute.Pointer, counters: cute.Pointer) -> Arguments:
        """The parameters of a launch, of the kernel that is traced."""
        spec = self.spec
        found, length_at, bits, *rest = arrays
        groups = []
        for group in (spec.heads.sources, spec.operation.sources, spec.keys, spec.operation.results):
            groups.append(tuple(rest[: len(group)]))
            rest = rest[len(group) :]
        length, capacity, *rest = numbers
        fills = 0 if spec.fill is None else len(spec.fill)
        fill, rest = tuple(rest[:fills]), rest[fills:]
        if spec.stepped:
            groups[-2], rest = tuple(map(Stepped, groups[-2], rest)), rest[len(groups[-2]) :]
            groups[-1], rest = tuple(map(Stepped, groups[-1], rest)), rest[len(groups[-1]) :]
        if self.gather is not None:
            rest = self.gather.bind(rest)
        values = len(spec.operation.values)
        self.states.bind(rest[:values], rest[values:])
        count = positions(length, length_at) if spec.counted else length
        heads, x, keys, out = groups
        return Arguments(heads, x, keys, out, found, fill, slots, counters, length, count, capacity, bits)
