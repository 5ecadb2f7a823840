"""Selection in one pass: resident blocks of ``teams`` teams, each a pipeline of warps with one job.

    load        takes tile numbers from an atomic and copies tiles into the team's stages of a ring in shared memory
    compact     puts the selected elements of a chunk of a tile side by side (``chunk``); its tally: how many there are
    publish     adds up the tallies of a tile's chunks, and publishes that of the tile
    look ahead  adds up the published tallies of all teams: where each of this team's tiles goes
    store       copies the chunks' elements to the results

    barrier          completed by                                      waited for by
    full[stage]      load: 1 arrival and the tile's bytes              compact, publish, look ahead, store
    counted[stage]   one lane of each compact warp                     publish
    ready[stage]     one lane of publish, and of look ahead            store
    empty[stage]     one lane of each store warp                       load

Of strided arrays, no copy brings tiles: a stage is full when it has the tile's number.

    gather      read the elements of a tile one by one, and put them in its stage

    gathered[stage]  one lane of each gather warp                      compact

A warp that publishes never waits for other tiles: the reasons and the progress are those of ``scan.pipeline``. The
answer of the atomic takes as long as a small tile may: hence several teams, which share nothing but the block. The
first tiles are asked for before the launch before has ended (``tiled.AsksEarly``). Bytes:
every element, and its mask, is read once, and every selected element is written once.
"""

from __future__ import annotations

import functools
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...dtypes import DType
from ...errors import ArgumentValueError, explain
from ...sync.gather import Slots
from ...sync.overlap import let_next_start
from ...sync.roles import Role, Roles
from ...sync.tiles import DONE
from ...sync.wait import in_role
from ...warp import LANES
from ..gather import Tile
from ..tiled import AsksEarly, take_tiles
from .base import Arguments, SelectKernel
from .by_rows import begin_row, of_row, report_row
from .chunk import Chunk, ChunkCompactor, nears_of, put
from .fill import fill_rest
from .narrow import MASK, NarrowCompactor
from .policy import PipelinePolicy
from .shared import Control, Shared
from .spec import Selection
from .store import (
    Part,
    put_long,
    report,
    store_indices,
    store_lengths,
    store_ranks,
    store_rejects,
    store_values,
)
from .tally import AHEAD, TYPES, Before, add_tile, add_tiles, count_of, scan_chunks
from .window import TileBuffer, as_copy


