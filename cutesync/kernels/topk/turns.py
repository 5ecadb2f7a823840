"""In which order a block visits its chunks. Device code.

The warps of a block take a round of neighbouring chunks at a time, one each. Rounds come in the order of ``turn *
factor`` modulo a power of two, with an odd factor, which visits every one once and jumps across the whole share: a few
turns see small and large elements of an array in ascending order, where rounds one by one would find greater elements
each time. Numbers beyond the last round are passed over, less than half of all.

The chunks of all turns are numbered by *tickets*. The first ``warps`` of them go to the warps in order. Then each warp
has one of every turn, or, where blocks share a row, draws the next one from a counter in shared memory: a warp that
appends many candidates, or reads what others have told, takes fewer chunks.
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Int32

from ...warp import broadcast

# Chunks from ``begin`` to ``end``, visited in some of ``size`` turns, a power of two; of all of these, there are
# ``tickets``.
Visit = namedtuple("Visit", "begin end size factor tickets")


class Turns:
    """The order of visits of blocks of ``warps``; ``drawn``: with tickets from a counter."""

    def __init__(self, warps: int, drawn: bool) -> None:
        self.warps, self.drawn = warps, drawn

    def visit(self, begin, end) -> Visit:
        """The visit of the chunks from ``begin`` to ``end``."""
        rounds = cutlass.max((end - begin + self.warps - 1) // self.warps, Int32(1))
        size = Int32(1) << (32 - Int32(cute.arch.clz(rounds - 1)))
        return Visit(begin, end, size, (size - size // 4 - size // 8) | 1, size * self.warps)

    def first(self, visit: Visit, warp):
        """The first ticket of a warp: the number of tickets if there is no chunk for it."""
        return Int32(cutlass.select_(visit.begin + warp < visit.end, warp, visit.tickets))

    def chunk(self, visit: Visit, ticket):
        """The chunk of a ticket."""
        turn, slot = ticket // self.warps, ticket % self.warps
        return visit.begin + ((turn * visit.factor) & (visit.size - 1)) * self.warps + slot

    @cute.jit
    def next(self, visit: Visit, ticket, counter):
        """A warp's ticket after this one for which there is a chunk; the number of tickets or more if there is none.
        ``counter`` is the address of that of the block. All lanes call."""
        ticket = self.following(ticket, counter)
        while (ticket < visit.tickets) & (self.chunk(visit, ticket) >= visit.end):
            ticket = self.following(ticket, counter)
        return ticket

    @cute.jit
    def following(self, ticket, counter):
        if cutlass.const_expr(self.drawn):
            if cute.arch.lane_idx() == 0:
                ticket = Int32(cute.arch.atomic_add(counter, Int32(1), sem="relaxed", scope="cta"))
            ticket = broadcast((ticket,))[0]
        else:
            ticket += self.warps
        return ticket
