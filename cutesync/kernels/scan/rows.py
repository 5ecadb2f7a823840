"""Scan of many rows that fit into registers: several warps a row, one warp a row, or several rows a warp.

Blocks exchange nothing. Where a vector of some size divides the rows, every vector lies inside one row and no row has a
ragged end. *Ragged* rows begin and end anywhere: their vectors are found from where they lie in memory, and of the
first and the last only some elements are the row's. A warp does not touch what its registers hold beyond its row. Of
*skewed* rows the vectors are whole in the output, and lie in two aligned vectors each in the input. Elements of rows
with a *gap* lie a few apart: vectors of memory that begin with a row are loaded with what lies between (``gapped``).
Rows of whole vectors may have a few columns.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...block.reduce import partial_array, partial_bytes, store_partial
from ...block.warps import scan_partials
from ...sync.overlap import let_next_start
from ...warp import LANES, Maybe, shift_up
from ..arrays import at_index
from .base import Arguments, Scan, ScanKernel
from .gapped import GappedRowTile
from .ragged import RaggedScan
from .row_policy import RowPolicy, ShortRowPolicy
from .tile import Chunk, Span, WarpScan

WARPS = 8


def tile_of(scan: Scan, policy: RowPolicy | ShortRowPolicy, rows: int, warps: int) -> WarpScan:
    """What scans the chunks of ``warps`` warps."""
    kind = GappedRowTile if policy.whole else WarpScan
    tile = kind(scan, rows, warps, policy.shift, policy.items, aligned=policy.aligned).apart(policy.gap)
    tile.skewed = policy.skewed
    return tile


class RowScan(ScanKernel):
    """The kernel for rows longer than 32 vectors, or for one short row: ``team`` warps (a power of two) a row, each a
    chunk of ``rows`` rows of vectors."""

    def __init__(self, scan: Scan, policy: RowPolicy) -> None:
        self.team, self.warps = policy.team, max(policy.team, WARPS)
        super().__init__(scan, self.warps * LANES, partial_bytes(scan.types, self.warps) if policy.team > 1 else 0, 1)
        self.tile = tile_of(scan, policy, policy.rows, policy.team)
        self.ragged, self.is_ragged = RaggedScan(self.tile, policy.rows), policy.ragged
        self.bounded = policy.skewed or policy.whole

    @cute.jit
    def body(self, a: Arguments):
        let_next_start()
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(thread // LANES)
        lane = thread % LANES
        row = Int64(block) * (self.warps // self.team) + warp // self.team
        part = warp % self.team
        source, out = self.row_places(a, row)
        if cutlass.const_expr(not self.is_ragged):
            offset, begin, end, target = self.span(a.length, part)
        else:
            position = Int64(part * self.tile.chunk)
            offset, begin, end, target = self.tile.span(a.x + source, a.length, position, self.tile.chunk)
        if row >= a.rows:
            begin, end = Int32(0), Int32(0)
        span = Span(offset, begin, end, target)
        source, target = at_index(a.x + source, 0) + offset, a.out + out + target
        chunk = self.tile.registers()
        if cutlass.const_expr(not self.is_ragged):
            partial = self.reduce(source, end, chunk, lane, self.end_of(a) if self.bounded else None)
        else:
            partial, edges = self.ragged.reduce_piece(source, source, span, chunk, lane)
        carry = self.scan.carry_in(a, cutlass.min(row, a.rows - 1))
        if cutlass.const_expr(self.team > 1):
            types = self.scan.types
            partials = partial_array(types, self.warps)
            if lane == 0:
                store_partial(partials, warp, partial)
            cute.arch.sync_threads()
            prefix, _ = scan_partials(partials, warp - part, self.team, part, lane, types, self.scan.combine)
            carry = carry.then(prefix, self.scan.combine)
        if cutlass.const_expr(not self.is_ragged):
            self.emit(target, end, chunk, carry, lane)
        else:
            self.ragged.emit_piece(target, span, chunk, edges, carry, lane)

    @cute.jit
    def span(self, length, part):
        """As ``WarpScan.span`` where all vectors are whole, counted from the row's end."""
        position = part * self.tile.chunk
        up, down = Int64(position), length - position - self.tile.chunk
        offset, target = (down if from_end else up for from_end in (self.tile.from_end, self.scan.reverse))
        return Span(offset * self.tile.unit, Int32(0), Int32(length) - position, target * self.scan.width)

    @cute.jit
    def reduce(self, source, end, chunk: Chunk, lane, limit):
        """The aggregate (``Maybe``) of the vectors up to position ``end``; ``limit`` is the array's end."""
        count = end // self.tile.items
        rows, loading = [], self.tile.loading(chunk)
        vectors = [source + self.tile.place_in(u, lane) for u in range(self.tile.rows)]
        for u in cutlass.range_constexpr(self.tile.rows):
            self.tile.load_vector(vectors[u], loading, u, lane + u * LANES < count, limit)
        self.tile.loaded(loading, chunk, vectors)
        for u in cutlass.range_constexpr(self.tile.rows):
            rows.append(self.tile.scan_row(chunk.elements, u, lane, lane + u * LANES < count))
        exists = count > 0
        return Maybe(self.tile.join_rows(rows, chunk, lane, count), exists)

    @cute.jit
    def emit(self, target, end, chunk: Chunk, carry: Maybe, lane):
        count = end // self.tile.items
        for u in cutlass.range_constexpr(self.tile.rows):
            prefix, exists = self.tile.prefix(chunk, u, lane), lane + u * LANES < count
            self.tile.emit_vector(chunk.elements, u, carry, prefix, target + self.tile.place(u, lane), exists)


class ShortRowScan(ScanKernel):
    """The kernel for rows of up to 32 vectors: ``group`` lanes (a power of two) a row, ``unroll`` rows in flight."""

    def __init__(self, scan: Scan, policy: ShortRowPolicy) -> None:
        super().__init__(scan, WARPS * LANES, 0, 1)
        self.group, self.unroll = policy.group, policy.unroll
        self.tile, self.bounded = tile_of(scan, policy, policy.unroll, 1), policy.skewed or policy.whole

    @cute.jit
    def body(self, a: Arguments):
        let_next_start()
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        lane = thread % LANES
        place = lane & (self.group - 1)
        row = (Int64(block) * WARPS + thread // LANES) * (LANES // self.group * self.unroll) + lane // self.group
        count = Int32(a.length) // self.tile.items
        inside, inside_out = (flip(place, count) * self.tile.items for flip in (self.scan.flip_in, self.scan.flip))
        step = LANES // self.group
        chunk = self.tile.registers()
        vectors, loading = [], self.tile.loading(chunk)
        limit = self.end_of(a) if self.bounded else None
        for u in cutlass.range_constexpr(self.unroll):
            exists = (place < count) & (row + u * step < a.rows)
            source, _ = self.row_places(a, row + u * step)
            vectors.append(at_index(a.x + source + inside * self.tile.unit, inside))
            self.tile.load_vector(vectors[u], loading, u, exists, limit)
        self.tile.loaded(loading, chunk, vectors)
        for u in cutlass.range_constexpr(self.unroll):
            exists = (place < count) & (row + u * step < a.rows)
            carry = self.scan.carry_in(a, cutlass.min(row + u * step, a.rows - 1))
            prefix = Maybe(
                shift_up(self.tile.scan_row(chunk.elements, u, lane, exists, self.group)), cutlass.not_(place == 0)
            )
            out = a.out + self.row_places(a, row + u * step)[1] + inside_out * self.scan.width
            self.tile.emit_vector(chunk.elements, u, carry, prefix, out, exists)
