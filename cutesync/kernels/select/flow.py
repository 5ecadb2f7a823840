"""Selection in one pass where a tile leaves its stage as soon as its selected elements are known.

A tile waits several times as long for what comes before it as for its elements, and what is selected of it may be a
small part: it waits in a room of shared memory of its own, where tiles of any number of selected elements lie one
behind the other. The stages of the ring bring further tiles meanwhile.

    load        as in ``pipeline``
    compact     squads take tiles in turn: a warp reads a chunk, and counts what is selected; once there is room, it
                puts that there, from registers (``flow_chunk``). One squad compacts while another one waits for room
    publish     adds up the chunks' tallies, publishes that of the tile, and finds room for it: from then on it is a
                tile of another ring (``sync.room``), whose stages are as large as what they hold
    look ahead  as in ``pipeline``, of the tiles that were sent
    store       copies the tile's selected elements to the results

    barrier          completed by                                      waited for by
    full[stage]      load: 1 arrival and the tile's bytes              compact, publish, load (the ticket of the next)
    counted[stage]   one lane of each compact warp of a squad          publish
    empty[stage]     the same, and one lane of publish                 load
    sent[entry]      one lane of publish                               compact, look ahead
    ready[entry]     one lane of each warp of a squad, of look ahead   store
    stored[entry]    one lane of each store warp                       publish

The tile with the lowest number that is not stored finds room, as those before it in its block are stored, and all tiles
before it are published before they wait for room: progress needs nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...errors import ArgumentValueError, explain
from ...sync.barrier import Barriers
from ...sync.roles import Role, Roles
from ...sync.room import Room
from ...sync.tiles import DONE, TileRing, Visit
from ...warp import broadcast
from .base import Arguments, SelectKernel
from .chunk import Chunk
from .fill import fill_rest
from .flow_chunk import PLACE_BYTES, FlowCompactor
from .flow_store import Kept, store_kept
from .narrow import MASK
from .pipeline import PipelineSelect
from .policy import FlowPolicy
from .shared import Control, aligned, tensor
from .spec import Selection
from .store import report
from .tally import Before, add_tile, count_of, scan_chunks
from .window import TileBuffer


@dataclass(frozen=True)
class Shared:
    """Shared memory: the tiles' bytes and their ring, the chunks' tallies of each stage; and of tiles that were sent
    where they are (``sent``), what comes before each chunk in its tile, and at last the tile's tally (``inside``), and
    what comes before the tile. The ``room`` has an area for each array, and for places."""

    buffers: tuple
    tiles: TileRing
    counted: Barriers
    tallies: cute.Tensor
    sent: Room
    ready: Barriers
    inside: cute.Tensor
    before: Before
    room: tuple
    tags: cute.Tensor


class FlowSelect(PipelineSelect):
    """The kernel, with the sizes of a policy: one team, and a warp of a squad for each chunk."""

    def __init__(self, selection: Selection, policy: FlowPolicy) -> None:
        self.policy, self.stages, self.tile, self.entries = policy, policy.stages, policy.tile, policy.entries
        self.teams, self.chunks, self.chunk = 1, policy.chunks, policy.chunk
        self.others_ready, self.squads = policy.compact_warps, policy.squads
        if policy.stages % policy.squads or policy.entries % policy.squads:
            # else a warp could wait for a parity that the phase two before has, too
            came = f"{policy.stages} stages and {policy.entries} entries"
            raise ArgumentValueError(explain("policy", came, f"multiples of {policy.squads}"))
        self.fills_at_end = selection.filled
        self.lengths, self.heads = selection.lengths is not None, selection.kind == "heads"
        held = (*selection.sources, *((MASK,) * (selection.kind == "mask")))
        self.buffers = tuple(TileBuffer(dtype, self.tile, self.heads) for dtype in held)
        self.areas = self.kept_bytes(selection)
        self.roles = self.warp_roles(selection)
        smem = self.stages * (sum(buffer.stage_bytes for buffer in self.buffers) + 28 + 4 * self.chunks)
        smem += self.entries * (52 + 4 * (self.chunks + 1)) + policy.room * sum(self.areas)
        smem += 128 * (len(self.buffers) + len(self.areas) + 1)
        SelectKernel.__init__(self, selection, self.roles.threads, smem)
        self.compactor = FlowCompactor(self.where, policy.rows)

    def kept_bytes(self, selection: Selection) -> tuple[int, ...]:
        """How much of each array of a tile is kept of a selected position, its place last if it is wanted."""
        return (*(t.size for t in selection.results), *((PLACE_BYTES,) * selection.located))

    def warp_roles(self, selection: Selection) -> Roles:
        policy = self.policy
        warps = {"control": len(Control), "compact": policy.squads * policy.compact_warps, "store": policy.store_warps}
        return Roles(*(Role(name, count) for name, count in warps.items()))

    def share(self) -> Shared:
        """Take the shared memory. In all threads; one block barrier must follow."""
        stages, entries, policy = self.stages, self.entries, self.policy
        return Shared(
            tuple(replace(buffer, start=aligned(stages * buffer.stage_bytes)) for buffer in self.buffers),
            TileRing.make(stages, consumers=policy.compact_warps + 1),
            Barriers.make(stages, policy.compact_warps, name="counted"),
            tensor(Int32, stages * self.chunks),
            Room.make(policy.room, entries, policy.store_warps),
            Barriers.make(entries, policy.compact_warps + 1, name="ready"),
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
            compact=lambda warp: self.compact(shared, a, warp // self.chunks, warp % self.chunks),
            store=lambda warp: self.store(shared, a, 0, warp),
        )

    def soon_empty(self, shared, at) -> None:
        """Wait until the tile before in a stage is there: it leaves it soon."""
        shared.tiles.ring.full.await_phase(at.stage, at.parity)

    @cute.jit
    def compact(self, shared: cutlass.Constexpr, a: Arguments, squad, warp):
        """A squad's warp: chunk ``warp`` of each tile of the squad."""
        lane, tallies = cute.arch.lane_idx(), shared.tallies
        at, to = shared.tiles.first(squad), shared.sent.tiles.ring.start_consumer(squad)
        while at.number != DONE:
            begins = self.begins(shared, self.arrays(a), at.stage, warp)
            position, length = self.extent(a, at.number, warp)
            chunk = Chunk(begins, position, length, Int32(0), Int32(0))
            elements, selected = self.compactor.take(chunk, a.where, lane)
            tally = self.compactor.tally(selected, lane)
            if lane == 0:
                tallies[at.stage * self.chunks + warp] = tally
                shared.counted[at.stage].arrive()
            shared.tiles.ring.release(at)
            shared.sent.tiles.ring.wait(to)
            first = shared.sent.begin(to.stage) + count_of(shared.inside[to.stage * (self.chunks + 1) + warp])
            areas = [Int32(area.toint()) for area in shared.room]
            self.compactor.put(areas, first, warp * self.chunk, elements, selected, lane)
            shared.ready[to.stage].arrive_once()
            to = shared.sent.tiles.ring.next(to, self.squads)
            at = shared.tiles.next(at, self.squads)

    @cute.jit
    def publish(self, shared: cutlass.Constexpr, a: Arguments, team, lane):
        """One warp: the tallies of tiles, and room for what is selected of them."""
        chunks = self.chunks
        sent, inside = shared.sent, shared.inside
        at, to, progress = shared.tiles.first(), sent.tiles.ring.start_producer(), sent.start()
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
            progress = sent.take(progress, to, at.number, count, lane)
            if lane < chunks:
                inside[to.stage * (chunks + 1) + lane] = before
            if lane == chunks - 1:
                inside[to.stage * (chunks + 1) + chunks] = through
            sent.tiles.ring.publish(to)
            to = sent.tiles.ring.next(to)
            at = shared.tiles.next(at)
        sent.finish(progress, to, lane)

    def first_counted(self, shared, team):
        return shared.sent.tiles.first(team)

    def next_counted(self, shared, at):
        return shared.sent.tiles.next(at)

    @cute.jit
    def store(self, shared: cutlass.Constexpr, a: Arguments, team, warp):
        """A warp: its share of each tile's selected elements."""
        lane = cute.arch.lane_idx()
        at = self.await_ready(shared, shared.sent.tiles.ring.start_consumer())
        while at.number != DONE:
            self.store_tile(shared, a, at, warp, lane)
            shared.sent.tiles.ring.release(at)
            at = self.await_ready(shared, shared.sent.tiles.ring.next(at))
        if cutlass.const_expr(self.fills_at_end):
            blocks, _, _ = cute.arch.grid_dim()
            warps = self.policy.store_warps
            total = Int64(shared.before.count[at.stage])
            fill_rest(a, self.selection, total, cute.arch.block_idx()[0] * warps + warp, blocks * warps, lane)

    def await_ready(self, shared: Shared, at) -> Visit:
        shared.ready.await_phase(at.stage, at.parity)
        return Visit(at.stage, at.parity, shared.sent.tiles.numbers[at.stage])

    @cute.jit
    def store_tile(self, shared: cutlass.Constexpr, a: Arguments, at, warp, lane):
        before = Before(Int64(shared.before.count[at.stage]), Int64(shared.before.last[at.stage]))
        tally, position = shared.inside[at.stage * (self.chunks + 1) + self.chunks], Int64(at.number) * self.tile
        if (at.number == self.tiles(a) - 1) & (warp == 0) & (lane == 0):
            report(a, add_tile(before, tally, position, self.lengths), self.lengths)
        room = Int32(cutlass.max(cutlass.min(a.capacity - before.count, Int64(self.tile)), Int64(-1)))
        begin = shared.sent.begin(at.stage)
        areas = [Int32(area.toint()) + begin * size for area, size in zip(shared.room, self.areas)]
        kept = Kept(areas, count_of(tally), room, before, position)
        store_kept(self.selection, a, kept, (warp, self.policy.store_warps), lane)
