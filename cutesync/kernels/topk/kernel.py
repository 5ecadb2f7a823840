"""Top-k of rows in one launch, which reads the rows once. Device code.

    a block      streams chunks of its share of a row: keys, their maximum, a vote of the warp
                 a chunk with keys that are not below the limit --> append (``pool``)
                 the pool full, or at a milestone                --> raise the limit, drop candidates
    one a row    sort, store
    several      publish the rest --> the block that arrives last streams what all published --> sort, store

The warps run freely through their chunks (``turns``). They meet only when a warp finds no room for a chunk's
candidates, and at milestones. A block of several tells the others two facts when it raises its limit, each one word: it
has ``wanted`` elements that are not below a key, and it has its share of them, ``wanted`` over the number of blocks,
that are not below a higher key. The greatest first word and the least second one bound the result: the blocks of random
rows hold only a few candidates each in the end. A word that is not there yet, or an old one, raises the limit less.
Where blocks have no limit of their own at first, they listen until all have told their shares, and a warp reads the
words again in turns 1, 2, 4, ..., while its next chunk comes; the others take what it found from shared memory.

Counters, zero before and after a launch: for each row the number of published candidates, the blocks that have arrived,
and two words for each block. A word is a key's upper 32 bits, and 1 in the upper half.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ...block.split import share
from ...sync.overlap import let_next_start
from ...warp import LANES
from ..coordinates import Axes, element
from ..plain import PlainKernel
from .order import Order
from .policy import MILESTONE_GROWTH, MILESTONE_PARTS, TopKPolicy
from .pool import HEARD, TICKET, Limit, Pools, any_of_block, loose, slack, within, word
from .published import Published, Shared
from .ranks import Ranks
from .rows import At, Row, Rows
from .spec import TopK
from .turns import Turns

# A row's arguments: ``wanted`` results are stored from ``values`` and ``indices`` on. The three arrays have ``steps``.
Arguments = namedtuple("Arguments", "x values indices length wanted steps scratch counters")


class TopKKernel(PlainKernel):
    """The kernel. Its parameters are (x, n, values, indices), of which a call may lack n and values; numbers; the axes
    of the rows; the workspace."""

    name = "topk"
    policy: Any

    def __init__(self, operation: TopK, policy: TopKPolicy) -> None:
        super().__init__(policy.threads, policy.smem, policy.blocks_per_sm)
        self.operation, self.policy, self.warps = operation, policy, policy.threads // LANES
        self.index: Any = Int64 if policy.wide else Int32
        self.order = Order(operation.dtype, operation.largest)
        self.rows = Rows(self.order, policy.unroll, policy.vectors, self.index)
        self.pools = Pools(self.order, self.index, policy.threads, policy.capacity)
        self.listens = policy.seed == "share"
        self.turns = Turns(self.warps, policy.split)
        self.ranks = Ranks(self.pools)
        self.published = Published(self.pools, self.rows.each)

    @cute.jit
    def main(self, arrays: tuple, numbers: tuple, axes: tuple, scratch: cute.Pointer, counters: cute.Pointer):
        block, splits = cute.arch.block_idx()[0], numbers[-2]
        number = Int32(block // splits)
        row = self.row_of(arrays, numbers, axes, number, (scratch, counters))
        self.body(row, number, block % splits, splits)

    def row_of(self, arrays: tuple, numbers: tuple, axes: tuple, number, memory: tuple) -> Arguments:
        """The arguments of row ``number``."""
        x, n, values, indices = arrays
        length, wanted, offset, step, value_step, index_step, *_ = numbers
        if self.operation.counted:
            length = cutlass.min(cutlass.max(Int64(element(n)), Int64(0)), length)
        at, value_at, index_at = Axes(axes, self.policy.rank, 3).offsets(number)
        values = values + (value_at + offset * value_step)
        indices = indices + (index_at + offset * index_step)
        return Arguments(x + at, values, indices, self.index(length), wanted, (step, value_step, index_step), *memory)

    @cute.jit
    def body(self, a: Arguments, number, split, splits):
        thread = cute.arch.thread_idx()[0]
        pool = self.pools.make()
        counters = self.ranks.make() if cutlass.const_expr(self.policy.exact) else None
        step, _, index_step = a.steps
        bound = None
        if cutlass.const_expr(self.policy.bounded):
            bound = self.bound(a, step, element(a.indices - index_step))
        row = self.rows.row(a.x, step, a.length, bound)
        shared = Shared(a.scratch, a.counters, number, split, splits, a.wanted)
        if cutlass.const_expr(self.policy.split):
            if thread == 0:
                pool.words[HEARD], pool.words[TICKET] = Int32(Int32.min), Int32(self.warps)
        self.pools.clear(pool, thread)
        limit = self.stream(pool, row, shared, thread)
        if cutlass.const_expr(self.policy.split):
            last, count, limit = self.published.publish(pool, limit, shared, thread)
            let_next_start()
            if last:
                self.collect(pool, shared, count, limit, thread)
                self.finish(pool, counters, row, a, thread)
        else:
            let_next_start()
            self.finish(pool, counters, row, a, thread)

    @cute.jit
    def bound(self, a: Arguments, step, index):
        """The last result of the launch before, behind which elements count: none if there was none."""
        key, place = self.order.type(self.order.lowest), self.index(int(self.index.max))
        if index >= 0:
            key, place = self.order.of(self.order.dtype.cutlass(element(a.x + index * step))), self.index(index)
        return Limit(key, place)

    @cute.jit
    def stream(self, pool, row: Row, shared: Shared, thread):
        """Append the candidates of this block's share of a row; the limit in the end."""
        lane = thread % LANES
        begin, end = share(row.chunks, shared.split, shared.splits)
        visit = self.turns.visit(begin, end)
        ticket = self.turns.first(visit, thread // LANES)
        held, limit = self.rows.registers(), self.pools.none()
        at = At(row.length, row.length, Int32(0), self.index(0), Boolean(False))
        if ticket < visit.tickets:
            at = self.rows.load(held, row, self.turns.chunk(visit, ticket), lane)
        if cutlass.const_expr(self.policy.seed is not None):
            whole = begin + self.warps <= cutlass.min(end, row.full)
            limit = self.seed(pool, held, limit, whole, shared, thread)
        stop = self.milestone(visit)
        busy = Boolean(True)
        while busy:
            failed: Any = Boolean(False)
            while (ticket < stop) & cutlass.not_(failed) & cutlass.not_(self.pools.is_full(pool)):
                known = limit
                if cutlass.const_expr(self.listens):
                    known = self.published.heard(pool, limit)
                if self.may_pass(held, at, known):
                    failed = cutlass.not_(self.append(pool, held, at, known, row, lane))
                if cutlass.not_(failed):
                    ticket = self.turns.next(visit, ticket, word(pool, TICKET))
                    if ticket < visit.tickets:
                        at = self.rows.load(held, row, self.turns.chunk(visit, ticket), lane)
                    if cutlass.const_expr(self.listens):
                        turn = ticket // self.warps
                        if (ticket == turn * self.warps) & ((turn & (turn - 1)) == 0):
                            self.published.listen(pool, shared, lane)
            busy = any_of_block(failed)
            if cutlass.not_(busy) & (stop < visit.tickets):
                stop = cutlass.min(stop * MILESTONE_GROWTH, visit.tickets)
                busy = Boolean(True)
            limit = self.cut_back(pool, limit, shared, thread)
        return limit

    def milestone(self, visit):
        """Before which ticket the blocks of a row tell bounds for the first time."""
        return cutlass.max(visit.size // MILESTONE_PARTS, Int32(1)) * self.warps if self.policy.split else visit.tickets

    @cute.jit
    def seed(self, pool, held, limit: Limit, whole, shared: Shared, thread):
        """The limit from the greatest keys of the groups of the first chunks, where all of these are whole; or what is
        told of them to the other blocks."""
        key, index = limit
        if whole:
            groups = self.rows.groups
            greatest = cute.make_rmem_tensor((len(groups),), self.order.type)
            for group, first in enumerate(groups):
                greatest[group] = self.order.key(self.rows.greatest(held, first, self.rows.group))
            count = Int32(self.threads * len(groups))
            low = self.pools.least(pool, greatest, Int32(1), thread)
            if cutlass.const_expr(self.policy.seed == "limit"):
                key, _, _ = self.pools.bisect(pool, greatest, count, low, loose(shared.wanted), thread)
            else:
                self.published.tell_part(pool, greatest, count, low, shared, thread)
                key, index = self.published.await_others(pool, shared, thread)
        return Limit(key, index)

    def may_pass(self, held, at: At, limit: Limit) -> Boolean:
        """Whether an element of the warp's chunk may not come after the limit."""
        greatest = self.order.key(self.rows.greatest(held, 0, self.rows.each))
        return Boolean(cute.arch.vote_any_sync(within(limit, greatest, at.first)))

    def append(self, pool, held, at: At, limit: Limit, row: Row, lane):
        """Append a chunk's candidates; whether there was room. Of those with the key of the limit, some may come after
        it."""
        chosen = self.rows.reaching(held, row, at, self.order.floor(limit.key))
        return self.pools.append(pool, chosen, lambda j: self.rows.candidate(row, at, j), lane)

    @cute.jit
    def cut_back(self, pool, limit: Limit, shared: Shared, thread):
        """Raise the limit, and drop the candidates that come after it. After a block barrier."""
        count = self.pools.held(pool)
        if cutlass.const_expr(self.policy.split):
            limit = self.published.hear(pool, limit, shared, thread)
            self.pools.drop(pool, count, limit, thread)
            cute.arch.sync_threads()
            count = self.pools.held(pool)
            held = self.pools.keys_of(pool, count, thread)
            raised = self.pools.raised(pool, held, count, limit, loose(shared.wanted), thread)
            self.published.tell(pool, held, count, raised, shared, thread)
        else:
            held = self.pools.keys_of(pool, count, thread)
            raised = self.pools.raised(pool, held, count, limit, loose(shared.wanted), thread)
        if count > slack(shared.wanted):
            self.pools.drop(pool, count, raised, thread)
        return raised

    @cute.jit
    def collect(self, pool, shared: Shared, count, limit: Limit, thread):
        """Append what all blocks of the row published, ``count`` candidates."""
        self.pools.clear(pool, thread)
        lane, first = thread % LANES, thread // LANES * self.published.elements
        at = Int32(0)
        busy = Boolean(True)
        while busy:
            failed: Any = Boolean(False)
            while (first < count) & cutlass.not_(failed) & cutlass.not_(self.pools.is_full(pool)):
                at = first + lane
                failed = cutlass.not_(self.published.append(pool, shared, at, count, limit, lane))
                if cutlass.not_(failed):
                    first += self.warps * self.published.elements
            busy = any_of_block(failed)
            held = self.pools.held(pool)
            if held > slack(shared.wanted):
                limit = self.pools.cut_back(pool, held, limit, loose(shared.wanted), thread)

    @cute.jit
    def finish(self, pool, counters: cutlass.Constexpr, row: Row, a: Arguments, thread):
        """Store the first ``wanted`` candidates in order. After a block barrier."""
        if cutlass.const_expr(self.policy.exact):
            cute.arch.sync_threads()  # candidates that others have put elsewhere
            count = self.pools.held(pool)
            mine, found = self.ranks.find(pool, counters, count, thread)
            if found:
                for e in cutlass.range_constexpr(self.ranks.each):
                    if (thread + e * self.threads < count) & (Int32(mine.ranks[e]) < a.wanted):
                        self.store(row, a, Int32(mine.ranks[e]), Int64(self.index(mine.places[e])))
                for j in cutlass.range(count + thread, a.wanted, self.threads, unroll=1):
                    self.store(row, a, j, Int64(-1))
            else:
                if count > a.wanted:
                    self.pools.cut_back(pool, count, self.pools.none(), (a.wanted, a.wanted), thread)
                    count = a.wanted
                self.finish_sorted(pool, row, a, count, thread)
        else:
            self.finish_sorted(pool, row, a, self.pools.held(pool), thread)

    @cute.jit
    def finish_sorted(self, pool, row: Row, a: Arguments, count, thread):
        """Sort ``count`` candidates, and store the first ``wanted`` of them."""
        self.pools.sort(pool, count, thread)
        for j in cutlass.range(thread, a.wanted, self.threads, unroll=1):
            place = Int64(-1)
            if j < count:
                place = Int64(self.index(pool.places[j]))
            self.store(row, a, j, place)

    @cute.jit
    def store(self, row: Row, a: Arguments, j, place):
        """Store result ``j``, the element at ``place``; 0, if that is -1."""
        _, value_step, index_step = a.steps
        cute.make_tensor(a.indices + Int64(j) * index_step, cute.make_layout((1,)))[0] = place
        if cutlass.const_expr(self.operation.values):
            value = self.order.dtype.cutlass(0)
            if place >= 0:
                value = self.rows.value(row, place)
            cute.make_tensor(a.values + Int64(j) * value_step, cute.make_layout((1,)))[0] = value
