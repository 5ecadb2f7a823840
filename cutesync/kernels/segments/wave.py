"""Operations on segments of short arrays: a block a tile, and every block combines the tiles before its own.

    one warp     takes a tile number from an atomic, and copies the tile to shared memory, in ``parts``
    all warps    find the state of a chunk each, as soon as their part is there
    one warp     publishes the tile's state; another one combines those of the tiles before it
    all warps    pack their segments meanwhile, where segments are reduced, and store

The method is that of ``scan.wave``: tiles before a block's own have started, and there is no chain from tile to tile.
Blocks of one cluster need no tickets, and tell each other their states through shared memory (``block.peers``). A
single tile exchanges nothing. A warp keeps its chunk in registers from the first step to the last. Nothing is filled: a
block that waited for all others would hold the place of one that has not started. What is done with a chunk is done by
``run``, and what the kernels share is in ``pipeline``.
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8

from ...block.peers import Peers
from ...block.reduce import load_partial, store_partial
from ...sync.barrier import Barriers
from ...sync.gather import Entry
from ...sync.lookback import place_of
from ...sync.overlap import await_launches, let_next_start
from ...sync.ring import copy_bulk
from ...sync.roles import Role, Roles
from ...warp import LANES, Maybe, broadcast, prepend
from ..hardware import VECTOR_BYTES
from ..select.where import below
from ..tiled import take_tile
from .ahead import LookAhead
from .base import Arguments
from .pipeline import SegmentPipeline
from .policy import WavePolicy
from .spec import SegmentsSpec

# A warp's chunk: a lane's run (``part``) and its elements, the state of the lanes before (``Maybe``), that of the chunk
# in the last lane, where results go in shared memory, and whether all positions exist.
Work = namedtuple("Work", "part held before total targets whole")

# What the blocks of a cluster tell each other, and the barriers of the parts of a tile; or None
More = namedtuple("More", "peers parts")

SLACK = 32  # bytes between the end of a copy's part and that of its chunks, at most


class SegmentWave(SegmentPipeline):
    """The kernel, with the sizes of a policy: one tile, a warp a chunk."""

    asked = 1

    def __init__(self, spec: SegmentsSpec, shared: int, policy: WavePolicy) -> None:
        super().__init__(spec, shared, policy)
        self.alone, self.cluster, self.parts = policy.alone, policy.cluster, 1 if spec.reverse else policy.parts
        self.ahead = LookAhead(self.states, most=1)

    def warp_roles(self, spec: SegmentsSpec) -> Roles:
        return Roles(Role("all", self.warps))

    def more_shared(self) -> More:
        peers = Peers.make(self.states.types, self.cluster) if self.cluster > 1 else None
        return More(peers, Barriers.make(self.parts, 1, name="part of the tile") if self.parts > 1 else None)

    def hand_over(self, shared, at, number, copies) -> None:
        if shared.more.parts is None:
            super().hand_over(shared, at, number, copies)
            return
        shared.tiles.announce(at, number)
        for part in range(self.parts):
            pieces = [self.piece(buffer, part, *copy) for buffer, copy in zip(self.buffers, copies)]
            barrier = shared.more.parts[part]
            barrier.arrive_tx(1, sum((size for _, _, size in pieces), start=Int32(0)))
            for target, source, size in pieces:
                copy_bulk(target, source, barrier.pointer, size)
        shared.tiles.ring.load_alone(at, [])

    def piece(self, buffer, part: int, target: cute.Pointer, source: cute.Pointer, size) -> tuple:
        """A part of a copy."""
        most = self.tile // self.parts * buffer.dtype.size + SLACK
        ahead, rest = part * most, cutlass.max(size - part * most, 0)
        into = cute.make_ptr(Uint8, target.toint() + ahead, cute.AddressSpace.smem, assumed_align=VECTOR_BYTES)
        at = cute.make_ptr(Uint8, source.toint() + ahead, cute.AddressSpace.gmem, assumed_align=VECTOR_BYTES)
        return into, at, rest if part == self.parts - 1 else cutlass.min(rest, most)

    def await_part(self, shared, warp) -> None:
        """Wait for the part of the tile that has a warp's chunk, and for the one that the chunk may begin in."""
        if shared.more.parts is not None:
            part = warp // (self.warps // self.parts)
            shared.more.parts.await_phase(cutlass.max(part - 1, 0), Int32(0))
            shared.more.parts.await_phase(part, Int32(0))

    def main(self, *given) -> None:
        """The shared memory is made ready while the launch before still runs."""
        a = self.early(*given)
        shared = self.allocate()
        cute.arch.sync_threads()
        if shared.more.peers is not None:
            shared.more.peers.meet()
        await_launches()
        self.scan_tile(shared, self.arguments(*given) if a is None else a)

    @cute.jit
    def scan_tile(self, shared: cutlass.Constexpr, a: Arguments):
        lane, warp = cute.arch.lane_idx(), cute.arch.warp_idx()
        entry = Entry.none()
        if warp == 0:
            entry = self.take(shared, a, lane)
        at = shared.tiles.first()
        let_next_start()
        self.await_part(shared, warp)
        part, runs = self.part(shared, a, at, warp, lane), self.runs
        whole = runs.is_whole(part, lane)
        held = runs.hold(part, whole)
        bits, before, total = runs.reduce(part, held, whole, lane)
        work = Work(part._replace(bits=bits), held, before, total, self.targets(shared, a, at, warp, 0), whole)
        if lane == LANES - 1:
            store_partial(shared.totals, warp, total)
        cute.arch.sync_threads()
        prefix, everything = self.chunks(shared, 0, warp, lane)
        if cutlass.const_expr(shared.more.peers is not None):
            shared.more.peers.met()
        tiles = self.tiles(a)
        if warp == 0:
            self.publish_tile(shared, a, at.number, everything, entry, lane)
        if warp == self.warps - 1:
            self.combine_before(shared, a, cutlass.min(at.number, tiles), lane)
        if cutlass.const_expr(self.spec.found):
            runs.pack(work.part, held, before, work.targets, whole, lane)
        cute.arch.sync_threads()
        prefix = load_partial(shared.before, 0, self.states.types).then(prefix, self.states.combine)
        if at.number < tiles:
            if cutlass.const_expr(self.spec.found):
                self.store_found(a, work, prefix, lane)
            else:
                self.store_each(a, work, prefix, lane)

    def take(self, shared, a: Arguments, lane) -> Entry:
        """One warp: take a tile's number, and copy the tile. What lies behind the tiles has nothing to copy."""
        known = cute.arch.block_idx()[0] if self.cluster > 1 else Int32(0) if self.alone else None
        return take_tile(
            shared.tag, a.counters, known, lambda at, number: self.bring(shared, a, at, number, lane), lane
        )

    @cute.jit
    def publish_tile(self, shared: cutlass.Constexpr, a: Arguments, number, total: Maybe, entry: Entry, lane):
        """One warp: publish the tile's state, and count this block out."""
        if cutlass.const_expr(shared.more.peers is not None):
            shared.more.peers.tell(total.state, number, lane)
        elif cutlass.const_expr(not self.alone):
            if lane == 0:
                if number < self.tiles(a):
                    self.slots(a, shared).publish(place_of(number), total.state)
                blocks, _, _ = cute.arch.grid_dim()
                entry.close(a.counters, Int32(0), blocks)

    @cute.jit
    def combine_before(self, shared: cutlass.Constexpr, a: Arguments, tile, lane):
        """One warp: the state before a tile."""
        found = Maybe.none(self.states.types)
        if cutlass.const_expr(shared.more.peers is not None):
            found = shared.more.peers.before(tile, self.states.combine, lane)
        elif cutlass.const_expr(not self.alone):
            found, _ = self.ahead.before(self.slots(a, shared), self.ahead.start(), tile, lane)
        if lane == 0:
            store_partial(shared.before, 0, found)

    @cute.jit
    def store_found(self, a: Arguments, work: cutlass.Constexpr, prefix: Maybe, lane):
        """Store the chunk's segments; ``prefix`` is the state before it."""
        part, total = work.part, Maybe.unpack(broadcast(work.total.pack(), LANES - 1))
        opens = cute.arch.shuffle_sync(part.bits, 0) & 1 != 0
        self.runs.store_segments(a, prefix, total, opens, work.targets, lane)
        first, last = part.position - lane * self.policy.run, cutlass.max(part.count - 1, Int64(0))
        if (last >= first) & (last < first + self.policy.chunk):
            self.runs.report(a, prefix.then(total, self.states.combine).state, lane)

    @cute.jit
    def store_each(self, a: Arguments, work: cutlass.Constexpr, prefix: Maybe, lane):
        """Store a result for each position of the chunk; ``prefix`` is the state before it."""
        earlier = cute.arch.vote_ballot_sync(work.part.bits != 0) & Int32(below(lane))
        values = prefix.state[1:]
        if lane > 0:
            values = prepend((earlier == 0) & prefix.valid, values, work.before.state[1:], self.states.ordered)
        held = work.held[self.runs.keys :]
        self.runs.emit_positions(work.part, a, held, values, work.targets, work.whole, lane)
