"""Selection in one pass: resident blocks of ``teams`` teams, each a pipeline of warps with one job.

    load        takes tile numbers from an atomic and copies tiles into the team's stages of a ring in shared memory
    count       finds the words of each chunk of a tile (``chunk``), and its tally: how many elements are selected
    publish     publishes the tile's tally
    look ahead  adds up the published tallies of all teams: where each of this team's tiles goes
    move        compact a chunk a warp in place, and store it

    barrier          completed by                                      waited for by
    full[stage]      load: 1 arrival and the tile's bytes              count, publish, look ahead, move
    counted[stage]   one lane of each count warp                       publish, move
    ready[stage]     one lane of look ahead                            move
    empty[stage]     one lane of each move warp, and of publish        load

Of strided arrays, no copy brings tiles: a stage is full when it has the tile's number.

    gather      read the elements of a tile one by one, and put them in its stage

    gathered[stage]  one lane of each gather warp                      count

A tile's count is published before the tile is compacted, and a warp that publishes never waits for other tiles: the
reasons and the progress are those of ``scan.pipeline``. The answer of the atomic takes as long as a small tile may:
hence several teams, which share nothing but the block. Bytes: every element, and its mask, is read once, and every
selected element is written once.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8
from cutlass.memory import SmemAllocator

from ...dtypes import BY_NAME
from ...errors import ArgumentValueError, explain
from ...sync.barrier import Barriers
from ...sync.gather import Slots
from ...sync.roles import Role, Roles
from ...sync.tiles import DONE, TileRing
from ...sync.wait import in_role
from ...warp import LANES
from ..gather import Tile
from ..tiled import take_tiles
from .base import Arguments, SelectKernel
from .by_rows import begin_row, of_row, report_row
from .chunk import ChunkMover, Part, cells, put
from .count import ChunkCounter, Place
from .fill import fill_rest
from .policy import PipelinePolicy
from .spec import Selection
from .store import put_last_length, put_long, store_indices, store_lengths, store_ranks, store_rejects
from .tally import AHEAD, TYPES, Before, add_tile, add_tiles, count_of, join_chunks, join_lanes
from .window import TileBuffer, as_copy

MASK = BY_NAME["uint8"]


@dataclass(frozen=True)
class Shared:
    """Shared memory: the tiles' bytes, the ring, the roles' barriers, the teams' tags of the launch, the chunks' words
    and tallies (those of a stage side by side), and what comes before each stage's tile."""

    buffers: tuple
    tiles: TileRing
    counted: Barriers
    ready: Barriers
    words: Any
    tags: cute.Tensor
    tallies: cute.Tensor
    before: Before
    gathered: Barriers | None


def tensor(kind, count: int) -> cute.Tensor:
    return cute.make_tensor(SmemAllocator().allocate_array(kind, count), cute.make_layout((count,)))


class Control(IntEnum):
    """The warps of a team's role "control", each of which has one job."""

    LOAD = 0
    PUBLISH = 1
    LOOK_AHEAD = 2


