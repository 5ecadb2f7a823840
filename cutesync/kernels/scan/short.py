"""Scan along short axes of strided arrays: a thread has all positions of some columns in registers.

Nothing is exchanged. What neighbouring threads load and store lies side by side, although elements may be neighbours
along the columns and results along the axis: a thread's registers turn from one to the other. Elements that run
backwards, or lie a few apart, are loaded as vectors of memory, too.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int64

from ...sync.overlap import let_next_start
from ..coordinates import Axes
from ..select.chunk import cells
from .base import Arguments, Scan, ScanKernel
from .short_policy import STEPS, THREADS, ShortPolicy


class ShortScan(ScanKernel):
    """The kernel. ``layout`` begins with the strides that ``STEPS`` names."""

    def __init__(self, scan: Scan, policy: ShortPolicy) -> None:
        self.policy, self.length, self.width = policy, policy.length, policy.width
        super().__init__(scan, THREADS, 0, 1)

    @cute.jit
    def body(self, a: Arguments):
        let_next_start()
        number = cute.arch.block_idx()[0] * THREADS + cute.arch.thread_idx()[0]
        if number < a.tiles:
            x, out = Axes(a.layout[len(STEPS) :], self.policy.rank, 2).offsets(number)
            held = cute.make_rmem_tensor((self.length * self.width,), self.scan.monoid.sources[0].cutlass)
            if cutlass.const_expr(self.policy.gap > 1):
                if number == a.layout[STEPS.index("edge")]:
                    self.load(a, a.x + x, held, 1)
                else:
                    self.load(a, a.x + x, held, self.policy.load)
            else:
                self.load(a, a.x + x, held, self.policy.load)
            self.store(a, a.out + out, self.scanned(a, self.by_place(held)))

    def load(self, a: Arguments, x, held, count: int) -> None:
        """Load a thread's elements, ``count`` neighbours at once."""
        x_step, x_next, *_ = a.layout
        gap, phase = (self.policy.gap, self.policy.phase) if count > 1 else (1, 0)
        dtype, step = self.scan.monoid.sources[0], count
        if self.policy.gap == 0:
            gap, step = 0, self.width
        span = max(1, count * gap)  # elements of memory
        for first in range(0, self.length * self.width, step):
            places = self.places(first, step)
            position, column = places[0]
            far = Int64(position) * x_step + Int64(column) * x_next - phase
            elements = cute.make_rmem_tensor((span,), dtype.cutlass)
            cute.autovec_copy(vector(x + far, span, dtype), elements)
            for i, place in enumerate(places):
                held[self.index(place)] = elements[phase + i * gap]

    def places(self, first: int, count: int) -> list[tuple[int, int]]:
        """The positions and columns of ``count`` elements from number ``first`` on, in the order of their addresses."""
        numbers = range(first, first + count)
        if self.policy.along:
            found = [(n % self.length, n // self.length) for n in numbers]
        else:
            found = [(n // self.width, n % self.width) for n in numbers]
        turned, backward = self.policy.backward
        if turned:
            found = [(self.length - 1 - position, column) for position, column in found]
        return [(position, self.width - 1 - column) for position, column in found] if backward else found

    def index(self, place: tuple[int, int]) -> int:
        return place[0] * self.width + place[1]

    def by_place(self, held) -> dict[tuple[int, int], Any]:
        """A thread's elements by position and column."""
        return {place: held[self.index(place)] for place in self.places(0, self.length * self.width)}

    def scanned(self, a: Arguments, elements: dict[tuple[int, int], Any]) -> dict[tuple[int, int], Any]:
        """The results by position and column."""
        start = self.scan.carry_in(a, Int64(0))
        found: dict[tuple[int, int], Any] = {}
        for column in range(self.width):
            before = start
            for i in range(self.length):
                place = self.scan.flip(i, self.length), column
                following = before.append(self.scan.monoid.lift(elements[place], Int64(0)), self.scan.combine)
                state = before.state if self.scan.exclusive else following.state
                (found[place],) = self.scan.monoid.results_of(state)
                before = following
        return found

    def store(self, a: Arguments, out, results: dict[tuple[int, int], Any]) -> None:
        count, kind = self.policy.store, self.scan.monoid.results[0]
        for first in range(0, self.length * self.width, count):
            if self.policy.dense:
                places = [((first + i) % self.length, (first + i) // self.length) for i in range(count)]
                far = Int64(first)
            else:
                places = [(first // self.width, (first + i) % self.width) for i in range(count)]
                far = Int64(places[0][0]) * a.layout[2] + places[0][1]
            held = cute.make_rmem_tensor((count,), kind.cutlass)
            for i, place in enumerate(places):
                held[i] = results[place]
            cute.autovec_copy(held, vector(out + far, count, kind))


def vector(pointer, count: int, dtype):
    """``count`` neighbours, which begin on a multiple of their bytes."""
    return cells(dtype.cutlass, pointer.toint(), count, cute.AddressSpace.gmem, count * dtype.size)
