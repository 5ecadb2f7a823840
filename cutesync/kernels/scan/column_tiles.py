"""Scan along an axis that is not the last, where columns alone do not fill a GPU: blocks take tiles of rows.

A tile has ``groups`` row groups of ``height`` rows, and ``lanes * width`` columns. It stays in registers from its one
reading to the end: a thread loads ``height`` rows of its columns at once, reduces them, and scans them when it knows
what comes before. So each element is read once and written once. Per tile:

    1. load; ask for the next tile's number
    2. reduce the thread's rows; exchange the row groups' partials (barrier); publish the tile's aggregates
    3. look back: each row group collects a part of the states that precede the tile; exchange them (barrier)
    4. publish what comes before the next group of tiles, if this tile ends one
    5. scan and store

While some blocks of an SM look back, others load and store: ``blocks_per_sm`` are resident. Tile numbers count the
columns first, then the outer slices, then the rows, so the tiles that a look-back needs were taken long before.

Progress: tile numbers come from an atomic. The aggregates of a tile are published before its block waits for anything,
and a block that has asked for its next tile only waits for tiles before the one in hand. So the block that has the
smallest tile with something unpublished finds everything published that it looks back at.

``alone``: a tile holds all rows. Then a block has one tile, and nothing is published.
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64
from cutlass.memory import SmemAllocator

from ...block.reduce import get, put, state_array, state_bytes
from ...monoid import choose
from ...sync.gather import Entry, enter
from ...warp import Maybe, prepend
from .base import Arguments, Scan
from .columns import ThreadColumns
from .groups import TileGroups
from .policy import ColumnTilePolicy

# Shared memory: the states of all threads, ``partials`` of the rows of a tile and ``found`` by the look-back; and
# ``words``: the block's first tile, the launch's tag, the next tile.
Shared = namedtuple("Shared", "partials found words")
FIRST, TAG, NEXT = range(3)

# A thread of a block: its rank, its row group, and its lane in it.
Member = namedtuple("Member", "thread group lane")

# A thread's part of a tile: the tile's number in its outer slice, the outer slice, the first of the thread's columns
# and whether they exist; the position of the tile's first row, and of the thread's among the tile's ``count``.
Part = namedtuple("Part", "tile outer column inside first row count")


class ColumnTileScan(ThreadColumns):
    """The kernel. Threads whose rows or columns do not exist load others in their place, and store nothing."""

    def __init__(self, scan: Scan, policy: ColumnTilePolicy) -> None:
        self.width, self.lanes, self.groups, self.height = policy.width, policy.lanes, policy.groups, policy.height
        self.group, self.alone, self.aligned_out = policy.group, policy.alone, policy.aligned_out
        threads = -(-policy.lanes * policy.groups // 32) * 32
        self.tile = policy.groups * policy.height  # rows
        self.states = threads * policy.width
        smem = (1 if policy.alone else 2) * state_bytes(scan.monoid.types, self.states) + 32
        super().__init__(scan, threads, smem, policy.blocks_per_sm)

    @cute.jit
    def body(self, a: Arguments):
        types = self.scan.monoid.types
        partials = state_array(types, self.states)
        found = partials if self.alone else state_array(types, self.states)
        words = cute.make_tensor(SmemAllocator().allocate_array(Int32, 3), cute.make_layout((3,)))
        shared = Shared(partials, found, words)
        thread, _, _ = cute.arch.thread_idx()
        me = Member(thread, thread // self.lanes, thread % self.lanes)
        number, _, _ = cute.arch.block_idx()
        if cutlass.const_expr(self.alone):
            self.scan_tile(shared, a, me, number, Int32(0), Entry.none())
        else:
            self.take_tiles(shared, a, me)

    def chains(self, a: Arguments):
        """How many tiles lie side by side: those of the columns of all outer slices."""
        each = self.lanes * self.width
        return Int32(a.rows) * Int32((a.inner + (each - 1)) // each)

    @cute.jit
    def take_tiles(self, shared: cutlass.Constexpr, a: Arguments, me: Member):
        everything = self.chains(a) * a.tiles
        entry = Entry.none()
        if me.thread == 0:
            entry = enter(a.counters)
            shared.words[FIRST], shared.words[TAG] = entry.arrived, entry.tag
        cute.arch.sync_threads()
        number, tag = shared.words[FIRST], shared.words[TAG]
        while number < everything:
            if me.thread == 0:
                entry = enter(a.counters)  # asked for early: the answer takes as long as a load
            number = self.scan_tile(shared, a, me, number, tag, entry)
        if me.thread == 0:
            blocks, _, _ = cute.arch.grid_dim()
            entry.close(a.counters, Int32(0), everything + blocks)

    def part(self, number, a: Arguments, me: Member) -> Part:
        chains = self.chains(a)
        across = chains // Int32(a.rows)
        tile, chain = number // chains, number % chains
        column = (Int64(chain % across) * self.lanes + me.lane) * self.width
        inside = (column < a.inner) & (me.group < self.groups)
        first = Int64(tile) * self.tile
        count = Int32(cutlass.min(a.length - first, Int64(self.tile)))
        return Part(tile, chain // across, column, inside, first, me.group * self.height, count)

    @cute.jit
    def scan_tile(self, shared: cutlass.Constexpr, a: Arguments, me: Member, number, tag, entry: Entry):
        """Scan a tile; the number of the block's next one."""
        part = self.part(number, a, me)
        row = cutlass.min(part.row, part.count - 1)
        position = part.first + row
        place = (Int64(part.outer) * a.length + self.scan.flip(position, a.length)) * a.inner
        place += cutlass.min(part.column, a.inner - self.width)
        step = -a.inner if self.scan.reverse else a.inner
        elements = self.registers(self.height)
        at = place
        for u in cutlass.range_constexpr(self.height):
            self.load_row(a.x + at, elements, u)
            at += choose(row + u + 1 < part.count, step, Int64(0))
        following = Int32(0)
        if cutlass.const_expr(not self.alone):
            if me.thread == 0:
                shared.words[NEXT] = entry.arrived
        before, total = self.exchange(shared.partials, self.reduce_rows(elements, position, a), me, Int32(self.groups))
        prefix = Maybe(before, me.group > 0)
        if cutlass.const_expr(self.alone):
            carry = self.carry_in(a)
        else:
            following = shared.words[NEXT]
            carry = self.look_back(shared, a, me, part, tag, total)
        self.scan_rows(elements, position, self.then(carry, prefix), a, (part, place, step))
        return following

    def reduce_rows(self, elements, position, a: Arguments):
        """The aggregates of a thread's rows. They have no meaning where a row does not exist; nobody uses them."""
        states = self.lifted(elements, 0, self.index(position, a))
        for u in range(1, self.height):
            states = self.combine(states, self.lifted(elements, u, self.index(position + u, a)))
        return states

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
    def look_back(self, shared: cutlass.Constexpr, a: Arguments, me: Member, part: Part, tag, total):
        """Publish a tile's aggregates; what comes before the tile."""
        groups = TileGroups.make(a, part.outer, tag, self.scan.monoid.types, self.group)
        publishes = part.inside & (me.group == self.groups - 1)
        if publishes:
            for c in cutlass.range_constexpr(self.width):
                groups.publish(part.tile, part.column + c, total[c])
        whose = choose(part.inside, me.group, Int32(-1))
        found = groups.collect(part.tile, part.column, whose, self.groups, self.scan.combine, self.width)
        count = groups.before(part.tile)
        _, before = self.exchange(shared.found, found.state, me, cutlass.min(count, self.groups))
        start = self.carry_in(a)
        start = Maybe(start.state, start.valid & (part.tile < self.group))
        carry = self.then(start, Maybe(before, count > 0))
        if publishes & groups.ends_group(part.tile):
            end = self.then(carry, Maybe.of(total))
            for c in cutlass.range_constexpr(self.width):
                groups.publish_end(part.tile, part.column + c, end.state[c])
        return carry

    @cute.jit
    def scan_rows(self, elements: cutlass.Constexpr, position, before: Maybe, a: Arguments, where):
        """Store the scan of a thread's rows; ``before`` comes before them."""
        part, place, step = where
        left = choose(part.inside, part.count - part.row, Int32(0))  # rows that exist
        states = before.state
        for u in cutlass.range_constexpr(self.height):
            following = self.lifted(elements, u, self.index(position + u, a))
            if cutlass.const_expr(u == 0):
                pairs = zip(states, following)
                following = tuple(prepend(before.valid, x, y, self.scan.combine) for x, y in pairs)
            else:
                following = self.combine(states, following)
            if u < left:
                self.store_row(a.out + place, states if self.scan.exclusive else following)
            states = following
            place += step
