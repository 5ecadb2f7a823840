"""Selection in one pass where a tile leaves its stage as soon as its selected elements are known.

A tile waits several times as long for what comes before it as for its elements, and what is selected of it may be a
small part: it waits in a room of shared memory of its own, where tiles of any number of selected elements lie one
behind the other. The stages of the ring bring further tiles meanwhile.

    load        as in ``pipeline``
    compact     reads a chunk of a tile, and counts what is selected; once there is room, puts it there, from registers
    publish     adds up the chunks' tallies, publishes that of the tile, and finds room for it: from then on it is a
                tile of another ring (``sent``), whose stages are as large as what they hold
    look ahead  as in ``pipeline``, of the tiles that were sent
    store       copies the tile's selected elements to the results

    barrier          completed by                                      waited for by
    full[stage]      load: 1 arrival and the tile's bytes              compact, publish, load (the ticket of the next)
    counted[stage]   one lane of each compact warp                     publish
    empty[stage]     one lane of each compact warp, and of publish     load
    sent[entry]      one lane of publish                               compact, look ahead
    ready[entry]     one lane of each compact warp, and of look ahead  store
    stored[entry]    one lane of each store warp                       publish

The tile with the lowest number that is not stored finds room, as those before it in its block are stored, and all tiles
before it are published before they wait for room: progress needs nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint16, Uint32

from ...monoid import choose
from ...sync.barrier import Barriers
from ...sync.gather import Slots
from ...sync.roles import Role, Roles
from ...sync.tiles import DONE, TileRing, Visit
from ...sync.wait import in_role
from ...warp import LANES, broadcast
from .base import Arguments, SelectKernel
from .chunk import Chunk, ChunkCompactor, popc, put_if
from .fill import fill_rest
from .flow_store import Kept, store_kept
from .narrow import MASK
from .pipeline import PipelineSelect
from .policy import FlowPolicy
from .shared import Control, aligned, tensor
from .spec import Selection
from .store import report
from .tally import Before, add_tile, count_of, pack, scan_chunks
from .window import TileBuffer

PLACE_BYTES = 2


@dataclass(frozen=True)
class Shared:
    """Shared memory: the tiles' bytes and their ring, the chunks' tallies of each stage; and of tiles that were sent
    their ring, where their elements are in the room (``begins``) and how much of it they take (``spans``), what comes
    before each chunk in its tile, and at last the tile's tally (``inside``), and what comes before the tile. The
    ``room`` has an area for each array, and for places."""

    buffers: tuple
    tiles: TileRing
    counted: Barriers
    tallies: cute.Tensor
    sent: TileRing
    ready: Barriers
    begins: cute.Tensor
    spans: cute.Tensor
    inside: cute.Tensor
    before: Before
    room: tuple
    tags: cute.Tensor


class FlowSelect(PipelineSelect):
    """The kernel, with the sizes of a policy: one team, a warp a chunk."""

    def __init__(self, selection: Selection, policy: FlowPolicy) -> None:
        self.policy, self.stages, self.tile, self.entries = policy, policy.stages, policy.tile, policy.entries
        self.teams, self.chunks, self.chunk = 1, policy.chunks, policy.chunk
        self.others_ready = policy.compact_warps
        self.fills_at_end = selection.filled
        self.lengths, self.heads = selection.lengths is not None, selection.kind == "heads"
        held = (*selection.sources, *((MASK,) * (selection.kind == "mask")))
        self.buffers = tuple(TileBuffer(dtype, self.tile, self.heads) for dtype in held)
        self.areas = (*(t.size for t in selection.results), *((PLACE_BYTES,) * selection.located))
        self.roles = self.warp_roles(selection)
        smem = self.stages * (sum(buffer.stage_bytes for buffer in self.buffers) + 28 + 4 * self.chunks)
        smem += self.entries * (52 + 4 * (self.chunks + 1)) + policy.room * sum(self.areas)
        smem += 128 * (len(self.buffers) + len(self.areas) + 1)
        SelectKernel.__init__(self, selection, self.roles.threads, smem)
        self.compactor = FlowCompactor(self.where, policy.rows)

    def warp_roles(self, selection: Selection) -> Roles:
        policy = self.policy
        warps = {"control": Control.LOOK_AHEAD + policy.look_aheads}
        warps |= {"compact": policy.compact_warps, "store": policy.store_warps}
        return Roles(*(Role(name, count) for name, count in warps.items()))

    def share(self) -> Shared:
        """Take the shared memory. In all threads; one block barrier must follow."""
        stages, entries, policy = self.stages, self.entries, self.policy
        return Shared(
            tuple(replace(buffer, start=aligned(stages * buffer.stage_bytes)) for buffer in self.buffers),
            TileRing.make(stages, consumers=policy.compact_warps + 1),
            Barriers.make(stages, policy.compact_warps, name="counted"),
            tensor(Int32, stages * self.chunks),
            TileRing.make(entries, consumers=policy.store_warps, producer="threads", name="sent"),
            Barriers.make(entries, policy.compact_warps + 1, name="ready"),
            tensor(Int32, entries),
            tensor(Int32, entries),
            tensor(Int32, entries * (self.chunks + 1)),
            Before(tensor(Int64, entries), tensor(Int64, entries)),
            tuple(aligned(policy.room * size) for size in self.areas),
            tensor(Int32, 1),
        )

    @cute.jit
    def body(self, a: Arguments):
        shared = self.share()
        cute.arch.sync_threads()
        self.roles.run(
            control=lambda warp: self.control(shared, a, 0, warp),
            compact=lambda warp: self.compact(shared, a, 0, warp),
            store=lambda warp: self.store(shared, a, 0, warp),
        )

    @cute.jit
    def control(self, shared: cutlass.Constexpr, a: Arguments, team, warp):
        lane = cute.arch.lane_idx()
        if warp == Control.LOAD:
            in_role("load", self.load, shared, a, team, lane)
        elif warp == Control.PUBLISH:
            in_role("publish", self.publish, shared, a, team, lane)
        else:
            in_role("look ahead", self.look_ahead, shared, a, warp - Control.LOOK_AHEAD, lane)

    def slots(self, a: Arguments, shared, team) -> Slots:
        return super().slots(a, shared, 0)

    def soon_empty(self, shared, at) -> None:
        """Wait until the tile before in a stage is there: it leaves it soon."""
        shared.tiles.ring.full.await_phase(at.stage, at.parity)

    @cute.jit
    def compact(self, shared: cutlass.Constexpr, a: Arguments, team, warp):
        """A warp: chunk ``warp`` of each tile."""
        lane, tallies = cute.arch.lane_idx(), shared.tallies
        at, to = shared.tiles.first(), shared.sent.ring.start_consumer()
        while at.number != DONE:
            begins = self.begins(shared, self.arrays(a), at.stage, warp)
            position, length = self.extent(a, at.number, warp)
            chunk = Chunk(begins, position, length, Int32(0), Int32(0))
            elements, ballots = self.compactor.take(chunk, a.where, lane)
            tally = self.compactor.tally_of(ballots, lane)
            if lane == 0:
                tallies[at.stage * self.chunks + warp] = tally
                shared.counted[at.stage].arrive()
            shared.tiles.ring.release(at)
            shared.sent.ring.wait(to)
            first = shared.begins[to.stage] + count_of(shared.inside[to.stage * (self.chunks + 1) + warp])
            areas = [Int32(area.toint()) for area in shared.room]
            self.compactor.put(areas, first, warp * self.chunk, elements, ballots, lane)
            shared.ready[to.stage].arrive_once()
            to = shared.sent.ring.next(to)
            at = shared.tiles.next(at)

    @cute.jit
    def publish(self, shared: cutlass.Constexpr, a: Arguments, team, lane):
        """One warp: the tallies of tiles, and room for what is selected of them."""
        chunks, whole = self.chunks, self.policy.room
        begins, spans, inside = shared.begins, shared.spans, shared.inside
        at, to, oldest = shared.tiles.first(), shared.sent.ring.start_producer(), shared.sent.ring.start_consumer()
        # where the next tile goes, how much is free, and how many tiles are not stored
        head, free, waiting = Int32(0), Int32(whole), Int32(0)
        while at.number != DONE:
            shared.counted.await_phase(at.stage, at.parity)
            tally = Int32(0)
            if lane < chunks:
                tally = shared.tallies[at.stage * chunks + lane]
            shared.tiles.ring.empty[at.stage].arrive_once()
            before, through = scan_chunks(tally, lane, self.chunk, self.lengths)
            if lane == chunks - 1:
                self.slots(a, shared, 0).publish(at.number, (through,))
            count = count_of(broadcast((through,), chunks - 1)[0])
            skipped = choose(head + count > whole, whole - head, Int32(0))
            while (waiting > 0) & ((free < count + skipped) | (waiting == self.entries)):
                shared.sent.ring.empty.await_phase(oldest.stage, oldest.parity)
                free, waiting = free + spans[oldest.stage], waiting - 1
                oldest = shared.sent.ring.next(oldest)
            if (waiting == 0) | (skipped > 0):
                head = Int32(0)
            if waiting == 0:
                skipped = Int32(0)
            cute.arch.sync_warp()  # its lanes have read the spans
            if lane == 0:
                begins[to.stage] = head
                spans[to.stage] = count + skipped
                shared.sent.announce(to, at.number)
            if lane < chunks:
                inside[to.stage * (chunks + 1) + lane] = before
            if lane == chunks - 1:
                inside[to.stage * (chunks + 1) + chunks] = through
            shared.sent.ring.publish(to)
            head, free, waiting = head + count, free - count - skipped, waiting + 1
            to = shared.sent.ring.next(to)
            at = shared.tiles.next(at)
        for _ in cutlass.range(self.policy.look_aheads, unroll=1):
            if waiting == self.entries:
                shared.sent.ring.empty.await_phase(oldest.stage, oldest.parity)
                oldest, waiting = shared.sent.ring.next(oldest), waiting - 1
            if lane == 0:
                shared.sent.announce(to, Int32(DONE))
                shared.sent.ring.full[to.stage].arrive()
            to, waiting = shared.sent.ring.next(to), waiting + 1

    def first_counted(self, shared, team):
        return shared.sent.first(team)

    def next_counted(self, shared, at):
        return shared.sent.next(at, self.policy.look_aheads)

    @cute.jit
    def store(self, shared: cutlass.Constexpr, a: Arguments, team, warp):
        """A warp: its share of each tile's selected elements."""
        lane = cute.arch.lane_idx()
        at = self.await_ready(shared, shared.sent.ring.start_consumer())
        while at.number != DONE:
            self.store_tile(shared, a, at, warp, lane)
            shared.sent.ring.release(at)
            at = self.await_ready(shared, shared.sent.ring.next(at))
        if cutlass.const_expr(self.fills_at_end):
            blocks, _, _ = cute.arch.grid_dim()
            warps = self.policy.store_warps
            total = Int64(shared.before.count[at.stage])
            fill_rest(a, self.selection, total, cute.arch.block_idx()[0] * warps + warp, blocks * warps, lane)

    def await_ready(self, shared: Shared, at) -> Visit:
        shared.ready.await_phase(at.stage, at.parity)
        return Visit(at.stage, at.parity, shared.sent.numbers[at.stage])

    @cute.jit
    def store_tile(self, shared: cutlass.Constexpr, a: Arguments, at, warp, lane):
        before = Before(Int64(shared.before.count[at.stage]), Int64(shared.before.last[at.stage]))
        tally, position = shared.inside[at.stage * (self.chunks + 1) + self.chunks], Int64(at.number) * self.tile
        if (at.number == self.tiles(a) - 1) & (warp == 0) & (lane == 0):
            report(a, add_tile(before, tally, position, self.lengths), self.lengths)
        room = Int32(cutlass.max(cutlass.min(a.capacity - before.count, Int64(self.tile)), Int64(-1)))
        begin = shared.begins[at.stage]
        areas = [Int32(area.toint()) + begin * size for area, size in zip(shared.room, self.areas)]
        kept = Kept(areas, count_of(tally), room, before, position)
        store_kept(self.selection, a, kept, (warp, self.policy.store_warps), lane)


