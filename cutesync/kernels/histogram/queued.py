"""Sums of weights in so many bins that shared memory has room for a part of them. Device code.

    block    reads all elements that its group of blocks reads, and keeps those of its own part of the bins
    warp     queues these; when 32 wait, it adds them at once, a lane each

All groups' blocks of one number read the same elements at about the same time, most of them from L2. Bins go to the
parts in turn, so that neighbouring frequent ones lie in different parts. A bin that has many elements is in all parts:
it is found among a few elements, by each block alone, and the groups take its elements of one tile in turn.

A sum is one number of 96 bits in three words, in units of ``2**(e - 2d)`` (``weights``). A weight is below
``2**(2d - 32)`` of the upper 64 bits, and at most ``2**(k - 4)`` of the ``2**k`` weights come to one block, so with k
of 25 and more and d = 62 - k no sum leaves these. In the end the sums become pairs of integers in global memory.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64, Uint8, Uint16, Uint32
from cutlass.memory import SmemAllocator

from ...monoid import choose
from ...sync.overlap import let_next_start
from ..coordinates import element, store
from ..tiled import positions
from .base import Arguments, meet
from .policy import BIAS, QUEUE
from .weights import Sums, common

WARP = 32
WORD = 32  # bits
PIECES = 2  # of ``PIECE_BITS`` that either part of a weight has

HOT = 32  # a bin with one of so many elements is frequent
BIN_BITS = 20  # hold the number of a bin: there are at most 8 parts

# The shared memory of a block: three words for each bin, exponents above the least one, a word, and this warp's queue.
Shared = namedtuple("Shared", "words exponents best bins weights")


class QueuedSums(Sums):
    """The sums of weights, of parts of the bins."""

    policy: Any
    small = {1: Uint8, 2: Uint16}

    @property
    def weight(self) -> Any:
        """The type of a weight."""
        assert self.counting.weights is not None
        return self.counting.weights.cutlass

    def part(self, bins) -> tuple:
        """The first bin of this block, how many it has, and its number among the blocks that have these."""
        block, blocks, parts = cute.arch.block_idx()[0], cute.arch.grid_dim()[0], self.policy.parts
        first = block % parts
        return first, (bins - first + (parts - 1)) // parts, block // parts, blocks // parts

    @cute.jit
    def body(self, a: Arguments):
        thread = cute.arch.thread_idx()[0]
        if cutlass.const_expr(self.counting.counted):
            a = a._replace(length=positions(a.length, a.n))
        shared = self.allocate(thread // WARP)
        for i in cutlass.range(thread, a.width + 1, self.threads, unroll=1):
            self.clear(shared, i)
        hot, everywhere = self.frequent(a, shared), common(a, self.counting.weights)
        for i in cutlass.range(thread, a.width + 1, self.threads, unroll=1):
            self.clear(shared, i)
            if cutlass.const_expr(self.policy.exponent_bytes > 0):
                exponent = self.exponent(a, everywhere, cutlass.max(self.number(a, hot, i), Int32(0)))
                store(shared.exponents + i, self.small[self.policy.exponent_bytes](exponent - Int32(a.exponent)))
        cute.arch.sync_threads()
        self.visit_all(a, shared, hot)
        cute.arch.sync_threads()
        let_next_start()
        for i in cutlass.range(thread, a.width + 1, self.threads, unroll=1):
            self.flush(a, shared.words + i, self.number(a, hot, i))

    def clear(self, shared: Shared, i) -> None:
        """A bin without elements."""
        for word in range(3):
            store(shared.words + (i + word * self.policy.shared), Int32(0))

    def number(self, a: Arguments, hot, i):
        """The number of this block's bin ``i``; the last one is the frequent bin (-1: there is none)."""
        return choose(i == a.width, hot, a.first + i * self.policy.parts)

    @cute.jit
    def frequent(self, a: Arguments, shared: Shared):
        """The number of a bin that has many of some elements at equal distances, the same one in all blocks, as all
        count these; -1 if no bin has. Barriers of the block."""
        thread, parts = cute.arch.thread_idx()[0], self.policy.parts
        if thread == 0:
            store(shared.best, Int32(0))
        cute.arch.sync_threads()
        found, counts, value = Int32(0), Boolean(False), self.counting.dtype.cutlass(0)
        if a.length > 0:
            place = a.length * thread // self.threads
            offset: Any = place if self.gather is None else self.gather.offsets(place)[0]
            value = self.counting.dtype.cutlass(element(a.x + offset))
        found, counts = self.bin_of(value, a._replace(first=Int32(0), width=a.bins))
        counter = shared.words + found // parts
        if counts & (a.length > 0):
            cute.arch.atomic_add(counter, Int32(1), sem="relaxed", scope="cta")
        cute.arch.sync_threads()
        if counts & (a.length > 0):
            rank = (Int32(element(counter)) << BIN_BITS) + found
            cute.arch.atomic_max(shared.best, rank, sem="relaxed", scope="cta")
        cute.arch.sync_threads()
        best = Int32(element(shared.best))
        return choose(best >= self.threads // HOT << BIN_BITS, best & ((1 << BIN_BITS) - 1), Int32(-1))

    def allocate(self, warp) -> Shared:
        """The shared memory."""
        policy, smem = self.policy, SmemAllocator()
        words = smem.allocate_array(Int32, 3 * policy.shared, byte_alignment=16)
        count = self.threads // WARP * QUEUE
        weights = smem.allocate_array(self.weight, count, byte_alignment=16)
        bins = smem.allocate_array(Int32, count, byte_alignment=16)
        best = smem.allocate_array(Int32, 1, byte_alignment=16)
        exponents = words
        if policy.exponent_bytes:
            exponents = smem.allocate_array(self.small[policy.exponent_bytes], policy.shared, byte_alignment=16)
        return Shared(words, exponents, best, bins + warp * QUEUE, weights + warp * QUEUE)

    @cute.jit
    def visit_all(self, a: Arguments, memory: Shared, hot):
        """Visit this block's tiles."""
        lane, waiting = Int32(cute.arch.lane_idx()), Int32(0)
        parts = self.policy.parts
        everything = a._replace(first=Int32(0), width=a.bins)
        turn = a.block % parts  # of the parts, whose blocks take the frequent bin's elements
        for tile in cutlass.range(a.block, self.tiles(a), a.blocks, unroll=1):
            for value, weight, exists in self.load_tile(a, tile):
                bin, counts = self.bin_of(value, everything)
                part = choose(bin == hot, turn, Int32(Uint32(bin) % parts))
                found = choose(bin == hot, a.width, Int32(Uint32(bin) // parts))
                counts = Boolean(counts & exists & (part == a.first))
                waiting = self.queue(memory, waiting, (found, weight, counts))
                if waiting >= WARP:
                    waiting -= WARP
                    self.take(a, memory, (waiting + lane, Boolean(True)), hot)
            turn = choose(turn + 1 < parts, turn + 1, Int32(0))
        if waiting > 0:
            self.take(a, memory, (lane, Boolean(lane < waiting)), hot)

    @cute.jit
    def queue(self, memory: Shared, waiting, item: tuple):
        """Queue the elements of those lanes that have one; how many wait then."""
        found, weight, counts = item
        ballot = Int32(cute.arch.vote_ballot_sync(counts))
        place = waiting + Int32(cute.arch.popc(ballot & Int32(cute.arch.lanemask_lt())))
        if counts:
            store(memory.bins + place, found)
            store(memory.weights + place, weight)
        return waiting + Int32(cute.arch.popc(ballot))

    @cute.jit
    def take(self, a: Arguments, memory: Shared, item: tuple, hot):
        """Add the element at a place of the queue, if it counts."""
        place, counts = item
        cute.arch.sync_warp()
        place = choose(counts, place, Int32(0))
        found, weight = Int32(element(memory.bins + place)), element(memory.weights + place)
        weight = self.weight(weight)
        cute.arch.sync_warp()  # all have read before others are queued there
        exponent = Int32(a.exponent)
        if cutlass.const_expr(self.policy.exponent_bytes > 0):
            if counts:
                small = self.small[self.policy.exponent_bytes]
                exponent += Int32(small(element(memory.exponents + found)))
        counts = self.finite(a, self.number(a, hot, found), weight, counts)
        weight = choose(counts, weight, type(weight)(0))
        high, low = self.fixed(weight, 2 * a.digits - WORD + BIAS - exponent, Int32(WORD))
        counts, (high, low) = meet(found, counts, (high, low), PIECES)
        if counts:
            self.add_words(memory.words + found, high, low)

    @cute.jit
    def add_words(self, words, high, low):
        """Add ``high * 2**32 + low`` to a sum."""
        size = self.policy.shared
        lowest = Uint32(low & 0xFFFFFFFF)
        high += low >> WORD
        if lowest != 0:
            high += self.carry(words, lowest)
        middle = Uint32(high & 0xFFFFFFFF)
        upper = Int32(high >> WORD)
        if middle != 0:
            upper += Int32(self.carry(words + size, middle))
        if upper != 0:
            cute.arch.atomic_add(words + 2 * size, upper, sem="relaxed", scope="cta")

    def carry(self, word, number):
        """Add to a word; 1 if that carries."""
        before = Uint32(cute.arch.atomic_add(word, Int32(number), sem="relaxed", scope="cta"))
        return choose(before + number < number, Int64(1), Int64(0))

    @cute.jit
    def flush(self, a: Arguments, words, bin):
        """Add a sum to that of all blocks."""
        size, beyond = self.policy.shared, Int64(a.digits - WORD)
        low, middle, upper = (Int64(element(words + size * i)) for i in range(3))
        high = (upper << WORD) + (middle & 0xFFFFFFFF)
        low = (low & 0xFFFFFFFF) + ((high & ((Int64(1) << beyond) - 1)) << WORD)
        self.add(a, bin, 0, high >> beyond)  # nothing where there is no frequent bin
        self.add(a, bin, 1, low)
