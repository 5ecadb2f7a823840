"""In which order a block visits its chunks. Device code.

The warps of a block take a round of neighbouring chunks at a time, one each. Rounds come in the order of ``turn *
factor`` modulo a power of two, with an odd factor, which visits every one once and jumps across the whole share: a few
turns see small and large elements of an array in ascending order, where rounds one by one would find greater elements
each time. Numbers beyond the last round are passed over, less than half of all.
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Int32

# Chunks from ``begin`` to ``end``, visited by ``warp`` in some of ``size`` turns, a power of two.
Visit = namedtuple("Visit", "begin end size factor warp")


class Turns:
    """The order of visits of blocks of ``warps``."""

    def __init__(self, warps: int) -> None:
        self.warps = warps

    def visit(self, begin, end, warp) -> Visit:
        """The visit of the chunks from ``begin`` to ``end`` by a warp."""
        rounds = cutlass.max((end - begin + self.warps - 1) // self.warps, Int32(1))
        size = Int32(1) << (32 - Int32(cute.arch.clz(rounds - 1)))
        return Visit(begin, end, size, (size - size // 4 - size // 8) | 1, warp)

    def first(self, visit: Visit):
        """The first turn of a warp: ``size`` if there is none."""
        return Int32(cutlass.select_(visit.begin + visit.warp < visit.end, Int32(0), visit.size))

    def chunk(self, visit: Visit, turn):
        """The chunk of a turn."""
        return visit.begin + ((turn * visit.factor) & (visit.size - 1)) * self.warps + visit.warp

    @cute.jit
    def next(self, visit: Visit, turn):
        """The turn after this one in which there is a chunk; ``size`` if there is none."""
        turn += 1
        while (turn < visit.size) & (self.chunk(visit, turn) >= visit.end):
            turn += 1
        return turn
