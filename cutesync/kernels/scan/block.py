"""A tile that a block scans, a chunk a warp, before its carry-in is known: what ``wave`` and ``tiered`` share."""

from __future__ import annotations

from collections import namedtuple

import cutlass.cute as cute
from cutlass import Int32, Int64

from ...block.reduce import store_partial
from ...block.warps import scan_partials
from ...warp import Maybe, zeros
from .base import Scan
from .ragged import ROWS, RaggedScan
from .tile import WarpScan

# What a warp keeps of its chunk between ``reduce`` and ``emit``.
Held = namedtuple("Held", "span chunk")


class BlockScan:
    """Tiles of ``warps`` chunks of ``rows`` rows of vectors; ``shift`` and ``items`` are those of ``WarpScan``.

    Between ``reduce`` and ``emit`` a full chunk stays in registers; one that is not full is read from memory again.
    """

    def __init__(
        self,
        scan: Scan,
        warps: int,
        rows: int,
        shift: int | None,
        items: int | None = None,
        aligned: bool = True,
        gap: int = 1,
    ) -> None:
        self.scan, self.warps = scan, warps
        self.chunk = WarpScan(scan, rows, warps, shift, items, aligned=aligned).apart(gap)
        self.ragged = RaggedScan(self.chunk, next(each for each in (ROWS, 3, 2, 1) if rows % each == 0))

    @cute.jit
    def reduce(self, x, length: Int64, tile: Int32, partials, warp: Int32, lane: Int32):
        """Reduce a tile of the row of ``length`` elements at ``x``: ``(held, prefix, aggregate)``.

        ``prefix`` (``Maybe``) is that of this warp's chunk in the tile, ``held`` what ``emit`` needs. ``partials`` is a
        ``partial_array``, a place a warp. One block barrier."""
        position = Int64(tile) * self.chunk.tile + warp * self.chunk.chunk
        span = self.chunk.span(x, length, position, self.chunk.chunk)
        chunk = self.chunk.registers()
        partial = Maybe.of(zeros(self.scan.types))
        if self.chunk.is_full(span):
            self.chunk.load(x + span.offset, lane, chunk.elements)
            partial = Maybe.of(self.chunk.reduce(chunk, lane))
        else:
            partial = self.ragged.reduce(x + span.offset, span, lane)
        if lane == 0:
            store_partial(partials, warp, partial)
        cute.arch.sync_threads()
        prefix, total = scan_partials(partials, Int32(0), self.warps, warp, lane, self.scan.types, self.scan.combine)
        return Held(span, chunk), prefix, total.state

    @cute.jit
    def emit(self, held: Held, x, out, carry: Maybe, lane: Int32):
        """Store the warp's scanned chunk in the row at ``out``; ``carry`` is the chunk's carry-in."""
        span = held.span
        if self.chunk.is_full(span):
            self.chunk.emit(held.chunk, carry, out + span.target, lane)
        else:
            self.ragged.emit(x + span.offset, out + span.target, span, carry, lane)
