"""Reduction over the rows of an array of few columns: a lane loads whole rows.

A lane's ``lane_bytes`` consecutive bytes hold ``per_lane`` rows, which it reduces column by column; shuffles reduce the
lanes, the warp keeps running states over its contiguous run of rows, shared memory combines the warps and
``sync.gather`` the blocks, always in row order. With ``in_turn`` each lane keeps states of its own, and shuffles
combine them once, behind the last row. The number of columns is known to the compiler. Of short slices each warp has
its own, ``alone``: it stores its results itself, and no warp waits for another.

With ``anywhere`` a lane's rows begin on any byte: it loads the 16-byte vectors that hold them, and shifts their words.
"""

from __future__ import annotations

import math

import cutlass
from cutlass import Boolean, Int32, Int64, cute

from ...block.reduce import get, partial_array, partial_bytes, put, store_partial
from ...block.split import share
from ...monoid import ArgMonoid, tree
from ...sizes import ceil_div
from ...sync.gather import Entry, Notice, Slots, enter
from ...sync.overlap import let_next_start
from ...warp import LANES, Maybe, broadcast, column_of_lane, reduce_columns, reduce_states, reduce_valid, select, zeros
from ..hardware import VECTOR_BYTES
from ..words import shifted
from .base import Arguments, ContiguousKernel
from .chunk import WORDS, aligned_words
from .orders import AnyOrder
from .packed import columns as columns_of, first_of_columns, has_keys, kind_of
from .problem import NarrowPolicy

MAX_PARTS = 32  # threads that share the blocks' aggregates of one column in the collector


