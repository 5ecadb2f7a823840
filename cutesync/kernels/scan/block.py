"""A tile that a block scans, a chunk a warp, before it is known what comes in front of the tile: what ``wave`` and ``tiered`` share."""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ...block.warps import around, leave
from .base import Scan
from .part import PartScan
from .tile import WarpScan


class BlockScan:
    """Tiles of ``warps`` chunks of ``rows`` rows of vectors; ``shift`` and ``items`` are those of ``WarpScan``.

    Between ``fold`` and ``emit`` a full chunk stays in registers; one that is not full is read from memory again.
    """

    def __init__(self, scan: Scan, warps: int, rows: int, shift: int | None, items: int | None = None) -> None:
        self.scan, self.warps = scan, warps
        self.chunk = WarpScan(scan, rows, warps, shift, items)
        self.part = PartScan(self.chunk)

    @cute.jit
    def fold(self, x: cute.Pointer, length: Int64, tile: Int32, totals, warp: Int32, lane: Int32):
        """Fold a tile of the row of ``length`` elements at ``x``: ``(held, have, before, total)``. ``before`` (if ``have``) is the state of the
        tile's chunks before this warp's, ``total`` that of all, ``held`` what ``emit`` needs. ``totals`` is a state array with a flag, a
        place a warp. One block barrier."""
        offset, begin, end = self.chunk.span(
            x, length, Int64(tile) * self.chunk.tile + warp * self.chunk.chunk, self.chunk.chunk
        )
        elements, prefixes = self.chunk.registers()
        have, state = Boolean(True), tuple(t(0) for t in self.scan.types)
        if self.full(begin, end):
            self.chunk.load(x + offset, lane, elements)
            state = self.chunk.fold(elements, prefixes, lane)
        else:
            have, state = self.part.fold(x + offset, begin, end, lane)
        if lane == 0:
            leave(totals, warp, have, state)
        cute.arch.sync_threads()
        have, before, _, total = around(totals, Int32(0), self.warps, warp, lane, self.scan.types, self.scan.combine)
        return (offset, begin, end, elements, prefixes), have, before, total

    @cute.jit
    def emit(self, held, x: cute.Pointer, out: cute.Pointer, have: Boolean, state, lane: Int32):
        """Store the warp's scanned chunk in the row at ``out``; ``state`` (if ``have``) is that of everything before the chunk."""
        offset, begin, end, elements, prefixes = held
        if self.full(begin, end):
            self.chunk.emit(elements, prefixes, have, state, out + offset, lane)
        else:
            self.part.emit(x + offset, out + offset, begin, end, have, state, lane)

    def full(self, begin, end):
        return (begin == 0) & (end == self.chunk.chunk)