class FlowCompactor(ChunkCompactor):
    """Reads chunks of ``rows`` rows, and puts what is selected of them in the room."""

    def take(self, at: Chunk, bits: cute.Pointer, lane) -> tuple[list, list]:
        """``(elements, ballots)`` of the rows of a chunk, some or none of whose positions exist."""
        held, arrays = self.existing_rows(at, bits, lane), len(self.read)
        rows = [held[r * arrays : (r + 1) * arrays] for r in range(self.rows)]
        return rows, list(held[self.rows * arrays :])

    @cute.jit
    def existing_rows(self, at: Chunk, bits: cute.Pointer, lane):
        held = (*(t.cutlass(0) for _ in range(self.rows) for t in self.read), *(Uint32(0) for _ in range(self.rows)))
        if at.position + self.chunk <= at.length:
            held = self.all_rows(at, bits, None, lane)
        else:
            if at.position < at.length:
                held = self.all_rows(at, bits, Int32(at.length - at.position), lane)
        return held

    def all_rows(self, at: Chunk, bits, stop, lane) -> tuple:
        elements, ballots = self.look(at, bits, stop, 0, lane)
        kinds = [t.cutlass for t in self.read]
        return (*(kind(value) for row in elements for kind, value in zip(kinds, row)), *ballots)

    def tally_of(self, ballots: list, lane) -> Any:
        """The tally of a chunk."""
        count, last = Int32(0), Int32(0)
        for r, ballot in enumerate(ballots):
            count = count + popc(ballot)
            last = choose(ballot != Uint32(0), r * LANES + 32 - Int32(cute.arch.clz(Int32(ballot))), last)
        return pack(count, last if self.selection.lengths is not None else 0)

    def put(self, areas: list, first, place: int, elements: list, ballots: list, lane) -> None:
        """Put what is selected at index ``first`` of the areas and on; the chunk begins at ``place`` of its tile."""
        bit = Uint32(1) << Uint32(lane)
        kinds = [source.cutlass for source in self.selection.results]
        for r, (row, ballot) in enumerate(zip(elements, ballots)):
            holds, rank = (ballot & bit) != Uint32(0), first + popc(ballot & (bit - Uint32(1)))
            for kind, area, value in zip(kinds, areas, row):
                put_if(holds, kind, area + rank * (kind.width // 8), value)
            if self.selection.located:
                put_if(holds, Uint16, areas[-1] + rank * PLACE_BYTES, Uint16(place + (r * LANES + lane)))
            first = first + popc(ballot)
