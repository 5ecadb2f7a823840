"""Scan of arrays whose elements are equal along the scanned axis: result i combines i + 1 equal states, or i.

No element is read twice by a thread, and no thread waits for another. A thread finds the aggregate of as many equal
states as come before its first result by squaring, and goes on from there state by state. Powers of one state commute.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...monoid import choose
from ...sync.overlap import let_next_start
from ...warp import select
from ..coordinates import Axes, element
from .base import Arguments, Scan, ScanKernel
from .equal_policy import THREADS, EqualPolicy


class EqualScan(ScanKernel):
    """The kernel. The first number of ``layout`` is the stride of the output along the scanned axis."""

    def __init__(self, scan: Scan, policy: EqualPolicy) -> None:
        self.policy, self.width, self.unroll = policy, policy.width, policy.unroll
        self.far = policy.lanes * policy.width  # positions from a thread's vector to its next one
        super().__init__(scan, THREADS, 0, 1)

    @cute.jit
    def body(self, a: Arguments):
        let_next_start()
        number = cute.arch.block_idx()[0] * THREADS + cute.arch.thread_idx()[0]
        if number < a.tiles:
            if cutlass.const_expr(self.policy.way == "flat"):
                for u in cutlass.range_constexpr(self.unroll):
                    self.scan_flat(a, number + u * a.tiles)
            else:
                from_x, from_out, place = self.axes(a).offsets(number)
                if cutlass.const_expr(self.policy.way == "along"):
                    self.scan_vectors(a, self.lifted(a.x + from_x), a.out + from_out, Int32(place))
                else:
                    self.scan_rows(a, a.x + from_x, a.out + from_out, Int32(place))

    def axes(self, a: Arguments) -> Axes:
        return Axes(a.layout[1:], self.policy.rank, 3)

    def lifted(self, at):
        return self.scan.monoid.lift(element(at), Int64(0))

    def order(self, a: Arguments, place):
        """The number in scan order of the position at a place."""
        return Int32(a.length) - 1 - place if self.scan.reverse else place

    def aggregate(self, state, number):
        """The aggregate of the states that count for position ``number`` in scan order, at least one."""
        return self.power(state, cutlass.max(number + (0 if self.scan.exclusive else 1), Int32(1)))

    @cute.jit
    def power(self, state, count: Int32):
        """The aggregate of ``count`` equal states."""
        total = state
        left = count - 1
        while left > 0:
            if left % 2 == 1:
                total = self.scan.monoid.combine(total, state)
            state = self.scan.monoid.combine(state, state)
            left = left // 2
        return total

    def result(self, carry: Any, number, total):
        """The result of position ``number``; ``total`` is its ``aggregate``."""
        if self.scan.start is not None:
            found = self.scan.combine(carry, total)
            total = select(number > 0, found, carry) if self.scan.exclusive else found
        return self.scan.monoid.results_of(total)[0]

    def following(self, number, total, pace):
        """The aggregate of the position to which ``pace`` leads from ``number``: position 0 in scan order may have
        none."""
        found = self.scan.monoid.combine(total, pace)
        return select(number > 0, found, pace) if self.scan.exclusive else found

    def pace(self, state, positions: int):
        """The aggregate of a power of two of equal states."""
        for _ in range(positions.bit_length() - 1):
            state = self.scan.monoid.combine(state, state)
        return state

    def carry(self, a: Arguments) -> tuple:
        return tuple(self.scan.carry_in(a, Int64(0)).state)

    def in_order(self, count: int) -> list[int]:
        """The members of a vector along the scanned axis, in scan order."""
        return list(range(count))[:: -1 if self.scan.reverse else 1]

    @cute.jit
    def scan_vectors(self, a: cutlass.Constexpr, state, out, place: Int32):
        """Store a thread's vectors along the scanned axis. The first may begin before it, on its boundary."""
        size = self.scan.monoid.result.size
        place -= Int32(out.toint() // size % self.width)
        carry = self.carry(a)
        last = (self.unroll - 1) * self.far + self.width
        length = Int32(a.length)
        if (place >= 0) & (place + last <= length):
            places = [place + u * self.far for u in self.in_order(self.unroll)]
            first = self.order(a, places[0] + (self.width - 1 if self.scan.reverse else 0))
            total = self.aggregate(state, first)
            pace = self.pace(state, self.far)
            for u, at in enumerate(places):
                self.store_vector(a, state, out + at, first + u * self.far, total, carry)
                if cutlass.const_expr(u + 1 < self.unroll):
                    beyond = self.scan.monoid.combine(total, pace)
                    total = self.moved(state, first, total, beyond) if u == 0 else beyond
        else:
            for u in cutlass.range(self.unroll, unroll=1):
                self.store_some(a, state, out, place + u * self.far, carry)

    def moved(self, state, first, total, beyond):
        """``beyond``, which follows ``total`` by ``far`` positions; one less where an exclusive scan begins."""
        if not self.scan.exclusive:
            return beyond
        return select(first > 0, beyond, self.power(state, Int32(self.far)))

    def store_vector(self, a: Arguments, state, at, number, total, carry) -> None:
        """Store a whole vector whose first position in scan order has this number and aggregate."""
        results = cute.make_rmem_tensor((self.width,), self.scan.monoid.result.cutlass)
        for k, i in enumerate(self.in_order(self.width)):
            results[i] = self.result(carry, number + k, total)
            total = self.following(number + k, total, state)
        self.store_results(results, at)

    @cute.jit
    def store_some(self, a: cutlass.Constexpr, state, out, place: Int32, carry):
        """Store the results of a vector that exist, one by one."""
        length = Int32(a.length)
        if (place + self.width > 0) & (place < length):
            last = cutlass.min(place + self.width, length) - 1
            begin = last if self.scan.reverse else cutlass.max(place, Int32(0))
            number = self.order(a, begin)
            total = self.aggregate(state, number)
            for i in cutlass.range(self.width, unroll=1):
                at = begin - i if self.scan.reverse else begin + i
                if (at >= cutlass.max(place, Int32(0))) & (at <= last):
                    cute.make_tensor(out + at, cute.make_layout((1,)))[0] = self.result(carry, number + i, total)
                total = self.following(number + i, total, state)

    @cute.jit
    def scan_rows(self, a: cutlass.Constexpr, x, out, number: Int32):
        """Store the results of neighbouring columns, vector by vector, from position ``number`` in scan order on,
        ``lanes`` positions apart."""
        step, length, carry = a.layout[0], Int32(a.length), self.carry(a)
        columns = self.axes(a).steps[0]
        states = [self.lifted(x + (columns >> (self.width.bit_length() - 1)) * c) for c in range(self.width)]
        totals = tuple(self.aggregate(state, number) for state in states)
        lanes = self.policy.lanes
        paces = tuple(self.pace(state, lanes) for state in states)
        left = (length - number + (lanes - 1)) // lanes
        for _ in cutlass.range(cutlass.min(Int32(self.unroll), left), unroll=1):
            results = cute.make_rmem_tensor((self.width,), self.scan.monoid.result.cutlass)
            for c in cutlass.range_constexpr(self.width):
                results[c] = self.result(carry, number, totals[c])
            self.store_results(results, out + Int64(self.order(a, number)) * step)
            totals = tuple(self.following(number, total, pace) for total, pace in zip(totals, paces))
            number += lanes

    @cute.jit
    def scan_flat(self, a: cutlass.Constexpr, vector: Int32):
        """Store a vector of the run of all results, counted from the boundary at its beginning or before it. It has
        results of two columns at most."""
        size, length = self.scan.monoid.result.size, Int32(a.length)
        begin = vector * self.width - Int32(a.out.toint() // size % self.width)
        count = self.axes(a).size
        carry = self.carry(a)
        if (begin >= 0) & (begin + self.width <= count):
            order = self.in_order(self.width)
            (x, _, place), (other, *_) = (self.axes(a).offsets(begin + i) for i in (order[0], order[-1]))
            number = self.order(a, Int32(place))
            state, second = self.lifted(a.x + x), self.lifted(a.x + other)
            total = self.aggregate(state, number)
            results = cute.make_rmem_tensor((self.width,), self.scan.monoid.result.cutlass)
            for i in order:
                results[i] = self.result(carry, number, total)
                ends = number == length - 1
                total = select(ends, second, self.following(number, total, state))
                state = select(ends, second, state)
                number = choose(ends, Int32(0), number + 1)
            self.store_results(results, a.out + begin)
        else:
            for i in cutlass.range(self.width, unroll=1):
                if (begin + i >= 0) & (begin + i < count):
                    x, at, place = self.axes(a).offsets(begin + i)
                    number = self.order(a, Int32(place))
                    total = self.aggregate(self.lifted(a.x + x), number)
                    cute.make_tensor(a.out + at, cute.make_layout((1,)))[0] = self.result(carry, number, total)

    def store_results(self, results, at) -> None:
        """Store a vector of results, which begins on its boundary."""
        kind, align = self.scan.monoid.result.cutlass, self.width * self.scan.monoid.result.size
        target = cute.make_ptr(kind, at.toint(), cute.AddressSpace.gmem, assumed_align=align)
        cute.autovec_copy(results, cute.make_tensor(target, cute.make_layout((self.width,))))
