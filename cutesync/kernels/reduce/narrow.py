"""Reduction over the rows of an array of few columns (2 to 16): a lane loads whole vectors that hold whole rows.

A lane's ``lane_bytes`` consecutive bytes hold ``per_lane`` rows, which it folds column by column; shuffles fold the lanes, the warp
keeps running states over its contiguous run of rows, shared memory folds the warps and ``sync.gather`` the blocks, always in row
order. The number of columns is known to the compiler.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64
from cutlass.memory import SmemAllocator

from ...block.reduce import get, put, state_array, state_bytes
from ...block.split import share
from ...monoid import tree
from ...sync.gather import announce, collect, enter, publish
from ...sync.overlap import let_next_start
from ...warp import LANES, broadcast, column_of_lane, reduce_columns, reduce_states, reduce_valid, select
from .base import ReduceKernel
from .chunk import aligned_words

MOST_PARTS = 32  # threads that share the blocks' states of one column in the collector


class NarrowColumnReduce(ReduceKernel):
    """The kernel: ``columns`` columns, ``unroll`` steps in flight, ``splits`` blocks for each of ``outer`` slabs of rows.

    With several splits every block has rows (the configuration sees to it).
    """

    def __init__(
        self, monoid, has_init: bool, columns: int, lane_bytes: int, unroll: int, warps: int, split: bool
    ) -> None:
        self.columns, self.unroll, self.warps, self.split = columns, unroll, warps, split
        self.lane_words = lane_bytes // 4
        self.per_lane = lane_bytes // (columns * monoid.source.size)
        self.spread = (
            columns & (columns - 1) == 0
        )  # a power of two: the lanes hold a column each, not every lane all of them
        self.parts = min(MOST_PARTS, warps * LANES // columns)
        self.places = max(warps, self.parts)
        small = sum(t.width for t in monoid.types) <= 32  # larger states would not fit a third of the registers
        super().__init__(
            monoid,
            has_init,
            warps * LANES,
            state_bytes((*monoid.types, Int32), self.places * columns) + 32,
            3 if small else 1,
        )

    @cute.jit
    def body(self, x, out, init, slots, counters, outer, length, inner, splits, tiles):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        split = block % splits
        slab = Int64(block // splits)
        storage = state_array((*self.monoid.types, Int32), self.places * self.columns)
        notice = cute.make_tensor(SmemAllocator().allocate_array(Int32, 2), cute.make_layout((2,)))
        warp = thread // LANES
        lane = thread % LANES
        if cutlass.const_expr(self.split):
            entered = (Int64(0), Int32(0))
            if thread == 0:
                entered = enter(counters, slab, splits)
        have, state = self.fold_warp(
            x + slab * length * self.columns, length, split * self.warps + warp, splits * self.warps, lane
        )
        let_next_start()
        self.deposit(storage, warp, have, state, lane)
        if cutlass.const_expr(self.split):
            if thread == 0:
                announce(counters, entered, splits, notice)
        cute.arch.sync_threads()
        _, total = self.withdraw(storage, Int32(self.warps), thread)
        if cutlass.const_expr(self.split):
            stride = outer * splits * self.columns
            at = slab * splits * self.columns
            if thread < self.columns:
                publish(slots, at + split * self.columns + thread, stride, total, notice[1])
            if notice[0] != 0:
                cute.arch.sync_threads()
                self.collect_slab(out, init, slab, slots, at, stride, splits, storage, thread, notice[1])
        else:
            if thread < self.columns:
                self.finish(out, init, slab * self.columns + thread, total)

    @cute.jit
    def fold_warp(self, x, length, part, parts, lane):
        """``(any, states)`` of this warp's run of rows: whole steps dealt to all warps, the ragged end to the last one."""
        step = LANES * self.per_lane
        begin, end = share(Int32(length // step), part, parts)
        have = Boolean(False)
        state = self.nothing()
        at = begin
        while at < end:
            words = cute.make_rmem_tensor((self.lane_words, self.unroll), Int32)
            first = Int64(at) * step + lane * self.per_lane
            for u in cutlass.range_constexpr(self.unroll):
                if at + u < end:
                    self.load(x, first + u * step, words[(None, u)])
            for u in cutlass.range_constexpr(self.unroll):
                if at + u < end:
                    have, state = self.append(have, state, self.fold_step(words[(None, u)], first + u * step, lane))
            at += self.unroll
        if part == parts - 1:
            done = (length // step) * step
            if done < length:
                have, state = self.append(have, state, self.fold_end(x, done, Int32(length - done), lane))
        return have, state

    def nothing(self):
        return tuple(tuple(t(0) for t in self.monoid.types) for _ in range(1 if self.spread else self.columns))

    @cute.jit
    def append(self, have, state, following):
        if have:
            following = self.merge(state, following)
        return Boolean(True), following

    def merge(self, a, b):
        return tuple(self.monoid.combine(x, y) for x, y in zip(a, b))

    def load(self, x, row, words):
        source = cute.make_tensor(aligned_words(x + row * self.columns), cute.make_layout((self.lane_words,)))
        cute.autovec_copy(source, words)

    def fold_step(self, words, row, lane):
        """Fold the rows a warp has loaded: first those of a lane, then the lanes."""
        elements = cute.recast_tensor(words, self.monoid.source.cutlass)
        columns = []
        for c in range(self.columns):
            rows = [self.monoid.lift(elements[r * self.columns + c], row + r) for r in range(self.per_lane)]
            columns.append(tree(rows, self.monoid.combine))
        if self.spread:
            return (reduce_columns(columns, self.monoid.combine, lane),)
        return tuple(reduce_states(column, self.monoid.combine, lane) for column in columns)

    @cute.jit
    def fold_end(self, x, done, left, lane):
        """Fold the last ``left`` rows, fewer than a step: a lane folds up to ``each`` of them, element by element."""
        each = (left + LANES - 1) // LANES
        first = lane * each
        stop = cutlass.min(first + each, left)
        columns = tuple(tuple(t(0) for t in self.monoid.types) for _ in range(self.columns))
        if first < stop:
            columns = self.row(x, done + first)
        for r in range(first + 1, stop):
            columns = self.merge(columns, self.row(x, done + r))
        valid = (left + each - 1) // each
        folded = tuple(
            broadcast(reduce_valid(columns[c], valid, self.monoid.combine, lane)) for c in range(self.columns)
        )
        if cutlass.const_expr(self.spread):
            mine = column_of_lane(lane, self.columns)
            chosen = folded[0]
            for c in cutlass.range_constexpr(1, self.columns):
                chosen = select(mine == c, folded[c], chosen)
            folded = (chosen,)
        return folded

    def row(self, x, r):
        elements = cute.make_tensor(x + r * self.columns, cute.make_layout((self.columns,)))
        return tuple(self.monoid.lift(elements[c], Int64(r)) for c in range(self.columns))

    @cute.jit
    def deposit(self, storage, warp, have, state, lane):
        """Leave a warp's column states in shared memory."""
        if cutlass.const_expr(self.spread):
            if lane < self.columns:
                put(storage, warp * self.columns + column_of_lane(lane, self.columns), (*state[0], Int32(have)))
        else:
            if lane == 0:
                for c in cutlass.range_constexpr(self.columns):
                    put(storage, warp * self.columns + c, (*state[c], Int32(have)))

    @cute.jit
    def withdraw(self, storage, count, thread):
        """Thread c < columns: fold the first ``count`` states of column c in shared memory; those without rows are passed over."""
        have = Boolean(False)
        state = tuple(t(0) for t in self.monoid.types)
        if thread < self.columns:
            for i in range(count):
                place = i * self.columns + thread
                if storage[-1][place] != 0:
                    following = get(storage, place, self.monoid.types)
                    if have:
                        following = self.monoid.combine(state, following)
                    state = following
                    have = Boolean(True)
        return have, state

    @cute.jit
    def collect_slab(self, out, init, slab, slots, at, stride, splits, storage, thread, tag):
        """The slab's collector: ``parts`` threads a column each fold a run of the blocks' states, one thread folds theirs."""
        part = thread // self.columns
        column = thread % self.columns
        if part < self.parts:
            first, stop = share(splits, part, Int32(self.parts))
            at += Int64(first) * self.columns + column
            have, state = collect(
                slots, at, stop - first, Int64(self.columns), stride, tag, self.monoid.types, self.monoid.combine
            )
            put(storage, part * self.columns + column, (*state[0], Int32(have)))
        cute.arch.sync_threads()
        _, total = self.withdraw(storage, Int32(self.parts), thread)
        if thread < self.columns:
            self.finish(out, init, slab * self.columns + thread, total)
