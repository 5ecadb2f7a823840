"""Candidates in shared memory: a block appends them, and cuts them back when there is no room. Device code.

A candidate is a key and an index; of two, the one of the larger key wins, of equal keys the one of the lower index. The
*limit* is such a pair as well: a candidate counts unless it comes after the limit, and as many as are wanted are known
not to. It only rises. Which candidates a pool holds depends on timing; which win does not.

    warps    append their candidates, a whole chunk's or none; one that finds no room raises the flag ``full``
    block    meets, raises the limit, and drops the candidates that come after it

The limit is found by division of the keys' range: each step counts the keys that are not below each of three quarters,
in registers and through shared memory, and costs one block barrier. It ends as soon as the count is at most a quarter
above what is wanted. If more keys than that are equal to the last one, the indexes of these are bisected, too.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64, Uint32, Uint64
from cutlass.experimental import primitives
from cutlass.memory import SmemAllocator

from ...block.reduce import get, put, state_array
from ...monoid import tree
from ...warp import LANES, broadcast, reduce_commutative, scan_states

SUM_BITS = 21  # of a sum among several
# The words: candidates, those of the first chunk without room, the flag, any use, what other blocks have told, the next
# ticket.
COUNT, ROOM, FULL, NOTE, HEARD, TICKET = range(6)
WORDS = 8

# What is held in shared memory: ``keys`` and ``places`` of candidates, ``words``, and two numbers of each warp.
Pool = namedtuple("Pool", "keys places words sums")
Limit = namedtuple("Limit", "key index")


def any_of_block(condition) -> Boolean:
    """Whether the condition holds in any thread of the block, which all call. A block barrier."""
    return Boolean(primitives.barrier_cta_red_aligned(Boolean(condition), 0, "or"))


def word(pool: Pool, which: int):
    """The address of a word of the pool."""
    return pool.words.iterator + which


def slack(wanted):
    """How many candidates may be kept where so many are wanted."""
    return wanted + wanted // 4


def loose(wanted) -> tuple:
    """From how many to how many candidates are kept where so many are wanted."""
    return wanted, slack(wanted)


class Pools:
    """Pools of ``capacity`` candidates of blocks of ``threads``; keys are those of an ``order``, indexes of type
    ``index``."""

    def __init__(self, order, index: Any, threads: int, capacity: int) -> None:
        self.order, self.index, self.threads, self.capacity = order, index, threads, capacity
        self.key, self.warps, self.each = order.type, threads // LANES, -(-capacity // threads)
        self.types = (self.key, index)

    def make(self) -> Pool:
        """Allocate a pool. Call at the top of a kernel."""
        keys, places = state_array(self.types, self.capacity, 16)
        return self.make_words()._replace(keys=keys, places=places)

    def make_words(self) -> Pool:
        """Allocate a pool without keys and places."""
        words = cute.make_tensor(SmemAllocator().allocate_array(Int32, WORDS), cute.make_layout((WORDS,)))
        (sums,) = state_array((Int64,), 2 * self.warps)
        return Pool(None, None, words, sums)

    def none(self) -> Limit:
        """The limit that no candidate comes after."""
        return Limit(self.key(self.order.lowest), self.index(int(self.index.max)))

    @cute.jit
    def clear(self, pool: Pool, thread):
        """Make the pool empty. A block barrier."""
        if thread == 0:
            pool.words[COUNT] = Int32(0)
            pool.words[ROOM] = Int32(self.capacity)
            pool.words[FULL] = Int32(0)
        cute.arch.sync_threads()

    def held(self, pool: Pool):
        """How many candidates there are. Between block barriers."""
        return cutlass.min(Int32(pool.words[COUNT]), Int32(pool.words[ROOM]))

    def is_full(self, pool: Pool) -> Boolean:
        """Whether a warp has found no room: the same in all lanes. The answer may be late."""
        flag = Int32(cute.arch.load(word(pool, FULL), Int32, sem="relaxed", scope="cta"))
        return Boolean(cute.arch.vote_any_sync(flag != 0))

    # All 32 lanes call.
    @cute.jit
    def append(self, pool: Pool, chosen, candidate: cutlass.Constexpr, lane):
        """Append elements of the lanes; whether there was room for all of them. If not, none is appended. ``chosen``
        has a bit for each of a lane's elements, and ``candidate(j)`` returns the key and the index of one."""
        mine = Int32(cute.arch.popc(chosen))
        (through,) = scan_states((mine,), _add, lane)
        total = broadcast((through,), LANES - 1)[0]
        base = Int32(0)
        if lane == 0:
            base = Int32(cute.arch.atomic_add(word(pool, COUNT), total, sem="relaxed", scope="cta"))
        base = broadcast((base,))[0]
        fits = base + total <= self.capacity
        if fits:
            at = base + through - mine
            while chosen != 0:
                put(pool[:2], at, candidate(31 - Int32(cute.arch.clz(chosen & -chosen))))
                chosen = chosen & (chosen - 1)
                at += 1
        elif lane == 0:
            cute.arch.atomic_min(word(pool, ROOM), base, sem="relaxed", scope="cta")
            cute.arch.store(word(pool, FULL), Int32(1), sem="relaxed", scope="cta")
        return fits

    # All threads call; what they get is the same in all of them.
    def sum(self, pool: Pool, value, turn, thread):
        """The sum of an Int32 over the block. ``turn``, a number that counts calls, tells neighbouring calls apart: one
        block barrier each."""
        return self._over_warps(pool, Int32(cute.arch.warp_redux_sync(Int32(value), "add")), turn, thread, _add)

    def sums(self, pool: Pool, values: list, turn, thread) -> list:
        """The sums of some Int32 below 2**20, as ``sum``."""
        packed = Int64(0)
        for i, value in enumerate(values):
            packed = packed | (Int64(Int32(cute.arch.warp_redux_sync(value, "add"))) << (SUM_BITS * i))
        packed = self._over_warps(pool, packed, turn, thread, _add)
        return [Int32(packed >> (SUM_BITS * i)) & ((1 << SUM_BITS) - 1) for i in range(len(values))]

    def greatest(self, pool: Pool, value, turn, thread):
        """The greatest of the threads' keys, as ``sum``."""
        (found,) = reduce_commutative((value,), _greater)
        return self._over_warps(pool, found, turn, thread, _greater)

    def least(self, pool: Pool, held, turn, thread):
        """The least of the threads' held keys, as ``sum``."""
        (found,) = tree([(self.key(held[e]),) for e in range(cute.size(held))], lambda a, b: (cutlass.min(a[0], b[0]),))
        return self.greatest(pool, found ^ self.key(-1), turn, thread) ^ self.key(-1)  # ~ turns the order around

    @cute.jit
    def _over_warps(self, pool: Pool, value, turn, thread, combine: cutlass.Constexpr):
        first, lane = (turn & 1) * self.warps, thread % LANES
        if lane == 0:
            pool.sums[first + thread // LANES] = Int64(value)
        cute.arch.sync_threads()
        kind = type(value)
        total = kind(pool.sums[first])
        for w in cutlass.range_constexpr(1, self.warps):
            (total,) = combine((total,), (kind(pool.sums[first + w]),))
        return total

    def keys_of(self, pool: Pool, count, thread):
        """The keys of ``count`` candidates, in registers of all threads; the lowest key where there is none."""
        held = cute.make_rmem_tensor((self.each,), self.key)
        self._load_keys(held, pool, count, thread)
        return held

    @cute.jit
    def _load_keys(self, held, pool: Pool, count, thread):
        for e in cutlass.range_constexpr(self.each):
            held[e] = self.key(self.order.lowest)
            if thread + e * self.threads < count:
                held[e] = self.key(pool.keys[thread + e * self.threads])

    @cute.jit
    def bisect(self, pool: Pool, held, count, low, between: tuple, thread):
        """``(key, number, turn)``: a key such that ``number`` of the ``count`` held keys are not below it, from
        ``wanted`` to ``most`` of them (``between``) if possible; if too many keys are equal, the number is larger.
        ``low`` is such a key that none is below; ``wanted`` is at most ``count``. ``turn`` is that of the next sum.
        After a block barrier."""
        wanted, most = between
        size = cute.size(held)
        top = self.key(held[0])
        for e in cutlass.range_constexpr(1, size):
            top = cutlass.max(top, self.key(held[e]))
        high = cutlass.max(self.greatest(pool, top, Int32(0), thread), low)
        number, turn = count, Int32(1)
        while (number > most) & (low < high):
            quarters = self.quarters(low, high)
            mine = [Int32(0)] * len(quarters)
            for e in cutlass.range_constexpr(size):
                mine = [one + Int32(self.key(held[e]) >= quarter) for one, quarter in zip(mine, quarters)]
            reached = self.sums(pool, mine, turn, thread)
            turn += 1
            start, stop = low, high
            high = quarters[0] - 1
            for at in cutlass.range_constexpr(len(quarters)):
                if reached[at] >= wanted:
                    start, number = quarters[at], reached[at]
                    high = stop if at + 1 == len(quarters) else quarters[at + 1] - 1
            low = start
        return low, number, turn

    def quarters(self, low, high) -> list:
        """Three keys above ``low`` and not above ``high`` > ``low``, in order, which divide what is between."""
        unsigned = Uint64 if self.key.width == 64 else Uint32
        span = unsigned(high) - unsigned(low) - unsigned(1)
        quarter, half = self.key(span >> unsigned(2)), self.key(span >> unsigned(1))
        return [low + quarter + 1, low + half + 1, low + half + quarter + 1]

    @cute.jit
    def bisect_ties(self, pool: Pool, count, key, between: tuple, turn, thread):
        """An index such that from ``wanted`` to ``most`` (``between``) of ``count`` candidates do not come after it and
        ``key``; without ties, ``wanted`` of them have at least this key."""
        wanted, most = between
        low, high = self.index(0), self.index(int(self.index.max))
        while low < high:
            middle = low + (high - low) // 2
            mine = Int32(0)
            for e in cutlass.range_constexpr(self.each):
                at = thread + e * self.threads
                if at < count:
                    mine += Int32(within(Limit(key, middle), *get(pool[:2], at, self.types)))
            reached = self.sum(pool, mine, turn, thread)
            turn += 1
            if reached >= wanted:
                high = middle
                if reached <= most:
                    low = middle
            else:
                low = middle + 1
        return high

    @cute.jit
    def raised(self, pool: Pool, held, count, limit: Limit, between: tuple, thread):
        """The limit raised so that from ``wanted`` to ``most`` (``between``) of ``count`` candidates do not come after
        it, or as many as there are."""
        key, index = limit.key, limit.index
        most = between[1]
        if count > most:
            low, number, turn = self.bisect(pool, held, count, key, between, thread)
            if low > key:
                key, index = low, self.index(int(self.index.max))
            if number > most:
                index = self.bisect_ties(pool, count, key, between, turn, thread)
        return Limit(key, index)

    def cut_back(self, pool: Pool, count, limit: Limit, between: tuple, thread) -> Limit:
        """Raise the limit, and drop the candidates that come after it, of ``count``."""
        limit = self.raised(pool, self.keys_of(pool, count, thread), count, limit, between, thread)
        self.drop(pool, count, limit, thread)
        return limit

    @cute.jit
    def drop(self, pool: Pool, count, limit: Limit, thread):
        """Drop the candidates that come after the limit, of ``count``, which a block barrier ago all had read."""
        self.clear(pool, thread)
        lane = thread % LANES
        for begin in cutlass.range(0, count, self.threads, unroll=1):
            at = cutlass.min(begin + thread, count - 1)
            candidate = get(pool[:2], at, self.types)
            kept = (begin + thread < count) & within(limit, *candidate)
            ballot = Int32(cute.arch.vote_ballot_sync(kept))
            base = Int32(0)
            if lane == 0:
                base = Int32(
                    cute.arch.atomic_add(word(pool, COUNT), Int32(cute.arch.popc(ballot)), sem="relaxed", scope="cta")
                )
            place = broadcast((base,))[0] + Int32(cute.arch.popc(ballot & Int32(cute.arch.lanemask_lt())))
            cute.arch.sync_threads()  # the places of this round, and those before, have been read
            if kept:
                put(pool[:2], place, candidate)

    @cute.jit
    def sort(self, pool: Pool, count, thread):
        """Sort ``count`` candidates, the best first; a bitonic sort (Batcher 1968). A block barrier after.

        The pairs of a warp have 64 neighbouring candidates as long as those of a pair are no farther apart than 32."""
        size = Int32(2)
        while size < count:
            size = size * 2
        for at in cutlass.range(count + thread, size, self.threads, unroll=1):
            put(pool[:2], at, self.none())
        cute.arch.sync_threads()
        run = Int32(2)
        while run <= size:
            distance = run // 2
            while distance > 0:
                for pair in cutlass.range(thread, size // 2, self.threads, unroll=1):
                    low = 2 * pair - (pair & (distance - 1))
                    self.compare(pool, low, low + distance, (low & run) == 0)
                far = (distance > LANES) | ((distance == 1) & ((run > LANES) | (run >= size)))
                distance = distance // 2
                if far:
                    cute.arch.sync_threads()
                else:
                    cute.arch.sync_warp()
            run = run * 2

    @cute.jit
    def compare(self, pool: Pool, low, high, best_first):
        """Put two candidates in order."""
        a, b = get(pool[:2], low, self.types), get(pool[:2], high, self.types)
        if within(Limit(*a), *b) == best_first:
            put(pool[:2], low, b)
            put(pool[:2], high, a)


def within(limit: Limit, key, index) -> Boolean:
    """Whether a candidate does not come after the limit."""
    return (key > limit.key) | ((key == limit.key) & (index <= limit.index))


def _add(a, b):
    return (a[0] + b[0],)


def _greater(a, b):
    return (cutlass.max(a[0], b[0]),)
