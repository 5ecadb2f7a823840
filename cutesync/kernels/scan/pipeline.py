"""Scan of long rows: resident blocks, each a pipeline of warps with one job, so that copies, arithmetic and waiting overlap.

    load        takes tile numbers from an atomic and copies tiles into a ring of ``stages`` in shared memory (bulk copies)
    fold        reduces each chunk of a tile
    publish     combines the chunks' aggregates and publishes the tile's
    look ahead  combines the published tiles of all blocks, in order: the prefix of each of this block's tiles
    emit        ``squads`` squads, a tile each in turn: scans the chunks, puts their prefix in front, stores

    barrier          completed by                                      waited for by
    full[stage]      load: 1 arrival and the tile's bytes              fold, publish, look ahead, emit
    folded[stage]    one lane of each fold warp                        publish, emit
    ready[stage]     one lane of look ahead                            emit
    empty[stage]     one lane of each warp of a squad, and of publish  load

Only aggregates are published, never prefixes, and a warp that publishes never waits for a prefix: there is no chain of round trips
from tile to tile, and a block that is late delays no other for longer than a copy. Every block combines all tiles itself, in
groups by tile number, so the result depends on lengths alone, not on the number of blocks. Progress: tile numbers come from an
atomic; of the tiles not yet published the smallest has all its predecessors published, so the ring of its block drains until it
is reduced.

The method is the decoupled look-ahead of CUB's warp-specialised scan. Bytes: every element is read once and written once.
"""

from __future__ import annotations

from enum import IntEnum

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64
from cutlass.experimental import primitives
from cutlass.memory import SmemAllocator

from ...block.reduce import load_partial, partial_array, partial_bytes, store_partial
from ...block.warps import scan_partials
from ...errors import ArgumentValueError, explain
from ...sync.gather import Slots, enter, words
from ...sync.lookback import GROUP, place_of, read_group, reduce_group, slots_of
from ...sync.wait import await_phase, in_role
from ...warp import LANES, Maybe, zeros
from .base import Arguments, Scan, ScanKernel
from .policy import LINE_BYTES
from .ragged import RaggedScan
from .tile import VECTOR_BYTES, Span, WarpScan

DONE = -1  # the tile number that says that there are no more
REGISTERS = 1 << 16  # of a multiprocessor
FOR_CONTROL, FOR_LOOK_AHEAD, FOR_FOLDERS = (
    72,
    88,
    72,
)  # registers of a thread: with these nothing spills in any of the warps


class Shared:
    """What the warps of a block share: the ring, its barriers, and for each stage its tile's number, chunk states and prefix."""

    def __init__(self, scan: Scan, stages: int, warps: int, tile: int) -> None:
        allocator = SmemAllocator()
        self.ring = allocator.allocate_array(scan.monoid.source.cutlass, stages * tile * scan.width, byte_alignment=128)
        self.full, self.folded, self.ready, self.empty = (allocator.allocate_array(Int64, stages) for _ in range(4))
        self.numbers, self.tags = (
            cute.make_tensor(allocator.allocate_array(Int32, stages), cute.make_layout((stages,))) for _ in range(2)
        )
        self.totals = partial_array(scan.types, stages * warps)
        self.prefixes = partial_array(scan.types, stages)


class Warps(IntEnum):
    """The warps before those that emit. Registers move between groups of four warps, so each kind begins at a multiple of four."""

    LOAD = 0
    PUBLISH = 1
    LOOK_AHEAD = 2
    FOLD = 4  # the first of them


