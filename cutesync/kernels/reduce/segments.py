"""Reduction of long rows in one launch, in the order of the elements, so any associative operator works.

A row is cut into chunks of ``32 * unroll`` 16-byte vectors. A warp reduces a chunk: each lane its vectors, then the
lanes by shuffles. The ``scope`` says who reduces a row: a *warp* walks the chunks of its row and keeps one running
state; a *block* deals chunk c to warp c % warps, stores every chunk's aggregate in shared memory at place c, and warp 0
combines them; a *grid* gives each of ``splits`` blocks a contiguous share, and the block that started last combines the
blocks' aggregates (``sync.gather``). Which element is combined with which depends on lengths alone: the result is
bitwise the same in every run and on every GPU.

Bytes: every element is read once, in 16-byte vectors; a misaligned row gives up its first and last few elements to
narrow loads. On an H200, dealing chunks to warps in turn reads 1.3 % faster than giving each warp one long run (4.56
against 4.50 TB/s); the shuffles that keep the order cost nothing measurable.
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
from cutlass import Boolean, Int32, Int64, cute

from ...block.reduce import get, partial_array, partial_bytes, put, reduce_threads, state_array, state_bytes
from ...block.split import share
from ...sync.atomic import atomic_fold
from ...sync.gather import Entry, Notice, Slots, enter
from ...sync.overlap import let_next_start
from ...warp import LANES, Maybe, zeros
from .base import Arguments, ContiguousKernel
from .chunk import ChunkReduce
from .problem import SegmentPolicy

CHUNKS = 512  # chunk aggregates a block keeps before warp 0 combines them: 2 or 4 KiB of shared memory a member


# A row in memory, as a block cuts it:
#
# x       x + head                                             x + length
# | head  | chunk 0 | chunk 1 | ... | chunk full - 1 | vectors | tail |
#         ^ a 16-byte boundary                 fewer than a chunk   fewer elements than a vector
Row = namedtuple("Row", "x head length full")


class SegmentReduce(ContiguousKernel):
    """The kernel. ``scope`` says who reduces a row: a "warp", a "block", the "grid" (all blocks share one row) or
    "grid_rows" (``splits`` blocks a row). Two rungs of the ladder are kept for comparison: "level" reduces ``length``
    elements a block of an array of ``inner``, one launch a level; "atomic" combines every block's aggregate with
    ``out`` by an atomic.

    ``whole`` promises that every row is whole chunks that begin on 16-byte boundaries, ``few`` that at most 32 blocks
    share a row. The code for other rows is then left out, which small arrays feel: a launch fetches its instructions as
    it does its data, and finds none of them in the caches of an SM."""

    def __init__(self, monoid, has_init: bool, policy: SegmentPolicy) -> None:
        block = 0 if policy.scope == "warp" else state_bytes(monoid.types, CHUNKS)
        grid = partial_bytes(monoid.types, policy.warps) + 16 if policy.scope.startswith("grid") else 0
        super().__init__(monoid, has_init, policy.warps * LANES, block + grid, policy.blocks_per_sm)
        self.scope, self.warps, self.whole, self.few = policy.scope, policy.warps, policy.whole, policy.few
        self.last_heads = policy.last_heads
        self.chunk = ChunkReduce(monoid, policy.unroll, policy.aligned)

    @cute.jit
    def body(self, a: Arguments):
        thread, block = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
        if cutlass.const_expr(self.scope == "warp"):
            self.warp_rows(a, block, thread)
        elif cutlass.const_expr(self.scope in ("block", "level")):
            row = Int64(block)
            count = cutlass.min(a.length, a.inner - row * a.length) if self.scope == "level" else a.length
            state = self.block_share(a.x + row * a.length, count, Int32(0), Int32(1), thread)
            if thread == 0:
                self.store_result(a, row, state)
        elif cutlass.const_expr(self.scope == "atomic"):
            state = self.block_share(a.x, a.length, block, a.splits, thread)
            if thread == 0:
                atomic_fold(self.monoid.op.name, a.out, self.monoid.lower(state))
        else:
            self.grid_row(a, block, thread)

    @cute.jit
    def warp_rows(self, a: Arguments, block, thread):
        row = Int64(block) * self.warps + thread // LANES
        if row < a.outer:
            state = self.chunk.row(a.x + row * a.length, a.length, thread % LANES)
            let_next_start()
            if thread % LANES == 0:
                self.store_result(a, row, state)

    @cute.jit
    def grid_row(self, a: Arguments, block, thread):
        row = Int64(block // a.splits)
        split = block % a.splits
        blocks, _, _ = cute.arch.grid_dim()
        entry = Entry.none()
        if thread == 0:
            entry = enter(a.counters) if self.scope == "grid" else enter(a.counters, row, a.splits)
        state = self.block_share(a.x + row * a.length, a.length, split, a.splits, thread)
        notice = Notice.make()
        partials = partial_array(self.monoid.types, self.warps)
        if thread < LANES:
            collector = Boolean(False)
            tag = Int32(0)
            if thread == 0:
                collector, tag = entry.close(a.counters, a.splits, blocks)
                self.slots(a, blocks, tag).publish(block, state)
                notice.post(collector, tag)
            if cutlass.const_expr(self.few):
                tag = cute.arch.shuffle_sync(tag, 0)
                if cute.arch.shuffle_sync(Int32(collector), 0) != 0:
                    self.collect_few(a, self.slots(a, blocks, tag), row, thread)
        if cutlass.const_expr(not self.few):
            cute.arch.sync_threads()
            if notice.collector:
                self.collect_row(a, self.slots(a, blocks, notice.tag), row, partials, thread)

    def slots(self, a: Arguments, blocks, tag) -> Slots:
        """The blocks' aggregates, a place a block."""
        return Slots(a.slots, Int64(blocks), tag, self.monoid.types)

    @cute.jit
    def collect_few(self, a: Arguments, slots: cutlass.Constexpr, row, lane):
        """The collector's first warp: a lane a block, then the lanes."""
        count = cutlass.select_(lane < a.splits, Int32(1), Int32(0))
        found = slots.collect(row * a.splits + lane, count, Int64(1), self.monoid.combine, batch=1)
        total = self.chunk.first_lanes(found.state[0], a.splits, lane)
        if lane == 0:
            self.store_result(a, row, total)

    @cute.jit
    def collect_row(self, a: Arguments, slots: cutlass.Constexpr, row, partials, thread):
        """The collector: thread t combines the aggregates of blocks [t * each, (t + 1) * each) of the row, then the
        block reduces its threads."""
        each = (a.splits + self.threads - 1) // self.threads
        first = thread * each
        count = cutlass.min(first + each, a.splits) - first
        found = slots.collect(row * a.splits + first, count, Int64(1), self.monoid.combine, batch=1)
        total = reduce_threads(Maybe(found.state[0], found.valid), self.monoid.combine, partials, thread)
        if thread == 0:
            self.store_result(a, row, total.state)

    @cute.jit
    def block_share(self, x, length, split, splits, thread):
        """The aggregate of this block's contiguous share of a row, in thread 0: whole chunks, in the first block also
        the misaligned head, in the last block the ragged end. Chunks go to warps in turn, ``CHUNKS`` a round, and the
        end to a warp that has none, if there is such, the head to the last one or to the first."""
        states = state_array(self.monoid.types, CHUNKS)
        lane = thread % LANES
        warp = thread // LANES
        head = Int64(0) if self.whole else cutlass.min(Int64(self.chunk.misaligned(x)), length)
        row = Row(x, head, length, Int32((length - head) // self.chunk.elements))
        begin, end = share(row.full, split, splits)
        partial = Maybe.none(self.monoid.types)
        lead = Int32(0)
        if cutlass.const_expr(not self.whole):
            if (split == 0) & (head > 0):
                if cutlass.const_expr(self.last_heads):
                    lead = Int32(1)
                    if warp == self.warps - 1:  # which has no chunk if these are few
                        self.keep(states, 0, self.chunk.narrow(x, Int32(head), Int64(0), lane), lane)
                else:
                    partial = Maybe.of(partial.state)
                    if warp == 0:
                        partial = Maybe.of(self.chunk.narrow(x, Int32(head), Int64(0), lane))
        more = Boolean(True)
        while more:
            stop = cutlass.min(begin + (CHUNKS - 3), end)
            more = stop < end
            self.round(row, begin, stop, states, (warp, lane), lead)
            count = stop - begin + lead
            lead = Int32(0)
            if cutlass.const_expr(not self.whole):
                if (split == splits - 1) & (stop == row.full):
                    count = self.ragged_end(row, count, states, warp, lane)
            cute.arch.sync_threads()
            if (warp == 0) & (count > 0):
                total = self.reduce_chunks(states, count, lane)
                partial = Maybe(partial.state, partial.valid & (lane == 0)).append(total, self.monoid.combine)
            begin = stop
            if more:
                cute.arch.sync_threads()
        let_next_start()
        return partial.state

    @cute.jit
    def round(self, row: Row, begin, stop, states, me: cutlass.Constexpr, first):
        """Reduce chunks ``begin + warp, begin + warp + warps, ...`` below ``stop``; chunk ``begin`` goes to place
        ``first``."""
        warp, lane = me
        place = first + warp
        start = row.x + row.head + Int64(begin + warp) * self.chunk.elements
        index = row.head + Int64(begin + warp) * self.chunk.elements
        for _ in cutlass.range((stop - begin - warp + self.warps - 1) // self.warps, unroll=1):
            chunk = self.chunk.load(start, lane)
            self.keep(states, place, self.chunk.fold(chunk, index, lane), lane)
            start += self.warps * self.chunk.elements
            index += self.warps * self.chunk.elements
            place += self.warps

    @cute.jit
    def ragged_end(self, row: Row, count, states, warp, lane):
        """Reduce what follows the last whole chunk, to the places from ``count`` on; the new number of places in
        use."""
        at = row.head + Int64(row.full) * self.chunk.elements
        left = Int32(row.length - at) // self.chunk.vector
        tail = Int32(row.length - at) - left * self.chunk.vector
        if left > 0:
            if warp == count % self.warps:
                self.keep(states, count, self.chunk.ragged(row.x + at, left, at, lane), lane)
            count += 1
        if tail > 0:
            at += left * self.chunk.vector
            if warp == count % self.warps:
                self.keep(states, count, self.chunk.narrow(row.x + at, tail, at, lane), lane)
            count += 1
        return count

    @cute.jit
    def keep(self, states, place, state, lane):
        if lane == 0:
            put(states, place, state)

    @cute.jit
    def reduce_chunks(self, states, count, lane):
        """One warp reduces ``count`` states: lane l those in [l * each, (l + 1) * each), then the lanes."""
        each = (count + LANES - 1) // LANES
        first = lane * each
        stop = cutlass.min(first + each, count)
        state = zeros(self.monoid.types)
        if first < stop:
            state = get(states, first, self.monoid.types)
        for i in cutlass.range(first + 1, stop, 1, unroll=1):
            state = self.monoid.combine(state, get(states, i, self.monoid.types))
        return self.chunk.first_lanes(state, (count + each - 1) // each, lane)
