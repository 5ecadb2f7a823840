"""Scan of many rows of few columns, down the columns: resident blocks stream tiles of whole rows through shared memory.

    transfer    (one thread) copies tiles into a ring of ``stages`` in shared memory, and results out of it (bulk copies)
    work        folds the tile that comes next and publishes its columns' states; looks back for the tile in hand and scans it in place

A worker has a column of one of the tile's ``runs`` of rows; the states of the runs meet in shared memory. So neighbouring threads read neighbouring
elements whatever the number of columns, and memory is read and written in whole lines, each element once.

    barrier           completed by                                 waited for by
    full[stage]       transfer: 1 arrival and the tile's bytes     work
    scanned[stage]    one lane of each warp of workers             transfer

Look-back: the state before a tile is that before its group of tiles, which the block with the last tile of the group before publishes, followed by the
tiles before it in its group, which every block folds itself. Who is folded with whom depends on tile numbers alone. A tile is folded and published
before the look-back of the one before it in its block, so what a look-back asks for is mostly there. Progress: tile numbers come from an
atomic; before the smallest tile that is not yet published its block only looks back for smaller ones, all of which are.
"""

from __future__ import annotations

from enum import IntEnum

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64
from cutlass.experimental import primitives
from cutlass.memory import SmemAllocator

from ...block.reduce import get, state_array, state_bytes
from ...block.split import share
from ...block.warps import after, leave
from ...monoid import tree
from ...sync.gather import collect, enter, publish, settle, tag_of
from ...sync.named_barrier import NamedBarrier
from ...sync.wait import await_phase, in_role
from ...warp import LANES, combine_valid, scan_states, shift_up
from .base import Scan, ScanKernel

DONE = -1  # the tile number that says that there are no more
UNROLL = 8  # elements of a run that are read at once


class Barriers(IntEnum):
    WORKERS = 1


class Shared:
    """The ring, its barriers, each stage's tile; of the tile in hand and the one that comes next the state before each run and that of the tile; what a
    look-back finds, and the state before the tile."""

    def __init__(self, scan: Scan, stages: int, tile: int, states: int, inner: int) -> None:
        allocator, types = SmemAllocator(), (*scan.types, Int32)
        self.ring = allocator.allocate_array(scan.monoid.source.cutlass, stages * tile, byte_alignment=128)
        self.full, self.scanned = (allocator.allocate_array(Int64, stages) for _ in range(2))
        self.notices = cute.make_tensor(allocator.allocate_array(Int32, 2 * stages), cute.make_layout((2 * stages,)))
        self.before, self.found = state_array(types, 2 * states), state_array(types, states)
        self.totals, self.prefixes = state_array(types, 2 * inner), state_array(types, inner)

    @staticmethod
    def bytes(scan: Scan, stages: int, tile: int, states: int, inner: int) -> int:
        types = (*scan.types, Int32)
        return (
            stages * (tile * scan.monoid.source.size + 24)
            + sum(state_bytes(types, n) for n in (2 * states, states, 2 * inner, inner))
            + 64
        )


