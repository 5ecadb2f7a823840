"""Scan of narrow arrays whose rows have gaps, or columns in another order, or which run backwards, or whose results lie
column by column.

The roles and barriers are those of ``narrow``. Tiles are copied to shared memory with what lies between their columns.
As results lie in another order than the elements, they are put in memory of their own, of which there is one for all
stages: those who scan meet before they store a tile's results, and in the look-back of the next tile.
"""

from __future__ import annotations

import functools
import operator

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ...sync.named_barrier import NamedBarrier
from ...sync.tiles import Visit
from ...warp import LANES
from ..words import store_run
from .base import Arguments, Scan
from .narrow import Named, NarrowScan, Span
from .narrow_apart_policy import NarrowApartPolicy


class NarrowApartScan(NarrowScan):
    """The kernel. ``turned``: results of ``near`` columns are neighbours, those of the next lie ``a.out_step`` further
    on."""

    def __init__(self, scan: Scan, policy: NarrowApartPolicy) -> None:
        self.inside, self.turned, self.pitch = policy.inside, policy.turned, policy.pitch
        self.backward, self.near = policy.backward, policy.near
        self.reach = 1 + sum((extent - 1) * abs(step) for extent, step in policy.inside)  # of a row's elements
        self.low = sum((extent - 1) * min(step, 0) for extent, step in policy.inside)  # the lowest, from column 0
        super().__init__(scan, policy, policy.row, policy.results)

    def place(self, number, a: Arguments):
        tile = Int64(self.scan.flip(number % a.tiles, a.tiles)) * self.tile
        count = Int32(cutlass.min(a.length - tile, Int64(self.tile)))
        place, target = self.row_places(a, Int64(number // a.tiles))
        place += (tile if not self.backward else -(tile + (count - 1))) * self.row + self.low
        return place, target + tile * self.near, count

    def extent(self, number, a: Arguments):
        """``(place, target, rows, elements)``; the last are those of the input, with what lies between them."""
        place, target, count = self.place(number, a)
        return place, target, count, (count - 1) * self.row + self.reach

    def bounds(self, a: Arguments, number) -> tuple:
        far = (a.whole - 1) * self.row
        first = a.x + (self.row_places(a, Int64(number // a.tiles))[0] + self.low - (far if self.backward else 0))
        return first, first + (far + self.reach)

    def at(self, shared, span: Span, position, worker):
        column, far = worker % self.inner, Int32(-self.low)
        behind = self.inner
        for extent, step in self.inside:
            behind //= extent
            far += column // behind % extent * step
        row = self.scan.flip(position, span.count)
        row = span.count - 1 - row if self.backward else row
        return shared.buffer + (span.base + row * self.row + far)

    def target(self, shared, span: Span, position, worker):
        column, position = worker % self.inner, self.scan.flip(position, span.count)
        place = position * self.near + column
        if self.turned:
            place = column // self.near * self.pitch + position * self.near + column % self.near
        return shared.buffer + (self.stages * self.stage + place)

    def finish(self, shared, a: Arguments, at: Visit, worker) -> None:
        """Release a stage when all elements of its tile have been read, then store the results."""
        NamedBarrier(Named.SCAN, self.workers).sync()
        shared.tiles.ring.release(at)
        self.store_all(shared, a, at, worker)

    @cute.jit
    def store_all(self, shared: cutlass.Constexpr, a: Arguments, at: Visit, worker):
        """Store the results of a tile, by all threads that scan; runs of results by a warp each."""
        _, target, count, _ = self.extent(at.number, a)
        first, kind = shared.buffer + self.stages * self.stage, self.scan.monoid.result.cutlass
        held = cute.make_ptr(kind, first.toint(), cute.AddressSpace.smem, assumed_align=self.size)
        out, whole = a.out + target, Boolean(True)
        if cutlass.const_expr(self.turned):
            for number in cutlass.range(worker // LANES, self.inner // self.near, self.workers // LANES, unroll=1):
                run, far = functools.partial(operator.add, held + number * self.pitch), Int64(number) * a.out_step
                store_run(run, out + far, self.size, count * self.near, whole, worker % LANES, LANES)
        else:
            store_run(lambda i: held + i, out, self.size, count * self.inner, whole, worker, self.workers)