class PipelineScan(ScanKernel):
    """The kernel: tiles of ``warps`` chunks of ``rows`` rows in a ring of ``stages``; ``folders`` warps fold, ``squads`` * ``warps`` emit.

    ``folders`` and ``warps`` are multiples of four. The emitting warps hold a tile in registers: they get what the others can spare.
    """

    def __init__(
        self, scan: Scan, folders: int, squads: int, warps: int, rows: int, stages: int, shift: int | None
    ) -> None:
        if folders % 4 or warps % 4 or not squads <= stages:
            raise ArgumentValueError(
                explain(
                    "config",
                    f"{folders} folders, {squads} squads of {warps} warps, {stages} stages",
                    "multiples of four warps, a stage a squad",
                )
            )
        self.folders, self.squads, self.warps, self.stages = folders, squads, warps, stages
        self.tile = WarpScan(scan, rows, warps, shift, boundary=LINE_BYTES)
        self.ragged = RaggedScan(self.tile)
        self.vectors_held = scan.width == 1 and self.tile.in_bytes == VECTOR_BYTES
        self.unit = (
            self.tile.items if self.vectors_held else self.tile.chunk
        )  # the ring holds a tile's whole units; the rest is read from global memory
        self.first_emitter = Warps.FOLD + folders
        groups = (1 + folders // 4, squads * warps // 4)
        self.at_launch = REGISTERS // (128 * sum(groups)) // 8 * 8
        self.for_control = (
            FOR_CONTROL if words(scan.types) <= 3 else FOR_LOOK_AHEAD
        )  # it holds two groups of states that are on their way
        self.for_emitters = min(
            (self.at_launch * sum(groups) - self.for_control - FOR_FOLDERS * (groups[0] - 1)) // groups[1] // 8 * 8, 232
        )
        smem = (
            stages * (self.tile.tile * scan.width * scan.monoid.source.size + 40)
            + partial_bytes(scan.types, stages * warps)
            + partial_bytes(scan.types, stages)
            + 128
        )
        super().__init__(scan, (self.first_emitter + squads * warps) * LANES, smem, 1)

    @cute.jit
    def body(self, a: Arguments):
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(thread // LANES)
        lane = thread % LANES
        shared = Shared(self.scan, self.stages, self.warps, self.tile.tile)
        if thread == 0:
            for s in cutlass.range_constexpr(self.stages):
                cute.arch.mbarrier_init(shared.full + s, 1)
                cute.arch.mbarrier_init(shared.folded + s, self.folders)
                cute.arch.mbarrier_init(shared.ready + s, 1)
                cute.arch.mbarrier_init(shared.empty + s, self.warps + 1)
            cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()
        if warp < Warps.FOLD:
            self.take_registers(self.for_control)
            if warp == Warps.LOAD:
                if lane == 0:
                    in_role("load", self.load, shared, a)
            elif warp == Warps.PUBLISH:
                in_role("publish", self.publish, shared, a, lane)
            elif warp == Warps.LOOK_AHEAD:
                in_role("look ahead", self.look_ahead, shared, a, lane)
        elif warp < self.first_emitter:
            self.take_registers(FOR_FOLDERS)
            in_role("fold", self.fold, shared, a, warp - Warps.FOLD, lane)
        else:
            self.take_registers(self.for_emitters)
            squad, place = (warp - self.first_emitter) // self.warps, (warp - self.first_emitter) % self.warps
            in_role("emit", self.emit, shared, a, squad, place, lane)

    def take_registers(self, count: int) -> None:
        """All four warps of a group call."""
        if count > self.at_launch:
            cute.arch.setmaxregister_increase(count)
        elif count < self.at_launch:
            cute.arch.setmaxregister_decrease(count)

    @cute.jit
    def next(self, stage, phase, step: cutlass.Constexpr = 1):
        """The stage ``step`` <= ``stages`` further on, and the parity of its barriers' phase."""
        stage += step
        if stage >= self.stages:
            stage -= self.stages
            phase ^= 1
        return stage, phase

    def row(self, a: Arguments, number):
        """Where the row of a tile begins."""
        return Int64(number // a.tiles) * a.length * a.inner

    @cute.jit
    def copied(self, start, length, tile):
        """``(offset, place, count)`` of what the ring holds of a tile: where the tile lies, and the ``count`` elements from
        ``place`` on in it."""
        offset, begin, end = self.tile.span(start, length, Int64(tile) * self.tile.tile, self.tile.tile)
        begin = (begin + self.unit - 1) // self.unit * self.unit
        end = end // self.unit * self.unit
        place = self.tile.tile - end if self.scan.reverse else begin
        return offset, place * self.scan.width, (end - begin) * self.scan.width

    @cute.jit
    def load(self, shared: cutlass.Constexpr, a: Arguments):
        """One lane. At the end every squad gets a ``DONE``."""
        everything = Int32(a.rows) * a.tiles
        entry = enter(a.counters)
        done = Int32(0)
        stage, phase = Int32(0), Int32(1)  # nobody has to empty the ring the first time round
        while done < self.squads:
            number = entry.arrived
            tag = entry.tag
            if number < everything:
                entry = enter(a.counters)  # asked for early: the answer takes as long as a copy
            start = a.x + self.row(a, number)
            offset, place, count = self.copied(start, a.length, number % a.tiles)
            await_phase(shared.empty, stage, phase, "empty")
            if number >= everything:
                number = Int32(DONE)
                done += 1
            self.announce(shared, stage, number, tag)
            if (count > 0) & (number != DONE):
                size = count * self.scan.monoid.source.size
                cute.arch.mbarrier_arrive_and_expect_tx(shared.full + stage, size)
                into = shared.ring + (stage * self.tile.tile * self.scan.width + place)
                primitives.cp_async_bulk_shared_cluster_global(into, start + offset + place, shared.full + stage, size)
            else:
                cute.arch.mbarrier_arrive(shared.full + stage)
            stage, phase = self.next(stage, phase)
        blocks, _, _ = cute.arch.grid_dim()
        entry.close(a.counters, Int32(0), everything + blocks)

    def announce(self, shared, stage, number, tag) -> None:
        """Say which tile a stage will hold."""
        shared.numbers[stage] = number
        shared.tags[stage] = tag

    @cute.jit
    def fold(self, shared: cutlass.Constexpr, a: Arguments, folder, lane):
        """Reduce chunks ``folder``, ``folder + folders``, ... of every tile."""
        stage, phase = Int32(0), Int32(0)
        await_phase(shared.full, stage, phase, "full")
        number = shared.numbers[stage]
        while number != DONE:
            start = a.x + self.row(a, number)
            for chunk in cutlass.range(folder, self.warps, self.folders, unroll=1):
                span = self.span(start, a, number, chunk)
                partial = Maybe.of(zeros(self.scan.types))
                held = self.chunk_in(shared, stage, chunk)
                if span.is_full(self.tile.chunk):
                    elements = self.tile.registers().elements
                    self.tile.load(held, lane, elements)
                    partial = Maybe.of(self.tile.reduce_only(elements, lane))
                else:
                    vectors = held if self.vectors_held else None
                    partial = self.ragged.reduce(start + span.offset, span, lane, vectors)
                if lane == 0:
                    store_partial(shared.totals, stage * self.warps + chunk, partial)
            cute.arch.sync_warp()
            if lane == 0:
                cute.arch.mbarrier_arrive(shared.folded + stage)
            stage, phase = self.next(stage, phase)
            await_phase(shared.full, stage, phase, "full")
            number = shared.numbers[stage]

    def span(self, start, a: Arguments, number, chunk) -> Span:
        """The ``Span`` of a chunk of a tile, in the row at ``start``."""
        position = Int64(number % a.tiles) * self.tile.tile + chunk * self.tile.chunk
        return self.tile.span(start, a.length, position, self.tile.chunk)

    def chunk_in(self, shared, stage, chunk):
        """A chunk of the tile in a stage."""
        return (
            shared.ring + (stage * self.warps + self.scan.flip(chunk, self.warps)) * self.tile.chunk * self.scan.width
        )

    @cute.jit
    def release(self, shared: cutlass.Constexpr, stage, lane):
        """The warp has read what it needs of a stage, after the fold warps: the fence covers their reads, too."""
        cute.arch.fence_proxy("async.shared", space="cta")  # PTX: generic reads before the next copy into it
        cute.arch.sync_warp()
        if lane == 0:
            cute.arch.mbarrier_arrive(shared.empty + stage)

    def slots(self, a: Arguments, tag) -> Slots:
        """The tiles' aggregates, in the order of ``sync.lookback``."""
        return Slots(a.slots, a.rows * slots_of(a.tiles), tag, self.scan.types)

    @cute.jit
    def publish(self, shared: cutlass.Constexpr, a: Arguments, lane):
        types = self.scan.types
        stage, phase = Int32(0), Int32(0)
        await_phase(shared.full, stage, phase, "full")
        number = shared.numbers[stage]
        while number != DONE:
            await_phase(shared.folded, stage, phase, "folded")
            _, total = scan_partials(
                shared.totals, stage * self.warps, self.warps, Int32(0), lane, types, self.scan.combine
            )
            tag = shared.tags[stage]
            cute.arch.sync_warp()
            if lane == 0:
                place = Int64(number // a.tiles) * slots_of(a.tiles) + place_of(number % a.tiles)
                self.slots(a, tag).publish(place, total.state)
                cute.arch.mbarrier_arrive(shared.empty + stage)
            stage, phase = self.next(stage, phase)
            await_phase(shared.full, stage, phase, "full")
            number = shared.numbers[stage]

    @cute.jit
    def look_ahead(self, shared: cutlass.Constexpr, a: Arguments, lane):
        """The state of all whole groups of tiles so far is carried along, that of the rest is made for each tile."""
        combine = self.scan.combine
        start = self.scan.carry_in(a)
        carry = start
        row, group = Int32(0), Int32(0)
        stage, phase = Int32(0), Int32(0)
        await_phase(shared.full, stage, phase, "full")
        number = shared.numbers[stage]
        while number != DONE:
            slots = self.slots(a, shared.tags[stage])
            if number // a.tiles != row:
                row = number // a.tiles
                group = Int32(0)
                carry = start
            tile = number % a.tiles
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
            cute.arch.sync_warp()
            if lane == 0:
                store_partial(shared.prefixes, stage, prefix)
                cute.arch.mbarrier_arrive(shared.ready + stage)
            stage, phase = self.next(stage, phase)
            await_phase(shared.full, stage, phase, "full")
            number = shared.numbers[stage]

    @cute.jit
    def emit(self, shared: cutlass.Constexpr, a: Arguments, squad, warp, lane):
        """A squad's warp: its chunk of each tile of the squad."""
        types = self.scan.types
        stage, phase = squad, Int32(0)
        await_phase(shared.full, stage, phase, "full")
        number = shared.numbers[stage]
        while number != DONE:
            chunk = self.tile.registers()
            at = self.row(a, number)
            span = self.span(a.x + at, a, number, warp)
            at += span.offset
            held = self.chunk_in(shared, stage, warp)
            full = span.is_full(self.tile.chunk)
            if full:
                self.tile.load(held, lane, chunk.elements)
                self.tile.reduce(chunk, lane)
            await_phase(shared.folded, stage, phase, "folded")
            prefix, _ = scan_partials(
                shared.totals, stage * self.warps, self.warps, warp, lane, types, self.scan.combine
            )
            await_phase(shared.ready, stage, phase, "ready")
            carry = load_partial(shared.prefixes, stage, types).then(prefix, self.scan.combine)
            if full:
                self.release(shared, stage, lane)
                self.tile.emit(chunk, carry, a.out + at, lane)
            else:
                vectors = held if self.vectors_held else None
                self.ragged.emit(a.x + at, a.out + at, span, carry, lane, vectors)
                self.release(shared, stage, lane)
            stage, phase = self.next(stage, phase, self.squads)
            await_phase(shared.full, stage, phase, "full")
            number = shared.numbers[stage]
