"""Runs of narrow elements in tiles that leave their stages early: as ``flow``, but elements are read twice.

    compact     a warp finds the heads of a chunk as bits (``heads``); once there is room, it lists their places there,
                brings the elements at these places, and leaves the stage

Few heads are kept of most tiles: it costs less to look up their elements than to move all elements as far as they are
heads, and their places are wanted for lengths anyway.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Uint16, Uint32

from ...sync.tiles import DONE
from ...warp import LANES
from ..gather import WORDS
from .base import Arguments
from .chunk import Chunk, cells, put
from .flow import FlowSelect
from .flow_chunk import PLACE_BYTES
from .heads import ROWS, SPARSE, WORD_BYTES, HeadFinder, list_places
from .policy import RunPolicy
from .spec import Selection
from .tally import count_of

UNROLL = 4


class RunFlow(FlowSelect):
    """The kernel, with the sizes of a policy."""

    def __init__(self, selection: Selection, policy: RunPolicy) -> None:
        self.more_bytes = policy.squads * policy.chunks * ROWS * WORD_BYTES  # the words of every warp's chunk
        super().__init__(selection, policy)
        self.compactor = HeadFinder(self.where)

    def kept_bytes(self, selection: Selection) -> tuple[int, ...]:
        return (*(t.size for t in selection.results), PLACE_BYTES)

    @cute.jit
    def compact(self, shared: cutlass.Constexpr, a: Arguments, squad, warp):
        """A squad's warp: chunk ``warp`` of each tile of the squad."""
        lane, tallies, sent = cute.arch.lane_idx(), shared.tallies, shared.sent.tiles.ring
        words = Int32(shared.words.iterator.toint()) + (squad * self.chunks + warp) * (ROWS * WORD_BYTES)
        at, to = shared.tiles.first(squad), sent.start_consumer(squad)
        while at.number != DONE:
            position, length = self.extent(a, at.number, warp)
            begins = self.begins(shared, self.arrays(a), at.stage, warp)
            chunk = Chunk(begins, position, length, Int32(0), Int32(0))
            flags = self.compactor.find(chunk, lane)
            tally = self.compactor.tally_of(flags, lane)
            if lane == 0:
                tallies[at.stage * self.chunks + warp] = tally
                shared.counted[at.stage].arrive()
            sent.wait(to)
            first = shared.sent.begin(to.stage) + count_of(shared.inside[to.stage * (self.chunks + 1) + warp])
            if count_of(tally) <= SPARSE:
                self.compactor.put_words(words, flags, lane)
                cute.arch.sync_warp()  # all words are there
                places = Int32(shared.room[-1].toint()) + first * PLACE_BYTES
                list_places(words, places, warp * self.chunk, lane)
                self.bring_heads(shared, a, at.stage, (first, count_of(tally), places), lane)
            else:
                areas = [Int32(area.toint()) for area in shared.room]
                self.compactor.put_found(chunk, areas, first, warp * self.chunk, flags, lane)
            shared.tiles.ring.release(at)
            shared.ready[to.stage].arrive_once()
            to = sent.next(to, self.squads)
            at = shared.tiles.next(at, self.squads)

    @cute.jit
    def bring_heads(self, shared: cutlass.Constexpr, a: Arguments, stage, kept: tuple, lane):
        """Copy the elements at listed places to the room: ``kept`` says at which index of it the first one goes, how
        many there are, and the address of their places."""
        (first, count, places), sources = kept, self.selection.results
        begins = self.begins(shared, a.x, stage, 0)
        for start in cutlass.range(0, count, UNROLL * LANES, unroll=1):
            ranks = [start + (k * LANES + lane) for k in range(UNROLL)]
            there = [cutlass.min(rank, count - 1) for rank in ranks]
            at = [Int32(Uint32(cells(Uint16, places + rank * PLACE_BYTES, 1)[0])) for rank in there]
            for source, begin, area in zip(sources, begins, shared.room):
                kind, target = WORDS[source.size], Int32(area.toint()) + first * source.size
                values = [cells(kind, begin + place * source.size, 1)[0] for place in at]
                for rank, value in zip(there, values):
                    put(kind, target + rank * source.size, value)
