"""Scan of rows of some hundred tiles: a wave whose blocks have two tiles in registers each.

A wave of blocks loads everything, then exchanges aggregates, then stores everything: memory waits while they are
exchanged, and for stores while elements are loaded. Here the tiles that blocks take first are exchanged and stored
while those they take next are on their way. A block takes the numbers of two tiles from an atomic and loads them. Then
it reduces the older tile, publishes its aggregate, waits for the tiles before it (as ``wave`` does), stores it, and
loads another in its registers, in turns.

Progress: numbers come from an atomic, and a block publishes its tiles in the order of their numbers. Of the tiles not
yet published, the smallest has all its predecessors published, so its block need not wait for others to get to it.

Bytes: every element is read once and written once. The order of operations depends on lengths alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...block.reduce import load_partial, partial_array, store_partial
from ...sync.gather import Entry, Notice, enter
from ...sync.overlap import let_next_start
from ...warp import LANES
from ..arrays import at_index
from .base import Arguments, Scan
from .block import BlockScan, Held
from .ragged import RaggedScan
from .wave import APART, WaveScan

PIECES = 1  # rows of vectors at a time of a chunk that is not full: the tile that is on its way takes registers, too


@dataclass(frozen=True)
class Block:
    """Where a block exchanges partials, what it was told of its tickets, and who a thread is."""

    chunks: tuple
    threads: tuple
    found: tuple
    notice: Notice
    thread: Any
    warp: Any
    lane: Any


class TwoTileScan(WaveScan):
    """The kernel: tiles of ``warps`` chunks of ``rows`` rows, of which a thread holds two."""

    def tile_of(self, scan: Scan, policy: Any) -> BlockScan:
        tile = BlockScan(scan, policy.warps, policy.rows, policy.shift, aligned=policy.aligned)
        tile.full = policy.full
        tile.ragged = RaggedScan(tile.chunk, PIECES)
        return tile

    @cute.jit
    def body(self, a: Arguments):
        thread, _, _ = cute.arch.thread_idx()
        types, warps = self.scan.types, self.warps
        block = Block(
            partial_array(types, warps),
            partial_array(types, warps),
            partial_array(types, APART),
            Notice.make(),
            thread,
            cute.arch.make_warp_uniform(thread // LANES),
            thread % LANES,
        )
        held, next_held = self.tile.chunk.registers(), self.tile.chunk.registers()
        everything = Int32(a.rows) * a.tiles
        number, tag = self.take(block, a)
        self.load(block, a, number, held)
        cute.arch.sync_threads()
        next_number, _ = self.take(block, a)
        self.load(block, a, next_number, next_held)
        let_next_start()
        while number < everything:
            number = self.turn(block, a, number, tag, held)
            if next_number < everything:
                next_number = self.turn(block, a, next_number, tag, next_held)

    @cute.jit
    def take(self, block: cutlass.Constexpr, a: Arguments):
        """``(number, tag)`` of another tile, in all threads. One block barrier."""
        if block.thread == 0:
            self.post(block, a, enter(a.counters))
        cute.arch.sync_threads()
        return block.notice.words[0], block.notice.tag

    def post(self, block: Block, a: Arguments, entry: Entry) -> None:
        """Tell the block of its ticket. One thread calls; all blocks take two tickets more than there are tiles."""
        _, tag = entry.close(a.counters, Int32(0), Int32(a.rows) * a.tiles + 2 * cute.arch.grid_dim()[0])
        block.notice.post(entry.arrived, tag)

    def places(self, block: Block, a: Arguments, number):
        """``(x, out, span)``: the rows of a tile, and the warp's chunk in it."""
        begin, target = self.row_places(a, Int64(number // a.tiles))
        x = at_index(a.x + begin, 0)
        return x, a.out + target, self.tile.span(x, a.length, number % a.tiles, block.warp)

    @cute.jit
    def load(self, block: cutlass.Constexpr, a: Arguments, number, chunk):
        if number < Int32(a.rows) * a.tiles:
            x, _, span = self.places(block, a, number)
            self.tile.load(Held(span, chunk), x, block.lane)

    @cute.jit
    def turn(self, block: cutlass.Constexpr, a: Arguments, number, tag, chunk):
        """Scan and store a tile, and load the one whose number is returned."""
        combine, slots = self.scan.combine, self.slots(a, tag)
        x, out, span = self.places(block, a, number)
        held = Held(span, chunk)
        prefix, total = self.tile.fold(held, x, block.chunks, block.warp, block.lane, loads=False)
        word = Int64(0)
        if block.thread == 0:
            slots.publish(number, total)
            word = enter(a.counters).word  # it is there when the tiles before are
        before = self.before(slots, number, number % a.tiles, block.threads, block.thread)
        carry = self.scan.carry_in(a, number // a.tiles)
        if block.thread == 0:
            store_partial(block.found, 0, carry.then(before, combine))
            self.post(block, a, Entry(word, Int32(word & 0xFFFFFFFF)))
        cute.arch.sync_threads()
        carry = load_partial(block.found, 0, self.scan.types).then(prefix, combine)
        following = block.notice.words[0]
        self.tile.emit(held, x, out, carry, block.lane)
        self.load(block, a, following, chunk)
        return following

    @cute.jit
    def ask(self, a: Arguments):
        """Ask for the lines of the tiles with this block's rank, of the first and of the second ones."""
        rank, _, _ = cute.arch.block_idx()
        blocks, _, _ = cute.arch.grid_dim()
        everything = Int32(a.rows) * a.tiles
        self.ask_for_tile(a, rank)
        if rank + blocks < everything:
            self.ask_for_tile(a, rank + blocks)
