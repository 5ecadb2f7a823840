"""What the kernels of segments that begins and ends give share: parameters, summaries, and what shares leave in device
memory. Device code; ``ranges`` says how they work together.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...warp import combine_valid, zeros
from ..coordinates import element
from ..gather import At, Gather, Stepped
from ..plain import PlainKernel
from ..select.chunk import cells
from ..tiled import positions
from .ranges_policy import CELL
from .spec import SegmentsSpec
from .states import SegmentStates

# A launch's arguments: ``begins`` has where each of ``segments`` segments begins in the ``whole`` elements of ``x``,
# ``ends`` where it ends among all ``total`` positions. ``shares`` is the memory of ``workers`` shares.
Arguments = namedtuple("Arguments", "begins ends x out shares segments total whole workers nothing")


def length_of(begin, end, whole):
    """The length of a segment from ``begin`` to ``end`` of ``whole`` elements."""
    return (cutlass.max(clamped(end, whole) - clamped(begin, whole), Int64(0)),)


def clamped(place, whole):
    """A place from 0 to ``whole``."""
    return cutlass.min(cutlass.max(Int64(place), Int64(0)), Int64(whole))


class RangesKernel(PlainKernel):
    """What the kernels share: their parameters, their states, and what shares leave in device memory.

    That is in cells of 8 bytes: of each share the flags and the state of its tail, then the segment that ends first in
    it, whether it has elements there, and their state. What comes before a share takes the place of the latter."""

    def __init__(self, spec: SegmentsSpec, threads: int, smem: int) -> None:
        super().__init__(threads, smem)
        self.spec, self.states = spec, SegmentStates(spec)
        self.types = self.states.monoid.types
        self.gather: Any = None if spec.strided is None else Gather(spec.strided.layout)

    def arguments(self, arrays: tuple, numbers: tuple) -> Arguments:
        """The parameters of a launch, of the kernel that is traced."""
        begins, ends, count, shares, *rest = arrays
        sources = len(self.spec.operation.sources)
        x, out = tuple(rest[:sources]), tuple(rest[sources:])
        segments, whole, workers, step, *rest = numbers
        if self.spec.stepped:
            out, rest = tuple(map(Stepped, out, rest)), rest[len(out) :]
        if self.gather is not None:
            rest = self.gather.bind(rest)
            x = tuple(At(self.gather, k, pointer) for k, pointer in enumerate(x))
        nothing = self.states.bind_last(rest)
        segments = positions(segments, count) if self.spec.counted else segments
        return Arguments(
            Stepped(begins, step), ends, x, out, shares, segments, total_of(ends, segments), whole, workers, nothing
        )

    def cell(self, a: Arguments, column: int, worker, kind):
        """The memory of a number of a share."""
        address = a.shares.toint() + (a.workers * column + worker) * CELL
        return cells(kind, address, 1, cute.AddressSpace.gmem)

    def keep(self, a: Arguments, half: int, worker, word, values) -> None:
        """Store a word and a state as the ``half`` 0 or 1 of a share."""
        first = half * (len(self.types) + 1)
        self.cell(a, first, worker, Int64)[0] = Int64(word)
        for k, (kind, value) in enumerate(zip(self.types, values)):
            self.cell(a, first + 1 + k, worker, kind)[0] = value

    def kept(self, a: Arguments, half: int, worker) -> tuple:
        """``(word, state)`` of a half of a share."""
        first = half * (len(self.types) + 1)
        values = (kind(self.cell(a, first + 1 + k, worker, kind)[0]) for k, kind in enumerate(self.types))
        return Int64(self.cell(a, first, worker, Int64)[0]), tuple(values)

    def nobody(self) -> tuple:
        """No elements, as a packed ``Maybe``."""
        return (*zeros(self.types), Int32(0))

    @cute.jit
    def merge(self, a: tuple, b: tuple):
        """The summary of ``a`` then ``b``."""
        if b[0] == 0:
            b = (a[0], *combine_valid(a[1:], b[1:], self.states.ordered))
        return b

    @cute.jit
    def store_result(self, a: cutlass.Constexpr, segment, packed: tuple):
        """Store the result of a segment, of its state, if it has elements."""
        state = a.nothing
        if packed[-1] != 0:
            state = packed[:-1]
        self.store(a.out, segment, self.states.monoid.results_of(state))

    def store(self, outs, index, values) -> None:
        for out, value in zip(outs, values):
            cute.make_tensor(out + index, cute.make_layout((1,)))[0] = value


@cute.jit
def total_of(ends: cute.Pointer, segments):
    """How many positions there are."""
    total = Int64(0)
    if segments > 0:
        total = Int64(element(ends + (segments - 1)))
    return total
