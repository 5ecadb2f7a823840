"""Scan in tiers: blocks synchronize where a launch ends, and publish no states as in ``wave`` and ``pipeline``.

    tier 0    x      |tile|tile|tile|tile|...   reduce each -----+        scan each, its carry-in in front ---> out
                                                                 v                                       ^
    tier 1    totals |    tile    |   tile   |reduce each ---+            scan each, in place -----------+
                                                             v                               ^
    tier 2    totals of totals    |   tile   |               +--> one tile: scan it ---------+

A block has a tile and waits for no other block: all totals of a tier are there before the tier above reads them, and
all its results before the tier below does. T tiers take 2 T - 1 launches; n elements in tiles of t take log n / log t
tiers, rounded up.

The textbook form stores the scan of each tile in the first launch and adds its carry-in in the last, which reads and
writes everything twice: 16 bytes an element of 4. Here the first launch keeps only the totals and the last scans anew:
12 bytes, where a single pass moves 8. It rounds 16-bit floats once and may work in place.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...block.reduce import partial_array, partial_bytes
from ...monoid import Monoid
from ...warp import LANES, Maybe
from .base import Arguments, Scan, ScanKernel
from .block import BlockScan
from .policy import Policy


class Tier(ScanKernel):
    """One launch of one tier: block b has tile ``b % tiles`` of row ``b // tiles``. Totals are in the type of the
    operation, in memory order.

    Going up (``fold``) a block stores its tile's total in ``out``. Going down it scans the tile into ``out``; its
    carry-in is the first operand and the result of the tile before, which the tier above has stored in ``slots``.
    """

    def __init__(self, scan: Scan, policy: Policy) -> None:
        self.fold, self.tile = policy.fold, BlockScan(scan, policy.warps, policy.rows, policy.shift, policy.items)
        accumulate = scan.monoid.accumulate
        self.totals = Monoid(scan.monoid.op, accumulate, accumulate, accumulate)
        super().__init__(scan, policy.warps * LANES, partial_bytes(scan.monoid.types, policy.warps), 1)

    @cute.jit
    def body(self, a: Arguments):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        warp, lane = cute.arch.make_warp_uniform(thread // LANES), thread % LANES
        row, tile = Int64(block // a.tiles), block % a.tiles
        partials = partial_array(self.scan.monoid.types, self.tile.warps)
        source, target = a.x + row * a.length, a.out + row * a.length
        held, prefix, total = self.tile.reduce(source, a.length, tile, partials, warp, lane)
        place = row * a.tiles + self.scan.flip(tile, a.tiles)
        if cutlass.const_expr(self.fold):
            if thread == 0:
                cute.make_tensor(a.out + place, cute.make_layout((1,)))[0] = self.scan.monoid.lower(total)
        else:
            carry = self.carry_in(a, place, tile).then(prefix, self.scan.combine)
            self.tile.emit(held, source, target, carry, lane)

    @cute.jit
    def carry_in(self, a: Arguments, place: Int64, tile: Int32):
        """The carry-in of the tile whose own total is at ``place``."""
        accumulate = self.totals.result
        carry = self.scan.carry_in(a)
        if tile > 0:
            scanned = cute.make_ptr(
                accumulate.cutlass, a.slots.toint(), cute.AddressSpace.gmem, assumed_align=accumulate.size
            )
            before = cute.make_tensor(scanned + (place + (1 if self.scan.reverse else -1)), cute.make_layout((1,)))
            carry = carry.then(Maybe.of(self.totals.lift(before[0], 0)), self.scan.combine)
        return carry
