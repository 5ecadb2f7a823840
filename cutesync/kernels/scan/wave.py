"""Scan of rows up to some hundred tiles: a block a tile, every block adds up the tiles before its own.

A block takes a tile number from an atomic (so the tiles before it have started, whatever order blocks start in), loads the tile
into registers, folds it, publishes the fold, and waits for those of all earlier tiles of its row: a thread polls a tile or a few.
There is no chain from tile to tile, so the cost of agreeing is one round trip to the L2 however many tiles there are; it grows with
their number squared in reads, so long arrays go to ``pipeline``. With one tile a row nothing is exchanged.

Bytes: every element is read once and written once. The order of folding depends on lengths alone.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ...block.reduce import fold_storage, fold_storage_bytes, fold_threads, get, state_array, state_bytes
from ...block.warps import after, leave
from ...sync.gather import collect, publish
from ...sync.overlap import let_next_start
from ...warp import LANES
from .base import Scan, ScanKernel
from .block import BlockScan

APART = 4  # places of a state array of which one is used: members side by side would be read as a vector, and with it what lies behind the last


class WaveScan(ScanKernel):
    """The kernel: tiles of ``warps`` chunks of ``rows`` rows. ``alone``: a row is one tile."""

    def __init__(self, scan: Scan, alone: bool, warps: int, rows: int, shift: int | None) -> None:
        types = scan.types
        smem = (
            state_bytes((*types, Int32), warps)
            + fold_storage_bytes(types, warps)
            + state_bytes((*types, Int32), APART)
            + 8
        )
        super().__init__(scan, warps * LANES, smem, 1)
        self.alone, self.warps, self.tile = alone, warps, BlockScan(scan, warps, rows, shift)

    @cute.jit
    def body(self, x, out, init_at, init, slots, counters, rows, length, inner, tiles):
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(thread // LANES)
        lane = thread % LANES
        types = self.scan.types
        totals = state_array((*types, Int32), self.warps)
        number, _, _ = cute.arch.block_idx()
        tag = Int32(0)
        if cutlass.const_expr(not self.alone):
            number, tag = self.take_number(counters, thread)
        tile = number % tiles
        begins = Int64(number // tiles) * length * inner
        held, have, before, total = self.tile.fold(x + begins, length, tile, totals, warp, lane)
        let_next_start()
        known = Boolean(self.scan.start is not None)
        start = self.scan.first(init, init_at) if self.scan.start is not None else tuple(t(0) for t in types)
        if cutlass.const_expr(not self.alone):
            if thread == 0:
                publish(slots, number, rows * tiles, total, tag)
            known, start = self.look_back(slots, number, tile, rows * tiles, tag, known, start, thread)
        have, state = after(known, start, have, before, self.scan.combine)
        self.tile.emit(held, x + begins, out + begins, have, state, lane)

    @cute.jit
    def look_back(self, slots, number, tile, stride, tag, known, start, thread):
        """``(any, state)`` before the tile, in every thread: thread t folds the tiles [t * each, (t + 1) * each) of the row, then the block
        its threads; ``start`` (if ``known``) comes first."""
        types = self.scan.types
        storage = fold_storage(types, self.warps)
        found = state_array((*types, Int32), APART)
        each = (tile + self.threads - 1) // self.threads
        first = thread * each
        count = cutlass.min(first + each, tile) - first
        have, states = collect(
            slots, Int64(number - tile) + first, count, Int64(1), stride, tag, types, self.scan.combine, batch=1
        )
        have, before = fold_threads(states[0], have, self.scan.combine, storage, thread)
        if thread == 0:
            have, before = after(known, start, have, before, self.scan.combine)
            leave(found, 0, have, before)
        cute.arch.sync_threads()
        *state, flag = get(found, 0, (*types, Int32))
        return flag != 0, tuple(state)