class PipelineSelect(AsksEarly, SelectKernel):
    """The kernel, with the sizes of a policy."""

    looks_ahead = publishes = hands_over = True
    squads = 1  # that take a team's tiles in turn
    others_ready = 1  # arrivals at ``ready`` besides that of the warp that looks ahead
    more_bytes = 0  # of shared memory, of a subclass
    policy: Any
    compactor: Any

    def __init__(self, selection: Selection, policy: PipelinePolicy) -> None:
        self.policy, self.stages, self.tile = policy, policy.stages, policy.tile
        self.teams, self.chunks, self.chunk = policy.teams, policy.chunks, policy.chunk
        if policy.stages % policy.teams:  # else a warp could wait for a parity that the phase two before has, too
            raise ArgumentValueError(explain("policy", f"{policy.stages} stages", f"a multiple of {policy.teams}"))
        masked = selection.kind == "mask"
        self.fills_at_end = selection.filled and selection.rows != "apart"
        self.lengths, self.heads = selection.lengths is not None, selection.kind == "heads"
        held = (*selection.sources, *((MASK,) * masked))
        pitches = {dtype: self.chunk + self.padding(dtype) for dtype in held}
        self.buffers = tuple(TileBuffer(dtype, self.chunks * pitches[dtype], self.heads) for dtype in held)
        self.roles = self.warp_roles(selection)
        # of a stage: places, and words of rows
        self.places, self.words = self.tile * selection.located, self.tile // LANES * selection.inverse
        smem = sum(buffer.stage_bytes for buffer in self.buffers) + self.places + 8 * self.words
        smem += 12 * self.chunks + 68
        smem = self.stages * smem + 128 * (len(self.buffers) + 2) + self.more_bytes
        super().__init__(selection, self.roles.threads, smem)
        self.compactor = (NarrowCompactor if policy.narrow else ChunkCompactor)(self.where, policy.rows)

    def warp_roles(self, selection: Selection) -> Roles:
        """The roles of a block's warps."""
        policy = self.policy
        warps = {"control": len(Control), "compact": policy.compact_warps, "store": policy.store_warps}
        warps |= {"gather": policy.gather_warps} if selection.layout else {}
        return Roles(*(Role(name, self.teams * each) for name, each in warps.items()))

    @cute.jit
    def body(self, a: Arguments):
        shared = Shared.make(self)
        cute.arch.sync_threads()
        compact, store, gather = self.policy.compact_warps, self.policy.store_warps, self.policy.gather_warps
        self.roles.run(
            control=lambda warp: self.control(shared, a, warp // len(Control), warp % len(Control)),
            compact=lambda warp: self.compact(shared, a, warp // compact, warp % compact),
            store=lambda warp: self.store(shared, a, warp // store, warp % store),
            **(
                {"gather": lambda warp: self.bring_strided(shared, a, warp // gather, warp % gather)}
                if self.gather
                else {}
            ),
        )

    @cute.jit
    def control(self, shared: cutlass.Constexpr, a: Arguments, team, warp):
        lane = cute.arch.lane_idx()
        if warp == Control.LOAD:
            in_role("load", self.load, shared, a, team, lane)
        elif warp == Control.PUBLISH:
            in_role("publish", self.publish, shared, a, team, lane)
        elif cutlass.const_expr(self.looks_ahead):
            in_role("look ahead", self.look_ahead, shared, a, team, lane)

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
        """A tile's number is asked for when a stage for it is stored: all blocks wait for a tile that waits."""
        ring, everything = shared.tiles.ring, self.tiles(a)
        bring = lambda at, number: self.bring(shared, a, at, number, lane)  # noqa: E731
        ahead = lambda at: self.soon_empty(shared, at)  # noqa: E731
        turn = team, self.teams
        at, entry = take_tiles(ring, shared.tags, a.counters, everything, turn, bring, lane, ahead)
        let_next_start()
        for done in cutlass.range_constexpr(self.squads):
            if cutlass.const_expr(done > 0):
                at = ring.next(at)
                ring.acquire_alone(at)
            if lane == 0:
                self.hand_over(shared, at, Int32(DONE), [])
        if lane == 0:
            blocks, _, _ = cute.arch.grid_dim()
            entry.close(a.counters, Int32(0), everything + blocks * self.teams)

    def soon_empty(self, shared, at) -> None:
        """Wait until what is left of the tile before in a stage is to store it."""
        shared.ready.await_phase(at.stage, at.parity)

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
    def bring_strided(self, shared: cutlass.Constexpr, a: Arguments, team, warp):
        """A team's warp: its share of each tile of the team."""
        warps, sizes = self.policy.gather_warps, tuple(buffer.dtype.size for buffer in self.buffers)
        at = shared.tiles.first(team)
        while at.number != DONE:
            first = Int64(self.inside(a, at.number)[1]) * self.tile
            tile = Tile(first, cutlass.min(first + self.tile, a.count), a.count, self.base(a, at.number), False)
            firsts = [buffer.first(at.stage, array) for buffer, array in zip(shared.buffers, self.arrays(a))]
            store = functools.partial(self.put, firsts)
            if cutlass.const_expr(sizes):  # bits alone, when they are counted, are read where they are
                self.gather.fill(self.arrays(a), sizes, store, tile, -1 if self.heads else 0, warp, warps)
            shared.gathered[at.stage].arrive_once()
            at = shared.tiles.next(at, self.teams)

    def put(self, firsts, k: int, place, word) -> None:
        """Store the element of array ``k`` at a place of the tile whose arrays begin at ``firsts``."""
        put(type(word), firsts[k] + place * self.buffers[k].dtype.size, word)

    @cute.jit
    def compact(self, shared: cutlass.Constexpr, a: Arguments, team, warp):
        """A team's warp: chunks ``warp``, ``warp + compact_warps``, ... of each tile of the team."""
        lane = cute.arch.lane_idx()
        at = shared.tiles.first(team)
        while at.number != DONE:
            if cutlass.const_expr(self.gather is not None):
                shared.gathered.await_phase(at.stage, at.parity)
            self.compact_tile(shared, a, at, warp, lane)
            shared.counted[at.stage].arrive_once()
            at = shared.tiles.next(at, self.teams)

    @cute.jit
    def compact_tile(self, shared: cutlass.Constexpr, a: Arguments, at, warp, lane):
        """A team's warp: its chunks of a tile."""
        tallies, nears = shared.tallies, shared.nears
        own, number = self.inside(a, at.number)
        for chunk in cutlass.range(warp, self.existing(a, number), self.policy.compact_warps, unroll=1):
            begins = self.begins(shared, self.arrays(own), at.stage, chunk)
            here = Chunk(begins, *self.extent(a, number, chunk), *self.places_of(shared, at.stage, chunk))
            tally, near = self.compactor.compact(here, own.where, lane)
            if lane == 0:
                tallies[at.stage * self.chunks + chunk] = tally
                nears[at.stage * self.chunks + chunk] = near

    def existing(self, a: Arguments, number):
        """How many chunks of a tile, by its number in the row, have positions that exist."""
        rest = cutlass.min(cutlass.max(a.count - Int64(number) * self.tile, Int64(0)), Int64(self.tile))
        return (Int32(rest) + (self.chunk - 1)) // self.chunk

    def extent(self, a: Arguments, number, chunk) -> tuple:
        """Where a chunk of a tile begins, and where its positions stop."""
        return Int64(number) * self.tile + chunk * self.chunk, a.count

    def padding(self, dtype: DType) -> int:
        """How many elements there are between chunks in shared memory."""
        return 0

    def begins(self, shared, arrays: tuple, stage, chunk) -> tuple:
        """The addresses of the elements of a chunk in shared memory, of each array."""
        pairs = zip(shared.buffers, arrays)
        return tuple(
            b.first(stage, x) + chunk * ((self.chunk + self.padding(b.dtype)) * b.dtype.size) for b, x in pairs
        )

    def places_of(self, shared, stage, chunk) -> tuple:
        """The addresses of the places and the words of a chunk."""
        places = Int32(shared.places.toint()) + (stage * self.chunks + chunk) * self.chunk
        words = Int32(shared.words.toint()) + (stage * self.chunks + chunk) * (self.policy.rows * 8)
        return places, words

    def slots(self, a: Arguments, shared, team) -> Slots:
        """The tiles' tallies. The team's loader has stored the launch's tag."""
        return Slots(a.slots, Int64(0), shared.tags[team], TYPES)

    @cute.jit
    def publish(self, shared: cutlass.Constexpr, a: Arguments, team, lane):
        at = shared.tiles.first(team)
        while at.number != DONE:
            shared.counted.await_phase(at.stage, at.parity)
            self.publish_tile(shared, a, at, team, lane)
            shared.ready[at.stage].arrive_once()
            at = shared.tiles.next(at, self.teams)

    @cute.jit
    def publish_tile(self, shared: cutlass.Constexpr, a: Arguments, at, team, lane):
        """Add up the tallies of a tile's chunks, and publish that of the tile."""
        tallies, known, chunks = shared.tallies, shared.inside, self.chunks
        tally = Int32(0)
        if lane < self.existing(a, self.inside(a, at.number)[1]):
            tally = tallies[at.stage * chunks + lane]
        before, through = scan_chunks(tally, lane, self.chunk, self.lengths)
        if lane < chunks:
            known[at.stage * (chunks + 1) + lane] = before
        if lane == chunks - 1:
            known[at.stage * (chunks + 1) + chunks] = through
            if cutlass.const_expr(self.publishes):
                self.slots(a, shared, team).publish(at.number, (through,))

    @cute.jit
    def look_ahead(self, shared: cutlass.Constexpr, a: Arguments, team, lane):
        """A team's warp: what comes before each tile, and at the end before the rest that is filled. Then it arrives
        for the others, too."""
        before, summed, over = Before.nothing(), Int32(0), Int32(0)
        counts, lasts = shared.before
        at = self.first_counted(shared, team)
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
                before = add_tiles(slots, before, summed, tile, base, self.tile, self.lengths, lane)
                summed = cutlass.min(summed + AHEAD * LANES, tile)
            if lane == 0:
                counts[at.stage] = before.count
                lasts[at.stage] = before.last
            cute.arch.sync_warp()  # its lanes have read the tile's number
            if lane == 0:
                shared.ready[at.stage].arrive(1 + over * self.others_ready)
            if over == 0:
                at = self.next_counted(shared, at)

    def first_counted(self, shared, team):
        """The first tile that a warp looks ahead for."""
        return shared.tiles.first(team)

    def next_counted(self, shared, at):
        return shared.tiles.next(at, self.teams)

    @cute.jit
    def store(self, shared: cutlass.Constexpr, a: Arguments, team, warp):
        """A team's warp: chunks ``warp``, ``warp + store_warps``, ... of each tile of the team. Its release also covers
        what the compact warps did."""
        at, warps = shared.tiles.first(team), self.policy.store_warps
        while at.number != DONE:
            shared.ready.await_phase(at.stage, at.parity)
            self.store_tile(shared, a, at, warp, cute.arch.lane_idx())
            shared.tiles.ring.release(at)
            at = shared.tiles.next(at, self.teams)
        if cutlass.const_expr(self.fills_at_end):
            if cutlass.const_expr(self.looks_ahead):
                shared.ready.await_phase(at.stage, at.parity)
            blocks, _, _ = cute.arch.grid_dim()
            worker = (cute.arch.block_idx()[0] * self.teams + team) * warps + warp
            total, lane = self.total(shared, a, at.stage), cute.arch.lane_idx()
            fill_rest(a, self.selection, total, worker, blocks * self.teams * warps, lane)

    def total(self, shared, a: Arguments, stage):
        """How many elements are selected in all, once there are no more tiles."""
        return Int64(shared.before.count[stage])

    @cute.jit
    def store_tile(self, shared: cutlass.Constexpr, a: Arguments, at, warp, lane):
        before = Before(Int64(shared.before.count[at.stage]), Int64(shared.before.last[at.stage]))
        own, number = self.inside(a, at.number)
        position = Int64(number) * self.tile
        if cutlass.const_expr(a.rows is not None):
            self.close_row(shared, a, own, (at, number), before, warp, lane)
        elif cutlass.const_expr(not self.selection.rejects):
            if (at.number == self.tiles(a) - 1) & (warp == 0) & (lane == 0):
                report(a, add_tile(before, self.tally(shared, at.stage), position, self.lengths), self.lengths)
        room = Int32(cutlass.max(cutlass.min(a.capacity - before.count, Int64(self.tile)), Int64(-1)))
        for chunk in cutlass.range(warp, self.existing(a, number), self.policy.store_warps, unroll=1):
            inside = shared.inside[at.stage * (self.chunks + 1) + chunk]
            here = add_tile(before, inside, position, self.lengths)
            count, rest = count_of(shared.tallies[at.stage * self.chunks + chunk]), room - count_of(inside)
            stop = cutlass.min(cutlass.max(rest, 0), count)
            extent = self.extent(a, number, chunk)
            nears = nears_of(shared.nears[at.stage * self.chunks + chunk], self.chunk)
            part = Part(here.count, count, rest, stop, nears, *extent, *self.places_of(shared, at.stage, chunk))
            self.store_chunk(own, part, self.begins(shared, own.x, at.stage, chunk), here.last, lane)

    def tally(self, shared, stage):
        """The tally of a tile."""
        return shared.inside[stage * (self.chunks + 1) + self.chunks]

    def store_chunk(self, a: Arguments, part: Part, begins: tuple, last, lane) -> None:
        """Store what is known of a chunk. ``begins`` are the addresses of its elements, and ``last`` the place of the
        selected element before it, counted from 1."""
        for out, source, begin in zip(a.out, self.selection.results, begins):
            store_values(out, source.size, begin, part.offset, part.stop, lane)
        if self.selection.indices:
            store_indices(a.places, part, lane)
        if self.selection.inverse:
            store_ranks(a.ranks, part, a.count, self.policy.rows, lane)
        if self.lengths:
            store_lengths(a.lengths, part, last, lane)
        if self.selection.rejects:
            store_rejects(a, part, begins, self.chunk, lane)

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
            total = add_tile(before, self.tally(shared, at.stage), Int64(number) * self.tile, self.lengths)
            last = at.number == self.tiles(a) - 1
            report_row(a, own, self.selection, total, last, warp, self.policy.store_warps, lane)
