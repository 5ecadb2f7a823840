"""Ranks of many candidates by buckets: which result each of them is. Device code.

    bucket     the keys' range is divided evenly, into as many parts as there are results of a launch
    start      how many candidates are in the buckets before: counts, and their prefix sums
    rank       start, and how many of the same bucket come before it

The largest elements of usual rows lie ever sparser, some in each bucket. Where a bucket has too many, as with equal
keys, there are no ranks.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32, Uint64

from ...block.reduce import get, put, state_array
from ...warp import LANES, scan_states
from .policy import BUCKETS, MAX_BUCKET, MAX_WANTED
from .pool import Limit, Pools, slack, within

# A thread's candidates: keys and places, and where in their buckets they are.
Mine = namedtuple("Mine", "keys places ranks")


class Ranks:
    """Ranks of candidates of ``pools``, of which there are at most ``slack(MAX_WANTED)``."""

    def __init__(self, pools: Pools) -> None:
        self.pools, self.threads = pools, pools.threads
        self.each = -(-min(slack(MAX_WANTED), pools.capacity) // pools.threads)
        self.buckets = -(-BUCKETS // pools.threads)  # of a thread
        self.unsigned: Any = Uint64 if pools.key.width == 64 else Uint32

    def make(self):
        """Allocate the counters. Call at the top of a kernel."""
        (counters,) = state_array((Int32,), self.buckets * self.threads + 1)
        return counters

    def bucket(self, key, top, shift):
        """The bucket of a key."""
        return Int32((self.unsigned(top) - self.unsigned(key)) >> shift)

    @cute.jit
    def find(self, pool, counters, count, thread):
        """``(mine, found)``: this thread's candidates of ``count`` with their ranks, if these are ``found``. All
        threads call, after a block barrier."""
        mine = self.load(pool, count, thread)
        top, shift = self.range(pool, mine, count, thread)
        for b in cutlass.range_constexpr(self.buckets):
            counters[thread + b * self.threads] = Int32(0)
        cute.arch.sync_threads()
        for e in cutlass.range_constexpr(self.each):
            if thread + e * self.threads < count:
                at = counters.iterator + self.bucket(self.pools.key(mine.keys[e]), top, shift)
                mine.ranks[e] = Int32(cute.arch.atomic_add(at, Int32(1), sem="relaxed", scope="cta"))
        cute.arch.sync_threads()
        found = self.add_up(pool, counters, count, thread)
        cute.arch.sync_threads()
        if found:
            for e in cutlass.range_constexpr(self.each):
                if thread + e * self.threads < count:
                    start = Int32(counters[self.bucket(self.pools.key(mine.keys[e]), top, shift)])
                    put(pool[:2], start + Int32(mine.ranks[e]), (mine.keys[e], mine.places[e]))
            cute.arch.sync_threads()
            for e in cutlass.range_constexpr(self.each):
                if thread + e * self.threads < count:
                    bucket = self.bucket(self.pools.key(mine.keys[e]), top, shift)
                    start, stop = Int32(counters[bucket]), Int32(counters[bucket + 1])
                    own = Limit(self.pools.key(mine.keys[e]), self.pools.index(mine.places[e]))
                    rank = start - 1  # it does not come after itself
                    for other in cutlass.range(start, stop, 1, unroll=1):
                        rank += Int32(within(own, *get(pool[:2], other, self.pools.types)))
                    mine.ranks[e] = rank
        return mine, found

    @cute.jit
    def load(self, pool, count, thread):
        """This thread's candidates."""
        keys = cute.make_rmem_tensor((self.each,), self.pools.key)
        places = cute.make_rmem_tensor((self.each,), self.pools.index)
        ranks = cute.make_rmem_tensor((self.each,), Int32)
        for e in cutlass.range_constexpr(self.each):
            keys[e], places[e], ranks[e] = self.pools.key(self.pools.order.lowest), self.pools.index(0), Int32(0)
            if thread + e * self.threads < count:
                keys[e], places[e] = get(pool[:2], thread + e * self.threads, self.pools.types)
        return Mine(keys, places, ranks)

    @cute.jit
    def range(self, pool, mine: Mine, count, thread):
        """The greatest key, and by how many bits keys are divided."""
        top, least = self.pools.key(self.pools.order.lowest), self.pools.key(self.pools.order.highest)
        for e in cutlass.range_constexpr(self.each):
            if thread + e * self.threads < count:
                top = cutlass.max(top, self.pools.key(mine.keys[e]))
                least = cutlass.min(least, self.pools.key(mine.keys[e]))
        top = self.pools.greatest(pool, top, Int32(0), thread)
        least = self.pools.greatest(pool, least ^ -1, Int32(1), thread) ^ self.pools.key(-1)
        width = self.pools.key.width
        bits = width - Int32(cute.arch.clz(self.pools.key(self.unsigned(top) - self.unsigned(least))))
        return top, self.unsigned(cutlass.max(bits - (BUCKETS.bit_length() - 1), Int32(0)))

    @cute.jit
    def add_up(self, pool, counters, count, thread):
        """Put the number of candidates in the buckets before into each bucket's counter, where no bucket has too
        many: whether that is so. Two block barriers."""
        first, total, most = thread * self.buckets, Int32(0), Int32(0)
        counts = [Int32(counters[first + b]) for b in range(self.buckets)]
        for one in counts:
            total, most = total + one, cutlass.max(most, one)
        (through,) = scan_states((total,), lambda a, b: (a[0] + b[0],), thread % LANES)
        most = self.pools.greatest(pool, self.pools.key(most), Int32(0), thread)
        if thread % LANES == LANES - 1:
            pool.sums[self.pools.warps + thread // LANES] = Int64(through)
        cute.arch.sync_threads()
        before = through - total
        for warp in cutlass.range_constexpr(self.pools.warps):
            if warp < thread // LANES:
                before += Int32(pool.sums[self.pools.warps + warp])
        for b, one in enumerate(counts):
            counters[first + b] = before
            before += one
        if thread == self.threads - 1:
            counters[self.buckets * self.threads] = count
        return most <= MAX_BUCKET
