"""Scan of many rows that fit into registers: several warps a row, one warp a row, or several rows a warp. Nothing is exchanged between blocks.

Where a vector of some size divides the rows, every vector lies inside one row and no row has a ragged end. *Ragged* rows begin and end
anywhere: their vectors are found from where they lie in memory, and of the first and the last only some elements are the row's.
What a warp holds beyond its row is left alone.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ...block.reduce import state_array, state_bytes
from ...block.warps import after, around, leave
from ...sync.overlap import let_next_start
from ...warp import LANES, shift_up
from .base import Scan, ScanKernel
from .part import PartScan
from .tile import WarpScan

WARPS = 8


class RowScan(ScanKernel):
    """The kernel for rows longer than 32 vectors, or for one short one: ``team`` warps (a power of two) a row, each a chunk of ``rows`` rows of
    vectors."""

    def __init__(self, scan: Scan, items: int, team: int, rows: int, shift: int | None, ragged: bool) -> None:
        self.team, self.warps = team, max(team, WARPS)
        types = (*scan.types, Int32)
        super().__init__(scan, self.warps * LANES, state_bytes(types, self.warps) if team > 1 else 0, 1)
        self.tile = WarpScan(scan, rows, team, shift, items)
        self.ragged = PartScan(self.tile, rows) if ragged else None

    @cute.jit
    def body(self, x, out, init_at, init, slots, counters, rows, length, inner, tiles):
        let_next_start()
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(thread // LANES)
        lane = thread % LANES
        row = Int64(block) * (self.warps // self.team) + warp // self.team
        part = warp % self.team
        if cutlass.const_expr(self.ragged is None):
            offset, begin, end = self.span(length, part)
        else:
            offset, begin, end = self.tile.span(
                x + row * length, length, Int64(part * self.tile.chunk), self.tile.chunk
            )
        if row >= rows:
            begin, end = Int32(0), Int32(0)
        source, target = x + row * length + offset, out + row * length + offset
        elements, prefixes = self.tile.registers()
        if cutlass.const_expr(self.ragged is None):
            some, state = self.fold(source, end, elements, prefixes, lane)
        else:
            some, state = self.ragged.fold_piece(source, source, begin, end, elements, prefixes, lane)
        have = Boolean(self.scan.start is not None)
        start = self.scan.first(init, init_at) if self.scan.start is not None else tuple(t(0) for t in self.scan.types)
        if cutlass.const_expr(self.team > 1):
            types = (*self.scan.types, Int32)
            totals = state_array(types, self.warps)
            if lane == 0:
                leave(totals, warp, some, state)
            cute.arch.sync_threads()
            some, before, _, _ = around(totals, warp - part, self.team, part, lane, types[:-1], self.scan.combine)
            have, start = after(have, start, some, before, self.scan.combine)
        if cutlass.const_expr(self.ragged is None):
            self.emit(target, end, elements, prefixes, have, start, lane)
        else:
            self.ragged.emit_piece(source, target, begin, end, elements, prefixes, have, start, lane)

    @cute.jit
    def span(self, length, part):
        """As ``WarpScan.span`` where all vectors are whole, counted from the row's end."""
        position = part * self.tile.chunk
        offset = length - position - self.tile.chunk if self.scan.reverse else Int64(position)
        return offset, Int32(0), Int32(length) - position

    @cute.jit
    def fold(self, source, end, elements, prefixes, lane):
        """``(any, state)`` of the vectors up to position ``end``."""
        count = end // self.tile.items
        rows = []
        for u in cutlass.range_constexpr(self.tile.rows):
            self.tile.load_vector(source + self.tile.place(u, lane), elements, u, lane + u * LANES < count)
        for u in cutlass.range_constexpr(self.tile.rows):
            rows.append(self.tile.scan_row(elements, u, lane, lane + u * LANES < count))
        return count > 0, self.tile.join_rows(rows, prefixes, lane, count)

    @cute.jit
    def emit(self, target, end, elements, prefixes, have, state, lane):
        count = end // self.tile.items
        for u in cutlass.range_constexpr(self.tile.rows):
            before = tuple(t(member[u]) for t, member in zip(self.scan.types, prefixes))
            first = lane == 0 if u == 0 else False
            self.tile.emit_vector(
                elements, u, have, state, first, before, target + self.tile.place(u, lane), lane + u * LANES < count
            )


class ShortRowScan(ScanKernel):
    """The kernel for rows of up to 32 vectors: ``group`` lanes (a power of two) a row, ``unroll`` rows a group in flight."""

    def __init__(self, scan: Scan, items: int, group: int, unroll: int, shift: int | None) -> None:
        super().__init__(scan, WARPS * LANES, 0, 1)
        self.group, self.unroll = group, unroll
        self.tile = WarpScan(scan, unroll, 1, shift, items)

    @cute.jit
    def body(self, x, out, init_at, init, slots, counters, rows, length, inner, tiles):
        let_next_start()
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
        start = self.scan.first(init, init_at) if self.scan.start is not None else tuple(t(0) for t in self.scan.types)
        for u in cutlass.range_constexpr(self.unroll):
            exists = (place < count) & (row + u * step < rows)
            before = shift_up(self.tile.scan_row(elements, u, lane, exists, self.group))
            self.tile.emit_vector(
                elements, u, known, start, place == 0, before, out + offset + u * step * length, exists
            )
