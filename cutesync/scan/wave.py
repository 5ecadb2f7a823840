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
from cutlass.memory import SmemAllocator

from ..block.reduce import fold_storage, fold_storage_bytes, fold_threads, get, state_array, state_bytes
from ..block.warps import after, around, leave
from ..sync.gather import collect, enter, publish, settle
from ..warp import LANES
from .base import Scan, ScanKernel
from .part import PartScan
from .tile import WarpScan

APART = 4  # places of a state array of which one is used: members side by side would be read as a vector, and with it what lies behind the last

class WaveScan(ScanKernel):
    """The kernel: tiles of ``warps`` chunks of ``rows`` rows. ``alone``: a row is one tile."""

    def __init__(self, scan: Scan, alone: bool, warps: int, rows: int, shift: int | None) -> None:
        types = scan.types
        smem = state_bytes((*types, Int32), warps) + fold_storage_bytes(types, warps) + state_bytes((*types, Int32), APART) + 8
        super().__init__(scan, warps * LANES, smem, 1)
        self.alone, self.warps = alone, warps
        self.tile = WarpScan(scan, rows, warps, shift)
        self.part = PartScan(self.tile)

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
            notice = cute.make_tensor(SmemAllocator().allocate_array(Int32, 2), cute.make_layout((2,)))
            if thread == 0:
                entered = enter(counters)
                notice[0] = entered[1]
                notice[1] = settle(counters, entered, Int32(0), cute.arch.grid_dim()[0])[1]
            cute.arch.sync_threads()
            number = notice[0]
            tag = notice[1]
        row = Int64(number // tiles)
        tile = number % tiles
        begins = row * length * inner
        offset, begin, end = self.tile.span(x + begins, length, Int64(tile) * self.tile.tile + warp * self.tile.chunk, self.tile.chunk)
        source, target = x + begins + offset, out + begins + offset
        elements, prefixes = self.tile.registers()
        full = (begin == 0) & (end == self.tile.chunk)
        have, state = Boolean(True), tuple(t(0) for t in types)
        if full:
            self.tile.load(source, lane, elements)
            state = self.tile.fold(elements, prefixes, lane)
        else:
            have, state = self.part.fold(source, begin, end, lane)
        if lane == 0:
            leave(totals, warp, have, state)
        cute.arch.sync_threads()
        have, before, _, total = around(totals, Int32(0), self.warps, warp, lane, types, self.scan.combine)
        known = Boolean(self.scan.start is not None)
        start = self.scan.first(init, init_at) if self.scan.start is not None else tuple(t(0) for t in types)
        if cutlass.const_expr(not self.alone):
            if thread == 0:
                publish(slots, number, rows * tiles, total, tag)
            known, start = self.look_back(slots, number, tile, rows * tiles, tag, known, start, thread)
        have, state = after(known, start, have, before, self.scan.combine)
        if full:
            self.tile.emit(elements, prefixes, have, state, target, lane)
        else:
            self.part.emit(source, target, begin, end, have, state, lane)

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
        have, states = collect(slots, Int64(number - tile) + first, count, Int64(1), stride, tag, types, self.scan.combine, batch=1)
        have, before = fold_threads(states[0], have, self.scan.combine, storage, thread)
        if thread == 0:
            have, before = after(known, start, have, before, self.scan.combine)
            leave(found, 0, have, before)
        cute.arch.sync_threads()
        *state, flag = get(found, 0, (*types, Int32))
        return flag != 0, tuple(state)
