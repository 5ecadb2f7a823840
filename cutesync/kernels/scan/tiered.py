"""Scan in tiers: blocks meet where a launch ends, instead of telling each other as in ``wave`` and ``pipeline``.

    tier 0    x      |tile|tile|tile|tile|...   fold each -------+        scan each, the state before it in front --> out
                                                                 v                                       ^
    tier 1    totals |    tile    |   tile   |  fold each ---+            scan each, in place -----------+
                                                             v                               ^
    tier 2    totals of totals    |   tile   |               +--> one tile: scan it ---------+

A block has a tile and waits for nobody: all totals of a tier are there before the tier above reads them, and all its results before the
tier below does. T tiers take 2 T - 1 launches; n elements in tiles of t take log n / log t tiers, rounded up.

The document stores the scan of each tile in the first launch and adds what comes before it in the last, which reads and writes everything
twice: 16 bytes an element of 4. Here the first launch keeps only the totals and the last scans anew, which is 12 bytes where a single
pass moves 8, rounds 16-bit floats once, and may work in place.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ...block.reduce import state_array, state_bytes
from ...block.warps import after
from ...monoid import Monoid
from ...warp import LANES
from .base import Scan, ScanKernel
from .block import BlockScan


class Tier(ScanKernel):
    """One launch of one tier: block b has tile ``b % tiles`` of row ``b // tiles``. Totals are in the type of the operation, in memory order.

    Going up (``fold``) a block leaves its tile's total in ``out``. Going down it scans the tile into ``out``; in front come the first
    operand and the result of the tile before, which the tier above has left in ``slots``.
    """

    def __init__(self, scan: Scan, fold: bool, warps: int, rows: int, items: int, shift: int | None) -> None:
        self.fold, self.tile = fold, BlockScan(scan, warps, rows, shift, items)
        accumulate = scan.monoid.accumulate
        self.totals = Monoid(scan.monoid.op, accumulate, accumulate, accumulate)
        super().__init__(scan, warps * LANES, state_bytes((*scan.monoid.types, Int32), warps), 1)

    @cute.jit
    def body(self, x, out, init_at, init, slots, counters, rows, length, inner, tiles):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        warp, lane = cute.arch.make_warp_uniform(thread // LANES), thread % LANES
        row, tile = Int64(block // tiles), block % tiles
        totals = state_array((*self.scan.monoid.types, Int32), self.tile.warps)
        source, target = x + row * length, out + row * length
        held, have, before, total = self.tile.fold(source, length, tile, totals, warp, lane)
        place = row * tiles + self.scan.flip(tile, tiles)
        if cutlass.const_expr(self.fold):
            if thread == 0:
                cute.make_tensor(out + place, cute.make_layout((1,)))[0] = self.scan.monoid.lower(total)
        else:
            known, front = self.front(slots, place, tile, init, init_at)
            have, state = after(known, front, have, before, self.scan.combine)
            self.tile.emit(held, source, target, have, state, lane)

    @cute.jit
    def front(self, slots, place: Int64, tile: Int32, init, init_at):
        """``(any, state)`` in front of the tile whose own total is at ``place``."""
        accumulate, reverse = self.totals.result, self.scan.reverse
        known = Boolean(self.scan.start is not None)
        state = (
            self.scan.first(init, init_at) if self.scan.start is not None else tuple(t(0) for t in self.totals.types)
        )
        if tile > 0:
            scanned = cute.make_ptr(
                accumulate.cutlass, slots.toint(), cute.AddressSpace.gmem, assumed_align=accumulate.size
            )
            before = cute.make_tensor(scanned + (place + (1 if reverse else -1)), cute.make_layout((1,)))
            known, state = after(known, state, Boolean(True), self.totals.lift(before[0], 0), self.scan.combine)
        return known, state
