"""Scan along an axis that is not the last, of small arrays: the blocks of a cluster share columns, in registers.

A block has ``groups`` row groups of ``height`` rows, and ``lanes * width`` columns; the blocks of a cluster have all
rows of these columns. Each element is loaded once, into registers, and stays there.

    1. every thread loads and reduces the rows of its columns
    2. the row groups' partials are scanned: neighbouring lanes have those of a column (two barriers)
    3. the lanes that have a column's aggregate store it in the shared memory of every block of the cluster
    4. every thread waits for those of all blocks, combines those of lower rank, and scans and stores its rows

The blocks of a cluster run at the same time: no tickets are taken, and nothing lies in global memory.

``told``: an arrival of each warp of each block, when its lanes have stored; release and acquire at cluster scope; first
phase 0. Every thread waits for all arrivals, so no block leaves while a peer may still store or arrive there.
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...block.reduce import get, put, state_array, state_bytes
from ...monoid import choose
from ...sync.barrier import Barriers
from ...sync.overlap import await_launches, let_next_start
from ...warp import LANES, Maybe, broadcast, scan_states, shift_up
from ..arrays import pointers_of
from .base import Arguments, Scan
from .cluster_policy import ColumnClusterPolicy
from .columns import ThreadColumns

# A thread: its rank in the block, its row group, and its lane in it; the block's rank in the cluster.
Member = namedtuple("Member", "thread group lane rank")

# A thread's rows and columns: the outer slice; the first column that exists; the position of the first row, in scan
# order; how many rows it stores, and the last that it loads. ``place`` is where its first element lies, and ``step``
# from row to row; ``target`` and ``target_step`` are the same in the outputs.
Part = namedtuple("Part", "outer column position left last place step target target_step")

# Shared memory: the partials of the row groups, what the cluster's blocks have told, and the barrier.
Shared = namedtuple("Shared", "partials told barrier")


class ColumnClusterScan(ThreadColumns):
    """The kernel. Threads whose rows or columns do not exist load others in their place, and store nothing.

    Barriers are made while the launches before still run, unless the number of rows is in memory."""

    def __init__(self, scan: Scan, policy: ColumnClusterPolicy) -> None:
        self.width, self.lanes, self.groups, self.height = policy.width, policy.lanes, policy.groups, policy.height
        self.aligned_out, self.columns, self.pitch = policy.aligned_out, policy.lanes * policy.width, policy.lanes + 1
        threads, types = policy.lanes * policy.groups, scan.monoid.types
        self.states = policy.groups * self.pitch * policy.width
        smem = state_bytes(types, self.states) + 8
        if policy.cluster > 1:
            smem += state_bytes(types, policy.cluster * self.columns)
        super().__init__(scan, threads, smem, policy.blocks_per_sm)
        self.cluster, self.waits = policy.cluster, scan.reads_at_once

    @cute.jit
    def body(self, a: Arguments):
        types = self.scan.monoid.types
        shared = Shared(state_array(types, self.states), None, None)
        if cutlass.const_expr(self.cluster > 1):
            told = Barriers.make(1, self.cluster * (self.threads // LANES), scope="cluster", name="told")
            shared = shared._replace(told=state_array(types, self.cluster * self.columns), barrier=told)
            cute.arch.cluster_arrive()
        if cutlass.const_expr(not self.waits):
            await_launches()
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        me = Member(thread, thread // self.lanes, thread % self.lanes, block % self.cluster)
        self.scan_part(shared, a, me, self.part(block // self.cluster, a, me))

    def part(self, chain, a: Arguments, me: Member) -> Part:
        """A thread's part of the columns with number ``chain``."""
        across = Int32((a.inner + (self.columns - 1)) // self.columns)
        outer = chain // across
        column = ((chain - outer * across) * self.lanes + me.lane) * self.width
        first = Int64(me.rank * self.groups + me.group) * self.height
        rest = Int32(cutlass.max(cutlass.min(a.length - first, Int64(self.height)), 0))
        left = choose(column < Int32(a.inner), rest, Int32(0))
        column = cutlass.min(column, Int32(a.inner) - self.width)
        first = cutlass.min(first, a.length - 1)
        at = self.scan.flip(first, a.length)
        place, target = (begin + column for begin in self.row_places(a, Int64(outer)))
        steps = (-a.x_step, -a.out_step) if self.scan.reverse else (a.x_step, a.out_step)
        last = cutlass.max(rest - 1, 0)
        return Part(
            outer, column, first, left, last, place + at * a.x_step, steps[0], target + at * a.out_step, steps[1]
        )

    @cute.jit
    def scan_part(self, shared: cutlass.Constexpr, a: Arguments, me: Member, part: Part):
        layout = cute.make_layout((self.width, self.height), stride=(1, self.width))
        elements = tuple(cute.make_rmem_tensor(layout, dtype.cutlass) for dtype in self.scan.monoid.sources)
        for u in cutlass.range_constexpr(self.height):
            at = a.x + (part.place + Int64(cutlass.min(Int32(u), part.last)) * part.step)
            for pointer, dtype, held in zip(pointers_of(at), self.scan.monoid.sources, elements):
                cute.autovec_copy(self.vector(pointer, dtype), held[(None, u)])
        rows = [self.lifted([e[(None, u)] for e in elements], part.position + u, a) for u in range(self.height)]
        total = rows[0]
        for row in rows[1:]:
            total = self.combine(total, row)
        prefix = self.exchange(shared, total, me)
        let_next_start()
        before = self.then(self.before(shared, a, me, part), prefix)
        states = before.state
        for u, row in enumerate(rows):
            following = self.append(before.valid, states, row) if u == 0 else self.combine(states, row)
            at = part.target + Int64(u) * part.target_step
            self.store_if(u < part.left, a.out + at, states if self.scan.exclusive else following)
            states = following

    def append(self, valid, states, row):
        """``row``, preceded by ``states`` where they are valid."""
        return tuple(Maybe(x, valid).append(y, self.scan.combine).state for x, y in zip(states, row))

    @cute.jit
    def store_if(self, exists, at, states):
        if exists:
            self.store_row(at, states)

    @cute.jit
    def exchange(self, shared: cutlass.Constexpr, total, me: Member) -> Maybe:
        """What comes before a thread's rows in its block. The columns' aggregates are told to the cluster's blocks."""
        types, places = self.scan.monoid.types, [c * self.groups * self.pitch for c in range(self.width)]
        own = me.group * self.pitch + me.lane
        for c, place in enumerate(places):
            put(shared.partials, place + own, total[c])
        cute.arch.sync_threads()
        if cutlass.const_expr(self.cluster > 1):
            cute.arch.cluster_wait()
        column, group, lane = me.thread // self.groups, me.thread % self.groups, me.thread % LANES
        for c, place in enumerate(places):
            at = place + group * self.pitch + column
            inclusive = scan_states(get(shared.partials, at, types), self.scan.combine, lane, self.groups)
            put(shared.partials, at, shift_up(inclusive))
            if cutlass.const_expr(self.cluster > 1):
                self.tell(shared, broadcast(inclusive, lane | (self.groups - 1)), c * self.lanes + column, group, me)
        cute.arch.sync_threads()
        if cutlass.const_expr(self.cluster > 1):
            if lane < self.cluster:
                shared.barrier[0].arrive_remote(lane)
        return Maybe(tuple(get(shared.partials, place + own, types) for place in places), me.group > 0)

    @cute.jit
    def tell(self, shared: cutlass.Constexpr, state, column, block, me: Member):
        """Store the aggregate of a column in a block of the cluster."""
        if block < self.cluster:
            for member, value in zip(shared.told, state):
                there = cute.arch.map_dsmem_ptr(member.iterator + (me.rank * self.columns + column), block)
                mine = cute.make_rmem_tensor(cute.make_layout((1,)), type(value))
                mine[0] = value
                cute.autovec_copy(mine, cute.make_tensor(there, cute.make_layout((1,))))

    @cute.jit
    def before(self, shared: cutlass.Constexpr, a: Arguments, me: Member, part: Part) -> Maybe:
        """What comes before the rows of a block."""
        found = self.carry_in(a, part.outer, part.column)
        if cutlass.const_expr(self.cluster > 1):
            shared.barrier[0].wait_parity(0)
            for rank in cutlass.range_constexpr(self.cluster - 1):
                first = rank * self.columns + me.lane
                state = tuple(
                    get(shared.told, first + c * self.lanes, self.scan.monoid.types) for c in range(self.width)
                )
                found = self.then(found, Maybe(state, me.rank > rank))
        return found