class SlabScan(ScanKernel):
    """The kernel: ``runs`` (a power of two, at most 32) of ``height`` rows of ``inner`` columns are a tile, ``group`` tiles a group. Elements and results are of
    one size; every slab begins on a boundary of 16 bytes, and so does every tile."""

    def __init__(self, scan: Scan, inner: int, runs: int, height: int, stages: int, group: int) -> None:
        self.inner, self.runs, self.height, self.stages, self.group = inner, runs, height, stages, group
        self.tile, self.states = runs * height, runs * inner  # rows of a tile, and states in it
        self.workers = -(-self.states // LANES) * LANES
        self.size = scan.monoid.source.size
        super().__init__(
            scan, LANES + self.workers, Shared.bytes(scan, stages, self.tile * inner, self.states, inner), 1
        )

    @cute.jit
    def body(self, x, out, init_at, init, slots, counters, rows, length, inner, tiles):
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
                in_role("transfer", self.transfer, shared, x, out, counters, rows, length, tiles)
        else:
            in_role("work", self.work, shared, init, init_at, slots, rows, length, tiles, thread - LANES)

    @cute.jit
    def next(self, stage, phase):
        """The next stage, and the parity of its barriers' phase."""
        stage += 1
        if stage == self.stages:
            stage = Int32(0)
            phase ^= 1
        return stage, phase

    def place(self, number, length, tiles):
        """``(place, count)``: where a tile's elements begin in memory, and how many rows it has. Tiles are cut in memory order."""
        tile = Int64(self.scan.flip(number % tiles, tiles))
        count = Int32(cutlass.min(length - tile * self.tile, Int64(self.tile)))
        return (Int64(number // tiles) * length + tile * self.tile) * self.inner, count

    @cute.jit
    def transfer(self, shared: cutlass.Constexpr, x, out, counters, rows, length, tiles):
        """One thread. Each visit to a stage stores the tile it held and loads another; after the last tile comes one ``DONE``."""
        everything = Int32(rows) * tiles
        entered = enter(counters)
        stage, phase = Int32(0), Int32(1)  # nothing has to be scanned the first time round
        idle = Int32(0)  # visits since there are no more tiles
        while idle < self.stages:
            number, tag = entered[1], tag_of(entered)
            if number < everything:
                entered = enter(counters)  # asked for early: the answer takes as long as a copy
            held = shared.ring + stage * (self.tile * self.inner)
            await_phase(shared.scanned, stage, phase, "scanned")
            before = shared.notices[2 * stage]
            if before != DONE:
                self.store(held, out, before, length, tiles)
            if number < everything:
                self.announce(shared, stage, number, tag)
                self.load(held, x, number, length, tiles, shared.full + stage)
            else:
                if idle == 0:
                    self.announce(shared, stage, Int32(DONE), tag)
                    cute.arch.mbarrier_arrive(shared.full + stage)
                idle += 1
            stage, phase = self.next(stage, phase)
        blocks, _, _ = cute.arch.grid_dim()
        settle(counters, entered, Int32(0), everything + blocks)

    def announce(self, shared, stage, number, tag) -> None:
        """Say which tile a stage will hold."""
        shared.notices[2 * stage] = number
        shared.notices[2 * stage + 1] = tag

    @cute.jit
    def load(self, held, x, number, length, tiles, full):
        place, count = self.place(number, length, tiles)
        elements = count * self.inner
        whole = elements // (16 // self.size) * (16 // self.size)
        self.copy(held, x + place, whole, elements, self.scan.monoid.source.cutlass)
        cute.arch.mbarrier_arrive_and_expect_tx(full, whole * self.size)
        if whole > 0:
            primitives.cp_async_bulk_shared_cluster_global(held, x + place, full, whole * self.size)

    @cute.jit
    def store(self, held, out, number, length, tiles):
        place, count = self.place(number, length, tiles)
        elements = count * self.inner
        whole = elements // (16 // self.size) * (16 // self.size)
        results = cute.make_ptr(self.scan.monoid.result.cutlass, held.toint(), cute.AddressSpace.smem, assumed_align=16)
        if whole > 0:
            primitives.cp_async_bulk_global_shared_cta(out + place, results, whole * self.size)
            cute.arch.cp_async_bulk_commit_group()
        if whole < elements:
            self.copy(out + place, results, whole, elements, self.scan.monoid.result.cutlass)
            cute.arch.fence_proxy("async.shared", space="cta")  # PTX: generic reads before the next copy into it
        cute.arch.cp_async_bulk_wait_group(0, read=True)

    @cute.jit
    def copy(self, target, source, begin, end, kind: cutlass.Constexpr):
        """The elements that end a slab and are fewer than 16 bytes."""
        for i in cutlass.range(begin, end, unroll=1):
            element(target + i)[0] = kind(element(source + i)[0])

    @cute.jit
    def work(self, shared: cutlass.Constexpr, init, init_at, slots, rows, length, tiles, worker):
        stage, phase, turn = Int32(0), Int32(0), Int32(0)
        await_phase(shared.full, stage, phase, "full")
        number, tag = shared.notices[2 * stage], shared.notices[2 * stage + 1]
        if number != DONE:
            self.fold(shared, slots, rows, length, tiles, stage, number, tag, turn, worker)
        while number != DONE:
            coming, phase = self.next(stage, phase)
            await_phase(shared.full, coming, phase, "full")
            following, its_tag = shared.notices[2 * coming], shared.notices[2 * coming + 1]
            if following != DONE:
                self.fold(shared, slots, rows, length, tiles, coming, following, its_tag, turn ^ 1, worker)
            self.look_back(shared, init, init_at, slots, rows, tiles, number, tag, turn, worker)
            self.scan_run(shared, length, tiles, stage, number, turn, worker)
            cute.arch.fence_proxy("async.shared", space="cta")  # PTX: generic accesses before those of the async proxy
            cute.arch.sync_warp()
            if worker % LANES == 0:
                cute.arch.mbarrier_arrive(shared.scanned + stage)
            stage, number, tag = coming, following, its_tag
            turn ^= 1

    def span(self, number, length, tiles, worker):
        """``(first, stop, count)``: a worker's rows among the ``count`` of a tile, in scan order. Threads too many have none."""
        _, count = self.place(number, length, tiles)
        first = worker // self.inner * self.height
        return first, cutlass.min(first + self.height, count), count

    def at(self, shared, stage, position, count, worker):
        """A worker's element at a position of a tile: where it lies in shared memory."""
        return shared.ring + ((stage * self.tile + self.scan.flip(position, count)) * self.inner + worker % self.inner)

    def slot(self, number, rows, tiles):
        """``(slot, stride)`` of a tile's first column. A row's slots are those of its tiles, and of the ends of its groups."""
        each = Int64(tiles + (tiles + self.group - 1) // self.group)
        return (Int64(number // tiles) * each + number % tiles) * self.inner, rows * each * self.inner

    @cute.jit
    def fold(self, shared: cutlass.Constexpr, slots, rows, length, tiles, stage, number, tag, turn, worker):
        """Fold a tile: leave the state before each run, and publish those of the columns."""
        first, stop, count = self.span(number, length, tiles, worker)
        have, state = Boolean(first < stop), self.nothing()
        if have:
            state = self.scan.lift(element(self.at(shared, stage, first, count, worker)), 0)
            first += 1
        while first + UNROLL <= stop:
            values = [element(self.at(shared, stage, first + u, count, worker))[0] for u in range(UNROLL)]
            state = self.scan.combine(state, tree([self.scan.lift((value,), 0) for value in values], self.scan.combine))
            first += UNROLL
        while first < stop:
            state = self.scan.combine(state, self.scan.lift(element(self.at(shared, stage, first, count, worker)), 0))
            first += 1
        if worker < self.states:
            leave(shared.before, turn * self.states + worker, have, state)
        NamedBarrier(Barriers.WORKERS, self.workers).sync()
        column, last, total = self.scan_runs(shared.before, turn * self.states, worker)
        if last:
            leave(shared.totals, turn * self.inner + column, Boolean(True), total[:-1])
            slot, stride = self.slot(number, rows, tiles)
            publish(slots, slot + column, stride, total[:-1], tag)

    @cute.jit
    def scan_runs(self, states: cutlass.Constexpr, base, worker):
        """Replace each run's state by that before it. ``(column, last, state)``: whether this worker has a column's fold, with a flag, and which column."""
        types = (*self.scan.types, Int32)
        column, group = worker // self.runs, worker % self.runs
        place = base + group * self.inner + column
        state = (*self.nothing(), Int32(0))
        if worker < self.states:
            state = get(states, place, types)
        inclusive = scan_states(state, lambda a, b: combine_valid(a, b, self.scan.combine), worker % LANES, self.runs)
        *before, flag = shift_up(inclusive)
        if worker < self.states:
            leave(states, place, (group > 0) & (flag != 0), before)
        return column, (group == self.runs - 1) & (worker < self.states), inclusive

    @cute.jit
    def look_back(self, shared: cutlass.Constexpr, init, init_at, slots, rows, tiles, number, tag, turn, worker):
        """Leave the states before a tile, those of its columns."""
        types, combine = self.scan.types, self.scan.combine
        slot, stride = self.slot(number, rows, tiles)
        group, inside = number % tiles // self.group, number % tiles % self.group
        first, stop = share(inside, worker // self.inner, Int32(self.runs))
        if worker >= self.states:
            stop = first
        at = slot + worker % self.inner - Int64(inside - first) * self.inner
        have, states = collect(slots, at, stop - first, Int64(self.inner), stride, tag, types, combine)
        if worker < self.states:
            leave(shared.found, worker, have, states[0])
        NamedBarrier(Barriers.WORKERS, self.workers).sync()
        column, last, fold = self.scan_runs(shared.found, Int32(0), worker)
        if last:
            known = Boolean(self.scan.start is not None)
            start = self.scan.first(init, init_at) if self.scan.start is not None else self.nothing()
            ends = (
                slot + Int64(tiles - number % tiles + group) * self.inner + column
            )  # where this group's end is published
            some, before = collect(slots, ends - self.inner, Int32(group > 0), Int64(0), stride, tag, types, combine)
            if some:
                known, start = some, before[0]
            known, start = after(known, start, fold[-1] != 0, fold[:-1], combine)
            leave(shared.prefixes, column, known, start)
            if inside == self.group - 1:
                _, end = after(
                    known, start, Boolean(True), get(shared.totals, turn * self.inner + column, types), combine
                )
                publish(slots, ends, stride, end, tag)
        NamedBarrier(Barriers.WORKERS, self.workers).sync()

    @cute.jit
    def scan_run(self, shared: cutlass.Constexpr, length, tiles, stage, number, turn, worker):
        """Put a worker's results in the place of its elements."""
        types = (*self.scan.types, Int32)
        first, stop, count = self.span(number, length, tiles, worker)
        state = self.nothing()
        if first < stop:
            *start, known = get(shared.prefixes, worker % self.inner, types)
            *before, some = get(shared.before, turn * self.states + worker, types)
            have, state = after(known != 0, tuple(start), some != 0, tuple(before), self.scan.combine)
            following = self.scan.lift(element(self.at(shared, stage, first, count, worker)), 0)
            if have:
                following = self.scan.combine(state, following)
            self.put(self.at(shared, stage, first, count, worker), state if self.scan.exclusive else following)
            state = following
            first += 1
        while first + UNROLL <= stop:
            values = [element(self.at(shared, stage, first + u, count, worker))[0] for u in range(UNROLL)]
            for u in cutlass.range_constexpr(UNROLL):
                following = self.scan.combine(state, self.scan.lift((values[u],), 0))
                self.put(self.at(shared, stage, first + u, count, worker), state if self.scan.exclusive else following)
                state = following
            first += UNROLL
        while first < stop:
            following = self.scan.combine(
                state, self.scan.lift(element(self.at(shared, stage, first, count, worker)), 0)
            )
            self.put(self.at(shared, stage, first, count, worker), state if self.scan.exclusive else following)
            state = following
            first += 1

    def put(self, place, state) -> None:
        result = self.scan.monoid.result
        place = cute.make_ptr(result.cutlass, place.toint(), cute.AddressSpace.smem, assumed_align=result.size)
        element(place)[0] = self.scan.monoid.lower(state)

    def nothing(self):
        return tuple(t(0) for t in self.scan.types)


def element(pointer):
    return cute.make_tensor(pointer, cute.make_layout((1,)))
