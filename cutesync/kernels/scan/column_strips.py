"""Scan along an axis that is not the last, where strips of a few columns fill a GPU: a block walks down its strip.

A strip is ``lanes * width`` columns, a line of memory or two, of one outer slice. Its block takes tile after tile of
``groups`` row groups of ``height`` rows, in ``stages`` of shared memory, and keeps what comes before a tile in
registers: nothing is published, and no block waits for another. As in ``column_tiles``, every thread copies, reduces
and scans the rows of its own columns. For each tile:

    1. start the copies of the tile ``stages - 1`` behind it, into the stage that the tile before it has left
    2. wait for the copies of the tile; reduce the thread's rows; exchange the row groups' partials (barrier)
    3. scan and store

The exchange has two buffers in turn: a thread writes to one again only after the barrier of the tile between, which
every thread reaches after its reads.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32
from cutlass.memory import SmemAllocator

from ...block.reduce import state_array
from ...monoid import choose
from ...warp import Maybe
from .base import Arguments
from .column_copies import Member, Shared
from .column_tiles import ColumnTileScan


class ColumnStripScan(ColumnTileScan):
    """The kernel. Threads whose rows or columns do not exist load others in their place, and store nothing."""

    @cute.jit
    def body(self, a: Arguments):
        allocator, types = SmemAllocator(), self.scan.monoid.types
        stages = self.stage_buffers(allocator)
        shared = Shared(stages, state_array(types, self.states), state_array(types, self.states), None)
        thread, _, _ = cute.arch.thread_idx()
        strip, _, _ = cute.arch.block_idx()
        self.walk(shared, a, self.member(a, thread), Int32(strip))

    @cute.jit
    def walk(self, shared: cutlass.Constexpr, a: Arguments, me: Member, strip: Int32):
        """Scan a strip from its first tile on."""
        chains, stage, free = self.chains(a), Int32(0), Int32(self.stages - 1)
        for tile in cutlass.range_constexpr(self.stages - 1):
            self.load_tile(shared, a, me, strip + tile * chains, tile < a.tiles, Int32(tile))
        before = self.start(a, self.part(strip, a, me))
        exchanges = (shared.partials, shared.found)
        for pair in cutlass.range(0, (a.tiles + 1) // 2, 1, unroll=1):
            for turn in cutlass.range_constexpr(2):
                at = Int32(2 * pair + turn)
                if at < a.tiles:
                    number, coming = strip + at * chains, at + (self.stages - 1)
                    self.load_tile(shared, a, me, strip + coming * chains, coming < a.tiles, free)
                    cute.arch.cp_async_wait_group(self.stages - 1)
                    part = self.part(number, a, me)
                    prefix, total = self.reduce_rows(shared._replace(partials=exchanges[turn]), a, me, part, stage)
                    self.scan_rows(shared, a, me, part, stage, self.then(before, prefix))
                    before = self.then(before, Maybe.of(total))
                    free, stage = stage, choose(stage == self.stages - 1, Int32(0), stage + 1)

    @cute.jit
    def load_tile(self, shared: cutlass.Constexpr, a: Arguments, me: Member, number, exists, stage):
        """Start the copies of a tile, or an empty group of copies if it does not exist."""
        if exists:
            self.load(shared, a, me, self.part(number, a, me), stage)
        else:
            cute.arch.cp_async_commit_group()
