"""Selections of short arrays: a block a tile, and every block adds up the tallies of the tiles before its own.

    one warp     takes a tile number from an atomic, and copies the tile to shared memory
    all warps    compact its chunks
    one warp     publishes the tile's tally; another one adds up those of the tiles before it
    all warps    store

The method is that of ``scan.wave``: tiles before a block's own have started, and there is no chain from tile to tile.
Blocks of one cluster need no tickets, and tell each other their tallies through shared memory (``block.peers``). A
selection of one tile exchanges nothing. Nothing is filled: a block that waited for all others would hold the place of
one that has not started. The tile's work is that of ``pipeline``, whose methods do it.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ...block.peers import Peers
from ...monoid import choose
from ...sync.gather import Entry
from ...sync.overlap import await_launches, let_next_start
from ...sync.roles import Role, Roles
from ...warp import LANES
from ..tiled import take_tile
from .base import Arguments
from .pipeline import PipelineSelect
from .policy import MAX_CLUSTER, WavePolicy
from .shared import Shared
from .spec import Selection
from .tally import AHEAD, TYPES, Before, add_lanes, add_tiles

ADDS_UP = 1  # the warp that looks ahead, if there is more than one


class WaveSelect(PipelineSelect):
    """The kernel, with the sizes of a policy: one team and one stage, whose warps compact and store. ``alone``: there
    is one tile."""

    hands_over = False
    asked = 1
    more_bytes = 4 * MAX_CLUSTER + 24  # of the peers' tallies, and their barrier

    def __init__(self, selection: Selection, policy: WavePolicy) -> None:
        super().__init__(selection, policy)
        self.alone, self.cluster, self.blocks_per_sm = policy.alone, policy.cluster, policy.together
        self.publishes = not policy.alone and policy.cluster == 1

    def warp_roles(self, selection: Selection) -> Roles:
        return Roles(Role("all", self.policy.compact_warps))

    def main(self, *given) -> None:
        """The shared memory is made ready while the launch before still runs."""
        a = self.early(*given)
        shared, peers = Shared.make(self), None
        if self.cluster > 1:
            peers = Peers.make(TYPES, self.cluster)
        cute.arch.sync_threads()
        if peers is not None:
            peers.meet()
        await_launches()
        self.select_tile(shared, peers, self.arguments(*given) if a is None else a)

    @cute.jit
    def select_tile(self, shared: cutlass.Constexpr, peers: cutlass.Constexpr, a: Arguments):
        lane, warp = cute.arch.lane_idx(), cute.arch.warp_idx()
        entry = Entry.none()
        if warp == 0:
            entry = self.take(shared, a, lane)
        at = shared.tiles.first()
        let_next_start()
        exists = Boolean(at.number < self.tiles(a))
        if exists:
            self.compact_tile(shared, a, at, warp, lane)
        cute.arch.sync_threads()
        if cutlass.const_expr(peers is not None):
            peers.met()
        if warp == 0:
            if exists | (self.cluster > 1):
                self.publish_tile(shared, a, at, 0, lane)
            if cutlass.const_expr(peers is not None):
                cute.arch.sync_warp()  # a lane has stored the tile's tally
                peers.tell((self.tally(shared, 0),), at.number, lane)
            elif cutlass.const_expr(not self.alone):
                blocks, _, _ = cute.arch.grid_dim()
                if lane == 0:
                    entry.close(a.counters, Int32(0), blocks)
        if warp == min(ADDS_UP, self.policy.compact_warps - 1):
            self.add_up(shared, peers, a, cutlass.min(at.number, self.tiles(a)), lane)
        cute.arch.sync_threads()
        if exists:
            self.store_tile(shared, a, at, warp, lane)

    def take(self, shared: Shared, a: Arguments, lane) -> Entry:
        """One warp: take a tile's number, and copy the tile. What lies behind the tiles has nothing to copy."""
        known = cute.arch.block_idx()[0] if self.cluster > 1 else Int32(0) if self.alone else None
        return take_tile(
            shared.tags, a.counters, known, lambda at, number: self.bring(shared, a, at, number, lane), lane
        )

    @cute.jit
    def add_up(self, shared: cutlass.Constexpr, peers: cutlass.Constexpr, a: Arguments, tile, lane):
        """One warp: what comes before a tile."""
        known = Before.nothing()
        counts, lasts = shared.before
        if cutlass.const_expr(peers is not None):
            (tally,) = peers.collect(lane)
            count, last = add_lanes([(lane, choose(lane < tile, tally, Int32(0)))], self.tile, self.lengths)
            known = Before(Int64(count), Int64(last))
        elif cutlass.const_expr(not self.alone):
            slots, summed = self.slots(a, shared, 0), Int32(0)
            while summed < tile:
                known = add_tiles(slots, known, summed, tile, None, self.tile, self.lengths, lane)
                summed = cutlass.min(summed + AHEAD * LANES, tile)
        if lane == 0:
            counts[0], lasts[0] = known.count, known.last
