"""Reduction of long rows in one launch, in the order of the elements, so any associative operator works.

A row is cut into chunks of ``32 * unroll`` 16-byte vectors. A warp folds a chunk: each lane its vectors, then the lanes by shuffles.
Who folds a row is the ``scope``: a *warp* walks the chunks of its row and keeps one running state; a *block* deals chunk c to warp
c % warps, leaves every chunk's state in shared memory at place c and folds those at the end; a *grid* gives each of ``splits``
blocks a contiguous share, every block leaves its state in the workspace and takes a ticket, and the block with the last ticket
folds the states in index order. Which element meets which depends on lengths alone: the result is bitwise the same in every run
and on every GPU.

Bytes: every element is read once, in 16-byte vectors; a misaligned row gives up its first and last few elements to narrow loads.
On an H200, dealing chunks to warps in turn reads 1.3 % faster than giving each warp one long run (4.56 against 4.50 TB/s); the
shuffles that keep the order cost nothing measurable.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64
from cutlass.memory import SmemAllocator

from ..block.reduce import fold_storage, fold_storage_bytes, fold_threads, get, put, state_array, state_bytes
from ..sync.ticket import take_ticket
from ..warp import LANES
from .base import ReduceKernel
from .chunk import ChunkFold
from .split import share, workspace_states

SLOTS = 1024  # chunk states a block keeps before it folds them: 4 or 8 KiB of shared memory a member


class SegmentReduce(ReduceKernel):
    """The kernel. ``scope`` says who folds a row: a "warp", a "block", or the "grid" (several blocks a row)."""

    def __init__(self, monoid, has_init: bool, scope: str, warps: int, unroll: int, blocks_per_sm: int) -> None:
        smem = 0 if scope == "warp" else state_bytes(monoid.types, SLOTS) + fold_storage_bytes(monoid.types, warps) + 16
        super().__init__(monoid, has_init, warps * LANES, smem, blocks_per_sm)
        self.scope, self.warps, self.slots = scope, warps, SLOTS
        self.chunk = ChunkFold(monoid, unroll)

    @cute.jit
    def body(self, x, out, init, states, tickets, outer, length, inner, splits, tiles):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        if cutlass.const_expr(self.scope == "warp"):
            self.warp_rows(x, out, init, outer, length, block, thread)
        elif cutlass.const_expr(self.scope == "block"):
            row = Int64(block)
            state = self.block_share(x + row * length, length, Int32(0), Int32(1), self.storage(), thread)
            if thread == 0:
                self.finish(out, init, row, state)
        else:
            self.grid_row(x, out, init, states, tickets, length, splits, block, thread)

    @cute.jit
    def warp_rows(self, x, out, init, rows, length, block, thread):
        row = Int64(block) * self.warps + thread // LANES
        if row < rows:
            state = self.chunk.row(x + row * length, length, thread % LANES)
            if thread % LANES == 0:
                self.finish(out, init, row, state)

    @cute.jit
    def grid_row(self, x, out, init, states, tickets, length, splits, block, thread):
        storage = self.storage()
        last = cute.make_tensor(SmemAllocator().allocate_array(Int32, 1), cute.make_layout((1,)))
        row = Int64(block // splits)
        split = block % splits
        state = self.block_share(x + row * length, length, split, splits, storage, thread)
        row_states = workspace_states(self.monoid.types, states, row * splits, cute.arch.grid_dim()[0])
        if thread == 0:
            put(row_states, split, state)
            last[0] = Int32(take_ticket(tickets + row, splits))
        cute.arch.sync_threads()
        if last[0] != 0:
            self.fold_partials(out, init, row, row_states, splits, storage, thread)

    def storage(self):
        """Shared memory: the states of up to ``slots`` chunks, and what the block's own fold needs."""
        return state_array(self.monoid.types, self.slots), fold_storage(self.monoid.types, self.warps)

    @cute.jit
    def block_share(self, x, length, split, splits, storage, thread):
        """Fold this block's contiguous share of a row: whole chunks, the first block also the misaligned head, the last block the
        ragged end. Thread 0 gets the state. Chunks go to warps in turn, ``slots`` chunks a round."""
        lane = thread % LANES
        warp = thread // LANES
        head = cutlass.min(Int64(self.chunk.misaligned(x)), length)
        full = Int32((length - head) // self.chunk.elements)
        begin, end = share(full, split, splits)
        have = Boolean(False)
        state = tuple(t(0) for t in self.monoid.types)
        if (split == 0) & (head > 0):
            have = Boolean(True)
            if warp == 0:
                state = self.chunk.narrow(x, Int32(head), Int64(0), lane)
        more = Boolean(True)
        while more:
            stop = cutlass.min(begin + (self.slots - 2), end)
            more = stop < end
            self.round(x, head, begin, stop, storage[0], warp, lane)
            count = stop - begin
            if (split == splits - 1) & (stop == full):
                count = self.ragged_end(x, head, length, full, count, storage[0], warp, lane)
            cute.arch.sync_threads()
            any_chunk, total = self.fold_array(storage[0], count, storage[1], thread)
            if have & any_chunk:
                total = self.monoid.combine(state, total)
            if any_chunk:
                state = total
            have = have | any_chunk
            begin = stop
            if more:
                cute.arch.sync_threads()
        return state

    @cute.jit
    def round(self, x, head, begin, stop, slots, warp, lane):
        """Fold the chunks ``begin + warp, begin + warp + warps, ...`` below ``stop`` into slots 0, 1, ..."""
        place = warp
        start = x + head + Int64(begin + warp) * self.chunk.elements
        index = head + Int64(begin + warp) * self.chunk.elements
        while place < stop - begin:
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
    def fold_array(self, states, count, storage, thread):
        """``(any, state)`` in thread 0: fold ``count`` states of an array, thread t those in [t * each, (t + 1) * each)."""
        each = (count + self.warps * LANES - 1) // (self.warps * LANES)
        first = thread * each
        stop = cutlass.min(first + each, count)
        have = first < stop
        state = tuple(t(0) for t in self.monoid.types)
        if have:
            state = get(states, first, self.monoid.types)
        for i in range(first + 1, stop):
            state = self.monoid.combine(state, get(states, i, self.monoid.types))
        return fold_threads(state, have, self.monoid.combine, storage, thread)

    @cute.jit
    def fold_partials(self, out, init, row, row_states, splits, storage, thread):
        _, total = self.fold_array(row_states, splits, storage[1], thread)
        if thread == 0:
            self.finish(out, init, row, total)
