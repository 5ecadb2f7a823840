"""Counting: privatized counters in shared memory, or atomics in global memory. Device code.

    block    clears its counters -- barrier -- counts its elements -- barrier -- adds its counters to the result

A thread loads some vectors, or elements of strided arrays, and then counts them by atomics of shared memory; the
hardware combines lanes that add 1 to the same counter, so the time does not depend on the data. If shared memory has
room for a part of the bins only, some blocks read the same elements at about the same time, most of them from L2, and
each counts those of its part. With still more bins, elements are added to the result in global memory, but for those
of bins that a block meets early (``Slots``): the frequent ones are among these. All sums are of integers, so their
order does not matter.

Elements without a bin are not counted: outside the edges, NaN, or a number that is negative or too large.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64, Uint32
from cutlass.memory import SmemAllocator

from ...monoid import choose
from ...sync.overlap import let_next_start
from ..coordinates import element, store
from ..hardware import VECTOR_BYTES
from .base import Arguments, Elements, HistogramKernel, Privatized
from .policy import CountPolicy
from .spec import Counting

FREE = -1  # no bin
GOLDEN_RATIO = 0x9E3779B1  # times 2**32: multiplicative hashing (Knuth 1973)


class ClearCounts(HistogramKernel):
    """Zeros in the counts, or in all words of sums, and a copy of the edges, if there are any. ``length`` numbers
    them."""

    def body(self, a: Arguments):
        self.clear(a, Int64(cute.arch.block_idx()[0]) * self.threads + cute.arch.thread_idx()[0])

    @cute.jit
    def clear(self, a: Arguments, at):
        counts = a.words if cutlass.const_expr(self.counting.finished) else a.out
        if at < a.length:
            store(counts + at, Int64(0))
        if cutlass.const_expr(self.counting.form != "index"):
            if at <= a.bins:
                store(a.out_edges + at, element(a.edges + at))


# Slots of a block: bins, their words, and an odd factor: bins that meet in a slot do not in all blocks.
Held = namedtuple("Held", "bins words factor")


class Slots:
    """``words`` of as many bins as there are slots in shared memory: a slot has the first bin that comes to it."""

    def __init__(self, slots: int, threads: int, words: int = 1) -> None:
        self.slots, self.threads, self.words = slots, threads, words

    @cute.jit
    def make(self, block) -> Held:
        """Free slots. A block barrier."""
        bins = SmemAllocator().allocate_array(Int32, self.slots, byte_alignment=16)
        words = SmemAllocator().allocate_array(Int32, self.words * self.slots, byte_alignment=16)
        for i in cutlass.range(cute.arch.thread_idx()[0], self.slots, self.threads, unroll=1):
            store(bins + i, Int32(FREE))
            for word in cutlass.range_constexpr(self.words):
                store(words + (i + word * self.slots), Int32(0))
        cute.arch.sync_threads()
        return Held(bins, words, Uint32(GOLDEN_RATIO) + Uint32(2 * block))

    @cute.jit
    def find(self, held: Held, found) -> tuple:
        """The slot of a bin, and whether the bin has it."""
        slot = Int32((Uint32(found) * held.factor) >> Uint32(33 - self.slots.bit_length()))
        owner = Int32(cute.arch.load(held.bins + slot, Int32, sem="relaxed", scope="cta"))
        if owner == FREE:
            owner = Int32(
                cute.arch.atomic_cas(held.bins + slot, cmp=Int32(FREE), val=Int32(found), sem="relaxed", scope="cta")
            )
            owner = choose(owner == FREE, Int32(found), owner)
        return slot, Boolean(owner == found)


class Counter(Privatized):
    """Counts of a block of 32 bits, and of all of 64."""

    def __init__(self, counting: Counting, policy: CountPolicy) -> None:
        super().__init__(counting, policy)
        self.slots = Slots(policy.slots, policy.threads)

    def whole(self, a: Arguments):
        return a.words if self.counting.finished else a.out

    def flush(self, a: Arguments, i, found) -> None:
        cute.arch.atomic_add(self.whole(a) + (a.first + i), Int64(found) & 0xFFFFFFFF, sem="relaxed", scope="gpu")

    @cute.jit
    def direct(self, a: Arguments):
        """Count in slots, and in the result where there is none."""
        held = self.slots.make(a.block)
        self.visit_all(a, held)
        cute.arch.sync_threads()
        let_next_start()
        for i in cutlass.range(cute.arch.thread_idx()[0], self.policy.slots, self.threads, unroll=1):
            count = Int32(element(held.words + i))
            if count != 0:
                self.flush(a, Int32(element(held.bins + i)), count)

    @cute.jit
    def count(self, a: Arguments, counters, value, exists):
        """Count an element, if it exists and has a bin. All lanes of a warp call."""
        found, counts = self.bin_of(value, a)
        if counts & exists:
            if cutlass.const_expr(self.policy.shared > 0):
                cute.arch.atomic_add(counters + found, Int32(1), sem="relaxed", scope="cta")
            else:
                slot, mine = self.slots.find(counters, found)
                if mine:
                    cute.arch.atomic_add(counters.words + slot, Int32(1), sem="relaxed", scope="cta")
                else:
                    cute.arch.atomic_add(self.whole(a) + found, Int64(1), sem="relaxed", scope="gpu")


class StridedCount(Counter, Elements):
    """Counts of an array of any strides."""

    def visit(self, a: Arguments, counters, item: tuple):
        value, _, exists = item
        self.count(a, counters, value, exists)


class CountKernel(Counter):
    """Counts of contiguous elements."""

    def __init__(self, counting: Counting, policy: CountPolicy) -> None:
        super().__init__(counting, policy)
        self.vector = VECTOR_BYTES // counting.dtype.size

    @cute.jit
    def visit_all(self, a: Arguments, counters):
        """Count this thread's elements: vectors in turn, then the elements before and behind the whole vectors."""
        number = Int64(a.block) * self.threads + cute.arch.thread_idx()[0]
        all_threads = Int64(a.blocks) * self.threads
        size = self.counting.dtype.size
        skew = Int32(a.x.toint() & (VECTOR_BYTES - 1)) // size
        head = cutlass.min(Int64((self.vector - skew) % self.vector), a.length)
        vectors = (a.length - head) // self.vector
        steps = (vectors + self.policy.unroll * all_threads - 1) // (self.policy.unroll * all_threads)
        for step in cutlass.range(steps, unroll=1):  # as many for all lanes of a warp
            first = step * (self.policy.unroll * all_threads) + number
            self.count_vectors(a, counters, a.x + head, (first, all_threads, vectors))
        loose = a.length - vectors * self.vector
        place = choose(number < head, number, number + vectors * self.vector)
        value = self.counting.dtype.cutlass(0)
        if number < loose:
            value = self.counting.dtype.cutlass(element(a.x + place))
        self.count(a, counters, value, number < loose)

    @cute.jit
    def count_vectors(self, a: Arguments, counters, start, part: tuple):
        """Count the elements of some vectors, ``step`` apart."""
        first, step, stop = part
        dtype = self.counting.dtype
        word: Any = Int32 if dtype.size < 8 else dtype.cutlass
        words = VECTOR_BYTES // (word.width // 8)
        held = cute.make_rmem_tensor(cute.make_layout((words, self.policy.unroll), stride=(1, words)), word)
        for u in cutlass.range_constexpr(self.policy.unroll):
            for w in cutlass.range_constexpr(words):
                held[w, u] = word(0)
            if first + u * step < stop:
                address = start.toint() + (first + u * step) * VECTOR_BYTES
                source = cute.make_ptr(word, address, cute.AddressSpace.gmem, assumed_align=VECTOR_BYTES)
                cute.autovec_copy(cute.make_tensor(source, cute.make_layout((words,))), held[(None, u)])
        for u in cutlass.range_constexpr(self.policy.unroll):
            row = cute.recast_tensor(held[(None, u)], dtype.cutlass)
            for i in cutlass.range_constexpr(self.vector):
                self.count(a, counters, dtype.cutlass(row[i]), first + u * step < stop)
