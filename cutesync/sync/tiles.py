"""A ring that carries tiles to the roles of a block: each stage has a tile's number, and ``DONE`` ends every loop.

    producer   takes a number --> acquire --> announce(cursor, number) --> load --> next
    consumers  visit = first() --> while visit.number != DONE: work on the tile --> visit = next(visit)

The producer announces one ``DONE`` for each series of visits that must end: with squads that take tiles in turn, one a
squad. A visit is a cursor of the ring and the number, so ``release(visit)`` and barriers of other roles
(``barriers.await_phase(visit.stage, visit.parity)``) take it as it is.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Int32
from cutlass.memory import SmemAllocator

from .ring import Cursor, Ring
from .wait import block_thread

DONE = -1  # the number that says that there are no more tiles
Visit = namedtuple("Visit", "stage parity number")


@dataclass(frozen=True)
class TileRing:
    """Make it with ``TileRing.make`` at the top of the kernel; the arguments are those of ``Ring.make``.

    20 bytes of shared memory a stage, and 4 for a word that the producer stores before its first announcement (the
    launch's tag, say) and that every consumer may read after its first wait."""

    ring: Ring
    numbers: cute.Tensor
    word: cute.Tensor

    @staticmethod
    def make(stages: int, **options) -> TileRing:
        ring = Ring.make(stages, **options)
        numbers, word = (
            cute.make_tensor(SmemAllocator().allocate_array(Int32, count), cute.make_layout((count,)))
            for count in (stages, 1)
        )
        return TileRing(ring, numbers, word)

    def clear(self) -> None:
        """All threads, before the barrier that precedes first use: ``numbers`` say that no stage holds a tile yet."""
        _clear(self.numbers)

    def announce(self, cursor, number) -> None:
        """One thread, between ``acquire`` and the load: the tile that the stage will hold, or ``DONE``."""
        self.numbers[cursor.stage] = number

    def first(self, stage=0) -> Visit:
        """Wait for a role's first tile, fill number ``stage`` < ``stages``."""
        return self._visit(self.ring.start_consumer(stage))

    def next(self, visit: Visit, step: int = 1) -> Visit:
        """Wait for the tile ``step`` <= ``stages`` fills further on."""
        return self._visit(self.ring.next(visit, step))

    def _visit(self, cursor: Cursor) -> Visit:
        self.ring.wait(cursor)
        return Visit(*cursor, self.numbers[cursor.stage])


@cute.jit
def _clear(numbers: cute.Tensor):
    if block_thread() == 0:
        for stage in cutlass.range_constexpr(cute.size(numbers)):
            numbers[stage] = Int32(DONE)
