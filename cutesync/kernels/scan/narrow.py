"""Scan down few columns of many rows (narrow arrays): resident blocks stream tiles of whole rows through shared memory.

    transfer    (one thread) copies tiles into a ring of ``stages`` in shared memory, and results out of it (bulk copies)
    work        reduces the tile that comes next and publishes its columns' aggregates; looks back for the tile in hand and
                scans it in place

A worker has a column of one of the tile's ``runs`` of rows; the aggregates of the runs are exchanged through shared memory. So
neighbouring threads read neighbouring elements whatever the number of columns, and memory is read and written in whole lines,
each element once.

    barrier           completed by                                 waited for by
    full[stage]       transfer: 1 arrival and the tile's bytes     work
    scanned[stage]    one lane of each warp of workers             transfer

Look-back: the prefix of a tile is that of its group of tiles, which the block with the last tile of the group before publishes,
followed by the tiles before it in its group, which every block combines itself. Which tile is combined with which depends on
tile numbers alone. A tile is reduced and published before the look-back of the tile before it in its block, so what a look-back
asks for is mostly there. Progress: tile numbers come from an atomic; the block that has the smallest tile that is not yet
published only looks back for smaller tiles before it publishes, and all of those are published.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64
from cutlass.experimental import primitives
from cutlass.memory import SmemAllocator

from ...block.reduce import get, load_partial, partial_array, partial_bytes, store_partial
from ...block.split import share
from ...monoid import tree
from ...sync.gather import Slots, enter
from ...sync.named_barrier import NamedBarrier
from ...sync.wait import await_phase, in_role
from ...warp import LANES, Maybe, combine_valid, scan_states, shift_up, zeros
from .base import Arguments, Scan, ScanKernel

DONE = -1  # the tile number that says that there are no more
UNROLL = 8  # elements of a run that are read at once


class Barriers(IntEnum):
    WORKERS = 1


class Tile(NamedTuple):
    """A tile in shared memory: the stage that holds it, its number, the launch's tag, and its turn, 0 and 1 alternately."""

    stage: Any
    number: Any
    tag: Any
    turn: Any


class Shared:
    """Shared memory: the ring, its barriers, and the tile's number and tag of each stage.

    For each turn: the prefix of each run in the tile (``before``), and the tile's aggregates (``totals``). Of the tile in
    hand: what a look-back finds (``found``), and the tile's prefixes."""

    def __init__(self, scan: Scan, stages: int, tile: int, states: int, inner: int) -> None:
        allocator, types = SmemAllocator(), scan.types
        self.ring = allocator.allocate_array(scan.monoid.source.cutlass, stages * tile, byte_alignment=128)
        self.full, self.scanned = (allocator.allocate_array(Int64, stages) for _ in range(2))
        self.notices = cute.make_tensor(allocator.allocate_array(Int32, 2 * stages), cute.make_layout((2 * stages,)))
        self.before, self.found = partial_array(types, 2 * states), partial_array(types, states)
        self.totals, self.prefixes = partial_array(types, 2 * inner), partial_array(types, inner)

    @staticmethod
    def bytes(scan: Scan, stages: int, tile: int, states: int, inner: int) -> int:
        partials = sum(partial_bytes(scan.types, n) for n in (2 * states, states, 2 * inner, inner))
        return stages * (tile * scan.monoid.source.size + 24) + partials + 64


