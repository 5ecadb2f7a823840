"""Scan of long rows: resident blocks, each a pipeline of warps with one job. Copies, arithmetic and waiting overlap.

    load        takes a tile number from an atomic when a stage is empty, not before: other blocks would wait longer
                for a tile that cannot be loaded yet. Copies the tile into a ring of ``stages`` in shared memory
    fold        reduces each chunk of a tile; teams of as many warps as a tile has chunks take tiles in turn
    publish     combines the chunks' aggregates and publishes the tile's
    look ahead  combines the published tiles of all blocks, in order: the prefix of each of this block's tiles; one
                warp, or two that take tiles in turn
    emit        ``squads`` squads, a tile each in turn: scans the chunks, puts their prefix in front, stores

    barrier          completed by                                      waited for by
    full[stage]      load: 1 arrival and the tile's bytes              fold, publish, look ahead, emit
    folded[stage]    one lane of each fold warp of a team              publish, emit
    ready[stage]     one lane of the look-ahead warp in turn           emit
    empty[stage]     one lane of each warp of a squad, and of publish  load

Only aggregates are published, never prefixes, and a warp that publishes never waits for a prefix: there is no chain of
round trips from tile to tile, and a block that is late delays no other for longer than a copy. Every block combines all
tiles itself, in groups by tile number, so the result depends on lengths alone, not on the number of blocks. Progress:
tile numbers come from an atomic; of the tiles not yet published the smallest has all its predecessors published, so the
ring of its block drains until it is reduced.

The method is the decoupled look-ahead of CUB's warp-specialised scan. Before a block waits for the launches before its
own, it asks the L2 for the tiles with its rank. Bytes: every element is read once and written once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64
from cutlass.memory import SmemAllocator

from ...block.reduce import load_partial, partial_array, partial_bytes, store_partial
from ...block.warps import scan_partials
from ...errors import ArgumentValueError, explain
from ...sync.barrier import Barriers
from ...sync.gather import Slots, enter, words
from ...sync.lookback import GROUP, place_of, read_group, reduce_group, slots_of
from ...sync.overlap import let_next_start
from ...sync.roles import Role, Roles, registers_at_launch
from ...sync.tiles import DONE, TileRing
from ...sync.wait import in_role
from ...warp import LANES, Maybe, zeros
from ..arrays import at_index, pointers_of, together
from ..tiled import ask_for_elements
from .base import Arguments, Scan, ScanKernel
from .policy import PipelinePolicy
from .ragged import RaggedScan
from .tile import VECTOR_BYTES, Span, WarpScan

# registers of a thread: with these no single number spills in any of the warps. Eight fold warps leave less to the
# others, and each needs less than one of four.
FOR_CONTROL, FOR_LOOK_AHEAD, FOR_FOLDERS = 72, 88, 72
OF_EIGHT = 64
# Of each input, what a block asks the L2 for before it waits (H200, in graphs: int8 (33554432,) 21.7 us, so 20.1 us;
# with twice as much 20.7 us).
ASKED_BYTES = 1 << 15


@dataclass(frozen=True)
class Shared:
    """Shared memory: the tiles (a buffer for each input) and their ring, the roles' barriers, each stage's partials
    and prefix, and what a subclass adds."""

    buffers: tuple
    tiles: TileRing
    folded: Barriers
    ready: Barriers
    totals: tuple
    prefixes: tuple
    more: tuple


class Control(IntEnum):
    """The warps of the role "control", each of which has one job."""

    LOAD = 0
    PUBLISH = 1
    LOOK_AHEAD = 2


class PipelineScan(ScanKernel):
    """The kernel: tiles of ``warps`` chunks of ``rows`` rows in a ring of ``stages``; ``folders`` warps fold,
    ``squads`` * ``warps`` emit.

    ``folders`` and ``warps`` are multiples of four. The emitting warps hold a tile in registers: they get what the
    others can spare.
    """

    asks = True

    def __init__(self, scan: Scan, policy: PipelinePolicy) -> None:
        teams = max(1, policy.reduce_warps // policy.warps_per_squad)
        if policy.reduce_warps % 4 or policy.warps_per_squad % 4 or policy.look_aheads not in (1, 2):
            came = (
                f"{policy.reduce_warps} reduce warps, {policy.warps_per_squad} a squad, {policy.look_aheads} that look"
            )
            raise ArgumentValueError(explain("policy", came, "multiples of four warps, one or two that look ahead"))
        if any(policy.stages % turns for turns in (teams, policy.scan_squads, policy.look_aheads)):
            # else a warp could wait for a parity that the phase two before has, too
            came = f"{policy.stages} stages for {teams}, {policy.scan_squads} and {policy.look_aheads} that take turns"
            raise ArgumentValueError(explain("policy", came, "a multiple of each"))
        self.folders, self.squads = policy.reduce_warps, policy.scan_squads
        self.warps, self.stages = policy.warps_per_squad, policy.stages
        self.teams, self.look_aheads = teams, policy.look_aheads  # of fold warps, and warps: they take tiles in turn
        self.tile, self.aligned = self.tile_of(scan, policy), policy.aligned
        self.ragged = RaggedScan(self.tile)
        whole = all(self.tile.bytes_of(dtype) == VECTOR_BYTES for dtype in scan.monoid.sources)
        self.vectors_held = scan.width == 1 and whole and policy.aligned
        # the ring holds a tile's whole units; the rest is read from global memory
        self.unit = self.unit_of()
        self.roles = self.split_registers(words(scan.types))
        self.sizes = tuple(dtype.size for dtype in scan.monoid.sources) if policy.aligned else ()
        smem = (
            policy.stages * (self.tile.tile * self.tile.unit * sum(self.sizes) + 36)
            + partial_bytes(scan.types, policy.stages * policy.warps_per_squad)
            + partial_bytes(scan.types, policy.stages)
            + self.more_bytes()
            + 128 * max(len(self.sizes), 1)
        )
        self.positions, self.slack = self.tile.tile, policy.boundary
        super().__init__(scan, self.roles.threads, smem, 1)
        self.asked = max(1, ASKED_BYTES // (self.tile.tile * self.tile.unit * min(d.size for d in scan.monoid.sources)))
        self.waits = scan.reads_at_once

    def tile_of(self, scan: Scan, policy: PipelinePolicy) -> WarpScan:
        """How warps scan chunks of a tile."""
        size = policy.vectors_per_thread, policy.warps_per_squad
        return WarpScan(scan, *size, policy.shift, boundary=policy.boundary, aligned=policy.aligned)

    def unit_of(self) -> int:
        """How many elements a unit has."""
        return self.tile.items if self.vectors_held else self.tile.chunk

    def more_shared(self) -> tuple:
        """What a subclass keeps in shared memory besides."""
        return ()

    def more_bytes(self) -> int:
        return 0

    def split_registers(self, state_words: int) -> Roles:
        """The roles of a block. The look-ahead holds two groups of states that are on their way."""
        many = self.folders > 4
        fold = OF_EIGHT if many else FOR_FOLDERS
        control = FOR_LOOK_AHEAD if state_words > 3 else OF_EIGHT if many else FOR_CONTROL
        emitters = self.squads * self.warps
        groups = 1 + (self.folders + emitters) // 4
        spare = registers_at_launch(groups * 4 * LANES) * groups - control - fold * (self.folders // 4)
        return Roles(
            Role("control", 4, control),
            Role("fold", self.folders, fold),
            Role("emit", emitters, min(spare // (emitters // 4) // 8 * 8, 232)),
        )

    @cute.jit
    def ask(self, a: Arguments):
        """Ask the L2 for the tiles with the ranks of this block: some block gets their numbers."""
        rank, _, _ = cute.arch.block_idx()
        blocks, _, _ = cute.arch.grid_dim()
        everything = Int32(a.rows) * a.tiles
        for k in cutlass.range_constexpr(self.asked):
            number = rank + k * blocks
            start = self.row_in(a, number)
            offset, place, count = self.copied(start, a.length, number % a.tiles)
            if number >= everything:
                count = Int32(0)
            for pointer, dtype in zip(pointers_of(start + (offset + place)), self.scan.monoid.sources):
                ask_for_elements(pointer, dtype.size, 0, count, self.threads)

    @cute.jit
    def body(self, a: Arguments):
        stages, types = self.stages, self.scan.types
        elements = stages * self.tile.tile * self.tile.unit
        sources = self.scan.monoid.sources if self.aligned else ()
        shared = Shared(
            tuple(SmemAllocator().allocate_array(d.cutlass, elements, byte_alignment=128) for d in sources),
            TileRing.make(stages, consumers=self.warps + 1),
            Barriers.make(stages, self.folders // self.teams, name="folded"),
            Barriers.make(stages, 1, name="ready"),
            partial_array(types, stages * self.warps),
            partial_array(types, stages),
            self.more_shared(),
        )
        cute.arch.sync_threads()
        self.roles.run(
            control=lambda warp: self.control(shared, a, warp),
            fold=lambda warp: self.fold(shared, a, warp),
            emit=lambda warp: self.emit(shared, a, warp // self.warps, warp % self.warps),
        )

    @cute.jit
    def control(self, shared: cutlass.Constexpr, a: Arguments, warp):
        lane = cute.arch.lane_idx()
        if warp == Control.LOAD:
            if lane == 0:
                in_role("load", self.load, shared, a)
        elif warp == Control.PUBLISH:
            in_role("publish", self.publish, shared, a, lane)
        elif warp < Control.LOOK_AHEAD + self.look_aheads:
            in_role("look ahead", self.look_ahead, shared, a, warp - Control.LOOK_AHEAD, lane)

    def row(self, a: Arguments, number):
        """Where the row of a tile begins in the outputs."""
        return self.row_places(a, Int64(number // a.tiles))[1]

    def row_in(self, a: Arguments, number):
        """The row of a tile in the inputs."""
        return at_index(a.x + self.row_places(a, Int64(number // a.tiles))[0], 0)

    @cute.jit
    def copied(self, start, length, tile):
        """``(offset, place, count)`` of what the ring holds of a tile: where the tile lies, and the ``count`` elements
        from ``place`` on in it. Inputs that are not aligned are read from global memory: the ring holds nothing."""
        offset, begin, end, _ = self.tile.span(start, length, Int64(tile) * self.tile.tile, self.tile.tile)
        begin = (begin + self.unit - 1) // self.unit * self.unit
        end = end // self.unit * self.unit
        place = self.tile.tile - end if self.tile.from_end else begin
        return offset, place * self.tile.unit, (end - begin) * self.tile.unit

    @cute.jit
    def load(self, shared: cutlass.Constexpr, a: Arguments):
        """One lane. At the end all that take tiles in turn get a ``DONE`` each."""
        tiles, ring = shared.tiles, shared.tiles.ring
        everything = Int32(a.rows) * a.tiles
        entry = enter(a.counters)
        tiles.word[0] = entry.tag
        done = Int32(0)
        at = ring.start_producer()
        ends = max(self.squads, self.teams, self.look_aheads)
        while done < ends:
            number = entry.arrived
            start = self.row_in(a, number)
            offset, place, count = self.copied(start, a.length, number % a.tiles)
            if number >= everything:
                number = Int32(DONE)
                count = Int32(0)
                done += 1
                let_next_start()
            tiles.announce(at, number)
            into = at.stage * self.tile.tile * self.tile.unit + place
            targets = tuple(buffer + into for buffer in shared.buffers)
            sources = pointers_of(start + offset + place)
            count = self.load_end(targets, sources, cutlass.max(count, 0), start, a.length)
            ring.load_alone(at, [(t, s, count * size) for t, s, size in zip(targets, sources, self.sizes)])
            at = ring.next(at)
            if done == 0:
                ring.acquire_alone(at)
                entry = enter(a.counters)
            elif done < ends:
                ring.acquire_alone(at)
        blocks, _, _ = cute.arch.grid_dim()
        entry.close(a.counters, Int32(0), everything + blocks)

    def load_end(self, targets: tuple, sources: tuple, count, start, length):
        """Load what copies cannot load of the ``count`` elements of a tile of the row at ``start``: how many they do
        load."""
        return count

    @cute.jit
    def fold(self, shared: cutlass.Constexpr, a: Arguments, folder):
        """A team's warp: reduce its chunks of each tile of the team."""
        lane = cute.arch.lane_idx()
        width = self.folders // self.teams
        at = shared.tiles.first(folder // width)
        while at.number != DONE:
            for chunk in cutlass.range(folder % width, self.warps, width, unroll=1):
                self.fold_chunk(shared, a, at, chunk, lane)
            shared.folded[at.stage].arrive_once()
            at = shared.tiles.next(at, self.teams)

    @cute.jit
    def fold_chunk(self, shared: cutlass.Constexpr, a: Arguments, at, chunk, lane):
        start = self.row_in(a, at.number)
        span = self.span(start, a, at.number, chunk)
        partial = Maybe.of(zeros(self.scan.types))
        held = self.chunk_in(shared, at.stage, chunk, start + span.offset)
        if self.tile.is_full(span):
            elements = self.tile.registers().elements
            self.tile.load(held, lane, elements)
            partial = Maybe.of(self.tile.reduce_only(elements, lane))
        else:
            vectors = held if self.vectors_held else None
            partial = self.ragged.reduce(start + span.offset, span, lane, vectors)
        if lane == 0:
            store_partial(shared.totals, at.stage * self.warps + chunk, partial)

    def span(self, start, a: Arguments, number, chunk) -> Span:
        """The ``Span`` of a chunk of a tile, in the row at ``start``."""
        position = Int64(number % a.tiles) * self.tile.tile + chunk * self.tile.chunk
        return self.tile.span(start, a.length, position, self.tile.chunk)

    def chunk_in(self, shared, stage, chunk, source):
        """A chunk of the tile in a stage; ``source`` is where it lies in the inputs."""
        if not self.aligned:
            return source
        place = (stage * self.warps + self.scan.flip_in(chunk, self.warps)) * self.tile.chunk * self.tile.unit
        held = tuple(buffer + place for buffer in shared.buffers)
        return at_index(together(held, self.scan.monoid.takes_index), source)

    def slots(self, a: Arguments, shared) -> Slots:
        """The tiles' aggregates, in the order of ``sync.lookback``. The loader has stored the launch's tag."""
        return Slots(a.slots, a.rows * slots_of(a.tiles), shared.tiles.word[0], self.scan.types)

    @cute.jit
    def publish(self, shared: cutlass.Constexpr, a: Arguments, lane):
        types = self.scan.types
        at = shared.tiles.first()
        slots = self.slots(a, shared)
        while at.number != DONE:
            shared.folded.await_phase(at.stage, at.parity)
            _, total = scan_partials(
                shared.totals, at.stage * self.warps, self.warps, Int32(0), lane, types, self.scan.combine
            )
            cute.arch.sync_warp()
            if lane == 0:
                slots.publish(
                    Int64(at.number // a.tiles) * slots_of(a.tiles) + place_of(at.number % a.tiles), total.state
                )
                shared.tiles.ring.empty[at.stage].arrive()  # it has read no byte that a copy brought: no fence
            at = shared.tiles.next(at)

    @cute.jit
    def look_ahead(self, shared: cutlass.Constexpr, a: Arguments, first, lane):
        """The state of all whole groups of tiles so far is carried along, that of the rest is made for each tile."""
        combine = self.scan.combine
        carry = self.scan.carry_in(a, Int32(0))
        row, group = Int32(0), Int32(0)
        at = shared.tiles.first(first)
        while at.number != DONE:
            slots = self.slots(a, shared)
            if at.number // a.tiles != row:
                row = at.number // a.tiles
                group = Int32(0)
                carry = self.scan.carry_in(a, row)
            tile = at.number % a.tiles
            base = Int64(row) * slots_of(a.tiles)
            reads = read_group(slots, base + group * GROUP, lane)
            while group < tile // GROUP:
                following = read_group(slots, base + (group + 1) * GROUP, lane)
                total = reduce_group(slots, base + group * GROUP, reads, Int32(GROUP), combine, lane)
                carry = carry.then(Maybe.of(total), combine)
                reads = following
                group += 1
            prefix = carry
            if tile % GROUP > 0:
                total = reduce_group(slots, base + group * GROUP, reads, tile % GROUP, combine, lane)
                prefix = carry.then(Maybe.of(total), combine)
            if lane == 0:
                store_partial(shared.prefixes, at.stage, prefix)
            shared.ready[at.stage].arrive_once()
            at = shared.tiles.next(at, self.look_aheads)

    @cute.jit
    def emit(self, shared: cutlass.Constexpr, a: Arguments, squad, warp):
        """A squad's warp: its chunk of each tile of the squad. Its release also covers the reads of the fold warps."""
        lane = cute.arch.lane_idx()
        at = shared.tiles.first(squad)
        while at.number != DONE:
            self.emit_tile(shared, a, at, warp, lane)
            at = shared.tiles.next(at, self.squads)

    @cute.jit
    def emit_tile(self, shared: cutlass.Constexpr, a: Arguments, at, warp, lane):
        types, ring = self.scan.types, shared.tiles.ring
        chunk = self.tile.registers()
        place = self.row(a, at.number)
        start = self.row_in(a, at.number)
        span = self.span(start, a, at.number, warp)
        place += span.target
        start += span.offset
        held = self.chunk_in(shared, at.stage, warp, start)
        full = self.tile.is_full(span)
        if full:
            self.tile.load(held, lane, chunk.elements)
            self.tile.reduce(chunk, lane)
        shared.folded.await_phase(at.stage, at.parity)
        prefix, _ = scan_partials(
            shared.totals, at.stage * self.warps, self.warps, warp, lane, types, self.scan.combine
        )
        shared.ready.await_phase(at.stage, at.parity)
        carry = load_partial(shared.prefixes, at.stage, types).then(prefix, self.scan.combine)
        if full:
            ring.release(at)
            self.tile.emit(chunk, carry, a.out + place, lane)
        else:
            vectors = held if self.vectors_held else None
            self.ragged.emit(start, a.out + place, span, carry, lane, vectors)
            ring.release(at)
