"""Scan of rows up to some hundred tiles: a block a tile, every block adds up the tiles before its own.

A block takes a tile number from an atomic (so the tiles before it have started, whatever order blocks start in), loads
the tile into registers, reduces it, publishes the aggregate, and waits for those of all earlier tiles of its row: a
thread polls a tile or a few. There is no chain from tile to tile, so the look-back costs one round trip to the L2
however many tiles there are. Its reads grow with their number squared, so long arrays go to ``pipeline``. With one tile
a row nothing is exchanged.

Before a block waits for the launches before its own, it may ask the L2 for the lines of the tile with its rank.

Bytes: every element is read once and written once. The order of operations depends on lengths alone.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...block.reduce import load_partial, partial_array, partial_bytes, reduce_threads, store_partial
from ...sync.gather import Slots
from ...sync.overlap import let_next_start
from ...warp import LANES, Maybe
from ..arrays import at_index, pointers_of
from ..tiled import ask_for_elements
from .base import Arguments, Scan, ScanKernel
from .block import BlockScan
from .wave_policy import WavePolicy

# Places of a partial array of which one is used: members side by side would be read as one vector, and what follows the
# last member with them.
APART = 4


class WaveScan(ScanKernel):
    """The kernel: tiles of ``warps`` chunks of ``rows`` rows. ``alone``: a row is one tile."""

    def __init__(self, scan: Scan, policy: WavePolicy) -> None:
        smem = 2 * partial_bytes(scan.types, policy.warps) + partial_bytes(scan.types, APART) + 8
        super().__init__(scan, policy.warps * LANES, smem, policy.blocks_per_sm)
        self.alone, self.warps, self.asks = policy.alone, policy.warps, policy.asks
        self.tile = BlockScan(scan, policy.warps, policy.rows, policy.shift, aligned=policy.aligned, gap=policy.gap)
        self.waits = not policy.asks or scan.reads_at_once

    @cute.jit
    def body(self, a: Arguments):
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(thread // LANES)
        lane = thread % LANES
        partials = partial_array(self.scan.types, self.warps)
        number, _, _ = cute.arch.block_idx()
        tag = Int32(0)
        if cutlass.const_expr(not self.alone):
            number, tag = self.take_number(a.counters, thread)
        tile = number % a.tiles
        begin, target = self.row_places(a, Int64(number // a.tiles))
        row = at_index(a.x + begin, 0)
        held, prefix, total = self.tile.reduce(row, a.length, tile, partials, warp, lane)
        let_next_start()
        carry = self.scan.carry_in(a, number // a.tiles)
        if cutlass.const_expr(not self.alone):
            if thread == 0:
                self.slots(a, tag).publish(number, total)
            carry = self.look_back(self.slots(a, tag), number, tile, carry, thread)
        carry = carry.then(prefix, self.scan.combine)
        self.tile.emit(held, row, a.out + target, carry, lane)

    @cute.jit
    def ask(self, a: Arguments):
        """Ask for the lines of the tile with this block's rank: some block gets its number."""
        number, _, _ = cute.arch.block_idx()
        tile = self.tile.chunk
        begin, _ = self.row_places(a, Int64(number // a.tiles))
        row = at_index(a.x + begin, 0)
        span = tile.span(row, a.length, Int64(number % a.tiles) * tile.tile, tile.tile)
        first, count = tile.tile - span.end if tile.from_end else span.begin, span.end - span.begin
        place, end = row + (span.offset + first * tile.unit), (count - 1) * tile.unit + self.scan.width
        for pointer, dtype in zip(pointers_of(place), self.scan.monoid.sources):
            ask_for_elements(pointer, dtype.size, 0, end, self.threads)

    def slots(self, a: Arguments, tag) -> Slots:
        """The tiles' aggregates, a place a tile."""
        return Slots(a.slots, a.rows * a.tiles, tag, self.scan.types)

    @cute.jit
    def look_back(self, slots: cutlass.Constexpr, number, tile, carry: Maybe, thread):
        """The tile's carry-in, in every thread: the row's, followed by the tiles before this one. Thread t combines the
        tiles [t * each, (t + 1) * each) of the row, then the block reduces its threads."""
        types = self.scan.types
        partials = partial_array(types, self.warps)
        found = partial_array(types, APART)
        each = (tile + self.threads - 1) // self.threads
        first = thread * each
        count = cutlass.min(first + each, tile) - first
        some = slots.collect(Int64(number - tile) + first, count, Int64(1), self.scan.combine, batch=1)
        before = reduce_threads(Maybe(some.state[0], some.valid), self.scan.combine, partials, thread)
        if thread == 0:
            store_partial(found, 0, carry.then(before, self.scan.combine))
        cute.arch.sync_threads()
        return load_partial(found, 0, types)
