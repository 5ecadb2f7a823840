"""Scan along an axis that is not the last, where columns alone do not fill a GPU: blocks take tiles of rows.

A tile has ``groups`` row groups of up to ``height`` rows, and ``lanes * width`` columns. Groups have as few rows as the
number of tiles allows. A tile stays in shared memory from its one reading to the end, so each element is read once and
written once. Every thread copies, reduces and scans the rows of its own columns: no barrier is needed between its
copies and its reads, only ``cp.async.wait_group``. For the tile in hand and the next one:

    1. wait for the copies of the next tile; reduce the thread's rows; exchange the row groups' partials (barrier)
    2. publish the next tile's aggregates
    3. look back for the tile in hand: each row group collects a part of the states before it; exchange them (barrier)
    4. publish what comes before the next group of tiles, if this tile ends one
    5. ask for another tile's number; scan and store
    6. start the copies of that tile into the same stage, one of two

So what a look-back asks for was mostly published long before, and while some blocks of an SM wait for copies, others
store. A number is asked for when its tile can be loaded soon: what a block has taken and not loaded, others wait for.
Elements of a row that do not fill a word of 32 bits are loaded and stored to the stage instead of copied. Where rows
are whole ``vectors`` of 16 bytes, a warp copies these for all of its threads, which meet before they read. Tile numbers
count the columns first, then the outer slices, then the rows.

Progress: tile numbers come from an atomic. A block that looks back has published the aggregates of its tile and of the
next, and waits only for tiles before the one in hand. So the block that has the smallest tile with something
unpublished finds everything published that it looks back at.

``once``: one wave of blocks has a tile each, in one stage.

``alone``: a tile holds all rows. Then a block has one tile, and nothing is published.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64
from cutlass.memory import SmemAllocator

from ...block.reduce import get, put, state_array, state_bytes
from ...monoid import choose
from ...sizes import power_of_two_below
from ...sync.gather import Entry, enter
from ...sync.overlap import ask_for_line, await_launches, let_next_start
from ...warp import LANES, Maybe, prepend
from ..arrays import pointers_of
from ..hardware import VECTOR_BYTES
from .base import Arguments, Scan
from .column_copies import LOADS, MAX_LOADS, NUMBERS, TAG, WORD_BYTES, ColumnCopies, Member, Part, Shared
from .column_policy import ColumnStripPolicy, ColumnTilePolicy
from .groups import TileGroups
from .packed_monoid import PackedMonoid

UNROLL_BYTES = 64  # of a thread's rows that are in registers at once
# Rows, where elements of words are combined one by one and threads side by side are no part of a warp: eight do not fit
# the registers.
MAX_UNROLLED = 4


class ColumnTileScan(ColumnCopies):
    """The kernel. Threads whose rows or columns do not exist load others in their place, and store nothing. In a
    subclass that ``copies_for_others``, threads scan what others copied."""

    copies_for_others, once = False, False

    def __init__(self, scan: Scan, policy: ColumnTilePolicy | ColumnStripPolicy) -> None:
        self.width, self.lanes, self.groups, self.height = policy.width, policy.lanes, policy.groups, policy.height
        self.group, self.alone, self.aligned_out = policy.group, policy.alone, policy.aligned_out
        threads = -(-policy.lanes * policy.groups // 32) * 32
        self.tile, self.unit = policy.groups * policy.height, policy.unit  # rows
        self.states = threads * policy.width
        row = policy.width * sum(dtype.size for dtype in scan.monoid.sources)
        self.unroll = max(1, min(self.unit, power_of_two_below(UNROLL_BYTES // row)))
        if LANES % policy.lanes and isinstance(scan.monoid, PackedMonoid) and scan.monoid.each is not None:
            self.unroll = min(self.unroll, MAX_UNROLLED)
        copied = all(policy.width * dtype.size % WORD_BYTES == 0 for dtype in scan.monoid.sources)
        self.loads = self.unit if copied else min(LOADS, policy.height & -policy.height)
        self.loads = min(MAX_LOADS, policy.height) if policy.fixed else self.loads
        self.row, self.skew = self.states, policy.skew
        if policy.skew:
            self.row += threads // policy.lanes * (VECTOR_BYTES // scan.monoid.source.size)
        self.stage = policy.height * self.row  # elements of an input
        self.stages, self.prefetch, self.vectors = policy.stages, policy.prefetch, policy.vectors
        self.fixed, self.once = policy.fixed, policy.once
        elements = sum(self.stages * self.stage * dtype.size + 16 for dtype in scan.monoid.sources)
        smem = elements + (1 if policy.alone else 2) * state_bytes(scan.monoid.types, self.states) + 16
        smem += 8 if policy.once else 0  # take_number's
        self.positions = 0 if policy.alone else self.tile
        super().__init__(scan, threads, smem, policy.blocks_per_sm)
        self.waits = not self.prefetch or scan.reads_at_once

    @cute.jit
    def body(self, a: Arguments):
        allocator, types = SmemAllocator(), self.scan.monoid.types
        stages = self.stage_buffers(allocator)
        partials = state_array(types, self.states)
        found = partials if self.alone else state_array(types, self.states)
        words = cute.make_tensor(allocator.allocate_array(Int32, 3), cute.make_layout((3,)))
        shared = Shared(stages, partials, found, words)
        thread, _, _ = cute.arch.thread_idx()
        me = self.member(a, thread)
        if cutlass.const_expr(self.alone):
            number, _, _ = cute.arch.block_idx()
            part = self.part(number, a, me)
            self.load(shared, a, me, part, Int32(0))
            prefix, _ = self.reduce_tile(shared, a, me, part, Int32(0))
            if cutlass.const_expr(not self.copies_for_others):
                let_next_start()
            self.scan_rows(shared, a, me, part, Int32(0), self.then(self.start(a, part), prefix))
        elif cutlass.const_expr(self.once):
            self.take_one(shared, a, me)
        else:
            self.take_tiles(shared, a, me)

    def member(self, a: Arguments, thread) -> Member:
        return Member(thread, thread // self.lanes, thread % self.lanes, self.rows_of_group(a))

    def rows_of_group(self, a: Arguments):
        """The fewest rows of a group, in whole units, with which ``a.tiles`` tiles cover the array."""
        if self.fixed:
            return Int32(self.height)
        each = self.groups * self.unit
        units = Int32((a.length + (each - 1)) // each)
        return (units + (a.tiles - 1)) // a.tiles * self.unit

    def stage_buffers(self, allocator) -> tuple:
        """Shared memory for the elements of each input."""
        return tuple(
            allocator.allocate_array(dtype.cutlass, self.stages * self.stage, byte_alignment=16)
            for dtype in self.scan.monoid.sources
        )

    def across(self, a: Arguments):
        """How many tiles the columns of an outer slice have."""
        each = self.lanes * self.width
        return Int32((a.inner + (each - 1)) // each)

    def chains(self, a: Arguments):
        """How many tiles lie side by side: those of the columns of all outer slices."""
        return Int32(a.rows) * self.across(a)

    @cute.jit
    def take_one(self, shared: cutlass.Constexpr, a: Arguments, me: Member):
        """A block's only tile: there are as many blocks as tiles, if all positions count."""
        if cutlass.const_expr(self.prefetch):
            self.prefetch_tile(a, me, self.chains(a) * a.tiles)
        if cutlass.const_expr(not self.waits):
            await_launches()
        number, tag = self.take_number(a.counters, me.thread)
        if number < self.chains(a) * a.tiles:
            part = self.part(number, a, me)
            self.load(shared, a, me, part, Int32(0))
            prefix, total = self.reduce_tile(shared, a, me, part, Int32(0))
            groups = self.slots(a, part, tag)
            self.publish(groups, me, part, total)
            let_next_start()
            carry = self.look_back(groups, shared.found, a, me, part)
            self.publish_end(groups, me, part, self.then(carry, Maybe.of(total)))
            self.scan_rows(shared, a, me, part, Int32(0), self.then(carry, prefix))

    @cute.jit
    def take_tiles(self, shared: cutlass.Constexpr, a: Arguments, me: Member):
        everything = self.chains(a) * a.tiles
        entry = Entry.none()
        if cutlass.const_expr(self.prefetch):
            self.prefetch_tile(a, me, everything)
        if cutlass.const_expr(not self.waits):
            await_launches()
        if me.thread == 0:
            entry = enter(a.counters)
            shared.words[TAG] = entry.tag
            shared.words[NUMBERS] = entry.arrived
        cute.arch.sync_threads()
        number, tag, stage = shared.words[NUMBERS], shared.words[TAG], Int32(0)
        coming, prefix, total = everything, Maybe(self.nothing(), Boolean(False)), self.nothing()
        if number < everything:
            self.load(shared, a, me, self.part(number, a, me), stage)
            if me.thread == 0:
                entry = enter(a.counters)
                shared.words[NUMBERS + 1] = entry.arrived
            part = self.part(number, a, me)
            prefix, total = self.reduce_tile(shared, a, me, part, stage)
            self.publish(self.slots(a, part, tag), me, part, total)
            coming = shared.words[NUMBERS + 1]
            if cutlass.const_expr(not self.copies_for_others):
                cute.arch.sync_threads()  # before the next exchange; elsewhere the copies need one before it
            self.load_if(coming < everything, shared, a, me, coming, stage ^ 1)
        while number < everything:
            prefix_coming, total_coming = prefix, total
            if coming < everything:
                part = self.part(coming, a, me)
                prefix_coming, total_coming = self.reduce_tile(shared, a, me, part, stage ^ 1)
                self.publish(self.slots(a, part, tag), me, part, total_coming)
            part = self.part(number, a, me)
            if coming >= everything:
                let_next_start()
            groups = self.slots(a, part, tag)
            carry = self.look_back(groups, shared.found, a, me, part)
            self.publish_end(groups, me, part, self.then(carry, Maybe.of(total)))
            if (me.thread == 0) & (coming < everything):
                entry = enter(a.counters)
            self.scan_rows(shared, a, me, part, stage, self.then(carry, prefix))
            if me.thread == 0:
                shared.words[NUMBERS] = entry.arrived
            cute.arch.sync_threads()
            number, coming = coming, shared.words[NUMBERS]
            prefix, total = prefix_coming, total_coming
            self.load_if(coming < everything, shared, a, me, coming, stage)
            stage ^= 1
        if me.thread == 0:
            blocks, _, _ = cute.arch.grid_dim()
            entry.close(a.counters, Int32(0), everything + blocks)

    @cute.jit
    def prefetch_tile(self, a: Arguments, me: Member, everything):
        """Bring the lines of the tile with this block's rank to the L2: some block gets its number."""
        rank, _, _ = cute.arch.block_idx()
        if rank < everything:
            part = self.part(Int32(rank), a, me)
            for first in cutlass.range_constexpr(0, self.height, self.lanes):
                row = me.lane + first
                if row < me.rows:
                    at = part.place + Int64(cutlass.min(row, cutlass.max(part.count - 1 - part.row, 0))) * part.step
                    for pointer in pointers_of(a.x + at):
                        ask_for_line(pointer)

    def part(self, number, a: Arguments, me: Member) -> Part:
        chains, across = self.chains(a), self.across(a)
        tile = number // chains
        chain = number - tile * chains
        outer = chain // across
        column = ((chain - outer * across) * self.lanes + me.lane) * self.width
        inside = (column < Int32(a.inner)) & (me.group < self.groups)
        height = self.groups * me.rows
        first, row = Int64(tile) * height, me.group * me.rows
        count = Int32(cutlass.min(a.length - first, Int64(height)))
        left = choose(inside, count - row, Int32(0))
        row = cutlass.min(row, count - 1)
        at, existing = self.scan.flip(first + row, a.length), cutlass.min(column, Int32(a.inner) - self.width)
        begin, target = self.row_places(a, Int64(outer))
        steps = (-a.x_step, -a.out_step) if self.scan.reverse else (a.x_step, a.out_step)
        return Part(
            tile,
            outer,
            column,
            inside,
            left,
            row,
            count,
            first + row,
            begin + self.column_in(existing) + at * a.x_step,
            steps[0],
            target + existing + at * a.out_step,
            steps[1],
        )

    def slots(self, a: Arguments, part: Any, tag) -> TileGroups:
        """The slots of a tile's outer slice."""
        return TileGroups.make(a, part.outer, tag, self.scan.monoid.types, self.group)

    def nothing(self):
        return tuple(tuple(t(0) for t in self.scan.monoid.types) for _ in range(self.width))

    @cute.jit
    def load_if(self, exists, shared: cutlass.Constexpr, a: Arguments, me: Member, number, stage):
        if exists:
            self.load(shared, a, me, self.part(number, a, me), stage)

    def states_of(self, shared, a: Arguments, me: Member, part: Part, stage, first) -> list:
        """The states of ``unroll`` of a thread's rows, from number ``first`` on."""
        rows = []
        for u in range(self.unroll):
            row = []
            for k, dtype in enumerate(self.scan.monoid.sources):
                row.append(cute.make_rmem_tensor((self.width,), dtype.cutlass))
                held = self.vector(self.held(shared, k, stage, first + u, me), dtype, aligned=self.skew == 0)
                cute.autovec_copy(held, row[-1])
            rows.append(row)
        return [self.lifted(row, part.position + first + u, a) for u, row in enumerate(rows)]

    @cute.jit
    def reduce_tile(self, shared: cutlass.Constexpr, a: Arguments, me: Member, part: Part, stage):
        """As ``reduce_rows``, once the copies are there."""
        cute.arch.cp_async_wait_group(0)
        if cutlass.const_expr(self.vectors):
            cute.arch.sync_warp()
        return self.reduce_rows(shared, a, me, part, stage)

    @cute.jit
    def reduce_rows(self, shared: cutlass.Constexpr, a: Arguments, me: Member, part: Part, stage):
        """``(prefix, total)`` of a tile: what comes before a thread's rows in it, and its columns' aggregates. Those of
        a short tile, the last of its outer slice, have no meaning; nobody uses them."""
        states = self.nothing()
        for first in cutlass.range(0, self.looked_at(me, part), self.unroll, unroll=1):
            rows = self.states_of(shared, a, me, part, stage, first)
            for u, row in enumerate(rows):
                states = self.append(first + u > 0, states, row) if u == 0 else self.combine(states, row)
        before, total = self.exchange(shared.partials, states, me, Int32(self.groups))
        return Maybe(before, me.group > 0), total

    def append(self, valid, states, row):
        """``row``, preceded by ``states`` where they are valid."""
        return tuple(prepend(valid, x, y, self.scan.combine) for x, y in zip(states, row))

    @cute.jit
    def exchange(self, storage: cutlass.Constexpr, states, me: Member, count: Int32):
        """``(before, total)`` of the row groups' states: those of the groups before this thread's combined, and those
        of the first ``count`` groups, at least one. One block barrier; the storage needs another before reuse."""
        for c in cutlass.range_constexpr(self.width):
            put(storage, c * self.threads + me.thread, states[c])
        cute.arch.sync_threads()
        total = self.stored(storage, me.lane)
        before = total
        for g in cutlass.range(1, count, 1, unroll=8):
            if g == me.group:
                before = total
            total = self.combine(total, self.stored(storage, g * self.lanes + me.lane))
        return before, total

    def stored(self, storage, thread):
        types = self.scan.monoid.types
        return tuple(get(storage, c * self.threads + thread, types) for c in range(self.width))

    @cute.jit
    def publish(self, groups: cutlass.Constexpr, me: Member, part: Part, total):
        if part.inside & (me.group == self.groups - 1):
            for c in cutlass.range_constexpr(self.width):
                groups.publish(part.tile, part.column + c, total[c])

    @cute.jit
    def publish_end(self, groups: cutlass.Constexpr, me: Member, part: Part, end: Maybe):
        if part.inside & (me.group == self.groups - 1) & groups.ends_group(part.tile):
            for c in cutlass.range_constexpr(self.width):
                groups.publish_end(part.tile, part.column + c, end.state[c])

    def start(self, a: Arguments, part: Any) -> Maybe:
        """What comes before the thread's columns, or before others that exist."""
        return self.carry_in(a, part.outer, cutlass.min(part.column, Int32(a.inner) - self.width))

    @cute.jit
    def look_back(self, groups: cutlass.Constexpr, found: cutlass.Constexpr, a: Arguments, me: Member, part: Part):
        """What comes before a tile."""
        whose = choose(part.inside, me.group, Int32(-1))
        states = groups.collect(part.tile, part.column, whose, self.groups, self.scan.combine, self.width).state
        count = groups.parts(part.tile, self.groups)
        _, before = self.exchange(found, states, me, count)
        start = self.start(a, part)
        return self.then(Maybe(start.state, start.valid & (part.tile < self.group)), Maybe(before, count > 0))

    @cute.jit
    def scan_rows(self, shared: cutlass.Constexpr, a: Arguments, me: Member, part: Part, stage, before: Maybe):
        """Store the scan of a thread's rows; ``before`` comes before them."""
        states, at = before.state, part.target
        for first in cutlass.range(0, self.looked_at(me, part), self.unroll, unroll=1):
            rows = self.states_of(shared, a, me, part, stage, first)
            for u, row in enumerate(rows):
                following = (
                    self.append((first + u > 0) | before.valid, states, row) if u == 0 else self.combine(states, row)
                )
                self.store_if(first + u < part.left, a.out + at, states if self.scan.exclusive else following)
                states = following
                at += part.target_step

    @cute.jit
    def store_if(self, exists, at, states):
        if exists:
            self.store_row(at, states)
