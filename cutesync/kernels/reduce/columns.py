"""Reduction along an axis that is not the last: neighbouring lanes fold neighbouring columns, row by row.

A block of ``lanes * groups`` threads covers ``lanes * width`` columns; each of its row groups folds a contiguous run of the block's
rows, and the groups are folded in order through shared memory. ``splits`` blocks share the rows of a tile of columns: the
one of them that started last folds the blocks' states, again in order (``sync.gather``).
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
from .base import ReduceKernel
from .chunk import VECTOR_BYTES, WORDS, aligned_words


class ColumnReduce(ReduceKernel):
    """The kernel. With ``vectors`` a thread folds the columns of one 16-byte vector (rows and base aligned), else a single one."""

    def __init__(
        self,
        monoid,
        has_init: bool,
        vectors: bool,
        lanes: int,
        groups: int,
        unroll: int,
        split: bool,
        aligned_out: bool,
    ) -> None:
        self.width = VECTOR_BYTES // monoid.source.size if vectors else 1
        self.lanes, self.groups, self.unroll, self.split, self.vectors, self.aligned_out = (
            lanes,
            groups,
            unroll,
            split,
            vectors,
            aligned_out,
        )
        threads = lanes * groups
        smem = state_bytes((*monoid.types, Int32), threads * self.width) + 32 if groups > 1 or split else 0
        super().__init__(monoid, has_init, threads, smem, 1)

    @cute.jit
    def body(self, x, out, init, slots, counters, outer, length, inner, splits, tiles):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        tile = block % tiles
        split = (block // tiles) % splits
        slab = Int64(block // tiles // splits)
        group = thread // self.lanes
        column = (Int64(tile) * self.lanes + thread % self.lanes) * self.width
        inside = column < inner
        begin, end = share(length, Int64(split), Int64(splits))
        first, stop = share(end - begin, Int64(group), Int64(self.groups))
        if cutlass.const_expr(not self.vectors):
            column = cutlass.min(column, inner - 1)
        if cutlass.const_expr(self.split):
            notice = cute.make_tensor(SmemAllocator().allocate_array(Int32, 2), cute.make_layout((2,)))
            entered = (Int64(0), Int32(0))
            if thread == 0:
                entered = enter(counters, slab * tiles + tile, splits)
        have, state = self.fold_rows(x + (slab * length * inner + column), begin + first, begin + stop, inner, inside)
        let_next_start()
        if cutlass.const_expr(self.split):
            if thread == 0:
                announce(counters, entered, splits, notice)
        if cutlass.const_expr(self.smem > 0):  # its barriers also show every thread what thread 0 learnt on entering
            storage = state_array((*self.monoid.types, Int32), self.threads * self.width)
            have, state = self.fold_groups(have, state, storage, thread, group)
        place = slab * inner + column
        if cutlass.const_expr(self.split):
            stride = outer * splits * inner
            if (group == 0) & inside:
                self.publish(slots, (slab * splits + split) * inner + column, stride, state, notice[1])
            if notice[0] != 0:
                self.collect_tile(
                    out,
                    init,
                    place,
                    slots,
                    slab * splits * inner + column,
                    stride,
                    splits,
                    inner,
                    inside,
                    storage,
                    thread,
                    group,
                    notice[1],
                )
        else:
            if (group == 0) & inside:
                self.store(out, init, place, state)

    @cute.jit
    def collect_tile(self, out, init, place, slots, at, stride, splits, inner, inside, storage, thread, group, tag):
        """The tile's collector: each row group folds the states of a contiguous run of blocks, then the groups are folded."""
        first, stop = share(splits, group, Int32(self.groups))
        count = stop - first
        if cutlass.not_(inside):
            count = Int32(0)
        have, state = collect(
            slots,
            at + Int64(first) * inner,
            count,
            inner,
            stride,
            tag,
            self.monoid.types,
            self.monoid.combine,
            self.width,
        )
        have, state = self.fold_groups(have, state, storage, thread, group)
        if (group == 0) & inside:
            self.store(out, init, place, state)

    def publish(self, slots, at, stride, state, tag):
        for c in range(self.width):
            publish(slots, at + c, stride, state[c], tag)

    @cute.jit
    def fold_rows(self, x, begin, end, inner, inside):
        """``(any, states of this thread's columns)`` of rows ``begin`` to ``end``: ``unroll`` rows in flight."""
        have = Boolean(False)
        state = self.nothing()
        words = (
            cute.make_rmem_tensor((WORDS, self.unroll), Int32)
            if self.vectors
            else cute.make_rmem_tensor((1, self.unroll), self.monoid.source.cutlass)
        )
        row = begin
        if inside:
            at = x + begin * inner
            while row + self.unroll <= end:
                for u in cutlass.range_constexpr(self.unroll):
                    cute.autovec_copy(self.element(at + u * inner), words[(None, u)])
                rows = [self.lifted(words[(None, u)], row + u) for u in range(self.unroll)]
                folded = tree(rows, self.merge)
                if have:
                    folded = self.merge(state, folded)
                state = folded
                have = Boolean(True)
                row += self.unroll
                at += self.unroll * inner
            if row < end:
                left = Int32(end - row)
                for u in cutlass.range_constexpr(self.unroll - 1):
                    if u < left:
                        cute.autovec_copy(self.element(at + u * inner), words[(None, u)])
                for u in cutlass.range_constexpr(self.unroll - 1):
                    if u < left:
                        folded = self.lifted(words[(None, u)], row + u)
                        if have:
                            folded = self.merge(state, folded)
                        state = folded
                        have = Boolean(True)
        return have, state

    def element(self, at):
        """What a thread loads of one row: a vector as words, or one element."""
        return (
            cute.make_tensor(aligned_words(at), cute.make_layout((WORDS,)))
            if self.vectors
            else cute.make_tensor(at, cute.make_layout((1,)))
        )

    def nothing(self):
        return tuple(tuple(t(0) for t in self.monoid.types) for _ in range(self.width))

    def lifted(self, words, index):
        elements = cute.recast_tensor(words, self.monoid.source.cutlass) if self.vectors else words
        return tuple(self.monoid.lift(elements[c], index) for c in range(self.width))

    def merge(self, a, b):
        return tuple(self.monoid.combine(x, y) for x, y in zip(a, b))

    @cute.jit
    def fold_groups(self, have, state, storage, thread, group):
        """Fold the row groups in order; group 0 gets ``(any, states)``. Two block barriers, so the storage may be used again."""
        if cutlass.const_expr(self.groups == 1):
            cute.arch.sync_threads()
        else:
            for c in cutlass.range_constexpr(self.width):
                put(storage, c * self.threads + thread, (*state[c], Int32(have)))
            cute.arch.sync_threads()
            if group == 0:
                for g in range(1, self.groups):
                    other = thread + g * self.lanes
                    valid = storage[-1][other]
                    if valid != 0:
                        following = tuple(
                            get(storage, c * self.threads + other, self.monoid.types) for c in range(self.width)
                        )
                        if have:
                            following = self.merge(state, following)
                        state = following
                        have = Boolean(True)
            cute.arch.sync_threads()
        return have, state

    def store(self, out, init, place, state):
        results = cute.make_rmem_tensor((self.width,), self.monoid.result.cutlass)
        for c in range(self.width):
            results[c] = self.result(init, state[c])
        cute.autovec_copy(results, self.aligned_result(out, place, self.width, self.aligned_out))