class NarrowScan(ScanKernel):
    """The kernel: ``runs`` (a power of two, at most 32) of ``height`` rows of ``inner`` columns are a tile, ``group`` tiles a group.

    Elements and results are of one size; every outer slice begins on a boundary of 16 bytes, and so does every tile."""

    def __init__(self, scan: Scan, inner: int, runs: int, height: int, stages: int, group: int) -> None:
        self.inner, self.runs, self.height, self.stages, self.group = inner, runs, height, stages, group
        self.tile, self.states = runs * height, runs * inner  # rows of a tile, and states in it
        self.workers = -(-self.states // LANES) * LANES
        self.size = scan.monoid.source.size
        super().__init__(
            scan, LANES + self.workers, Shared.bytes(scan, stages, self.tile * inner, self.states, inner), 1
        )

    @cute.jit
    def body(self, a: Arguments):
        thread, _, _ = cute.arch.thread_idx()
        shared = Shared(self.scan, self.stages, self.tile * self.inner, self.states, self.inner)
        if thread == 0:
            for s in cutlass.range_constexpr(self.stages):
                cute.arch.mbarrier_init(shared.full + s, 1)
                cute.arch.mbarrier_init(shared.scanned + s, self.workers // LANES)
                self.announce(shared, s, Int32(DONE), Int32(0))
            cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()
        if thread < LANES:
            if thread == 0:
                in_role("transfer", self.transfer, shared, a)
        else:
            in_role("work", self.work, shared, a, thread - LANES)

    @cute.jit
    def next(self, stage, phase):
        """The next stage, and the parity of its barriers' phase."""
        stage += 1
        if stage == self.stages:
            stage = Int32(0)
            phase ^= 1
        return stage, phase

    def place(self, number, a: Arguments):
        """``(place, count)``: where a tile's elements begin in memory, and how many rows it has. Tiles are cut in memory order."""
        tile = Int64(self.scan.flip(number % a.tiles, a.tiles))
        count = Int32(cutlass.min(a.length - tile * self.tile, Int64(self.tile)))
        return (Int64(number // a.tiles) * a.length + tile * self.tile) * self.inner, count

    @cute.jit
    def transfer(self, shared: cutlass.Constexpr, a: Arguments):
        """One thread. Each visit to a stage stores the tile it held and loads another; after the last tile comes one ``DONE``."""
        everything = Int32(a.rows) * a.tiles
        entry = enter(a.counters)
        stage, phase = Int32(0), Int32(1)  # nothing has to be scanned the first time round
        idle = Int32(0)  # visits since there are no more tiles
        while idle < self.stages:
            number, tag = entry.arrived, entry.tag
            if number < everything:
                entry = enter(a.counters)  # asked for early: the answer takes as long as a copy
            held = shared.ring + stage * (self.tile * self.inner)
            await_phase(shared.scanned, stage, phase, "scanned")
            before = shared.notices[2 * stage]
            if before != DONE:
                self.store(held, a, before)
            if number < everything:
                self.announce(shared, stage, number, tag)
                self.load(held, a, number, shared.full + stage)
            else:
                if idle == 0:
                    self.announce(shared, stage, Int32(DONE), tag)
                    cute.arch.mbarrier_arrive(shared.full + stage)
                idle += 1
            stage, phase = self.next(stage, phase)
        blocks, _, _ = cute.arch.grid_dim()
        entry.close(a.counters, Int32(0), everything + blocks)

    def announce(self, shared, stage, number, tag) -> None:
        """Say which tile a stage will hold."""
        shared.notices[2 * stage] = number
        shared.notices[2 * stage + 1] = tag

    @cute.jit
    def load(self, held, a: Arguments, number, full):
        place, count = self.place(number, a)
        elements = count * self.inner
        whole = elements // (16 // self.size) * (16 // self.size)
        self.copy(held, a.x + place, whole, elements, self.scan.monoid.source.cutlass)
        cute.arch.mbarrier_arrive_and_expect_tx(full, whole * self.size)
        if whole > 0:
            primitives.cp_async_bulk_shared_cluster_global(held, a.x + place, full, whole * self.size)

    @cute.jit
    def store(self, held, a: Arguments, number):
        place, count = self.place(number, a)
        elements = count * self.inner
        whole = elements // (16 // self.size) * (16 // self.size)
        results = cute.make_ptr(self.scan.monoid.result.cutlass, held.toint(), cute.AddressSpace.smem, assumed_align=16)
        if whole > 0:
            primitives.cp_async_bulk_global_shared_cta(a.out + place, results, whole * self.size)
            cute.arch.cp_async_bulk_commit_group()
        if whole < elements:
            self.copy(a.out + place, results, whole, elements, self.scan.monoid.result.cutlass)
            cute.arch.fence_proxy("async.shared", space="cta")  # PTX: generic reads before the next copy into it
        cute.arch.cp_async_bulk_wait_group(0, read=True)

    @cute.jit
    def copy(self, target, source, begin, end, kind: cutlass.Constexpr):
        """The elements at the end of an outer slice that are fewer than 16 bytes."""
        for i in cutlass.range(begin, end, unroll=1):
            element(target + i)[0] = kind(element(source + i)[0])

    @cute.jit
    def work(self, shared: cutlass.Constexpr, a: Arguments, worker):
        stage, phase = Int32(0), Int32(0)
        await_phase(shared.full, stage, phase, "full")
        tile = self.tile_in(shared, stage, Int32(0))
        if tile.number != DONE:
            self.reduce(shared, a, tile, worker)
        while tile.number != DONE:
            coming, phase = self.next(tile.stage, phase)
            await_phase(shared.full, coming, phase, "full")
            following = self.tile_in(shared, coming, tile.turn ^ 1)
            if following.number != DONE:
                self.reduce(shared, a, following, worker)
            self.look_back(shared, a, tile, worker)
            self.scan_run(shared, a, tile, worker)
            cute.arch.fence_proxy("async.shared", space="cta")  # PTX: generic accesses before those of the async proxy
            cute.arch.sync_warp()
            if worker % LANES == 0:
                cute.arch.mbarrier_arrive(shared.scanned + tile.stage)
            tile = following

    def tile_in(self, shared, stage, turn) -> Tile:
        return Tile(stage, shared.notices[2 * stage], shared.notices[2 * stage + 1], turn)

    def span(self, number, a: Arguments, worker):
        """``(first, stop, count)``: a worker's rows among the ``count`` of a tile, in scan order. Threads too many have none."""
        _, count = self.place(number, a)
        first = worker // self.inner * self.height
        return first, cutlass.min(first + self.height, count), count

    def at(self, shared, stage, position, count, worker):
        """A worker's element at a position of a tile: where it lies in shared memory."""
        return shared.ring + ((stage * self.tile + self.scan.flip(position, count)) * self.inner + worker % self.inner)

    def slots(self, number, a: Arguments, tag):
        """``(slots, place)``: a row's slots, and that of a tile's first column. A row's slots are those of its tiles, then those
        of the ends of its groups."""
        each = Int64(a.tiles + (a.tiles + self.group - 1) // self.group)
        place = (Int64(number // a.tiles) * each + number % a.tiles) * self.inner
        return Slots(a.slots, a.rows * each * self.inner, tag, self.scan.types), place

    @cute.jit
    def reduce(self, shared: cutlass.Constexpr, a: Arguments, tile: Tile, worker):
        """Reduce a tile: store the prefix of each run, and publish the aggregates of the columns."""
        first, stop, count = self.span(tile.number, a, worker)
        partial = Maybe(zeros(self.scan.types), first < stop)
        state = partial.state
        if partial.valid:
            state = self.scan.lift(element(self.at(shared, tile.stage, first, count, worker)), 0)
            first += 1
        while first + UNROLL <= stop:
            values = [element(self.at(shared, tile.stage, first + u, count, worker))[0] for u in range(UNROLL)]
            state = self.scan.combine(state, tree([self.scan.lift((value,), 0) for value in values], self.scan.combine))
            first += UNROLL
        while first < stop:
            value = self.scan.lift(element(self.at(shared, tile.stage, first, count, worker)), 0)
            state = self.scan.combine(state, value)
            first += 1
        if worker < self.states:
            store_partial(shared.before, tile.turn * self.states + worker, Maybe(state, partial.valid))
        NamedBarrier(Barriers.WORKERS, self.workers).sync()
        column, last, total = self.scan_runs(shared.before, tile.turn * self.states, worker)
        if last:
            store_partial(shared.totals, tile.turn * self.inner + column, Maybe.of(total.state))
            slots, place = self.slots(tile.number, a, tile.tag)
            slots.publish(place + column, total.state)

    @cute.jit
    def scan_runs(self, partials: cutlass.Constexpr, base, worker):
        """Replace each run's partial by its prefix. ``(column, last, aggregate)``: whether this worker has a column's aggregate,
        and which column."""
        column, group = worker // self.runs, worker % self.runs
        place = base + group * self.inner + column
        state = (*zeros(self.scan.types), Int32(0))
        if worker < self.states:
            state = get(partials, place, (*self.scan.types, Int32))
        inclusive = scan_states(state, lambda a, b: combine_valid(a, b, self.scan.combine), worker % LANES, self.runs)
        before = Maybe.unpack(shift_up(inclusive))
        if worker < self.states:
            store_partial(partials, place, Maybe(before.state, (group > 0) & before.valid))
        return column, (group == self.runs - 1) & (worker < self.states), Maybe.unpack(inclusive)

    @cute.jit
    def look_back(self, shared: cutlass.Constexpr, a: Arguments, tile: Tile, worker):
        """Store the prefixes of a tile, those of its columns."""
        types, combine = self.scan.types, self.scan.combine
        slots, place = self.slots(tile.number, a, tile.tag)
        group, inside = tile.number % a.tiles // self.group, tile.number % a.tiles % self.group
        first, stop = share(inside, worker // self.inner, Int32(self.runs))
        if worker >= self.states:
            stop = first
        at = place + worker % self.inner - Int64(inside - first) * self.inner
        found = slots.collect(at, stop - first, Int64(self.inner), combine)
        if worker < self.states:
            store_partial(shared.found, worker, Maybe(found.state[0], found.valid))
        NamedBarrier(Barriers.WORKERS, self.workers).sync()
        column, last, before = self.scan_runs(shared.found, Int32(0), worker)
        if last:
            carry = self.scan.carry_in(a)
            # where this group's end is published
            ends = place + Int64(a.tiles - tile.number % a.tiles + group) * self.inner + column
            end = slots.collect(ends - self.inner, Int32(group > 0), Int64(0), combine)
            if end.valid:
                carry = Maybe(end.state[0], end.valid)
            carry = carry.then(before, combine)
            store_partial(shared.prefixes, column, carry)
            if inside == self.group - 1:
                total = load_partial(shared.totals, tile.turn * self.inner + column, types)
                slots.publish(ends, carry.then(Maybe.of(total.state), combine).state)
        NamedBarrier(Barriers.WORKERS, self.workers).sync()

    @cute.jit
    def scan_run(self, shared: cutlass.Constexpr, a: Arguments, tile: Tile, worker):
        """Replace a worker's elements by its results."""
        types = self.scan.types
        first, stop, count = self.span(tile.number, a, worker)
        state = zeros(types)
        if first < stop:
            carry = load_partial(shared.prefixes, worker % self.inner, types)
            prefix = load_partial(shared.before, tile.turn * self.states + worker, types)
            before = carry.then(prefix, self.scan.combine)
            at = self.at(shared, tile.stage, first, count, worker)
            following = before.append(self.scan.lift(element(at), 0), self.scan.combine).state
            self.put(at, before.state if self.scan.exclusive else following)
            state = following
            first += 1
        while first + UNROLL <= stop:
            values = [element(self.at(shared, tile.stage, first + u, count, worker))[0] for u in range(UNROLL)]
            for u in cutlass.range_constexpr(UNROLL):
                state = self.step(self.at(shared, tile.stage, first + u, count, worker), state, (values[u],))
            first += UNROLL
        while first < stop:
            at = self.at(shared, tile.stage, first, count, worker)
            state = self.step(at, state, element(at))
            first += 1

    def step(self, place, state, elements):
        """Store the result for the element ``elements[0]``, which ``state`` comes before; the state behind it."""
        following = self.scan.combine(state, self.scan.lift(elements, 0))
        self.put(place, state if self.scan.exclusive else following)
        return following

    def put(self, place, state) -> None:
        result = self.scan.monoid.result
        place = cute.make_ptr(result.cutlass, place.toint(), cute.AddressSpace.smem, assumed_align=result.size)
        element(place)[0] = self.scan.monoid.lower(state)


def element(pointer):
    return cute.make_tensor(pointer, cute.make_layout((1,)))
