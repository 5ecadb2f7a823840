"""Reduction along an axis that is not the last: neighbouring lanes reduce neighbouring columns, row by row.

A block of ``lanes * groups`` threads covers ``lanes * width`` columns; each of its row groups reduces a contiguous run
of the block's rows, and the groups' partials are combined in order through shared memory. ``splits`` blocks share the
rows of a tile of columns: the one of them that started last combines the blocks' aggregates, again in order
(``sync.gather``).
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
from cutlass import Boolean, Int32, Int64, cute

from ...block.reduce import get, partial_array, partial_bytes, put
from ...block.split import share
from ...monoid import tree
from ...sync.gather import Entry, Notice, Slots, enter
from ...sync.overlap import let_next_start
from ...warp import Maybe, zeros
from ..arrays import pointers_of
from ..hardware import VECTOR_BYTES
from .base import Arguments, ContiguousKernel
from .chunk import WORDS, aligned_words
from .packed import columns, first_of_columns, has_keys, kind_of
from .problem import ColumnPolicy

# A thread of a block: its rank, its row group, the number of its first result, and whether its columns exist.
Member = namedtuple("Member", "thread group result inside")


class ColumnReduce(ContiguousKernel):
    """The kernel. A thread reduces one column, or with ``vectors`` those of a 16-byte vector (rows and base
    aligned)."""

    def __init__(self, monoid, has_init: bool, policy: ColumnPolicy) -> None:
        self.width = VECTOR_BYTES // monoid.source.size if policy.vectors else 1
        self.lanes, self.groups, self.unroll, self.split = policy.lanes, policy.groups, policy.unroll, policy.split
        self.vectors, self.aligned_out = policy.vectors, policy.aligned_out
        threads = policy.lanes * policy.groups
        smem = partial_bytes(monoid.types, threads * self.width) + 32 if policy.groups > 1 or policy.split else 0
        super().__init__(monoid, has_init, threads, smem, 1)

    @cute.jit
    def body(self, a: Arguments):
        thread, block = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
        tile = block % a.tiles
        split = (block // a.tiles) % a.splits
        outer = Int64(block // a.tiles // a.splits)
        group = thread // self.lanes
        column = (Int64(tile) * self.lanes + thread % self.lanes) * self.width
        inside = column < a.inner
        begin, end = share(a.length, Int64(split), Int64(a.splits))
        first, stop = share(end - begin, Int64(group), Int64(self.groups))
        if cutlass.const_expr(not self.vectors):
            column = cutlass.min(column, a.inner - 1)
        if cutlass.const_expr(self.split):
            notice = Notice.make()
            entry = Entry.none()
            if thread == 0:
                entry = enter(a.counters, outer * a.tiles + tile, a.splits)
        start = a.x + (outer * a.length * a.inner + column)
        partial = self.reduce_rows(start, begin + first, begin + stop, a.inner, inside)
        let_next_start()
        if cutlass.const_expr(self.split):
            if thread == 0:
                notice.post(*entry.close(a.counters, a.splits, cute.arch.grid_dim()[0]))
        if cutlass.const_expr(self.smem > 0):  # its barriers also show every thread what thread 0 learnt on entering
            storage = partial_array(self.monoid.types, self.threads * self.width)
            partial = self.reduce_groups(partial, storage, thread, group)
        me = Member(thread, group, outer * a.inner + column, inside)
        if cutlass.const_expr(self.split):
            stride = a.outer * a.splits * a.inner
            if (group == 0) & inside:
                slot = (outer * a.splits + split) * a.inner + column
                self.publish(Slots(a.slots, stride, notice.tag, self.monoid.types), slot, partial.state)
            if notice.collector:
                first = outer * a.splits * a.inner + column
                self.collect_tile(a, me, Slots(a.slots, stride, notice.tag, self.monoid.types), first, storage)
        else:
            if (group == 0) & inside:
                self.store(a, me, partial.state)

    def publish(self, slots: Slots, at, states) -> None:
        for c in range(self.width):
            slots.publish(at + c, states[c])

    @cute.jit
    def collect_tile(self, a: Arguments, me: Member, slots: cutlass.Constexpr, at, storage):
        """The tile's collector: each row group combines a contiguous run of the blocks' aggregates, then the groups."""
        first, stop = share(a.splits, me.group, Int32(self.groups))
        count = stop - first
        if cutlass.not_(me.inside):
            count = Int32(0)
        found = slots.collect(at + Int64(first) * a.inner, count, a.inner, self.monoid.combine, self.width)
        total = self.reduce_groups(found, storage, me.thread, me.group)
        if (me.group == 0) & me.inside:
            self.store(a, me, total.state)

    @cute.jit
    def reduce_rows(self, x, begin, end, inner, inside):
        """The aggregates (``Maybe``) of this thread's columns over rows ``begin`` to ``end``: ``unroll`` in flight."""
        partial = Maybe(tuple(zeros(self.monoid.types) for _ in range(self.width)), Boolean(False))
        shape = (WORDS if self.vectors else 1, self.unroll)
        types = [Int32 if self.vectors else dtype.cutlass for dtype in self.monoid.sources]
        words = tuple(cute.make_rmem_tensor(shape, t) for t in types)
        row = begin
        if inside:
            at = x + begin * inner
            while row + self.unroll <= end:
                for u in cutlass.range_constexpr(self.unroll):
                    self.load(at + u * inner, words, u)
                partial = partial.append(self.aggregate(words, row), self.merge)
                row += self.unroll
                at += self.unroll * inner
            if row < end:
                left = Int32(end - row)
                for u in cutlass.range_constexpr(self.unroll - 1):
                    if u < left:
                        self.load(at + u * inner, words, u)
                for u in cutlass.range_constexpr(self.unroll - 1):
                    if u < left:
                        partial = partial.append(self.lifted(words, u, row + u), self.merge)
        return partial

    def load(self, at, words, u: int) -> None:
        """Load what a thread has of one row: a vector as words, or one element of each input."""
        for pointer, target in zip(pointers_of(at), words):
            start = aligned_words(pointer) if self.vectors else pointer
            layout = cute.make_layout((WORDS if self.vectors else 1,))
            cute.autovec_copy(cute.make_tensor(start, layout), target[(None, u)])

    def aggregate(self, words, index):
        """The aggregate of each column over ``unroll`` loaded rows, the first of which has number ``index``."""
        if len(words) > 1:
            return tree([self.lifted(words, u, index + u) for u in range(self.unroll)], self.merge)
        if self.vectors and kind_of(self.monoid):
            return columns(self.monoid, [words[0][(None, u)] for u in range(self.unroll)])
        if self.vectors and has_keys(self.monoid):
            found = first_of_columns(self.monoid, [words[0][(None, u)] for u in range(self.unroll)])
            return tuple(self.monoid.place(state, index) for state in found)
        rows = [self.elements(words, u)[0] for u in range(self.unroll)]
        base = index if self.monoid.takes_index else Int32(0)  # the places of argmax are narrow inside these rows
        states = [self.monoid.run([row[c] for row in rows], base) for c in range(self.width)]
        return tuple(self.monoid.place(state, index) for state in states)

    def elements(self, words, u: int):
        """What a thread has of row ``u``, a tensor for each input."""
        rows = [row[(None, u)] for row in words]
        return [cute.recast_tensor(rows[0], self.monoid.source.cutlass)] if self.vectors else rows

    def lifted(self, words, u: int, index):
        rows = self.elements(words, u)
        return tuple(self.monoid.lift(*(row[c] for row in rows), index) for c in range(self.width))

    def merge(self, a, b):
        return tuple(self.monoid.combine(x, y) for x, y in zip(a, b))

    @cute.jit
    def reduce_groups(self, partial: Maybe, storage, thread, group):
        """Combine the row groups' partials in order, in group 0: a barrier for each step, and one behind."""
        if cutlass.const_expr(self.groups == 1):
            cute.arch.sync_threads()
        else:
            for log in cutlass.range_constexpr((self.groups - 1).bit_length()):
                distance = 1 << log
                if group % (2 * distance) == distance:
                    for c in cutlass.range_constexpr(self.width):
                        put(storage, c * self.threads + thread, Maybe(partial.state[c], partial.valid).pack())
                cute.arch.sync_threads()
                other = thread + distance * self.lanes
                if (group % (2 * distance) == 0) & (group + distance < self.groups):
                    if storage[-1][other] != 0:
                        places = [c * self.threads + other for c in range(self.width)]
                        following = tuple(get(storage, place, self.monoid.types) for place in places)
                        partial = partial.append(following, self.merge)
            cute.arch.sync_threads()
        return partial

    def store(self, a: Arguments, me: Member, states) -> None:
        self.store_results(a, me.result, states, self.aligned_out)
