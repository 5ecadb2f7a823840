"""A running sum over many blocks, by launches alone: scan the tiles, scan their totals, add those.

With tiles of 4:

    x            3 1 4 1 | 5 9 2 6 | 5 3 5 8
    launch 1     reduce each tile        -->  totals    9 22 21
    launch 2     scan the totals         -->  9 31 52          (many totals: scanned in tiers themselves)
    launch 3     scan each tile, starting from the scanned total of the tile before it
                 3 4 8 9 | 14 23 25 31 | 36 39 44 52

Nobody waits inside a launch: a block that waited for the total of another block could wait for one that has not
started. The end of a launch is the barrier of the whole grid: all totals of a tier are there before the tier above
reads them, and all its results before the tier below does. T tiers take 2 T - 1 launches; n elements in tiles of t take
log n / log t tiers, rounded up.

The textbook form stores the scan of each tile in the first launch and adds its carry-in in the last, which reads and
writes everything twice: 16 bytes an element of 4. Here the first launch keeps only the totals and the last scans anew:
12 bytes, where a single pass moves 8 (kernels/scan/pipeline.py). It rounds 16-bit floats once and may work in place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import cutlass
from cutlass import Int32, Int64, cute

from cutesync import reference as meaning
from cutesync.block.reduce import partial_array, partial_bytes
from cutesync.kernels.hardware import LANES, VECTOR_BYTES
from cutesync.kernels.policy import Policy
from cutesync.kernels.scan import scan
from cutesync.kernels.scan.base import Arguments, Scan, ScanKernel
from cutesync.kernels.scan.block import BlockScan
from cutesync.kernels.scan.plan import launch
from cutesync.kernels.scan.problem import Choice, Problem
from cutesync.kernels.scan.spec import ScanSpec
from cutesync.kernels.states import Single
from cutesync.monoid import Monoid
from cutesync.runtime.launch import Run, in_turn
from cutesync.sizes import ceil_div
from cutesync.warp import Maybe


def run(x, op="add", *, exclusive=False, reverse=False, init=None, dtype=None, identity=None, out=None, stream=None):
    """``cs.scan`` of ``x`` along its last axis, with ``algorithm="tiered"``: its arguments, results and errors."""
    return scan(
        x,
        op,
        exclusive=exclusive,
        reverse=reverse,
        init=init,
        dtype=dtype,
        identity=identity,
        out=out,
        algorithm="tiered",
        stream=stream,
    )


def reference(x, op="add", **options):
    """The same in NumPy."""
    return meaning.scan(x, op, **options)


@dataclass(frozen=True)
class TierPolicy(Policy, kernel="cutesync.patterns.tiered_scan:Tier"):
    """Tiles of ``warps`` chunks of ``rows`` vectors a lane, whose totals are found (``fold``) or which are scanned."""

    fold: bool
    warps: int
    rows: int
    items: int
    shift: int | None


class Tier(ScanKernel):
    """One launch of one tier: block b has tile ``b % tiles`` of row ``b // tiles``. Totals are in the type of the
    operation, in memory order.

    Going up (``fold``) a block stores its tile's total in ``out``. Going down it scans the tile into ``out``; its
    carry-in is the first operand and the result of the tile before, which the tier above has stored in ``slots``.
    """

    def __init__(self, scan: Scan, policy: TierPolicy) -> None:
        self.fold, self.tile = policy.fold, BlockScan(scan, policy.warps, policy.rows, policy.shift, policy.items)
        accumulate = scan.monoid.accumulate
        self.totals = Monoid(scan.monoid.op, accumulate, accumulate, accumulate)
        super().__init__(scan, policy.warps * LANES, partial_bytes(scan.monoid.types, policy.warps), 1)

    @cute.jit
    def body(self, a: Arguments):
        thread, block = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
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
        carry = self.scan.carry_in(a, 0)
        if tile > 0:
            scanned = cute.make_ptr(
                accumulate.cutlass, a.slots.toint(), cute.AddressSpace.gmem, assumed_align=accumulate.size
            )
            before = cute.make_tensor(scanned + (place + (1 if self.scan.reverse else -1)), cute.make_layout((1,)))
            carry = carry.then(Maybe.of(self.totals.lift(before[0], 0)), self.scan.combine)
        return carry


WARPS, ROWS = 8, 4  # tiles of 16 KiB of 4-byte elements


def tiers(spec: ScanSpec, single: Single, problem: Problem, ordinal: int, stream: int) -> Run:
    """All launches of a scan (of operation ``single``) of at least one element along the last axis.

    Totals are found tier by tier, and the tiers are scanned in the reverse order.
    """
    first = ("init_at",) if spec.start_in_memory else ()
    x, out, totals = 0, 1 + len(first), 2 + len(first)  # places among the arrays of ``in_turn``
    up, down, sizes = [], [], []
    tiles = 2
    while tiles > 1:
        tiles = ceil_div(problem.length + VECTOR_BYTES // problem.source - 1, WARPS * ROWS * LANES * problem.items)
        grid = problem.rows * tiles
        tail = ("scratch",) if tiles > 1 else ()  # where the scanned totals of this tier's tiles are
        policy = TierPolicy(False, WARPS, ROWS, problem.items, problem.shift)
        scanned = launch(Choice(policy, tiles, grid), spec, ordinal, stream, ("x", "out", *first, *tail))
        down.append((scanned.run, (x, out, *(1 for _ in first), *(totals for _ in tail))))
        if tiles > 1:
            choice = Choice(replace(policy, fold=True, shift=0), tiles, grid)
            up.append(
                (launch(choice, spec.between(single, single.source), ordinal, stream, ("x", "out")).run, (x, totals))
            )
            sizes.append(grid * single.accumulate.size)
        x, out, totals, first = totals, totals, totals + 1, ()
        extents, size = (problem.rows, tiles, 1), single.accumulate.size
        spec = replace(spec.between(single, single.accumulate), extents=extents)
        single = replace(single, source=single.accumulate, output=single.accumulate)
        problem = Problem(*extents, (size,), (size,), (0,), (0,))
    return in_turn([*up, *reversed(down)], sizes, ordinal)
