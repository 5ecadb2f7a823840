"""Runs of narrow elements, and bytes, in tiles that leave their stages early: as ``flow``, but elements are read twice.

    compact     a warp finds the heads of a chunk as bits (``heads``); once there is room, it brings the elements where
                bits are set, and leaves the stage

Few heads are kept of most tiles: it costs less to look up their elements than to move all elements as far as they are
heads.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32

from ...sync.tiles import DONE
from .base import Arguments
from .byte_selector import ByteSelector
from .chunk import Chunk
from .flow import FlowSelect
from .heads import ByteHeadFinder, head_finder
from .policy import RunPolicy
from .spec import Selection
from .tally import count_of


class RunFlow(FlowSelect):
    """The kernel, with the sizes of a policy."""

    def __init__(self, selection: Selection, policy: RunPolicy) -> None:
        super().__init__(selection, policy)
        self.compactor = (head_finder if self.heads else ByteSelector)(self.where, policy.rows)
        self.holds = isinstance(self.compactor, ByteHeadFinder)

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
            few, held = Boolean(False), flags
            if cutlass.const_expr(self.holds):
                few = self.compactor.few(chunk, flags)
                if few:
                    held = self.compactor.hold(chunk, flags, lane)
                    shared.tiles.ring.release(at)
            sent.wait(to)
            first = shared.sent.begin(to.stage) + count_of(shared.inside[to.stage * (self.chunks + 1) + warp])
            areas = [Int32(area.toint()) for area in shared.room]
            self.put(shared, chunk, areas, (first, warp * self.chunk), (tally, flags, few, held), at, lane)
            shared.ready[to.stage].arrive_once()
            to = sent.next(to, self.squads)
            at = shared.tiles.next(at, self.squads)

    @cute.jit
    def put(self, shared: cutlass.Constexpr, chunk, areas: list, to: tuple, found: tuple, at, lane):
        """Put what is ``found`` of a chunk in the room, and leave the stage unless few elements are held."""
        (first, begin), (tally, flags, few, held) = to, found
        if few:
            if cutlass.const_expr(self.holds):
                self.compactor.put_held(areas, first, begin, flags, held, lane)
        else:
            if count_of(tally) <= self.compactor.sparse:
                self.compactor.bring(chunk, areas, first, begin, flags, lane)
            else:
                self.compactor.put_many(chunk, areas, first, begin, flags, lane)
            shared.tiles.ring.release(at)
