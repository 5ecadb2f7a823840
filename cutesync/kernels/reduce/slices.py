"""Reduction of many outer slices of a few KiB: a block copies whole slices to shared memory and reduces them there.

Slices are contiguous, so a block reads ``count`` of them as 16-byte vectors, whatever their length; only the ends of
this range are read element by element. Then each result has ``groups`` threads: elements of the middle axis are
``inner`` elements apart in shared memory. With ``pad`` (slices of whole vectors on 16-byte boundaries), so many bytes
follow each slice, so that slices do not begin on the same banks.

Barriers: one after the copy; with ``groups`` above a warp's share, one for each step of their combination.
"""

from __future__ import annotations

import cutlass
from cutlass import Boolean, Int32, Int64, cute
from cutlass.memory import SmemAllocator

from ...block.reduce import get, put, state_array, state_bytes
from ...block.split import share
from ...monoid import ArgMonoid, tree
from ...sync.overlap import let_next_start
from ...warp import LANES, Maybe, reduce_valid
from .base import Arguments, ReduceKernel
from .chunk import VECTOR_BYTES, WORDS, aligned_words
from .orders import AnyOrder
from .policy import SlicePolicy

THREADS = 256
LOADS = 4  # vectors of a thread in flight


class SliceReduce(ReduceKernel):
    """The kernel. A launch's ``tiles`` is the number of slices of a block."""

    def __init__(self, monoid, has_init: bool, policy: SlicePolicy) -> None:
        self.in_turn = policy.in_turn
        found = AnyOrder(monoid) if policy.in_turn and isinstance(monoid, ArgMonoid) else monoid
        self.groups, self.pad, self.rows, self.bytes = policy.groups, policy.pad, policy.rows, policy.bytes
        self.lanes = THREADS // policy.groups
        self.combines = self.groups > 1 and not policy.rows  # through shared memory; else by shuffles
        smem = self.bytes + 64 + (state_bytes(monoid.types, THREADS) if self.combines else 0)
        super().__init__(found, has_init, THREADS, smem, 1)

    @cute.jit
    def body(self, a: Arguments):
        thread, block = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
        first = Int64(block) * a.tiles
        count = Int32(cutlass.min(Int64(a.tiles), a.outer - first))
        length, inner = Int32(a.length), Int32(a.inner)
        size = self.monoid.source.size
        stage = SmemAllocator().allocate_array(Int32, self.bytes // 4 + 8, byte_alignment=16)
        x = a.x + first * (a.length * a.inner)
        skew = Int32(x.toint() & (VECTOR_BYTES - 1)) // size
        self.copy(x, stage, skew, count * length * inner, length * inner)
        storage = ()
        if cutlass.const_expr(self.combines):
            storage = state_array(self.monoid.types, THREADS)
        let_next_start()
        cute.arch.sync_threads()
        elements = cute.make_ptr(self.monoid.source.cutlass, stage.toint(), cute.AddressSpace.smem, assumed_align=size)
        lane = thread // self.groups if self.rows else thread % self.lanes
        group = thread % self.groups if self.rows else thread // self.lanes
        pitch = length * inner + self.pad // size
        results = count * inner
        used = cutlass.min(length, Int32(self.groups))
        done = Int32(0)
        while done < results:
            result = cutlass.min(done + lane, results - 1)
            outer = result // inner
            start = elements + (skew + outer * pitch + (result - outer * inner))
            state = self.own(start, length, inner, group)
            if cutlass.const_expr(self.rows):
                state = reduce_valid(state, used, self.monoid.combine, thread % LANES, self.groups)
            if cutlass.const_expr(self.combines):
                state = self.reduce_groups(state, storage, thread, group, used)
            if (group == 0) & (done + lane < results):
                self.store_result(a, first * a.inner + result, state)
            done += self.lanes

    @cute.jit
    def copy(self, x, stage, skew: Int32, count: Int32, each: Int32):
        """Copy ``count`` elements from ``x`` to shared memory, where they begin at element ``skew``; ``each`` to a
        slice."""
        thread = cute.arch.thread_idx()[0]
        vector = VECTOR_BYTES // self.monoid.source.size
        base = x - skew  # on a 16-byte boundary
        begin = (skew + (vector - 1)) // vector
        end = (skew + count) // vector
        words = cute.make_rmem_tensor((WORDS, LOADS), Int32)
        at = begin + thread
        while at < end:
            for u in cutlass.range_constexpr(LOADS):
                if at + u * THREADS < end:
                    start = aligned_words(base + Int64(at + u * THREADS) * vector)
                    cute.autovec_copy(cute.make_tensor(start, cute.make_layout((WORDS,))), words[(None, u)])
            for u in cutlass.range_constexpr(LOADS):
                if at + u * THREADS < end:
                    place = (at + u * THREADS) * WORDS
                    if cutlass.const_expr(self.pad > 0):
                        place += (at + u * THREADS) // (each // vector) * (self.pad // 4)
                    target = cute.make_ptr(Int32, (stage + place).toint(), cute.AddressSpace.smem, assumed_align=16)
                    cute.autovec_copy(words[(None, u)], cute.make_tensor(target, cute.make_layout((WORDS,))))
            at += LOADS * THREADS
        if cutlass.const_expr(self.pad == 0):
            self.copy_ends(x, stage, skew, count, begin * vector - skew, cutlass.max(end, begin) * vector - skew)

    @cute.jit
    def copy_ends(self, x, stage, skew: Int32, count: Int32, head: Int32, tail: Int32):
        """Copy the elements before ``head`` and from ``tail`` on."""
        thread = cute.arch.thread_idx()[0]
        dtype = self.monoid.source
        elements = cute.make_ptr(dtype.cutlass, stage.toint(), cute.AddressSpace.smem, assumed_align=dtype.size)
        one = cute.make_layout((1,))
        if thread < cutlass.min(head, count):
            cute.make_tensor(elements + (skew + thread), one)[0] = cute.make_tensor(x + thread, one)[0]
        if tail + thread < count:
            cute.make_tensor(elements + (skew + tail + thread), one)[0] = cute.make_tensor(x + (tail + thread), one)[0]

    @cute.jit
    def own(self, start, length: Int32, inner: Int32, group: Int32):
        """The state of a group's elements of the column at ``start``."""
        if cutlass.const_expr(self.in_turn):
            at = group
            step = self.groups
            count = (length - group + (self.groups - 1)) // self.groups
        else:
            at, stop = share(length, group, Int32(self.groups))
            step = 1
            count = stop - at
        partial = Maybe(self.monoid.nothing(), Boolean(False))
        while count >= 8:
            partial = partial.append(self.run(start, at, step, inner), self.monoid.combine)
            at += 8 * step
            count -= 8
        while count > 0:
            value = cute.make_tensor(start + at * inner, cute.make_layout((1,)))[0]
            partial = partial.append(self.monoid.lift(value, at), self.monoid.combine)
            at += step
            count -= 1
        return self.monoid.place(partial.state, Int64(0))

    def run(self, start, at, step: int, inner):
        """The state of 8 elements of a column, from number ``at`` on."""
        one = cute.make_layout((1,))
        values = [cute.make_tensor(start + (at + u * step) * inner, one)[0] for u in range(8)]
        if self.in_turn and (self.monoid.takes_index or isinstance(self.monoid, AnyOrder)):
            return tree([self.monoid.lift(value, at + u * step) for u, value in enumerate(values)], self.monoid.combine)
        return self.monoid.run(values, at)

    @cute.jit
    def reduce_groups(self, state, storage, thread, group, used: Int32):
        """Combine the states of the first ``used`` groups in order, in group 0."""
        for log in cutlass.range_constexpr((self.groups - 1).bit_length()):
            distance = 1 << log
            if group % (2 * distance) == distance:
                put(storage, thread, state)
            cute.arch.sync_threads()
            if (group % (2 * distance) == 0) & (group + distance < used):
                following = get(storage, thread + distance * self.lanes, self.monoid.types)
                state = self.monoid.combine(state, following)
        cute.arch.sync_threads()  # the storage is used again
        return state
