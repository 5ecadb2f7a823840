"""Room in shared memory for tiles of any number of elements, which lie one behind the other. Device code.

One warp finds room for tile after tile, and makes each an entry of a ring, which says where it lies. A tile begins anew
at 0 where the room ends before the tile would: what it skips there is free when the tile itself is. Room is free in the
order in which it was taken, once the consumers of the ring have released the entry.

    producer   progress = start() --> progress = take(progress, to, number, count, lane) --> store what else the entry
               has --> ring.publish(to) --> to = ring.next(to) --> ... --> finish(progress, to, lane)
    consumers  those of a ``tiles.TileRing``; ``begin(stage)`` is where the tile lies

A tile has at most as many elements as the room. A tile that waits for room waits for tiles before it alone.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Int32
from cutlass.memory import SmemAllocator

from ..monoid import choose
from .ring import Cursor
from .tiles import DONE, TileRing

# Where the next tile goes, how much is free, how many entries wait for consumers, and the cursor of the oldest of them.
Progress = namedtuple("Progress", "head free waiting stage parity")


@dataclass(frozen=True)
class Room:
    """Room for ``size`` elements, which the ``tiles`` of a ring share. ``begins`` and ``spans`` say where that of each
    entry begins, and how much is free when the entry is released."""

    size: int
    tiles: TileRing
    begins: cute.Tensor
    spans: cute.Tensor

    @staticmethod
    def make(size: int, entries: int, consumers: int, name: str = "sent") -> Room:
        """In all threads; one block barrier must follow. 28 bytes of shared memory an entry, and 4."""
        begins, spans = (
            cute.make_tensor(SmemAllocator().allocate_array(Int32, entries), cute.make_layout((entries,)))
            for _ in range(2)
        )
        return Room(size, TileRing.make(entries, consumers=consumers, producer="threads", name=name), begins, spans)

    def start(self) -> Progress:
        return Progress(Int32(0), Int32(self.size), Int32(0), *self.tiles.ring.start_consumer())

    def begin(self, stage):
        """The first place of an entry's elements."""
        return self.begins[stage]

    def take(self, progress: Progress, to, number, count, lane) -> Progress:
        """Wait until there is room for tile ``number`` of ``count`` elements, and announce it as entry ``to``. All
        lanes of one warp call."""
        return Progress(*_take(self, progress, to, number, count, lane))

    def finish(self, progress: Progress, to, lane) -> None:
        """Announce that there are no more tiles. All lanes call."""
        _finish(self, progress, to, lane)


@cute.jit
def _take(room: cutlass.Constexpr, progress: Progress, to, number, count, lane):
    head, free, waiting, stage, parity = progress
    ring, begins, spans = room.tiles.ring, room.begins, room.spans
    wraps = head + count > room.size
    skipped = choose(wraps, room.size - head, Int32(0))
    while (waiting > 0) & ((free < count + skipped) | (waiting == ring.stages)):
        ring.empty.await_phase(stage, parity)
        free, waiting = free + spans[stage], waiting - 1
        stage, parity = ring.next(Cursor(stage, parity))
    if (waiting == 0) | wraps:
        head = Int32(0)
    if waiting == 0:
        skipped = Int32(0)
    cute.arch.sync_warp()  # its lanes have read the spans
    if lane == 0:
        begins[to.stage] = head
        spans[to.stage] = count + skipped
        room.tiles.announce(to, number)
    return head + count, free - count - skipped, waiting + 1, stage, parity


@cute.jit
def _finish(room: cutlass.Constexpr, progress: Progress, to, lane):
    ring = room.tiles.ring
    if progress.waiting == ring.stages:
        ring.empty.await_phase(progress.stage, progress.parity)
    if lane == 0:
        room.tiles.announce(to, Int32(DONE))
        ring.full[to.stage].arrive()