class PipelineSelect(SelectKernel):
    """The kernel, with the sizes of a policy."""

    def __init__(self, selection: Selection, policy: PipelinePolicy) -> None:
        self.policy, self.stages, self.tile = policy, policy.stages, policy.tile
        self.warps, self.teams = policy.warps_per_team, policy.teams
        if policy.stages % policy.teams:  # else a warp could wait for a parity that the phase two before has, too
            raise ArgumentValueError(explain("policy", f"{policy.stages} stages", f"a multiple of {policy.teams}"))
        masked = selection.kind == "mask"
        self.fills_at_end = selection.filled and selection.rows != "apart"
        self.places, self.heads = selection.lengths is not None, selection.kind == "heads"
        held = (*selection.sources, *((MASK,) * masked))
        self.buffers = tuple(TileBuffer(dtype, self.tile, self.heads) for dtype in held)
        warps = {"control": len(Control), "count": policy.count_warps, "move": policy.warps_per_team}
        warps |= {"gather": policy.gather_warps} if selection.layout else {}
        self.roles = Roles(*(Role(name, self.teams * each) for name, each in warps.items()))
        words = self.tile // LANES * 8
        smem = sum(buffer.stage_bytes for buffer in self.buffers) + words + 4 * self.warps + 64
        super().__init__(selection, self.roles.threads, self.stages * smem + 128 * (len(self.buffers) + 2))
        self.counter = ChunkCounter(self.where, policy)
        self.movers = [ChunkMover(t.size, unit, policy.rows) for t, unit in zip(selection.results, policy.units)]

    @cute.jit
    def body(self, a: Arguments):
        stages = self.stages
        buffers = tuple(
            replace(
                buffer, start=SmemAllocator().allocate_array(Uint8, stages * buffer.stage_bytes, byte_alignment=128)
            )
            for buffer in self.buffers
        )
        shared = Shared(
            buffers,
            TileRing.make(stages, consumers=self.warps + 1),
            Barriers.make(stages, self.policy.count_warps, name="counted"),
            Barriers.make(stages, 1, name="ready"),
            SmemAllocator().allocate_array(Int64, stages * (self.tile // LANES), byte_alignment=16),
            tensor(Int32, self.teams),
            tensor(Int32, stages * self.warps),
            Before(tensor(Int64, stages), tensor(Int64, stages)),
            Barriers.make(stages, self.policy.gather_warps, name="gathered") if self.gather else None,
        )
        cute.arch.sync_threads()
        self.roles.run(
            control=lambda warp: self.control(shared, a, warp // len(Control), warp % len(Control)),
            count=lambda warp: self.count(shared, a, warp // self.policy.count_warps, warp % self.policy.count_warps),
            move=lambda warp: self.move(shared, a, warp // self.warps, warp % self.warps),
            **({"gather": lambda warp: self.bring_strided(shared, a, warp)} if self.gather else {}),
        )

    @cute.jit
    def control(self, shared: cutlass.Constexpr, a: Arguments, team, warp):
        lane = cute.arch.lane_idx()
        if warp == Control.LOAD:
            in_role("load", self.load, shared, a, team, lane)
        elif warp == Control.PUBLISH:
            in_role("publish", self.publish, shared, a, team, lane)
        else:
            in_role("look ahead", self.look_ahead, shared, a, team, lane)

    def arrays(self, a: Arguments) -> tuple:
        """The arrays whose tiles the ring holds."""
        return (*a.x, *((a.where,) if self.selection.kind == "mask" else ()))

    def tiles(self, a: Arguments):
        """How many tiles there are; at least one, whose block reports the number of selected elements."""
        tiles = self.tiles_of_row(a)
        return tiles if a.rows is None else cutlass.max(Int32(a.rows) * tiles, 1)

    def tiles_of_row(self, a: Arguments):
        """How many tiles a row has, or all of them where there are no rows."""
        return cutlass.max(Int32((a.count + self.tile - 1) // self.tile), 1)

    def inside(self, a: Arguments, number) -> tuple:
        """``(arguments, number)`` of a tile: those of its row, and its number in the row."""
        if a.rows is None:
            return a, number
        tiles = self.tiles_of_row(a)
        return of_row(a, self.selection, self.outer, Int64(number // tiles)), number % tiles

    def base(self, a: Arguments, number):
        """The index of the first position of a tile's row."""
        return Int64(0) if a.rows is None else Int64(number // self.tiles_of_row(a)) * a.pitch

    @cute.jit
    def load(self, shared: cutlass.Constexpr, a: Arguments, team, lane):
        """A tile's number is asked for when there is an empty stage for it: all blocks wait for a tile that waits."""
        ring, everything = shared.tiles.ring, self.tiles(a)
        bring = lambda at, number: self.bring(shared, a, at, number, lane)  # noqa: E731
        at, entry = take_tiles(ring, shared.tags, a.counters, everything, (team, self.teams), bring, lane)
        if lane == 0:
            self.hand_over(shared, at, Int32(DONE), [])
            blocks, _, _ = cute.arch.grid_dim()
            entry.close(a.counters, Int32(0), everything + blocks * self.teams)

    @cute.jit
    def bring(self, shared: cutlass.Constexpr, a: Arguments, at, number, lane):
        """Copy tile ``number`` into a stage; tiles of strided arrays are gathered by other warps."""
        own, inside = self.inside(a, number)
        copies = [
            as_copy(buffer.fill(at.stage, array, inside, a.count, lane))
            for buffer, array in zip(shared.buffers, () if self.gather else self.arrays(own))
        ]
        cute.arch.sync_warp()  # what the lanes have copied comes before the arrival
        if lane == 0:
            self.hand_over(shared, at, number, copies)

    def hand_over(self, shared, at, number, copies) -> None:
        """One lane: a stage's tile, and the copies that bring it."""
        shared.tiles.announce(at, number)
        shared.tiles.ring.load_alone(at, copies)

    @cute.jit
    def bring_strided(self, shared: cutlass.Constexpr, a: Arguments, warp):
        """A team's warp: its share of each tile of the team."""
        warps, sizes = self.policy.gather_warps, tuple(buffer.dtype.size for buffer in self.buffers)
        at = shared.tiles.first(warp // warps)
        while at.number != DONE:
            first = Int64(self.inside(a, at.number)[1]) * self.tile
            tile = Tile(first, cutlass.min(first + self.tile, a.count), a.count, self.base(a, at.number), False)
            firsts = [buffer.first(at.stage, array) for buffer, array in zip(shared.buffers, self.arrays(a))]
            store = functools.partial(self.put, firsts)
            self.gather.fill(self.arrays(a), sizes, store, tile, -1 if self.heads else 0, warp % warps, warps)
            shared.gathered[at.stage].arrive_once()
            at = shared.tiles.next(at, self.teams)

    def put(self, firsts, k: int, place, word) -> None:
        """Store the element of array ``k`` at a place of the tile whose arrays begin at ``firsts``."""
        put(type(word), firsts[k] + place * self.buffers[k].dtype.size, word)

    @cute.jit
    def count(self, shared: cutlass.Constexpr, a: Arguments, team, counter):
        """Chunks ``counter``, ``counter + count_warps``, ... of each tile of the team."""
        lane, tallies = cute.arch.lane_idx(), shared.tallies
        at = shared.tiles.first(team)
        while at.number != DONE:
            if cutlass.const_expr(self.gather is not None):
                shared.gathered.await_phase(at.stage, at.parity)
            own, number = self.inside(a, at.number)
            firsts = tuple(buffer.first(at.stage, array) for buffer, array in zip(shared.buffers, self.arrays(own)))
            for chunk in cutlass.range(counter, self.warps, self.policy.count_warps, unroll=1):
                inside = chunk * self.policy.chunk
                place = Place(firsts, inside, Int64(number) * self.tile + inside, a.count)
                tally = self.counter.count(place, own.where, self.words_of(shared, at.stage, chunk), lane)
                if lane == 0:
                    tallies[at.stage * self.warps + chunk] = tally
            shared.counted[at.stage].arrive_once()
            at = shared.tiles.next(at, self.teams)

    def words_of(self, shared, stage, chunk):
        return shared.words + (stage * self.warps + chunk) * self.policy.rows

    def slots(self, a: Arguments, shared, team) -> Slots:
        """The tiles' tallies. The team's loader has stored the launch's tag."""
        return Slots(a.slots, Int64(0), shared.tags[team], TYPES)

    @cute.jit
    def publish(self, shared: cutlass.Constexpr, a: Arguments, team, lane):
        at = shared.tiles.first(team)
        while at.number != DONE:
            shared.counted.await_phase(at.stage, at.parity)
            tally = self.tally(shared, at.stage, Int32(self.warps))
            cute.arch.sync_warp()
            slots = self.slots(a, shared, team)
            if lane == 0:
                slots.publish(at.number, (tally,))
                shared.tiles.ring.empty[at.stage].arrive()  # it has read no byte that a copy brought: no fence
            at = shared.tiles.next(at, self.teams)

    def tally(self, shared, stage, stop):
        """The tally of the first ``stop`` chunks of a tile."""
        tallies = [shared.tallies[stage * self.warps + k] for k in range(self.warps)]
        return join_chunks(tallies, self.policy.chunk, stop, self.places)

    @cute.jit
    def look_ahead(self, shared: cutlass.Constexpr, a: Arguments, team, lane):
        """A team's warp: what comes before each tile, and at the end before the rest that is filled."""
        before, summed, over = Before.nothing(), Int32(0), Int32(0)
        counts, lasts = shared.before
        at = shared.tiles.first(team)
        while over == 0:
            tile = at.number
            if tile == DONE:
                over = Int32(1)
                tile = self.tiles(a) if self.fills_at_end else summed
            slots, base = self.slots(a, shared, team), None
            if cutlass.const_expr(a.rows is not None):
                base = tile // self.tiles_of_row(a) * self.tiles_of_row(a)
                if base > summed:
                    before, summed = begin_row(self.selection, before, summed, base)
            while summed < tile:
                before = add_tiles(slots, before, summed, tile, base, self.tile, self.places, lane)
                summed = cutlass.min(summed + AHEAD * LANES, tile)
            known = join_lanes(before, self.places)
            if lane == 0:
                counts[at.stage] = known.count
                lasts[at.stage] = known.last
            shared.ready[at.stage].arrive_once()
            if over == 0:
                at = shared.tiles.next(at, self.teams)

    @cute.jit
    def move(self, shared: cutlass.Constexpr, a: Arguments, team, warp):
        """A team's warp: its chunk of each tile of the team. Its release also covers the reads of the count warps."""
        at = shared.tiles.first(team)
        while at.number != DONE:
            shared.counted.await_phase(at.stage, at.parity)
            shared.ready.await_phase(at.stage, at.parity)
            self.move_chunk(shared, a, at, warp, cute.arch.lane_idx())
            shared.tiles.ring.release(at)
            at = shared.tiles.next(at, self.teams)
        if cutlass.const_expr(self.fills_at_end):
            shared.ready.await_phase(at.stage, at.parity)
            blocks, _, _ = cute.arch.grid_dim()
            worker = (cute.arch.block_idx()[0] * self.teams + team) * self.warps + warp
            total, lane = Int64(shared.before.count[at.stage]), cute.arch.lane_idx()
            fill_rest(a, self.selection, total, worker, blocks * self.teams * self.warps, lane)

    @cute.jit
    def close_row(self, shared: cutlass.Constexpr, a: Arguments, own: Arguments, tile, before: Before, warp, lane):
        """Store what is known of a row at its first tile, and at its last one. ``tile`` is a visit, and its number in
        the row; ``own`` are the arguments of the row."""
        at, number = tile
        tiles = self.tiles_of_row(a)
        if cutlass.const_expr(self.selection.rows == "packed"):
            if (number == 0) & (warp == 0) & (lane == 0):
                put_long(a.starts, Int64(at.number // tiles), before.count)
        if number == tiles - 1:
            everything = self.tally(shared, at.stage, Int32(self.warps))
            total = add_tile(before, everything, Int64(number) * self.tile, self.places)
            report_row(a, own, self.selection, total, at.number == self.tiles(a) - 1, warp, self.warps, lane)

    @cute.jit
    def move_chunk(self, shared: cutlass.Constexpr, a: Arguments, at, warp, lane):
        before = Before(Int64(shared.before.count[at.stage]), Int64(shared.before.last[at.stage]))
        everyone, (a, number) = a, self.inside(a, at.number)
        position = Int64(number) * self.tile
        if cutlass.const_expr(a.rows is not None):
            self.close_row(shared, everyone, a, (at, number), before, warp, lane)
        elif cutlass.const_expr(not self.selection.rejects):
            if (at.number == self.tiles(a) - 1) & (warp == 0) & (lane == 0):
                everything = self.tally(shared, at.stage, Int32(self.warps))
                report(a, add_tile(before, everything, position, self.places), self.places)
        before = add_tile(before, self.tally(shared, at.stage, warp), position, self.places)
        count = count_of(shared.tallies[at.stage * self.warps + warp])
        stop = Int32(cutlass.min(cutlass.max(a.capacity - before.count, Int64(0)), Int64(count)))
        part = Part(self.words_of(shared, at.stage, warp), before.count, stop)
        first, rows = position + warp * self.policy.chunk, self.policy.rows
        if cutlass.const_expr(self.selection.indices):
            store_indices(a.places, part, first, rows, lane)
        if cutlass.const_expr(self.selection.inverse):
            store_ranks(a.ranks, part, first, a.count, rows, lane)
        if cutlass.const_expr(self.places):
            packed = self.selection.rows == "packed"
            store_lengths(a.lengths, part, first, before.last, a.capacity, rows, packed, lane)
        if cutlass.const_expr(self.selection.rejects):
            begins = [buffer.first(at.stage, array) for buffer, array in zip(shared.buffers, a.x)]
            begins = [begin + warp * (self.policy.chunk * mover.size) for begin, mover in zip(begins, self.movers)]
            store_rejects(a, part, first, begins, rows, lane)
        for mover, buffer, array, out in zip(self.movers, shared.buffers, a.x, a.out):
            begin = buffer.first(at.stage, array) + warp * (self.policy.chunk * mover.size)
            move = mover.move_apart if self.selection.stepped else mover.move
            move(begin, out, part, lane)


@cute.jit
def report(a: Arguments, all_of_them: Before, places: cutlass.Constexpr):
    """One thread: store how many positions are selected, and the length of the last run."""
    count = all_of_them.count
    cells(Int64, a.found.toint(), 1, cute.AddressSpace.gmem)[0] = count
    if cutlass.const_expr(places):
        if (count > 0) & (count <= a.capacity):
            put_last_length(a, all_of_them)
