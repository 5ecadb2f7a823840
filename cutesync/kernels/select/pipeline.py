"""Selection in one pass: resident blocks, each a pipeline of warps with one job.

    load        takes tile numbers from an atomic and copies tiles into a ring of ``stages`` in shared memory
    count       finds the words of each chunk of a tile (``chunk``), and how many elements are selected
    publish     publishes the number of a tile's selected elements
    look ahead  adds up the published tiles of all blocks: where each of this block's tiles goes
    move        two squads, a tile each in turn: compact a chunk a warp in place, and store it

    barrier          completed by                                      waited for by
    full[stage]      load: 1 arrival and the tile's bytes              count, publish, look ahead, move
    counted[stage]   one lane of each count warp                       publish, move
    ready[stage]     one lane of look ahead                            move
    empty[stage]     one lane of each warp of a squad, and of publish  load

A tile's count is published before the tile is compacted, and a warp that publishes never waits for other tiles: the
reasons and the progress are those of ``scan.pipeline``. Bytes: every element, and its mask, is read once, and every
selected element is written once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8
from cutlass.memory import SmemAllocator

from ...dtypes import BY_NAME
from ...errors import ArgumentValueError, explain
from ...sync.barrier import Barriers
from ...sync.gather import Entry, Slots, enter
from ...sync.roles import Role, Roles
from ...sync.tiles import DONE, TileRing
from ...sync.wait import in_role
from ...warp import LANES, reduce_commutative
from .base import Arguments, SelectKernel
from .chunk import ChunkMover, Part, store_indices
from .count import ChunkCounter
from .fill import fill_rest
from .policy import PipelinePolicy
from .spec import Selection
from .window import TileBuffer, as_copy

MASK = BY_NAME["uint8"]
TYPES = (Int32,)  # of what is published: the number of a tile's selected elements
TURNS = 2  # squads, and warps that look ahead, take tiles in turn: so the stages are an even number
AHEAD = 8  # tiles that a lane reads at once


@dataclass(frozen=True)
class Shared:
    """Shared memory: the tiles' bytes, the ring, the roles' barriers, the chunks' words and counts (those of a stage
    side by side), and where each stage's results go."""

    buffers: tuple
    tiles: TileRing
    counted: Barriers
    ready: Barriers
    words: Any
    counts: cute.Tensor
    offsets: cute.Tensor


class Control(IntEnum):
    """The warps of the role "control". The rest of them look ahead."""

    LOAD = 0
    PUBLISH = 1
    LOOK_AHEAD = 2


