"""Scan of many rows that fit into registers: several warps a row, one warp a row, or several rows a warp. Nothing is exchanged between blocks.

Every vector lies inside one row, so its size divides the row's and no row has a ragged end; what a warp holds beyond its row is left alone.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ..block.reduce import state_array, state_bytes
from ..block.warps import after, around, leave
from ..warp import LANES, shift_up
from .base import Scan, ScanKernel
from .tile import WarpScan

WARPS = 8


class RowScan(ScanKernel):
    """The kernel for rows longer than 32 vectors: ``team`` warps (a power of two up to 8), each a chunk of ``rows`` rows of vectors."""

    def __init__(self, scan: Scan, items: int, team: int, rows: int, shift: int | None) -> None:
        types = (*scan.monoid.types, Int32)
        super().__init__(scan, WARPS * LANES, state_bytes(types, WARPS) if team > 1 else 0, 1)
        self.team = team
        self.tile = WarpScan(scan, rows, team, shift, items)

    @cute.jit
    def body(self, x, out, init, init_at, slots, counters, rows, length, inner, tiles):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(thread // LANES)
        lane = thread % LANES
        types = self.scan.monoid.types
        row = Int64(block) * (WARPS // self.team) + warp // self.team
        part = warp % self.team
        count = Int32(length) // self.tile.items - part * self.tile.vectors
        if row >= rows:
            count = Int32(0)
        position = part * self.tile.chunk
        offset = row * length + (length - position - self.tile.chunk if self.scan.reverse else Int64(position))
        elements, prefixes = self.tile.registers()
        rows_ = []
        for u in cutlass.range_constexpr(self.tile.rows):
            self.tile.load_vector(x + offset + self.tile.place(u, lane), elements, u, lane + u * LANES < count)
        for u in cutlass.range_constexpr(self.tile.rows):
            rows_.append(self.tile.scan_row(elements, u, lane, lane + u * LANES < count))
        state = self.tile.join_rows(rows_, prefixes, lane, count)
        have = Boolean(self.scan.start is not None)
        start = self.scan.first(init, init_at) if self.scan.start is not None else tuple(t(0) for t in types)
        if cutlass.const_expr(self.team > 1):
            totals = state_array((*types, Int32), WARPS)
            if lane == 0:
                leave(totals, warp, count > 0, state)
            cute.arch.sync_threads()
            some, before, _, _ = around(totals, warp - part, self.team, part, lane, types, self.scan.combine)
            have, start = after(have, start, some, before, self.scan.combine)
        for u in cutlass.range_constexpr(self.tile.rows):
            before = tuple(t(member[u]) for t, member in zip(types, prefixes))
            first = lane == 0 if u == 0 else False
            self.tile.emit_vector(elements, u, have, start, first, before, out + offset + self.tile.place(u, lane), lane + u * LANES < count)


class ShortRowScan(ScanKernel):
    """The kernel for rows of up to 32 vectors: ``group`` lanes (a power of two) a row, ``unroll`` rows a group in flight."""

    def __init__(self, scan: Scan, items: int, group: int, unroll: int, shift: int | None) -> None:
        super().__init__(scan, WARPS * LANES, 0, 1)
        self.group, self.unroll = group, unroll
        self.tile = WarpScan(scan, unroll, 1, shift, items)

    @cute.jit
    def body(self, x, out, init, init_at, slots, counters, rows, length, inner, tiles):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        lane = thread % LANES
        place = lane & (self.group - 1)
        row = (Int64(block) * WARPS + thread // LANES) * (LANES // self.group * self.unroll) + lane // self.group
        count = Int32(length) // self.tile.items
        offset = row * length + self.scan.flip(place, count) * self.tile.items
        step = LANES // self.group
        elements, _ = self.tile.registers()
        for u in cutlass.range_constexpr(self.unroll):
            exists = (place < count) & (row + u * step < rows)
            self.tile.load_vector(x + offset + u * step * length, elements, u, exists)
        known = Boolean(self.scan.start is not None)
        start = self.scan.first(init, init_at) if self.scan.start is not None else tuple(t(0) for t in self.scan.monoid.types)
        for u in cutlass.range_constexpr(self.unroll):
            exists = (place < count) & (row + u * step < rows)
            before = shift_up(self.tile.scan_row(elements, u, lane, exists, self.group))
            self.tile.emit_vector(elements, u, known, start, place == 0, before, out + offset + u * step * length, exists)
