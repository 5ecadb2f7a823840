"""Scans of segments that offsets give: the pipeline of ``pipeline.py`` on tiles of the merged list of ``offsets``.

mark             warps that take tiles in turn: set a bit for each position of a tile at which a segment begins
marked[stage]    completed by one lane of mark; waited for by reduce
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32
from cutlass.memory import SmemAllocator

from ...sync.barrier import Barriers
from ...sync.tiles import DONE
from ...sync.wait import in_role
from ...warp import LANES
from .base import Arguments
from .offsets import Offsets
from .pipeline import SegmentPipeline
from .policy import MergedPolicy
from .spec import SegmentsSpec
from .window import Span

AHEAD = 4  # offsets that a lane reads at once


class MergedPipeline(SegmentPipeline):
    """The kernel: runs of at most 32 positions, so that a lane's bits are one word."""

    def __init__(self, spec: SegmentsSpec, shared: int, policy: MergedPolicy) -> None:
        super().__init__(spec, shared, policy)
        self.words = self.tile // LANES + 2  # of a tile's bits: those of a lane's run may begin in the last but one

    def more_shared(self):
        """The first position of each stage's tile and that of the next, its first segment and that of the next, its
        bits, and the barriers of these."""
        stages = self.stages
        longs = SmemAllocator().allocate_array(Int64, 4 * stages, byte_alignment=16)
        bits = SmemAllocator().allocate_array(Uint32, stages * self.words, byte_alignment=16)
        marked = Barriers.make(stages, 1, name="marked")
        return cute.make_tensor(longs, cute.make_layout((4 * stages,))), bits, marked

    def tiles(self, a: Arguments):
        return cutlass.max(Int32((a.count + a.segments + self.tile - 1) // self.tile), 1)

    def offsets(self, a: Arguments) -> Offsets:
        return Offsets(a.offsets, a.segments, a.count, self.spec.heads.ends, self.spec.reverse)

    @cute.jit
    def locate(self, shared: cutlass.Constexpr, a: Arguments, at, number, lane):
        """What the loader stores of a tile: its positions and its segments."""
        longs = shared.more[0]
        cut = Int64(0)
        if lane < 2:
            cut = Int64(cute.make_tensor(a.cuts + (number + lane), cute.make_layout((1,)))[0])
            member = cutlass.min(Int64(number + lane) * self.tile, a.count + a.segments)
            longs[at.stage * 4 + lane] = cut
            longs[at.stage * 4 + 2 + lane] = member - cut
        cute.arch.sync_warp()

    def span(self, shared, a: Arguments, stage, number) -> Span:
        return Span(Int64(shared.more[0][stage * 4]), Int64(shared.more[0][stage * 4 + 1]))

    def segments(self, shared, stage):
        """The first segment that ends in a tile, and the first one that ends behind it."""
        return Int64(shared.more[0][stage * 4 + 2]), Int64(shared.more[0][stage * 4 + 3])

    def bits(self, shared, stage, place):
        """The bits of the 32 positions from ``place`` on."""
        words = shared.more[1] + (stage * self.words + place // LANES)
        pair = cute.make_tensor(words, cute.make_layout((2,)))
        shift = Uint32(place % LANES)
        both = (Int64(Uint32(pair[1])) << 32) | Int64(Uint32(pair[0]))
        return Int32((both >> Int64(shift)) & 0xFFFFFFFF)

    @cute.jit
    def mark(self, shared: cutlass.Constexpr, a: Arguments, first, lane):
        """A warp that marks: where segments begin in each tile of its turn, the position behind the tile included."""
        marked = shared.more[2]
        at = shared.tiles.first(first)
        while at.number != DONE:
            words = shared.more[1] + at.stage * self.words
            for word in cutlass.range(lane, self.words, LANES, unroll=1):
                cute.make_tensor(words + word, cute.make_layout((1,)))[0] = Uint32(0)
            cute.arch.sync_warp()
            span = self.span(shared, a, at.stage, at.number)
            low, high = self.segments(shared, at.stage)
            offsets = self.offsets(a)
            for k in cutlass.range(low + lane, high + 1, LANES, unroll=AHEAD):
                place = Int32(offsets[k] - span.first)
                if (place >= 0) & (place <= Int32(span.stop - span.first)):
                    cute.arch.atomic_or(words + place // LANES, Uint32(1) << Uint32(place % LANES), scope="cta")
            marked[at.stage].arrive_once()
            at = shared.tiles.next(at, self.marks)

    @cute.jit
    def control_more(self, shared: cutlass.Constexpr, a: Arguments, warp, lane):
        in_role("mark", self.mark, shared, a, warp, lane)

    def await_heads(self, shared, at) -> None:
        shared.more[2].await_phase(at.stage, at.parity)
