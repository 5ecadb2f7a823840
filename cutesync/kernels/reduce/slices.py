"""Reduction of many slices of up to a few KiB: a block copies several to shared memory and reduces them there.

Slices lie beside each other, at most with gaps of less than a line, so a block reads them as one range of 16-byte
vectors, wherever it begins; only the ends of the range are read element by element. Then each result has ``groups``
threads, which read shared memory with any strides. With ``pad`` (slices of whole vectors on 16-byte boundaries), so
many bytes follow each slice, so that slices do not begin on the same banks.

Barriers: one after the copy; with several groups, one for each step of their combination, and one behind it.
"""

from __future__ import annotations

import cutlass
from cutlass import Boolean, Int32, Int64, cute
from cutlass.memory import SmemAllocator

from ...block.reduce import state_array
from ...block.split import share
from ...monoid import tree
from ...sync.overlap import let_next_start
from ...warp import Maybe
from ..coordinates import element
from ..hardware import VECTOR_BYTES
from .chunk import WORDS, aligned_words
from .orders import AnyOrder
from .strided_base import Member, StridedKernel
from .strided_problem import THREADS

LOADS = 4  # vectors of a thread in flight


class SliceReduce(StridedKernel):
    """The kernel. A launch's ``extent`` is the number of slices of a block."""

    def __init__(self, monoid, has_init: bool, policy) -> None:
        super().__init__(monoid, has_init, policy)
        self.pad = policy.pad
        self.smem += policy.stage + 64

    @cute.jit
    def body(self, a: cutlass.Constexpr):
        thread, block = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
        groups_of_slices, slices, inner = a.kept.split()
        each = Int32(a.extent)
        chunks = (slices.size + (each - 1)) // each
        group_of_slices = block // chunks
        first = (block - group_of_slices * chunks) * each
        count = cutlass.min(each, slices.size - first)
        starts = [p + q for p, q in zip(groups_of_slices.offsets(group_of_slices), slices.offsets(first))]
        x = a.x[0] + starts[0]
        pitch, step = Int32(slices.steps[0]), Int32(inner.steps[0])
        span = (inner.size - 1) * step + (Int32(a.reduced.size) - 1) * Int32(a.reduced.steps[0]) + 1
        size = self.monoid.source.size
        stage = SmemAllocator().allocate_array(Int32, self.policy.stage // 4 + 8, byte_alignment=16)
        self.copy(x, stage, self.skew(x), (count - 1) * pitch + span, pitch)
        storage = ()
        if cutlass.const_expr(self.places > 0):
            storage = state_array(self.monoid.types, self.places)
        let_next_start()
        cute.arch.sync_threads()
        elements = cute.make_ptr(self.monoid.source.cutlass, stage.toint(), cute.AddressSpace.smem, assumed_align=size)
        lane = thread % self.lanes
        group = thread // self.lanes
        results = count * inner.size
        done = Int32(0)
        while done < results:
            number = cutlass.min(done + lane, results - 1)
            which = number // inner.size
            at = number - which * inner.size
            start = elements + (self.place_of(x, which, pitch) + at * step)
            me = Member(thread, lane, group, number, done + lane < results)
            state = self.own(start, Int32(a.length), Int32(a.reduced.steps[0]), group)
            if cutlass.const_expr(self.places > 0):
                (state,) = self.reduce_ranks((state,), storage, me, self.used(a.length))
                cute.arch.sync_threads()  # the storage is used again
            if (group == 0) & me.inside:
                places = [
                    s + Int64(which) * p + Int64(at) * q
                    for s, p, q in zip(starts[1:], slices.steps[1:], inner.steps[1:])
                ]
                found = [self.monoid.results_of(self.total(a, state))]
                self.store_copies(a, places, places, found, Int64(1))
            done += self.lanes

    def skew(self, x):
        """How many elements an address lies behind a 16-byte boundary."""
        return Int32(x.toint() & (VECTOR_BYTES - 1)) // self.monoid.source.size

    def place_of(self, x, which, pitch):
        """The place of slice number ``which`` in shared memory, in elements."""
        return self.skew(x) + which * (pitch + self.pad // self.monoid.source.size)

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
        self.copy_ends(x, stage, skew, count, begin * vector - skew, cutlass.max(end, begin) * vector - skew, each)

    @cute.jit
    def copy_ends(self, x, stage, skew: Int32, count: Int32, head: Int32, tail: Int32, each: Int32):
        """Copy the elements before ``head`` and from ``tail`` on."""
        thread = cute.arch.thread_idx()[0]
        dtype = self.monoid.source
        elements = cute.make_ptr(dtype.cutlass, stage.toint(), cute.AddressSpace.smem, assumed_align=dtype.size)
        one = cute.make_layout((1,))
        if thread < cutlass.min(head, count):
            cute.make_tensor(elements + (skew + thread), one)[0] = element(x + thread)
        if tail + thread < count:
            place = skew + tail + thread
            if cutlass.const_expr(self.pad > 0):
                place += (tail + thread) // each * (self.pad // dtype.size)
            cute.make_tensor(elements + place, one)[0] = element(x + (tail + thread))

    @cute.jit
    def own(self, start, length: Int32, step: Int32, group: Int32):
        """The state of a group's elements of the result that begins at ``start``."""
        if cutlass.const_expr(self.policy.in_turn):
            at = group
            pace = self.groups
            count = (length - group + (self.groups - 1)) // self.groups
        else:
            at, stop = share(length, group, Int32(self.groups))
            pace = 1
            count = stop - at
        partial = Maybe(self.monoid.nothing(), Boolean(False))
        while count >= self.unroll:
            partial = partial.append(self.run(start, at, pace, step), self.monoid.combine)
            at += self.unroll * pace
            count -= self.unroll
        while count > 0:
            partial = partial.append(self.monoid.lift(element(start + at * step), at), self.monoid.combine)
            at += pace
            count -= 1
        return self.monoid.place(partial.state, Int64(0))

    def run(self, start, at, pace: int, step):
        """The state of ``unroll`` elements of a result, from number ``at`` on."""
        values = [element(start + (at + u * pace) * step) for u in range(self.unroll)]
        if self.policy.in_turn and (self.monoid.takes_index or isinstance(self.monoid, AnyOrder)):
            return tree([self.monoid.lift(value, at + u * pace) for u, value in enumerate(values)], self.monoid.combine)
        return self.monoid.run(values, at)
