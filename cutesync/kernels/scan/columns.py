"""Scan along an axis that is not the last: neighbouring threads scan neighbouring columns, row by row.

A block of ``lanes * groups`` threads covers ``lanes * width`` columns; each of its row groups takes a contiguous run of
the block's rows. Where there are too few columns to fill a GPU, several groups, and with ``split`` several blocks,
share the rows: each reduces its run first, learns its carry-in (through shared memory; from the blocks before through
``sync.gather``), and scans the run in a second reading, which mostly comes from the L2. Tickets order the blocks, so
waiting makes progress. Otherwise each element is read once.
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ...block.reduce import get, partial_array, partial_bytes, put
from ...block.split import share
from ...sync.gather import Slots
from ...warp import Maybe, zeros
from ..arrays import pointers_of
from .base import Arguments, Scan, ScanKernel
from .policy import ColumnPolicy

# A thread of a block: its rank, its row group, and whether its columns exist.
Member = namedtuple("Member", "thread group inside")


# Rows ``first`` to ``stop`` of a thread's columns; ``place`` is that of the columns' row 0.
Run = namedtuple("Run", "place first stop")


class ColumnScan(ScanKernel):
    """The kernel: ``width`` columns a thread, loaded as one vector; ``unroll`` rows in flight.

    A ``Maybe`` has one flag here for the states of a thread's columns."""

    def __init__(self, scan: Scan, policy: ColumnPolicy) -> None:
        self.width, self.lanes, self.groups, self.unroll, self.split = (
            policy.width,
            policy.lanes,
            policy.groups,
            policy.unroll,
            policy.split,
        )
        self.aligned_out = policy.aligned_out
        self.types = scan.monoid.types
        threads = -(-policy.lanes * policy.groups // 32) * 32
        smem = partial_bytes(self.types, threads * policy.width) + 32 if policy.groups > 1 or policy.split else 0
        super().__init__(scan, threads, smem, 1)

    @cute.jit
    def body(self, a: Arguments):
        thread, _, _ = cute.arch.thread_idx()
        number, _, _ = cute.arch.block_idx()
        splits = Int32(cute.arch.grid_dim()[0] // (Int32(a.rows) * a.tiles))
        tag = Int32(0)
        if cutlass.const_expr(self.split):
            number, tag = self.take_number(a.counters, thread)
        segment = number % splits
        outer = Int64(number // splits // a.tiles)
        group = thread // self.lanes
        column = (Int64(number // splits % a.tiles) * self.lanes + thread % self.lanes) * self.width
        inside = (column < a.inner) & (group < self.groups)
        begin, end = share(a.length, Int64(segment), Int64(splits))
        first, stop = share(end - begin, Int64(cutlass.min(group, self.groups - 1)), Int64(self.groups))
        first, stop = begin + first, begin + stop
        if cutlass.not_(inside):
            stop = first
        run = Run(outer * a.length * a.inner + column, first, stop)
        start = self.scan.carry_in(a)
        carry = Maybe(tuple(start.state for _ in range(self.width)), start.valid)
        if cutlass.const_expr(self.groups > 1 or self.split):
            me = Member(thread, group, inside)
            storage = partial_array(self.types, self.threads * self.width)
            prefix, total = self.scan_groups(self.reduce_run(a, run), storage, me)
            if cutlass.const_expr(self.split):
                at = (outer * splits + segment) * a.inner + column
                slots = Slots(a.slots, a.rows * splits * a.inner, tag, self.types)
                if inside & (group == self.groups - 1):
                    for c in cutlass.range_constexpr(self.width):
                        slots.publish(at + c, total.state[c])
                before = self.look_back(slots, outer * splits * a.inner + column, segment, a.inner, storage, me)
                carry = self.then(carry, before)
            carry = self.then(carry, prefix)
        self.scan_run(a, run, carry)

    @cute.jit
    def look_back(self, slots: cutlass.Constexpr, at, segment, inner, storage, me: Member):
        """What comes before the block's rows: each row group combines a run of the segments before, then the groups."""
        first, stop = share(segment, cutlass.min(me.group, self.groups - 1), Int32(self.groups))
        count = stop - first
        if cutlass.not_(me.inside):
            count = Int32(0)
        cute.arch.sync_threads()
        found = slots.collect(at + Int64(first) * inner, count, inner, self.scan.combine, self.width)
        _, total = self.scan_groups(found, storage, me)
        return total

    @cute.jit
    def scan_groups(self, partial: Maybe, storage, me: Member):
        """``(prefix, aggregate)`` of the row groups' partials: the prefix is what comes before this thread's group. One
        block barrier; the storage needs another before reuse."""
        for c in cutlass.range_constexpr(self.width):
            put(storage, c * self.threads + me.thread, Maybe(partial.state[c], partial.valid).pack())
        cute.arch.sync_threads()
        lane = me.thread - me.group * self.lanes
        prefix, total = self.none(), self.none()
        for g in range(self.groups):
            other = lane + g * self.lanes
            states = tuple(get(storage, c * self.threads + other, self.types) for c in range(self.width))
            following = Maybe(states, storage[-1][other] != 0)
            if g == me.group:
                prefix = total
            total = self.then(total, following)
        return prefix, total

    @cute.jit
    def then(self, a: Maybe, b: Maybe):
        """``a`` followed by ``b``, column by column."""
        columns = [Maybe(x, a.valid).then(Maybe(y, b.valid), self.scan.combine) for x, y in zip(a.state, b.state)]
        return Maybe(tuple(column.state for column in columns), a.valid | b.valid)

    def none(self) -> Maybe:
        return Maybe(tuple(zeros(self.types) for _ in range(self.width)), Boolean(False))

    @cute.jit
    def reduce_run(self, a: Arguments, run: Run):
        """The aggregate of a run, in scan order."""
        partial = self.none()
        elements = self.registers()
        x, first = a.x + run.place, run.first
        while first < run.stop:
            left = Int32(cutlass.min(run.stop - first, Int64(self.unroll)))
            self.load(x, elements, first, left, a)
            for u in cutlass.range_constexpr(self.unroll):
                if u < left:
                    partial = self.then(partial, Maybe.of(self.lifted(elements, u, first + u, a)))
            first += self.unroll
        return partial

    @cute.jit
    def scan_run(self, a: Arguments, run: Run, carry: Maybe):
        """Store the scan of a run; ``carry`` comes before it."""
        elements = self.registers()
        x, out, first = a.x + run.place, a.out + run.place, run.first
        while first < run.stop:
            left = Int32(cutlass.min(run.stop - first, Int64(self.unroll)))
            self.load(x, elements, first, left, a)
            for u in cutlass.range_constexpr(self.unroll):
                if u < left:
                    following = self.then(carry, Maybe.of(self.lifted(elements, u, first + u, a)))
                    at = out + self.scan.flip(first + u, a.length) * a.inner
                    self.store(at, carry.state if self.scan.exclusive else following.state)
                    carry = Maybe.of(following.state)
            first += self.unroll

    def registers(self):
        layout = cute.make_layout((self.width, self.unroll), stride=(1, self.width))
        return tuple(cute.make_rmem_tensor(layout, dtype.cutlass) for dtype in self.scan.monoid.sources)

    @cute.jit
    def load(self, x, elements, first, left, a: Arguments):
        for u in cutlass.range_constexpr(self.unroll):
            if u < left:
                self.load_row(x + self.scan.flip(first + u, a.length) * a.inner, elements, u)

    def load_row(self, at, elements, u: int) -> None:
        for pointer, dtype, target in zip(pointers_of(at), self.scan.monoid.sources, elements):
            cute.autovec_copy(self.vector(pointer, dtype, True), target[(None, u)])

    def lifted(self, elements, u: int, row, a: Arguments):
        """The states of row ``row`` (in scan order) of the thread's columns, loaded as number ``u``."""
        index = self.scan.flip(row, a.length) if self.scan.monoid.takes_index else 0
        return tuple(self.scan.monoid.lift(*(e[c, u] for e in elements), index) for c in range(self.width))

    def store(self, out, states) -> None:
        monoid = self.scan.monoid
        columns = [monoid.results_of(state) for state in states]
        for k, (pointer, dtype) in enumerate(zip(pointers_of(out), monoid.results)):
            results = cute.make_rmem_tensor((self.width,), dtype.cutlass)
            for c in range(self.width):
                results[c] = columns[c][k]
            cute.autovec_copy(results, self.vector(pointer, dtype, self.aligned_out))

    def vector(self, at, element, aligned: bool):
        align = element.size * (self.width if aligned else 1)
        pointer = cute.make_ptr(element.cutlass, at.toint(), cute.AddressSpace.gmem, assumed_align=align)
        return cute.make_tensor(pointer, cute.make_layout((self.width,)))
