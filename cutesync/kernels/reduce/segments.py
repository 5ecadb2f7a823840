"""Reduction of long rows in one launch, in the order of the elements, so any associative operator works.

A row is cut into chunks of ``32 * unroll`` 16-byte vectors. A warp folds a chunk: each lane its vectors, then the lanes by shuffles.
Who folds a row is the ``scope``: a *warp* walks the chunks of its row and keeps one running state; a *block* deals chunk c to warp
c % warps, leaves every chunk's state in shared memory at place c, and warp 0 folds those; a *grid* gives each of ``splits`` blocks a
contiguous share, and the block that started last folds the blocks' states (``sync.gather``). Which element meets which depends on
lengths alone: the result is bitwise the same in every run and on every GPU.

Bytes: every element is read once, in 16-byte vectors; a misaligned row gives up its first and last few elements to narrow loads.
On an H200, dealing chunks to warps in turn reads 1.3 % faster than giving each warp one long run (4.56 against 4.50 TB/s); the
shuffles that keep the order cost nothing measurable.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64
from cutlass.memory import SmemAllocator

from ...block.reduce import fold_storage, fold_storage_bytes, fold_threads, get, put, state_array, state_bytes
from ...block.split import share
from ...sync.atomic import atomic_fold
from ...sync.gather import collect, enter, publish, settle
from ...sync.overlap import let_next_start
from ...warp import LANES, reduce_valid
from .base import ReduceKernel
from .chunk import ChunkFold

SLOTS = 512  # chunk states a block keeps before warp 0 folds them: 2 or 4 KiB of shared memory a member


class SegmentReduce(ReduceKernel):
    """The kernel. ``scope`` says who folds a row: a "warp", a "block", the "grid" (all blocks share one row) or "grid_rows"
    (``splits`` blocks a row). Two rungs of the ladder are kept for comparison: "level" folds ``length`` elements a block of an array of
    ``inner``, one launch a level; "atomic" folds every block's state into ``out`` by an atomic.

    ``whole`` promises that every row is whole chunks that begin on 16-byte boundaries, ``few`` that at most 32 blocks share a row. What
    others need is then left out, which small arrays feel: a launch fetches its instructions as it does its data, and finds none of them in
    the caches of an SM."""

    def __init__(
        self,
        monoid,
        has_init: bool,
        scope: str,
        warps: int,
        unroll: int,
        blocks_per_sm: int,
        whole: bool = False,
        few: bool = False,
    ) -> None:
        block = 0 if scope == "warp" else state_bytes(monoid.types, SLOTS)
        grid = fold_storage_bytes(monoid.types, warps) + 16 if scope.startswith("grid") else 0
        super().__init__(monoid, has_init, warps * LANES, block + grid, blocks_per_sm)
        self.scope, self.warps, self.whole, self.few = scope, warps, whole, few
        self.chunk = ChunkFold(monoid, unroll)

    @cute.jit
    def body(self, x, out, init, slots, counters, outer, length, inner, splits, tiles):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        if cutlass.const_expr(self.scope == "warp"):
            self.warp_rows(x, out, init, outer, length, block, thread)
        elif cutlass.const_expr(self.scope in ("block", "level")):
            row = Int64(block)
            count = cutlass.min(length, inner - row * length) if self.scope == "level" else length
            state = self.block_share(x + row * length, count, Int32(0), Int32(1), thread)
            if thread == 0:
                self.finish(out, init, row, state)
        elif cutlass.const_expr(self.scope == "atomic"):
            state = self.block_share(x, length, block, splits, thread)
            if thread == 0:
                atomic_fold(self.monoid.op.name, out, self.monoid.lower(state))
        else:
            self.grid_row(x, out, init, slots, counters, length, splits, block, thread)

    @cute.jit
    def warp_rows(self, x, out, init, rows, length, block, thread):
        row = Int64(block) * self.warps + thread // LANES
        if row < rows:
            state = self.chunk.row(x + row * length, length, thread % LANES)
            let_next_start()
            if thread % LANES == 0:
                self.finish(out, init, row, state)

    @cute.jit
    def grid_row(self, x, out, init, slots, counters, length, splits, block, thread):
        row = Int64(block // splits)
        split = block % splits
        blocks, _, _ = cute.arch.grid_dim()
        entered = (Int64(0), Int32(0))
        if thread == 0:
            entered = enter(counters) if self.scope == "grid" else enter(counters, row, splits)
        state = self.block_share(x + row * length, length, split, splits, thread)
        notice = cute.make_tensor(SmemAllocator().allocate_array(Int32, 2), cute.make_layout((2,)))
        storage = fold_storage(self.monoid.types, self.warps)
        if thread < LANES:
            collector = Boolean(False)
            tag = Int32(0)
            if thread == 0:
                collector, tag = settle(counters, entered, splits, blocks)
                publish(slots, block, blocks, state, tag)
                notice[0] = Int32(collector)
                notice[1] = tag
            if cutlass.const_expr(self.few):
                tag = cute.arch.shuffle_sync(tag, 0)
                if cute.arch.shuffle_sync(Int32(collector), 0) != 0:
                    self.collect_few(out, init, slots, row, splits, blocks, tag, thread)
        if cutlass.const_expr(not self.few):
            cute.arch.sync_threads()
            if notice[0] != 0:
                self.collect_row(out, init, slots, row, splits, blocks, notice[1], storage, thread)

    @cute.jit
    def collect_few(self, out, init, slots, row, splits, blocks, tag, lane):
        """The collector's first warp: a lane a block, then the lanes."""
        count = cutlass.select_(lane < splits, Int32(1), Int32(0))
        _, states = collect(
            slots,
            row * splits + lane,
            count,
            Int64(1),
            Int64(blocks),
            tag,
            self.monoid.types,
            self.monoid.combine,
            batch=1,
        )
        total = reduce_valid(states[0], splits, self.monoid.combine, lane)
        if lane == 0:
            self.finish(out, init, row, total)

    @cute.jit
    def collect_row(self, out, init, slots, row, splits, blocks, tag, storage, thread):
        """The collector: thread t folds the states of blocks [t * each, (t + 1) * each) of the row, then the block its threads."""
        each = (splits + self.threads - 1) // self.threads
        first = thread * each
        count = cutlass.min(first + each, splits) - first
        have, states = collect(
            slots,
            row * splits + first,
            count,
            Int64(1),
            Int64(blocks),
            tag,
            self.monoid.types,
            self.monoid.combine,
            batch=1,
        )
        _, total = fold_threads(states[0], have, self.monoid.combine, storage, thread)
        if thread == 0:
            self.finish(out, init, row, total)

    @cute.jit
    def block_share(self, x, length, split, splits, thread):
        """Fold this block's contiguous share of a row: whole chunks, the first block also the misaligned head, the last block the
        ragged end. Thread 0 gets the state. Chunks go to warps in turn, ``SLOTS`` chunks a round."""
        chunk_states = state_array(self.monoid.types, SLOTS)
        lane = thread % LANES
        warp = thread // LANES
        head = Int64(0) if self.whole else cutlass.min(Int64(self.chunk.misaligned(x)), length)
        full = Int32((length - head) // self.chunk.elements)
        begin, end = share(full, split, splits)
        have = Boolean(False)
        state = tuple(t(0) for t in self.monoid.types)
        if cutlass.const_expr(not self.whole):
            if (split == 0) & (head > 0):
                have = Boolean(True)
                if warp == 0:
                    state = self.chunk.narrow(x, Int32(head), Int64(0), lane)
        more = Boolean(True)
        while more:
            stop = cutlass.min(begin + (SLOTS - 2), end)
            more = stop < end
            self.round(x, head, begin, stop, chunk_states, warp, lane)
            count = stop - begin
            if cutlass.const_expr(not self.whole):
                if (split == splits - 1) & (stop == full):
                    count = self.ragged_end(x, head, length, full, count, chunk_states, warp, lane)
            cute.arch.sync_threads()
            if (warp == 0) & (count > 0):
                total = self.fold_slots(chunk_states, count, lane)
                if have & (lane == 0):
                    total = self.monoid.combine(state, total)
                state = total
                have = Boolean(True)
            begin = stop
            if more:
                cute.arch.sync_threads()
        let_next_start()
        return state

    @cute.jit
    def round(self, x, head, begin, stop, slots, warp, lane):
        """Fold the chunks ``begin + warp, begin + warp + warps, ...`` below ``stop`` into slots 0, 1, ..."""
        place = warp
        start = x + head + Int64(begin + warp) * self.chunk.elements
        index = head + Int64(begin + warp) * self.chunk.elements
        for _ in cutlass.range((stop - begin - warp + self.warps - 1) // self.warps, unroll=1):
            chunk = self.chunk.load(start, lane)
            self.keep(slots, place, self.chunk.fold(chunk, index, lane), lane)
            start += self.warps * self.chunk.elements
            index += self.warps * self.chunk.elements
            place += self.warps

    @cute.jit
    def ragged_end(self, x, head, length, full, count, slots, warp, lane):
        """Fold what follows the last whole chunk into the next slots; the number of slots then in use."""
        at = head + Int64(full) * self.chunk.elements
        left = Int32(length - at) // self.chunk.vector
        tail = Int32(length - at) - left * self.chunk.vector
        if left > 0:
            if warp == count % self.warps:
                self.keep(slots, count, self.chunk.ragged(x + at, left, at, lane), lane)
            count += 1
        if tail > 0:
            at += left * self.chunk.vector
            if warp == count % self.warps:
                self.keep(slots, count, self.chunk.narrow(x + at, tail, at, lane), lane)
            count += 1
        return count

    @cute.jit
    def keep(self, slots, place, state, lane):
        if lane == 0:
            put(slots, place, state)

    @cute.jit
    def fold_slots(self, slots, count, lane):
        """One warp folds ``count`` states of the block: lane l those in [l * each, (l + 1) * each), then the lanes."""
        each = (count + LANES - 1) // LANES
        first = lane * each
        stop = cutlass.min(first + each, count)
        state = tuple(t(0) for t in self.monoid.types)
        if first < stop:
            state = get(slots, first, self.monoid.types)
        for i in cutlass.range(first + 1, stop, unroll=1):
            state = self.monoid.combine(state, get(slots, i, self.monoid.types))
        return reduce_valid(state, (count + each - 1) // each, self.monoid.combine, lane)