class NarrowColumnReduce(ContiguousKernel):
    """The kernel: ``columns`` columns, ``unroll`` steps in flight, ``splits`` blocks for each outer slice.

    With several splits every block has rows (the policy sees to it).
    """

    def __init__(self, monoid, has_init: bool, policy: NarrowPolicy) -> None:
        self.columns, self.unroll, self.warps, self.split = policy.columns, policy.unroll, policy.warps, policy.split
        self.per_lane = policy.lane_bytes // (policy.columns * monoid.source.size)
        self.lane_bytes, self.anywhere, self.in_turn = policy.lane_bytes, policy.anywhere, policy.in_turn
        self.alone = policy.alone
        self.vectors = ceil_div(policy.lane_bytes, VECTOR_BYTES) + policy.anywhere  # that a lane loads
        # Rows that are not part of a step, as a vector with the last bytes of the array would reach beyond it.
        row_bytes = policy.columns * monoid.source.size
        self.kept_rows = ceil_div(VECTOR_BYTES - 1, row_bytes) if policy.anywhere else 0
        # of a power of two of columns a lane holds one, not all of them
        self.spread = policy.columns & (policy.columns - 1) == 0 and not policy.in_turn
        self.ordered = monoid  # of one lane, whose rows ascend
        # Indexes count from the warp's first row, in 32 bits, until the lanes are combined.
        self.relative = policy.in_turn and isinstance(monoid, ArgMonoid)
        monoid = AnyOrder(monoid) if self.relative else monoid
        self.parts = min(MAX_PARTS, policy.warps * LANES // policy.columns)
        self.places = max(policy.warps, self.parts)
        # as many blocks on a multiprocessor as there are registers for the states of a lane
        words = sum(t.width for t in monoid.types) // 32
        most = policy.columns * (words - (self.relative and policy.anywhere))  # a lane's own index has one word
        held = (policy.columns * words > 12) + (most > 40) if policy.in_turn else 2 * (words > 1)
        super().__init__(
            monoid,
            has_init,
            policy.warps * LANES,
            0 if policy.alone else partial_bytes(monoid.types, self.places * policy.columns) + 32,
            3 - held,
        )

    def body(self, a: Arguments):
        if self.alone:
            self.slices_of_warps(a)
        else:
            self.slice_of_block(a)

    @cute.jit
    def slices_of_warps(self, a: Arguments):
        """Each warp reduces a slice, and stores its results."""
        thread = cute.arch.thread_idx()[0]
        lane = thread % LANES
        outer = Int64(cute.arch.block_idx()[0]) * (self.threads // LANES) + thread // LANES
        if outer < a.outer:
            partial = self.reduce_run(a.x + outer * a.length * self.columns, a.length, Int32(0), Int32(1), lane)
            let_next_start()
            place = outer * self.columns
            if cutlass.const_expr(self.spread):
                if lane < self.columns:
                    self.store_result(a, place + column_of_lane(lane, self.columns), partial.state[0])
            else:
                if lane == 0:
                    for c in cutlass.range_constexpr(self.columns):
                        self.store_result(a, place + c, partial.state[c])

    @cute.jit
    def slice_of_block(self, a: Arguments):
        """A block reduces a slice, or its part of one."""
        thread, block = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
        split = block % a.splits
        outer = Int64(block // a.splits)
        storage = partial_array(self.monoid.types, self.places * self.columns)
        notice = Notice.make()
        warp = thread // LANES
        lane = thread % LANES
        if cutlass.const_expr(self.split):
            entry = Entry.none()
            if thread == 0:
                entry = enter(a.counters, outer, a.splits)
        x = a.x + outer * a.length * self.columns
        partial = self.reduce_run(x, a.length, split * self.warps + warp, a.splits * self.warps, lane)
        let_next_start()
        self.store_partials(storage, warp, partial, lane)
        if cutlass.const_expr(self.split):
            if thread == 0:
                notice.post(*entry.close(a.counters, a.splits, cute.arch.grid_dim()[0]))
        cute.arch.sync_threads()
        total = self.combine_partials(storage, Int32(self.warps), thread)
        if cutlass.const_expr(self.split):
            stride = a.outer * a.splits * self.columns
            at = outer * a.splits * self.columns
            if thread < self.columns:
                slots = Slots(a.slots, stride, notice.tag, self.monoid.types)
                slots.publish(at + split * self.columns + thread, total.state)
            if notice.collector:
                cute.arch.sync_threads()
                self.collect_slice(a, outer, Slots(a.slots, stride, notice.tag, self.monoid.types), at, storage, thread)
        else:
            if thread < self.columns:
                self.store_result(a, outer * self.columns + thread, total.state)

    @cute.jit
    def reduce_run(self, x, length, part, parts, lane):
        """The columns' aggregates over this warp's run of rows (``Maybe``): whole steps are dealt to all warps, the
        last warp also gets the ragged end."""
        step = LANES * self.per_lane
        steps = (cutlass.max(length - self.kept_rows, 0) if self.anywhere else length) // step
        begin, end = share(Int32(steps), part, parts)
        count = 1 if self.spread else self.columns
        none = self.ordered.nothing() if self.relative else zeros(self.monoid.types)
        partial = Maybe(tuple(none for _ in range(count)), Boolean(False))
        at = begin
        while at < end:
            words = cute.make_rmem_tensor((self.vectors * WORDS, self.unroll), Int32)
            first = Int64(at) * step + lane * self.per_lane
            for u in cutlass.range_constexpr(self.unroll):
                if at + u < end:
                    self.load(x + (first + u * step) * self.columns, words[(None, u)])
            for u in cutlass.range_constexpr(self.unroll):
                if at + u < end:
                    loaded = words[(None, u)]
                    if cutlass.const_expr(self.anywhere):
                        loaded = self.aligned(x + (first + u * step) * self.columns, loaded)
                    row = first + u * step
                    if cutlass.const_expr(self.relative):
                        row = (at - begin + u) * step + lane * self.per_lane
                    partial = partial.append(self.fold_step(loaded, row, lane), self.merge_steps)
            at += self.unroll
        if cutlass.const_expr(self.in_turn):
            states = partial.state
            if cutlass.const_expr(self.relative):
                states = tuple(self.ordered.place(state, Int64(begin) * step) for state in states)
            partial = Maybe(tuple(reduce_states(state, self.monoid.combine, lane) for state in states), partial.valid)
        if part == parts - 1:
            done = steps * step
            if done < length:
                partial = partial.append(self.fold_end(x, done, Int32(length - done), lane), self.merge)
        return partial

    def merge_steps(self, a, b):
        """The states of a lane's steps, or of the warp's."""
        return tuple(self.ordered.combine(x, y) for x, y in zip(a, b))

    def merge(self, a, b):
        return tuple(self.monoid.combine(x, y) for x, y in zip(a, b))

    def load(self, start, words):
        """Load the vectors that hold a lane's rows, which begin at ``start``."""
        if not self.anywhere:
            cute.autovec_copy(cute.make_tensor(aligned_words(start), cute.make_layout((self.vectors * WORDS,))), words)
            return
        skew = Int32(start.toint() & (VECTOR_BYTES - 1))
        base = aligned_words(start - skew // self.monoid.source.size)
        for v in range(self.vectors):  # nothing is read of vectors that hold nothing of the rows
            number = v if v < self.vectors - 1 else (skew + (self.lane_bytes - 1)) // VECTOR_BYTES
            source = cute.make_tensor(base + number * WORDS, cute.make_layout((WORDS,)))
            target = cute.make_tensor(words.iterator + v * WORDS, cute.make_layout((WORDS,)))
            cute.autovec_copy(source, target)

    def aligned(self, start, words):
        """The words that begin at ``start``, of those of the vectors that hold them."""
        skew = Int32(start.toint() & (VECTOR_BYTES - 1))
        rows = cute.make_rmem_tensor(((self.vectors - 1) * WORDS,), Int32)
        for i, word in enumerate(shifted([words[i] for i in range(self.vectors * WORDS)], skew)):
            rows[i] = Int32(word)
        return rows

    def fold_step(self, words, row, lane):
        """Reduce the rows a warp has loaded: first those of a lane, then the lanes, unless they keep their own."""
        columns = self.lane_columns(words, row)
        if self.in_turn:
            return tuple(columns)
        if self.spread:
            return (reduce_columns(columns, self.monoid.combine, lane),)
        return tuple(reduce_states(column, self.monoid.combine, lane) for column in columns)

    def lane_columns(self, words, row) -> list:
        """The state of each column over the rows of a lane, the first of which has number ``row``."""
        row_bytes = self.columns * self.monoid.source.size
        group = math.lcm(row_bytes, 4)  # bytes of some rows that are whole words
        keys = has_keys(self.monoid)
        if self.lane_bytes % group or not (keys or kind_of(self.monoid)):
            elements = cute.recast_tensor(words, self.monoid.source.cutlass)
            rows = [[elements[r * self.columns + c] for r in range(self.per_lane)] for c in range(self.columns)]
            return [self.ordered.run(column, row) for column in rows]
        each, combine = group // 4, self.ordered.combine
        groups = [[words[g * each + i] for i in range(each)] for g in range(self.lane_bytes // group)]
        if keys:
            combine, rows_of_group, found = AnyOrder(self.ordered).combine, group // row_bytes, []
            for i, (value, g) in enumerate(first_of_columns(self.monoid, groups)):
                found.append((value, row + type(row)(g * rows_of_group + i // self.columns)))
        else:
            found = list(columns_of(self.monoid, groups))
        return [tree(found[c :: self.columns], combine) for c in range(self.columns)]

    @cute.jit
    def fold_end(self, x, done, left, lane):
        """Reduce the last ``left`` rows, a few more than a step at most: a lane has up to ``each``, one by one."""
        each = (left + LANES - 1) // LANES
        first = lane * each
        stop = cutlass.min(first + each, left)
        columns = tuple(zeros(self.monoid.types) for _ in range(self.columns))
        if first < stop:
            columns = self.row(x, done + first)
        for r in range(first + 1, stop):
            columns = self.merge(columns, self.row(x, done + r))
        valid = (left + each - 1) // each
        totals = tuple(
            broadcast(reduce_valid(columns[c], valid, self.monoid.combine, lane)) for c in range(self.columns)
        )
        if cutlass.const_expr(self.spread):
            mine = column_of_lane(lane, self.columns)
            chosen = totals[0]
            for c in cutlass.range_constexpr(1, self.columns):
                chosen = select(mine == c, totals[c], chosen)
            totals = (chosen,)
        return totals

    def row(self, x, r):
        elements = cute.make_tensor(x + r * self.columns, cute.make_layout((self.columns,)))
        return tuple(self.monoid.lift(elements[c], Int64(r)) for c in range(self.columns))

    @cute.jit
    def store_partials(self, storage, warp, partial: Maybe, lane):
        """Store a warp's partial of each column in shared memory."""
        if cutlass.const_expr(self.spread):
            if lane < self.columns:
                place = warp * self.columns + column_of_lane(lane, self.columns)
                store_partial(storage, place, Maybe(partial.state[0], partial.valid))
        else:
            if lane == 0:
                for c in cutlass.range_constexpr(self.columns):
                    store_partial(storage, warp * self.columns + c, Maybe(partial.state[c], partial.valid))

    @cute.jit
    def combine_partials(self, storage, count, thread):
        """Thread c < columns: combine the first ``count`` partials of column c in shared memory (``Maybe``)."""
        total = Maybe.none(self.monoid.types)
        if thread < self.columns:
            for i in range(count):
                place = i * self.columns + thread
                if storage[-1][place] != 0:
                    total = total.append(get(storage, place, self.monoid.types), self.monoid.combine)
        return total

    @cute.jit
    def collect_slice(self, a: Arguments, outer, slots: cutlass.Constexpr, at, storage, thread):
        """The collector of an outer slice: ``parts`` threads a column each combine a run of the blocks' aggregates, one
        thread combines theirs."""
        part = thread // self.columns
        column = thread % self.columns
        if part < self.parts:
            first, stop = share(a.splits, part, Int32(self.parts))
            at += Int64(first) * self.columns + column
            found = slots.collect(at, stop - first, Int64(self.columns), self.monoid.combine)
            put(storage, part * self.columns + column, Maybe(found.state[0], found.valid).pack())
        cute.arch.sync_threads()
        total = self.combine_partials(storage, Int32(self.parts), thread)
        if thread < self.columns:
            self.store_result(a, outer * self.columns + thread, total.state)
