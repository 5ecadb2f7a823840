"""Operations on segments in one pass: resident blocks, each a pipeline of warps with one job.

    load        takes tile numbers from an atomic and copies tiles into a ring of ``stages`` in shared memory
    reduce      finds the state of each lane's run of positions, and of each chunk of a tile (``run``); teams of as many
                warps as a tile has chunks take tiles in turn. Where segments are reduced and their number is not known,
                they go on and pack the chunk's segments, without what comes before the chunk
    publish     combines the chunks' states and publishes the tile's
    look ahead  combines the published tiles of all blocks, in order: the state before each of this block's tiles;
                ``look_aheads`` warps take tiles in turn and hide each other's trips to memory
    emit        ``squads`` squads, a tile each in turn: store packed segments, the first with what comes before it; or
                go through the lanes' runs again with the state before them, and store results

    barrier          completed by                                      waited for by
    full[stage]      load: 1 arrival and the tile's bytes              reduce, publish, look ahead, emit
    reduced[stage]   one lane of each reduce warp of a team            publish, emit
    packed[stage]    the same, when segments are packed                emit
    ready[stage]     one lane of look ahead                            emit, load
    empty[stage]     one lane of each warp of a squad, and of publish  load

Of strided arrays, no copy brings tiles: a stage is full when it has the tile's number.

    gather           read the elements of a tile one by one, and put them in its stage

    gathered[stage]  one lane of each gather warp                      reduce

The answer of the atomic may take as long as a tile does: it is asked for when what is left of the tile before in a
stage depends on this block alone.
The reasons, the progress and the order of operations are those of ``scan.pipeline``. Bytes: every element is read once
and every result is written once.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8
from cutlass.memory import SmemAllocator

from ...block.reduce import get, load_partial, partial_array, put, state_array, store_partial
from ...block.warps import scan_partials
from ...errors import ArgumentValueError, explain
from ...sync.barrier import Barriers
from ...sync.gather import Slots
from ...sync.lookback import place_of, slots_of
from ...sync.overlap import let_next_start
from ...sync.roles import Role, Roles
from ...sync.tiles import DONE, TileRing
from ...sync.wait import in_role
from ...warp import LANES, Maybe, prepend
from ..gather import Tile
from ..scan.pipeline import Control
from ..select.chunk import put as put_at
from ..select.fill import fill_result
from ..select.where import below
from ..select.window import as_copy
from ..tiled import AsksEarly, take_tiles
from .ahead import LookAhead
from .base import Arguments, SegmentKernel
from .policy import PipelinePolicy
from .room import Room
from .run import ChunkRuns, Part
from .spec import SegmentsSpec
from .window import Span, TileBuffer


@dataclass(frozen=True)
class Shared:
    """Shared memory: the tiles' bytes (of heads, then of inputs) and their ring, the roles' barriers, the partials of
    each stage's chunks, where segments begin in each lane's run and what comes before it, what comes before the stage's
    tile, room for what takes the place of no element, and what a subclass adds. Where segments are packed, there are
    bits for each chunk instead, and nothing of lanes."""

    buffers: tuple
    tiles: TileRing
    tag: cute.Tensor
    reduced: Barriers
    ready: Barriers
    gathered: Barriers | None
    totals: tuple
    packed: Barriers | None
    bits: cute.Tensor
    lanes: tuple
    before: tuple
    areas: tuple
    more: Any


class SegmentPipeline(AsksEarly, SegmentKernel):
    """The kernel, with the sizes of a policy and ``shared`` bytes of shared memory."""

    def __init__(self, spec: SegmentsSpec, shared: int, policy: PipelinePolicy) -> None:
        self.policy, self.stages, self.tile = policy, policy.stages, policy.tile
        self.warps, self.squads, self.look_aheads = policy.warps, policy.squads, policy.look_aheads
        self.teams = max(1, policy.reduce_warps // policy.warps)
        turns = self.teams, policy.squads, policy.look_aheads
        if any(policy.stages % turn for turn in turns):
            # else a warp could wait for a parity that the phase two before has, too
            came = f"{policy.stages} stages for {', '.join(map(str, turns))} that take turns"
            raise ArgumentValueError(explain("policy", came, "a multiple of each"))
        if policy.look_aheads < policy.squads:  # each of them prepares one DONE
            came = f"{policy.look_aheads} warps that look ahead for {policy.squads} squads"
            raise ArgumentValueError(explain("policy", came, "as many at least"))
        self.roles = self.warp_roles(spec)
        super().__init__(spec, self.roles.threads, shared)
        sources = (*spec.heads.sources, *spec.operation.sources)
        self.buffers = tuple(TileBuffer(dtype, self.tile, spec.reverse) for dtype in sources)
        self.ahead = LookAhead(self.states)
        self.runs = ChunkRuns(spec, self.states, policy, self.buffers)
        self.room = Room(spec, self.states, self.tile, policy.stages if spec.found else policy.squads)

    def warp_roles(self, spec: SegmentsSpec) -> Roles:
        """The roles of a block's warps."""
        policy = self.policy
        return Roles(
            Role("control", Control.LOOK_AHEAD + policy.look_aheads),
            Role("reduce", policy.reduce_warps),
            Role("emit", policy.squads * policy.warps),
            *([Role("gather", policy.gathers)] if spec.strided else []),
        )

    def more_shared(self) -> Any:
        """What a subclass keeps in shared memory besides."""

    def allocate(self) -> Shared:
        """Take the shared memory. In all threads; one block barrier must follow."""
        stages, types = self.stages, self.states.types
        buffers = tuple(
            replace(
                buffer, start=SmemAllocator().allocate_array(Uint8, stages * buffer.stage_bytes, byte_alignment=128)
            )
            for buffer in self.buffers
        )
        found, runs = self.spec.found, stages * self.warps * (1 if self.spec.found else LANES)
        return Shared(
            buffers,
            TileRing.make(stages, consumers=self.warps + 1),
            cute.make_tensor(SmemAllocator().allocate_array(Int32, 1), cute.make_layout((1,))),
            Barriers.make(stages, self.warps, name="reduced"),
            Barriers.make(stages, 1, name="ready"),
            Barriers.make(stages, self.policy.gathers, name="gathered") if self.gather else None,
            partial_array(types, stages * self.warps),
            Barriers.make(stages, self.warps, name="packed") if found else None,
            cute.make_tensor(SmemAllocator().allocate_array(Int32, runs), cute.make_layout((runs,))),
            () if found else state_array(types[1:], runs),
            partial_array(types, stages),
            self.room.allocate(),
            self.more_shared(),
        )

    def asked_arrays(self, a: Arguments) -> tuple:
        """The arrays that the L2 is asked for: contiguous ones that are read from the front."""
        return () if self.gather is not None or self.spec.reverse else (*a.heads, *a.x)

    @cute.jit
    def body(self, a: Arguments):
        shared = self.allocate()
        cute.arch.sync_threads()
        self.roles.run(
            control=lambda warp: self.control(shared, a, warp),
            reduce=lambda warp: self.reduce(shared, a, warp),
            emit=lambda warp: self.emit(shared, a, warp // self.warps, warp % self.warps),
            **({"gather": lambda warp: self.bring_strided(shared, a, warp)} if self.gather else {}),
        )

    @cute.jit
    def control(self, shared: cutlass.Constexpr, a: Arguments, warp):
        """The warp that loads, the one that publishes, and those that look ahead."""
        lane = cute.arch.lane_idx()
        if warp == Control.LOAD:
            in_role("load", self.load, shared, a, lane)
        elif warp == Control.PUBLISH:
            in_role("publish", self.publish, shared, a, lane)
        else:
            in_role("look ahead", self.look_ahead, shared, a, warp - Control.LOOK_AHEAD, lane)

    def tiles(self, a: Arguments):
        """How many tiles there are; at least one, whose block reports the number of segments."""
        return cutlass.max(Int32((a.count + self.tile - 1) // self.tile), 1)

    @cute.jit
    def load(self, shared: cutlass.Constexpr, a: Arguments, lane):
        """At the end all that take tiles in turn get a ``DONE`` each."""
        ring, everything = shared.tiles.ring, self.tiles(a)
        bring = lambda at, number: self.bring(shared, a, at, number, lane)  # noqa: E731
        ahead = lambda at: shared.ready.await_phase(at.stage, at.parity)  # noqa: E731  # what is left is to emit
        at, entry = take_tiles(ring, shared.tag, a.counters, everything, (0, 1), bring, lane, ahead)
        let_next_start()
        for done in cutlass.range(max(self.teams, self.look_aheads), unroll=1):
            if done > 0:
                ring.acquire_alone(at)
            if lane == 0:
                self.hand_over(shared, at, Int32(DONE), [])
            at = ring.next(at)
        if lane == 0:
            blocks, _, _ = cute.arch.grid_dim()
            entry.close(a.counters, Int32(0), everything + blocks)

    @cute.jit
    def bring(self, shared: cutlass.Constexpr, a: Arguments, at, number, lane):
        """Copy tile ``number`` into a stage."""
        span = self.span(a, number)
        copies = [
            as_copy(buffer.fill(at.stage, array, span, a.count, lane))
            for buffer, array in zip(shared.buffers, () if self.gather else (*a.heads, *a.x))
        ]
        cute.arch.sync_warp()  # what the lanes have copied comes before the arrival
        if lane == 0:
            self.hand_over(shared, at, number, [*copies, *self.more_copies(shared, a, at.stage, number)])

    def hand_over(self, shared, at, number, copies) -> None:
        """One lane: a stage's tile, and the copies that bring it."""
        shared.tiles.announce(at, number)
        shared.tiles.ring.load_alone(at, copies)

    def more_copies(self, shared, a: Arguments, stage, number) -> list:
        """The copies of a tile that a subclass adds."""
        return []

    @cute.jit
    def bring_strided(self, shared: cutlass.Constexpr, a: Arguments, warp):
        """A warp's share of each tile of strided arrays, which one loader announces."""
        sizes = tuple(buffer.dtype.size for buffer in self.buffers)
        at = shared.tiles.first()
        while at.number != DONE:
            span = self.span(a, at.number)
            tile = Tile(span.first, span.stop, a.count, Int64(0), self.spec.reverse)
            store = functools.partial(self.put, shared, a, at.stage, span)
            self.gather.fill((*a.heads, *a.x), sizes, store, tile, -1, warp, self.policy.gathers)
            shared.gathered[at.stage].arrive_once()
            at = shared.tiles.next(at)

    def put(self, shared, a: Arguments, stage, span: Span, k: int, place, word) -> None:
        """Store the element of array ``k`` at a place of the tile in a stage."""
        array = (*a.heads, *a.x)[k]
        put_at(type(word), shared.buffers[k].position(stage, array, span.first, a.count, place), word)

    @cute.jit
    def reduce(self, shared: cutlass.Constexpr, a: Arguments, warp):
        """A team's warp: the states of its chunks of each tile of the team, and what comes before each lane's run."""
        lane = cute.arch.lane_idx()
        at = shared.tiles.first(warp // self.warps)
        while at.number != DONE:
            if cutlass.const_expr(self.gather is not None):
                shared.gathered.await_phase(at.stage, at.parity)
            self.reduce_chunk(shared, a, at, warp % self.warps, lane)
            at = shared.tiles.next(at, self.teams)

    @cute.jit
    def reduce_chunk(self, shared: cutlass.Constexpr, a: Arguments, at, chunk, lane):
        """The state of a chunk; its segments packed, or what comes before each lane's run."""
        place, part = at.stage * self.warps + chunk, self.part(shared, a, at, chunk, lane)
        whole = self.runs.is_whole(part, lane)
        held, places = self.runs.hold(part, whole), shared.bits
        bits, before, total = self.runs.reduce(part, held, whole, lane)
        if lane == LANES - 1:
            store_partial(shared.totals, place, total)
        if cutlass.const_expr(self.spec.found):
            shared.reduced[at.stage].arrive_once()
            self.runs.pack(part._replace(bits=bits), held, before, self.targets(shared, a, at, chunk, 0), whole, lane)
            if lane == 0:
                places[place] = bits
            shared.packed[at.stage].arrive_once()
        else:
            places[place * LANES + lane] = bits
            put(shared.lanes, place * LANES + lane, before.state[1:])
            shared.reduced[at.stage].arrive_once()

    def targets(self, shared, a: Arguments, at, chunk, squad) -> tuple:
        """Where the keys and values of a chunk of the tile in hand are put in shared memory."""
        first = self.span(a, at.number).first
        homes = [
            (b, functools.partial(b.position, at.stage, x, first, a.count))
            for b, x in zip(shared.buffers, (*a.heads, *a.x))
        ]
        return self.room.targets(homes, shared.areas, at.stage if self.spec.found else squad, chunk * self.policy.chunk)

    def part(self, shared, a: Arguments, at, chunk, lane) -> Part:
        """A lane's run of a chunk of the tile in hand."""
        place = chunk * self.policy.chunk + lane * self.policy.run
        span = self.span(a, at.number)
        addresses = tuple(
            buffer.position(at.stage, array, span.first, a.count, place)
            for buffer, array in zip(shared.buffers, (*a.heads, *a.x))
        )
        position = span.first + place
        exists = Int32(cutlass.min(span.stop - position, Int64(self.policy.run)))
        return Part(addresses, position, exists, span.stop, a.count, self.bits(shared, at.stage, place))

    def span(self, a: Arguments, number) -> Span:
        """The positions of a tile."""
        first = Int64(number) * self.tile
        return Span(first, cutlass.min(first + self.tile, a.count))

    def bits(self, shared, stage, place):
        """Where segments begin from ``place`` of a tile on, where bits say so."""
        return Int32(0)

    def slots(self, a: Arguments, shared) -> Slots:
        """The tiles' states, in the order of ``sync.lookback``. The loader has stored the launch's tag."""
        return Slots(a.slots, Int64(slots_of(self.tiles(a))), shared.tag[0], self.states.types)

    @cute.jit
    def publish(self, shared: cutlass.Constexpr, a: Arguments, lane):
        at = shared.tiles.first()
        slots = self.slots(a, shared)
        while at.number != DONE:
            shared.reduced.await_phase(at.stage, at.parity)
            _, total = self.chunks(shared, at.stage, Int32(0), lane)
            cute.arch.sync_warp()
            self.leave_ready(a, at.number, lane)
            if lane == 0:
                slots.publish(place_of(at.number), total.state)
                shared.tiles.ring.empty[at.stage].arrive()  # it has read no byte that a copy brought: no fence
            at = shared.tiles.next(at)

    def leave_ready(self, a: Arguments, number, lane) -> None:
        """What a subclass prepares for the next launch when the heads of a tile have been read."""

    def chunks(self, shared, stage, chunk, lane):
        """``(prefix, aggregate)`` of a tile's chunks; the prefix is that of ``chunk``."""
        first = stage * self.warps
        return scan_partials(shared.totals, first, self.warps, chunk, lane, self.states.types, self.states.combine)

    @cute.jit
    def look_ahead(self, shared: cutlass.Constexpr, a: Arguments, first, lane):
        """A warp that looks ahead. Where results are filled, ``DONE`` comes with the state of all tiles."""
        progress, over = self.ahead.start(), Int32(0)
        at = shared.tiles.first(first)
        slots = self.slots(a, shared)
        while over == 0:
            tile = at.number
            if tile == DONE:
                over = Int32(1)
                tile = self.tiles(a) if self.spec.fill is not None else Int32(0)
            prefix, progress = self.ahead.before(slots, progress, tile, lane)
            if lane == 0:
                store_partial(shared.before, at.stage, prefix)
            shared.ready[at.stage].arrive_once()
            if over == 0:
                at = shared.tiles.next(at, self.look_aheads)

    @cute.jit
    def emit(self, shared: cutlass.Constexpr, a: Arguments, squad, warp):
        """A squad's warp: its chunk of each tile of the squad. Its release covers the reads of reduce warps, too."""
        lane = cute.arch.lane_idx()
        at = shared.tiles.first(squad)
        while at.number != DONE:
            self.emit_chunk(shared, a, at, squad, warp, lane)
            at = shared.tiles.next(at, self.squads)
        if cutlass.const_expr(self.spec.fill is not None):
            shared.ready.await_phase(at.stage, at.parity)
            total = Int64(load_partial(shared.before, at.stage, self.states.types).state[0])
            blocks, _, _ = cute.arch.grid_dim()
            worker = (cute.arch.block_idx()[0] * self.squads + squad) * self.warps + warp
            step = Int64(blocks * self.squads * self.warps) * LANES
            for out, value in zip((*a.keys, *a.out), a.fill):
                fill_result(out, value, total + Int64(worker) * LANES + lane, a.capacity, step)

    @cute.jit
    def emit_chunk(self, shared: cutlass.Constexpr, a: Arguments, at, squad, warp, lane):
        types, combine, place = self.states.types, self.states.combine, at.stage * self.warps + warp
        part, targets = self.part(shared, a, at, warp, lane), self.targets(shared, a, at, warp, squad)
        shared.reduced.await_phase(at.stage, at.parity)
        prefix, _ = self.chunks(shared, at.stage, warp, lane)
        held, whole = [], self.runs.is_whole(part, lane)
        if cutlass.const_expr(self.spec.found):
            shared.packed.await_phase(at.stage, at.parity)
        else:
            held = self.runs.hold(part, whole, self.runs.keys)
        shared.ready.await_phase(at.stage, at.parity)
        prefix = load_partial(shared.before, at.stage, types).then(prefix, combine)
        if cutlass.const_expr(self.spec.found):
            total = load_partial(shared.totals, place, types)
            self.runs.store_segments(a, prefix, total, shared.bits[place] & 1 != 0, targets, lane)
            first, last = part.position - lane * self.policy.run, cutlass.max(part.count - 1, Int64(0))
            if (last >= first) & (last < first + self.policy.chunk):
                self.runs.report(a, prefix.then(total, combine).state, lane)
        else:
            values = self.before_lane(shared, place, prefix, lane)
            part = part._replace(bits=shared.bits[place * LANES + lane])
            self.runs.emit_positions(part, a, held, values, targets, whole, lane)
        shared.tiles.ring.release(at)

    @cute.jit
    def before_lane(self, shared: cutlass.Constexpr, place, prefix: Maybe, lane):
        """The values before a lane's run; ``prefix`` is the state before its chunk, number ``place`` of all stages."""
        earlier = cute.arch.vote_ballot_sync(shared.bits[place * LANES + lane] != 0) & Int32(below(lane))
        values = prefix.state[1:]
        if lane > 0:
            mine = get(shared.lanes, place * LANES + lane, self.states.monoid.types)
            values = prepend((earlier == 0) & prefix.valid, values, mine, self.states.ordered)
        return values