class PipelineSelect(SelectKernel):
    """The kernel, with the sizes of a policy."""

    def __init__(self, selection: Selection, policy: PipelinePolicy) -> None:
        self.policy, self.stages, self.tile = policy, policy.stages, policy.tile
        self.warps = policy.warps_per_squad
        if policy.stages % TURNS:  # else a warp could wait for a parity that the phase two before has, too
            raise ArgumentValueError(explain("policy", f"{policy.stages} stages", f"a multiple of {TURNS}"))
        masked = selection.kind == "mask"
        self.held = (*selection.sources, *((MASK,) if masked else ()))
        self.roles = Roles(
            Role("control", 4), Role("count", policy.count_warps), Role("move", TURNS * policy.warps_per_squad)
        )
        words = self.tile // LANES * 8
        smem = sum(TileBuffer.stage_bytes(dtype, self.tile) for dtype in self.held) + words + 4 * self.warps + 64
        super().__init__(selection, self.roles.threads, self.stages * smem + 128 * (len(self.held) + 2))
        self.counter = ChunkCounter(self.where, policy)
        self.movers = [ChunkMover(t.size, unit, policy.rows) for t, unit in zip(selection.results, policy.units)]

    @cute.jit
    def body(self, a: Arguments):
        stages = self.stages
        buffers = tuple(
            TileBuffer(
                dtype,
                self.tile,
                SmemAllocator().allocate_array(
                    Uint8, stages * TileBuffer.stage_bytes(dtype, self.tile), byte_alignment=128
                ),
            )
            for dtype in self.held
        )
        shared = Shared(
            buffers,
            TileRing.make(stages, consumers=self.warps + 1),
            Barriers.make(stages, self.policy.count_warps, name="counted"),
            Barriers.make(stages, 1, name="ready"),
            SmemAllocator().allocate_array(Int64, stages * (self.tile // LANES), byte_alignment=16),
            *(
                cute.make_tensor(SmemAllocator().allocate_array(kind, count), cute.make_layout((count,)))
                for kind, count in ((Int32, stages * self.warps), (Int64, stages))
            ),
        )
        cute.arch.sync_threads()
        self.roles.run(
            control=lambda warp: self.control(shared, a, warp),
            count=lambda warp: self.count(shared, a, warp),
            move=lambda warp: self.move(shared, a, warp // self.warps, warp % self.warps),
        )

    @cute.jit
    def control(self, shared: cutlass.Constexpr, a: Arguments, warp):
        lane = cute.arch.lane_idx()
        if warp == Control.LOAD:
            in_role("load", self.load, shared, a, lane)
        elif warp == Control.PUBLISH:
            in_role("publish", self.publish, shared, a, lane)
        else:
            in_role("look ahead", self.look_ahead, shared, a, warp - Control.LOOK_AHEAD, lane)

    def arrays(self, a: Arguments) -> tuple:
        """The arrays whose tiles the ring holds."""
        return (*a.x, *((a.where,) if self.selection.kind == "mask" else ()))

    def tiles(self, a: Arguments):
        """How many tiles there are; at least one, whose block reports the number of selected elements."""
        return cutlass.max(Int32((a.count + self.tile - 1) // self.tile), 1)

    @cute.jit
    def load(self, shared: cutlass.Constexpr, a: Arguments, lane):
        """At the end all that take tiles in turn get a ``DONE`` each.

        A tile's number is asked for when there is an empty stage for it: all blocks wait for a tile that waits."""
        tag, ring, everything = shared.tiles.word, shared.tiles.ring, self.tiles(a)
        word, number, done = Int64(0), Int32(0), Int32(0)
        if lane == 0:
            entry = enter(a.counters)
            tag[0] = entry.tag
            word, number = entry.word, entry.arrived
        at = ring.start_producer()
        while done < TURNS:
            number = Int32(cute.arch.shuffle_sync(number, 0))
            if number < everything:
                self.bring(shared, a, at, number, lane)
            else:
                done += 1
                if lane == 0:
                    self.hand_over(shared, at, Int32(DONE), [])
            at = ring.next(at)
            if done < TURNS:
                ring.acquire_alone(at)  # every lane waits, and they meet in the shuffle
            if (done == 0) & (lane == 0):
                entry = enter(a.counters)
                word, number = entry.word, entry.arrived
        if lane == 0:
            blocks, _, _ = cute.arch.grid_dim()
            Entry(word, number).close(a.counters, Int32(0), everything + blocks)

    @cute.jit
    def bring(self, shared: cutlass.Constexpr, a: Arguments, at, number, lane):
        """Copy tile ``number`` into a stage."""
        copies = [
            as_copy(buffer.fill(at.stage, array, number, a.count, lane))
            for buffer, array in zip(shared.buffers, self.arrays(a))
        ]
        cute.arch.sync_warp()  # what the lanes have copied comes before the arrival
        if lane == 0:
            self.hand_over(shared, at, number, copies)

    def hand_over(self, shared, at, number, copies) -> None:
        """One lane: a stage's tile, and the copies that bring it."""
        shared.tiles.announce(at, number)
        shared.tiles.ring.load_alone(at, copies)

    @cute.jit
    def count(self, shared: cutlass.Constexpr, a: Arguments, counter):
        """Chunks ``counter``, ``counter + count_warps``, ... of every tile."""
        lane, counts = cute.arch.lane_idx(), shared.counts
        at = shared.tiles.first()
        while at.number != DONE:
            firsts = tuple(buffer.first(at.stage, array) for buffer, array in zip(shared.buffers, self.arrays(a)))
            for chunk in cutlass.range(counter, self.warps, self.policy.count_warps, unroll=1):
                position = Int64(at.number) * self.tile + chunk * self.policy.chunk
                inside = chunk * self.policy.chunk
                total = self.counter.count(
                    firsts, inside, a.where, position, a.count, self.words_of(shared, at.stage, chunk), lane
                )
                if lane == 0:
                    counts[at.stage * self.warps + chunk] = total
            shared.counted[at.stage].arrive_once()
            at = shared.tiles.next(at)

    def words_of(self, shared, stage, chunk):
        return shared.words + (stage * self.warps + chunk) * self.policy.rows

    def slots(self, a: Arguments, shared) -> Slots:
        """The tiles' counts. The loader has stored the launch's tag."""
        return Slots(a.slots, Int64(0), shared.tiles.word[0], TYPES)

    @cute.jit
    def publish(self, shared: cutlass.Constexpr, a: Arguments, lane):
        at = shared.tiles.first()
        while at.number != DONE:
            shared.counted.await_phase(at.stage, at.parity)
            _, total = self.counts(shared, at.stage, Int32(0))
            cute.arch.sync_warp()
            slots = self.slots(a, shared)
            if lane == 0:
                slots.publish(at.number, (total,))
                shared.tiles.ring.empty[at.stage].arrive()  # it has read no byte that a copy brought: no fence
            at = shared.tiles.next(at)

    def counts(self, shared, stage, chunk):
        """``(before, total)``: how many elements of a tile are selected, and how many of them before a chunk."""
        before, total = Int32(0), Int32(0)
        for k in range(self.warps):
            each = Int32(shared.counts[stage * self.warps + k])
            before = before + cutlass.select_(k < chunk, each, Int32(0))
            total = total + each
        return before, total

    @cute.jit
    def look_ahead(self, shared: cutlass.Constexpr, a: Arguments, team, lane):
        """A team's warp: the tiles' offsets, and at the end the number of all selected elements if results are filled.

        Sums of integers are the same in any order: a lane adds up tiles, and the lanes' sums are added once a tile."""
        carry, summed, over = Int64(0), Int32(0), Int32(0)
        offsets = shared.offsets
        at = shared.tiles.first(team)
        while over == 0:
            tile = at.number
            if tile == DONE:
                over = Int32(1)
                tile = self.tiles(a) if self.selection.filled else summed
            some = Int32(0)
            slots = self.slots(a, shared)
            while summed < tile:
                some += sum_of_tiles(slots, summed, tile, lane)
                summed = cutlass.min(summed + AHEAD * LANES, tile)
            carry += Int64(warp_sum(some))
            if lane == 0:
                offsets[at.stage] = carry
            shared.ready[at.stage].arrive_once()
            if over == 0:
                at = shared.tiles.next(at, TURNS)

    @cute.jit
    def move(self, shared: cutlass.Constexpr, a: Arguments, squad, warp):
        """A squad's warp: its chunk of each tile of the squad. Its release also covers the reads of the count warps."""
        ring, lane, chunk = shared.tiles.ring, cute.arch.lane_idx(), self.policy.chunk
        at = shared.tiles.first(squad)
        while at.number != DONE:
            shared.counted.await_phase(at.stage, at.parity)
            before, total = self.counts(shared, at.stage, warp)
            count = Int32(shared.counts[at.stage * self.warps + warp])
            shared.ready.await_phase(at.stage, at.parity)
            offset = Int64(shared.offsets[at.stage]) + before
            if (at.number == self.tiles(a) - 1) & (warp == 0) & (lane == 0):
                cute.make_tensor(a.found, cute.make_layout((1,)))[0] = Int64(shared.offsets[at.stage]) + total
            stop = Int32(cutlass.min(cutlass.max(a.capacity - offset, Int64(0)), Int64(count)))
            part = Part(self.words_of(shared, at.stage, warp), offset, count, stop)
            if cutlass.const_expr(self.selection.indices):
                store_indices(a.places, part, Int64(at.number) * self.tile + warp * chunk, self.policy.rows, lane)
            for mover, buffer, array, out in zip(self.movers, shared.buffers, a.x, a.out):
                begin = buffer.first(at.stage, array) + warp * (chunk * mover.size)
                mover.move(begin, out.toint(), part, lane)
            ring.release(at)
            at = shared.tiles.next(at, TURNS)
        if cutlass.const_expr(self.selection.filled):
            shared.ready.await_phase(at.stage, at.parity)
            blocks, _, _ = cute.arch.grid_dim()
            worker = cute.arch.block_idx()[0] * TURNS * self.warps + squad * self.warps + warp
            fill_rest(a, Int64(shared.offsets[at.stage]), worker, blocks * TURNS * self.warps, lane)


@cute.jit
def sum_of_tiles(slots: cutlass.Constexpr, first, stop, lane):
    """The counts of tiles ``first + lane``, ``first + lane + 32``, ..., ``AHEAD`` of them, as far as they come before
    ``stop``; waits for them."""
    places = [first + k * LANES + lane for k in range(AHEAD)]
    reads = [slots.read(cutlass.min(place, stop - 1)) for place in places]
    total = Int32(0)
    for place, words in zip(places, reads):
        if place < stop:
            (count,) = slots.wait(place, words)
            total += count
    return total


def warp_sum(value):
    """The sum of the lanes' values, in all lanes."""
    return reduce_commutative((value,), lambda a, b: (a[0] + b[0],))[0]
