"""Scans of segments that offsets give: the pipeline of ``pipeline.py`` with a bit for each position, set where a
segment begins. A launch before has set them (``offsets.MarkHeads``). A tile's bits are copied into its stage; publish
clears them in memory, so that the next launch finds none.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8, Uint32
from cutlass.memory import SmemAllocator

from ...errors import ArgumentValueError, explain
from ...warp import LANES
from ..hardware import VECTOR_BYTES
from ..select.chunk import cells
from ..select.window import as_copy
from .base import Arguments
from .pipeline import SegmentPipeline
from .policy import MarkedPolicy
from .spec import SegmentsSpec


class MarkedPipeline(SegmentPipeline):
    """The kernel: runs of at most 32 positions, so that a lane's bits are one word."""

    def __init__(self, spec: SegmentsSpec, shared: int, policy: MarkedPolicy) -> None:
        super().__init__(spec, shared, policy)
        self.bytes = self.tile // 8  # of the bits of a tile
        if self.bytes % VECTOR_BYTES:
            raise ArgumentValueError(explain("policy", f"tiles of {self.tile} positions", "a multiple of 128"))

    def more_shared(self):
        """The bits of each stage."""
        return SmemAllocator().allocate_array(Uint8, self.stages * self.bytes, byte_alignment=VECTOR_BYTES)

    def more_copies(self, shared, a: Arguments, stage, number) -> list:
        source = a.bits.toint() + Int64(number) * self.bytes
        return [as_copy((Int32(shared.more.toint()) + stage * self.bytes, source, Int32(self.bytes)))]

    @cute.jit
    def leave_ready(self, a: Arguments, number, lane):
        sink = a.bits.toint() + Int64(number) * self.bytes
        nothing = cute.make_rmem_tensor(cute.make_layout((VECTOR_BYTES // 4,)), Int32)
        nothing.fill(0)
        for v in cutlass.range(lane, self.bytes // VECTOR_BYTES, LANES, unroll=1):
            there = cells(Int32, sink + v * VECTOR_BYTES, VECTOR_BYTES // 4, cute.AddressSpace.gmem, VECTOR_BYTES)
            cute.autovec_copy(nothing, there)

    def bits(self, shared, stage, place):
        """The bits of the positions of a run that begins at ``place``."""
        first = Int32(shared.more.toint()) + stage * self.bytes
        word = place // LANES
        after = cutlass.min(word + 1, self.bytes // 4 - 1)
        low, high = (Uint32(cells(Uint32, first + 4 * k, 1)[0]) for k in (word, after))
        both = (Int64(high) << 32) | Int64(low)
        return Int32((both >> Int64(place % LANES)) & 0xFFFFFFFF)
