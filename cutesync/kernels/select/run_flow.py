"""Runs of narrow elements, and bytes, in tiles that leave their stages early: as ``flow``, but elements are read twice.

    compact     a warp finds the heads of a chunk as bits (``heads``); once there is room, it brings the elements where
                bits are set, and leaves the stage

Few heads are kept of most tiles: it costs less to look up their elements than to move all elements as far as they are
heads.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32

from ...sync.tiles import DONE
from .base import Arguments
from .byte_selector import ByteSelector
from .chunk import Chunk
from .flow import FlowSelect
from .heads import head_finder
from .policy import RunPolicy
from .spec import Selection
from .tally import count_of


class RunFlow(FlowSelect):
    """The kernel, with the sizes of a policy."""

    def __init__(self, selection: Selection, policy: RunPolicy) -> None:
        super().__init__(selection, policy)
        self.compactor = (head_finder if self.heads else ByteSelector)(self.where, policy.rows)

    @cute.jit
    def compact(self, shared: cutlass.Constexpr, a: Arguments, squad, warp):
        """A squad's warp: chunk ``warp`` of each tile of the squad."""
        lane, tallies, sent = cute.arch.lane_idx(), shared.tallies, shared.sent.tiles.ring
        at, to = shared.tiles.first(squad), sent.start_consumer(squad)
        while at.number != DONE:
            position, length = self.extent(a, at.number, warp)
            begins = self.begins(shared, self.arrays(a), at.stage, warp)
            chunk = Chunk(begins, position, length, Int32(0), Int32(0))
            flags = self.compactor.find(chunk, a.where, lane)
            tally = self.compactor.tally_of(flags, lane)
            if lane == 0:
                tallies[at.stage * self.chunks + warp] = tally
                shared.counted[at.stage].arrive()
            sent.wait(to)
            first = shared.sent.begin(to.stage) + count_of(shared.inside[to.stage * (self.chunks + 1) + warp])
            areas = [Int32(area.toint()) for area in shared.room]
            if count_of(tally) <= self.compactor.sparse:
                self.compactor.bring(chunk, areas, first, warp * self.chunk, flags, lane)
            else:
                self.compactor.put_many(chunk, areas, first, warp * self.chunk, flags, lane)
            shared.tiles.ring.release(at)
            shared.ready[to.stage].arrive_once()
            to = sent.next(to, self.squads)
            at = shared.tiles.next(at, self.squads)
