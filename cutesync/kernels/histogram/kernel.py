"""Counting: privatized counters in shared memory, or atomics in global memory. Device code.

    block    clears its counters -- barrier -- counts its elements -- barrier -- adds its counters to the result

A thread loads some vectors, and then counts their elements by atomics of shared memory; the hardware combines
lanes that add 1 to the same counter. With more bins than shared memory has room for, elements are added to the result
in global memory, one atomic for a warp whose elements have the same bin. All sums are of integers, so their order does
not matter.

Elements without a bin are not counted: outside the edges, NaN, or a number that is negative or too large.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float64, Int32, Int64
from cutlass.memory import SmemAllocator

from ...monoid import choose
from ...sync.overlap import await_launches, let_next_start
from ..coordinates import element
from .policy import VECTOR_BYTES, ClearPolicy, CountPolicy
from .spec import Counting


class ClearCounts:
    """Zeros in the result, and a copy of the edges, if there are any."""

    smem = 0

    def __init__(self, counting: Counting, policy: ClearPolicy) -> None:
        self.threads, self.edges = policy.threads, counting.form != "index"

    @cute.jit
    def __call__(
        self, edges: cute.Pointer, out: cute.Pointer, out_edges: cute.Pointer, bins: Int32, grid: Int32, stream
    ):
        self.kernel.set_name_prefix("cutesync_histogram", remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(edges, out, out_edges, bins).launch(grid=(grid, 1, 1), block=(self.threads, 1, 1), stream=stream)

    @cute.kernel
    def kernel(self, edges: cute.Pointer, out: cute.Pointer, out_edges: cute.Pointer, bins: Int32):
        await_launches()
        at = cute.arch.block_idx()[0] * self.threads + cute.arch.thread_idx()[0]
        if at < bins:
            cute.make_tensor(out + at, cute.make_layout((1,)))[0] = Int64(0)
        if cutlass.const_expr(self.edges):
            if at <= bins:
                cute.make_tensor(out_edges + at, cute.make_layout((1,)))[0] = element(edges + at)


class CountKernel:
    """The kernel: ``bins`` bins, whose edges are ``low + i / scale`` if they are at equal distances."""

    def __init__(self, counting: Counting, policy: CountPolicy) -> None:
        self.counting, self.policy = counting, policy
        self.threads, self.smem = policy.threads, policy.smem
        self.vector = VECTOR_BYTES // counting.dtype.size

    @cute.jit
    def __call__(
        self,
        x: cute.Pointer,
        edges: cute.Pointer,
        out: cute.Pointer,
        length: Int64,
        bins: Int32,
        low: Float64,
        scale: Float64,
        grid: Int32,
        stream,
    ):
        self.kernel.set_name_prefix("cutesync_histogram", remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(x, edges, out, length, bins, low, scale).launch(
            grid=(grid, 1, 1),
            block=(self.threads, 1, 1),
            smem=self.smem,
            min_blocks_per_mp=self.policy.blocks_per_sm,
            preferred_smem_carveout=-1,
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        x: cute.Pointer,
        edges: cute.Pointer,
        out: cute.Pointer,
        length: Int64,
        bins: Int32,
        low: Float64,
        scale: Float64,
    ):
        await_launches()
        thread = cute.arch.thread_idx()[0]
        counters = out
        if cutlass.const_expr(self.policy.shared > 0):
            counters = SmemAllocator().allocate_array(Int32, self.policy.shared, byte_alignment=16)
            for i in cutlass.range(thread, bins, self.threads, unroll=1):
                cute.make_tensor(counters + i, cute.make_layout((1,)))[0] = Int32(0)
            cute.arch.sync_threads()
        self.count_all(counters, x, length, (edges, bins, low, scale))
        if cutlass.const_expr(self.policy.shared > 0):
            cute.arch.sync_threads()
            let_next_start()
            for i in cutlass.range(thread, bins, self.threads, unroll=1):
                found = Int32(element(counters + i))
                if found != 0:
                    wide = Int64(found) & 0xFFFFFFFF
                    cute.arch.atomic_add(out + i, wide, sem="relaxed", scope="gpu")

    @cute.jit
    def count_all(self, counters, x, length, bounds: tuple):
        """Count this thread's elements: vectors in turn, then the elements before and behind the whole vectors."""
        number = Int64(cute.arch.block_idx()[0]) * self.threads + cute.arch.thread_idx()[0]
        all_threads = Int64(cute.arch.grid_dim()[0]) * self.threads
        size = self.counting.dtype.size
        skew = Int32(x.toint() & (VECTOR_BYTES - 1)) // size
        head = cutlass.min(Int64((self.vector - skew) % self.vector), length)
        vectors = (length - head) // self.vector
        steps = (vectors + self.policy.unroll * all_threads - 1) // (self.policy.unroll * all_threads)
        for step in cutlass.range(steps, unroll=1):  # as many for all lanes of a warp
            first = step * (self.policy.unroll * all_threads) + number
            self.count_vectors(counters, x + head, (first, all_threads, vectors), bounds)
        loose = length - vectors * self.vector
        place = choose(number < head, number, number + vectors * self.vector)
        value = self.counting.dtype.cutlass(0)
        if number < loose:
            value = self.counting.dtype.cutlass(element(x + place))
        self.count(counters, value, number < loose, bounds)

    @cute.jit
    def count_vectors(self, counters, start, part: tuple, bounds: tuple):
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
                self.count(counters, dtype.cutlass(row[i]), first + u * step < stop, bounds)

    @cute.jit
    def count(self, counters, value, exists, bounds: tuple):
        """Count an element, if it exists and has a bin. All lanes of a warp call."""
        found, counts = self.bin_of(value, bounds)
        counts = counts & exists
        if cutlass.const_expr(self.policy.shared > 0):
            if counts:
                cute.arch.atomic_add(counters + found, Int32(1), sem="relaxed", scope="cta")
        else:
            ballot = Int32(cute.arch.vote_ballot_sync(counts))
            leader = 31 - Int32(cute.arch.clz(ballot & -ballot))
            same = Int32(cute.arch.shuffle_sync(found, leader & 31)) == found
            if cute.arch.vote_all_sync(same | cutlass.not_(counts)):
                if (Int32(cute.arch.lane_idx()) == leader) & (ballot != 0):
                    number = Int64(cute.arch.popc(ballot))
                    cute.arch.atomic_add(counters + found, number, sem="relaxed", scope="gpu")
            elif counts:
                cute.arch.atomic_add(counters + found, Int64(1), sem="relaxed", scope="gpu")

    def bin_of(self, value, bounds: tuple):
        """The bin of an element (Int32), and whether it has one."""
        edges, bins, low, scale = bounds
        if self.counting.form == "index":
            number = Int64(value)  # the largest of uint64 become negative
            return Int32(number), Boolean((number >= 0) & (number < bins))
        wide = Float64(value)
        counts = (wide >= element(edges)) & (wide <= element(edges + bins))
        return self.search(wide, counts, edges, bins, (low, scale)), Boolean(counts)

    @cute.jit
    def search(self, value, counts, edges, bins, line: tuple):
        """The last bin whose first edge is not above a value that counts; 0 for others. Where edges are at equal
        distances, it is next to a straight line."""
        found = Int32(0)
        if counts:
            if cutlass.const_expr(self.counting.form == "uniform"):
                found = cutlass.min(cutlass.max(Int32((value - line[0]) * line[1]), Int32(0)), bins - 1)
                while (found > 0) & (value < element(edges + found)):
                    found -= 1
                while (found < bins - 1) & (value >= element(edges + cutlass.min(found + 1, bins))):
                    found += 1
            else:
                stop = Int32(bins)
                while stop - found > 1:
                    middle = (found + stop) // 2
                    if value >= element(edges + middle):
                        found = middle
                    else:
                        stop = middle
        return found
