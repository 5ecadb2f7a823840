"""Top-k of rows that fit into shared memory: blocks stay, and take one row after the other. Device code.

    copy       a row comes to shared memory by one bulk copy, which began while the results of the last row were stored
    limit      a thread looks at groups of vectors; hardly more than ``wanted`` of all groups reach the limit
    append     the elements of these groups that reach it
    ranks      each thread has a candidate, and counts those that come before it

If more elements reach the limit than there is room for, the keys' range is divided until few enough do, or until all of
them that are left are equal: of these, the first ones are taken.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import replace
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64, Uint8, Uint32
from cutlass.experimental import primitives
from cutlass.memory import SmemAllocator

from ...block.reduce import state_array
from ...monoid import tree
from ...sync.barrier import Barrier
from ...sync.overlap import LINE_BYTES, let_next_start
from ...warp import LANES, broadcast, scan_states
from ..coordinates import store
from ..hardware import VECTOR_BYTES
from ..plain import PlainKernel
from ..select.chunk import cells, put
from ..select.window import TileBuffer, as_copy
from .kernel import Arguments, TopKKernel
from .order import Order
from .policy import HeldPolicy
from .pool import COUNT, Limit, Pools, loose, within, word
from .spec import TopK

RANKED = 4  # candidates that are compared with one at a time

# A row in shared memory: ``vectors`` from address ``base`` on have its elements and less than a vector of others on
# each side, of which none comes before an element; ``skew`` of these come first.
Held = namedtuple("Held", "base skew length vectors")
# Candidates: ``ranked``, of which the greater one comes first, of equal ones that of the lower place, and ``values``.
# Keys of 32 bits are ranked together with their places, of which there is no array then. ``hits``: groups of vectors.
Candidates = namedtuple("Candidates", "pool ranked places values hits")


class HeldTopK(TopKKernel):
    """The kernel. Its parameters are those of ``TopKKernel``."""

    def __init__(self, operation: TopK, policy: HeldPolicy) -> None:
        PlainKernel.__init__(self, policy.threads, policy.smem, policy.blocks_per_sm)
        self.operation, self.policy = operation, policy
        self.index: Any = Int32
        self.order = Order(operation.dtype, operation.largest)
        self.pools = Pools(self.order, Int32, policy.threads, policy.capacity)
        self.size, self.width = operation.dtype.size, VECTOR_BYTES // operation.dtype.size
        self.batch = min(4, 32 // self.width)  # vectors whose elements are looked at together
        self.packed = self.order.type.width == 32

    @cute.jit
    def main(self, arrays: tuple, numbers: tuple, axes: tuple, scratch: cute.Pointer, counters: cute.Pointer):
        buffer = TileBuffer(self.operation.dtype, self.policy.elements)
        start = SmemAllocator().allocate_array(Uint8, buffer.stage_bytes, byte_alignment=LINE_BYTES)
        buffer = replace(buffer, start=start)
        capacity = self.policy.capacity
        kinds = Int64, Int32, self.operation.dtype.cutlass, Uint8
        sizes = capacity, 1 if self.packed else capacity, capacity, self.threads * self.policy.groups
        parts = [state_array((kind,), size, VECTOR_BYTES)[0] for kind, size in zip(kinds, sizes)]
        candidates, bar = Candidates(self.pools.make_words(), *parts), Barrier.make(1, name="row")
        thread = cute.arch.thread_idx()[0]
        cute.arch.sync_threads()
        number, rows, parity = cute.arch.block_idx()[0], numbers[-1], Int32(0)
        given = arrays, numbers, axes, (scratch, counters)
        self.bring(buffer, bar, given, number, thread)
        while number < rows:
            following = number + cute.arch.grid_dim()[0]
            a = self.row_of(arrays, numbers, axes, number, (scratch, counters))
            bar.wait_parity(parity)
            count = self.find(candidates, self.held(buffer, a), a.wanted, thread)
            if following < rows:
                self.bring(buffer, bar, given, following, thread)
            else:
                let_next_start()
            self.give(candidates, a, count, thread)
            number, parity = following, parity ^ 1

    def held(self, buffer, a: Arguments) -> Held:
        """The row in shared memory."""
        first = buffer.first(0, a.x)
        skew = first & (VECTOR_BYTES - 1)
        vectors = (skew + a.length * self.size + (VECTOR_BYTES - 1)) // VECTOR_BYTES
        return Held(first - skew, skew // self.size, a.length, vectors)

    @cute.jit
    def bring(self, buffer: cutlass.Constexpr, bar: Barrier, given: tuple, number, thread):
        """Start the copy of a row. What it overwrites all threads have read, a block barrier ago."""
        arrays, numbers, axes, memory = given
        if thread < LANES:
            a = self.row_of(arrays, numbers, axes, number, memory)
            found = buffer.fill(Int32(0), a.x, Int32(0), Int64(a.length), thread)
            cute.arch.sync_warp()  # the last word of narrow elements has been filled with zeros
            row = self.held(buffer, a)
            kind = self.operation.dtype.cutlass
            end = row.skew + row.length
            if thread < row.skew:
                put(kind, row.base + thread * self.size, self.order.last())
            if end + thread < row.vectors * self.width:
                put(kind, row.base + (end + thread) * self.size, self.order.last())
            cute.arch.sync_warp()
            if thread == 0:
                target, source, size = as_copy(found)
                bar.arrive_tx(1, size)
                if size > 0:
                    primitives.cp_async_bulk_shared_cluster_global(target, source, bar.pointer, size)

    @cute.jit
    def find(self, candidates: Candidates, row: Held, wanted, thread):
        """Append the candidates of a row, and return how many there are. A block barrier."""
        pool = candidates.pool
        greatest = self.greatest(row, thread)
        limit = self.limit(pool, greatest, wanted, thread)
        self.append(candidates, row, greatest, limit, thread)
        cute.arch.fence_proxy("async.shared", space="cta")  # PTX: generic reads before the next copy
        cute.arch.sync_threads()
        count = Int32(pool.words[COUNT])
        # groups of which nothing is left but NaN, the last of the smallest elements, pass for better ones
        short = count < cutlass.min(wanted, row.length)
        if (count > self.policy.capacity) | short:
            low = cutlass.select_(short, self.order.type(self.order.lowest), limit.key)
            count = self.find_exactly(candidates, row, greatest, low, wanted, thread)
        return count

    @cute.jit
    def greatest(self, row: Held, thread):
        """The greatest keys of a thread's groups; group g has vectors of neighbouring rounds."""
        found = cute.make_rmem_tensor((self.policy.groups,), self.order.type)
        each = row.vectors // (self.threads * self.policy.groups)
        for group in cutlass.range_constexpr(self.policy.groups):
            best = self.order.missing()
            for u in cutlass.range(each, unroll=4):
                best = self.order.first(best, self.of_vector(row, (group * each + u) * self.threads + thread))
            vector = (each * self.policy.groups + group) * self.threads + thread
            if vector < row.vectors:
                best = self.order.first(best, self.of_vector(row, vector))
            found[group] = self.order.key(best)
        return found

    def of_vector(self, row: Held, vector):
        """The first of a vector's elements, as it is held."""
        return tree(self.elements(row, vector), self.order.first)

    def elements(self, row: Held, vector) -> list:
        """The elements of a vector, as they are held."""
        kind = self.operation.dtype.cutlass
        unit: Any = Int32 if self.size < 8 else kind  # elements of a byte would take a register each
        count = VECTOR_BYTES // (unit.width // 8)
        loaded = cute.make_rmem_tensor((count,), unit)
        cute.autovec_copy(cells(unit, row.base + vector * VECTOR_BYTES, count, align=VECTOR_BYTES), loaded)
        found = cute.recast_tensor(loaded, kind)
        return [self.order.held(self.order.hold(kind(found[j]))) for j in range(self.width)]

    @cute.jit
    def limit(self, pool, greatest, wanted, thread):
        """A limit that ``wanted`` groups reach. Then the pool is empty."""
        low = self.pools.least(pool, greatest, Int32(1), thread)
        if thread == 0:
            pool.words[COUNT] = Int32(0)
        count = Int32(self.threads * self.policy.groups)
        key, _, _ = self.pools.bisect(pool, greatest, count, low, loose(wanted), thread)
        return Limit(key, self.index(int(self.index.max)))

    @cute.jit
    def append(self, candidates: Candidates, row: Held, greatest, limit: Limit, thread):
        """Append the elements that do not come after the limit, as far as there is room. The lanes of a warp share its
        groups that have some: a lane by lane would wait for the one with the most."""
        lane, hits = thread % LANES, Int32(0)
        first = (thread - lane) * self.policy.groups
        for group in cutlass.range_constexpr(self.policy.groups):
            ballot = Int32(cute.arch.vote_ballot_sync(self.order.type(greatest[group]) >= limit.key))
            if (ballot >> lane) & 1 != 0:
                at = hits + Int32(cute.arch.popc(ballot & Int32(cute.arch.lanemask_lt())))
                candidates.hits[first + at] = Uint8(group * LANES + lane)
            hits += Int32(cute.arch.popc(ballot))
        cute.arch.sync_warp()
        i = lane
        while i < hits:
            hit = Int32(Uint32(Uint8(candidates.hits[first + i])))
            room = self.append_group(candidates, row, hit // LANES, thread - lane + hit % LANES, limit)
            i = cutlass.select_(room, i + LANES, hits)

    @cute.jit
    def append_group(self, candidates: Candidates, row: Held, group, thread, limit: Limit):
        """Append elements of a group of a thread; whether there was room. One thread calls."""
        room: Any = Boolean(True)
        each = row.vectors // (self.threads * self.policy.groups)
        for u in cutlass.range(0, each, self.batch, unroll=1):
            first, count = (group * each + u) * self.threads + thread, cutlass.min(each - u, Int32(self.batch))
            room = self.append_vectors(candidates, row, first, count, limit) & room
        first = (each * self.policy.groups + group) * self.threads + thread
        if first < row.vectors:
            room = self.append_vectors(candidates, row, first, Int32(1), limit) & room
        return room

    @cute.jit
    def append_vectors(self, candidates: Candidates, row: Held, first, count, limit: Limit):
        """Append elements of ``count`` vectors, of which a thread has one a round."""
        floor, chosen, at = self.order.floor(limit.key), Int32(0), Int32(0)
        for u in cutlass.range_constexpr(self.batch):
            vector = first + cutlass.min(Int32(u), count - 1) * self.threads
            for j, one in enumerate(self.elements(row, vector)):
                chosen = chosen | (Int32(self.order.reaches(one, floor)) << (u * self.width + j))
        if count < self.batch:
            chosen = chosen & ((Int32(1) << (count * self.width)) - 1)
        while chosen != 0:
            bit = 31 - Int32(cute.arch.clz(chosen & -chosen))
            chosen = chosen & (chosen - 1)
            place = (first + bit // self.width * self.threads) * self.width + bit % self.width - row.skew
            if (place >= 0) & (place < row.length):
                value, key = self.element(row, place)
                if within(limit, key, place):
                    at = self.put(candidates, key, place, value)
                    chosen = cutlass.select_(at < self.policy.capacity, chosen, Int32(0))
        return Boolean(at < self.policy.capacity)

    def element(self, row: Held, place) -> tuple:
        """An element and its key."""
        kind = self.operation.dtype.cutlass
        value = kind(cells(kind, row.base + (place + row.skew) * self.size, 1)[0])
        return value, self.order.of(value)

    @cute.jit
    def put(self, candidates: Candidates, key, place, value):
        """Append a candidate, if there is room; where. One thread calls."""
        at = Int32(cute.arch.atomic_add(word(candidates.pool, COUNT), Int32(1), sem="relaxed", scope="cta"))
        if at < self.policy.capacity:
            candidates.values[at] = value
            if cutlass.const_expr(self.packed):
                candidates.ranked[at] = (Int64(key) << 32) | (Int64(~place) & 0xFFFFFFFF)
            else:
                candidates.ranked[at], candidates.places[at] = key, place
        return at

    @cute.jit
    def give(self, candidates: Candidates, a: Arguments, count, thread):
        """Store the results, each at its rank; 0, and the index -1, where there are not enough."""
        for at in cutlass.range(thread, count, self.threads, unroll=1):
            mine, to = Int64(candidates.ranked[at]), Int32(-1)  # it does not come after itself
            place = ~Int32(mine & 0xFFFFFFFF) if self.packed else Int32(candidates.places[at])
            pairs = count // RANKED
            for pair in cutlass.range(pairs, unroll=1):
                loaded = cute.make_rmem_tensor((RANKED,), Int64)
                first = candidates.ranked.iterator.toint() + pair * (RANKED * 8)
                cute.autovec_copy(cells(Int64, first, RANKED, align=VECTOR_BYTES), loaded)
                for j in cutlass.range_constexpr(RANKED):
                    to += self.comes_first(candidates, Int64(loaded[j]), RANKED * pair + j, mine, place)
            for other in cutlass.range(RANKED * pairs, count, 1, unroll=1):
                to += self.comes_first(candidates, Int64(candidates.ranked[other]), other, mine, place)
            if to < a.wanted:
                self.store_result(a, to, Int64(place), self.operation.dtype.cutlass(candidates.values[at]))
        for j in cutlass.range(count + thread, a.wanted, self.threads, unroll=1):
            self.store_result(a, j, Int64(-1), self.operation.dtype.cutlass(0))

    def comes_first(self, candidates: Candidates, other, at, mine, place):
        """1 if candidate ``at``, ranked ``other``, does not come after another one, else 0."""
        if self.packed:
            return Int32(other >= mine)
        return Int32((other > mine) | ((other == mine) & (Int32(candidates.places[at]) <= place)))

    def store_result(self, a: Arguments, to, place, value) -> None:
        """Store a result."""
        _, value_step, index_step = a.steps
        store(a.indices + Int64(to) * index_step, place)
        if self.operation.values:
            store(a.values + Int64(to) * value_step, value)

    # Many equal elements

    @cute.jit
    def find_exactly(self, candidates: Candidates, row: Held, greatest, low, wanted, thread):
        """As ``find``, where ``low`` is a key that enough elements reach, perhaps more than there is room for."""
        pool = candidates.pool
        key, number = self.divided(pool, row, greatest, low, wanted, thread)
        equal = number > self.policy.capacity
        if thread == 0:  # all have read the number of candidates, a block barrier ago
            pool.words[COUNT] = Int32(0)
        cute.arch.sync_threads()
        top = key == self.order.type(self.order.highest)
        if cutlass.not_(equal & top):
            above = Limit(key + self.order.type(equal), self.index(int(self.index.max)))
            self.append(candidates, row, greatest, above, thread)
        cute.arch.sync_threads()
        if equal & (thread < LANES):
            self.append_equal(candidates, row, key, wanted - Int32(pool.words[COUNT]), thread)
        cute.arch.fence_proxy("async.shared", space="cta")  # PTX: generic reads before the next copy
        cute.arch.sync_threads()
        return Int32(pool.words[COUNT])

    @cute.jit
    def divided(self, pool, row: Held, greatest, low, wanted, thread):
        """``(key, number)``: a key that ``number`` elements reach, at least ``wanted``, and as many as there is room
        for at most, unless too many are equal: then it is the key of the last result."""
        top = self.order.type(greatest[0])
        for group in cutlass.range_constexpr(1, self.policy.groups):
            top = cutlass.max(top, self.order.type(greatest[group]))
        high = self.pools.greatest(pool, top, Int32(0), thread)
        number, turn = row.length, Int32(1)
        while (number > self.policy.capacity) & (low < high):
            middle = self.order.between(low, high)
            reached = self.pools.sum(pool, self.number(row, middle, thread), turn, thread)
            turn += 1
            if reached >= wanted:
                low, number = middle, reached
            else:
                high = middle - 1
        return low, number

    @cute.jit
    def number(self, row: Held, key, thread):
        """How many of a thread's elements reach a key."""
        found = Int32(0)
        for vector in cutlass.range(thread, row.vectors, self.threads, unroll=1):
            found += Int32(cute.arch.popc(self.which(row, vector, lambda one: self.order.key(one) >= key)))
        return found

    def which(self, row: Held, vector, holds):
        """A bit for each of the row's elements in a vector for which ``holds``, of one as it is held."""
        chosen = Int32(0)
        for j, one in enumerate(self.elements(row, vector)):
            chosen = chosen | (Int32(holds(one)) << j)
        first = vector * self.width - row.skew
        before = cutlass.max(-first, Int32(0))
        behind = cutlass.max(first + self.width - row.length, Int32(0))
        return chosen & (Int32(-1) << before) & ((Int32(1) << (self.width - behind)) - 1)

    @cute.jit
    def append_equal(self, candidates: Candidates, row: Held, key, wanted, lane):
        """Append the first ``wanted`` elements of a key. One warp calls."""
        cute.arch.sync_warp()  # its lanes have read the number of candidates
        begin, busy = Int32(0), Boolean(True)
        while busy:
            vector, chosen = begin + lane, Int32(0)
            if vector < row.vectors:
                chosen = self.which(row, vector, lambda one: self.order.key(one) == key)
            mine = Int32(cute.arch.popc(chosen))
            (through,) = scan_states((mine,), lambda a, b: (a[0] + b[0],), lane)
            left = wanted - (through - mine)
            while (chosen != 0) & (left > 0):
                place = vector * self.width + (31 - Int32(cute.arch.clz(chosen & -chosen))) - row.skew
                self.put(candidates, key, place, self.element(row, place)[0])
                chosen = chosen & (chosen - 1)
                left -= 1
            wanted -= broadcast((through,), LANES - 1)[0]
            begin += LANES
            busy = Boolean((wanted > 0) & (begin < row.vectors))
