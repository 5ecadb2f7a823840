"""Scan along an axis that is not the last, where there are columns enough to fill a GPU: neighbouring threads scan
neighbouring columns, row by row, and no thread waits for another. Each element is read once.

``ThreadColumns`` is what this kernel shares with ``column_tiles``.
"""

from __future__ import annotations

import math
from dataclasses import replace

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ...monoid import choose
from ...sync.overlap import let_next_start
from ...warp import Maybe
from ..arrays import pointers_of
from ..hardware import VECTOR_BYTES, WORD_BYTES
from ..words import funnel_shift, load_pair, of_pair
from .base import Arguments, Scan, ScanKernel
from .column_policy import ColumnPolicy
from .packed_monoid import PackedMonoid, packed_monoid
from .problem import ANYWHERE


def element(pointer):
    return cute.make_tensor(pointer, cute.make_layout((1,)))


class ThreadColumns(ScanKernel):
    """Threads with ``width`` columns each, loaded as one vector. A ``Maybe`` has one flag here for the states of a
    thread's columns.

    ``aligned_out``: results can be stored as one vector, too. ``apart``: the columns of a thread are no neighbours.

    Where the inputs run ``backward`` along columns, a thread's elements lie in the opposite order, also those of a
    word that holds several columns."""

    apart = False
    width: int
    aligned_out: bool

    def vector(self, at, element, aligned: bool = True):
        """A thread's elements of a row, at a pointer."""
        align = math.gcd(element.size * self.width, VECTOR_BYTES) if aligned else element.size
        pointer = cute.make_ptr(element.cutlass, at.toint(), at.memspace, assumed_align=align)
        return cute.make_tensor(pointer, cute.make_layout((self.width,)))

    def lifted(self, rows, position, a: Arguments):
        """The states of the row at ``position`` (in scan order): ``rows`` are a thread's elements of each input."""
        index = self.scan.flip(position, a.length) if self.scan.monoid.takes_index else 0
        rows = [self.in_order(row) for row in rows]
        return tuple(self.scan.monoid.lift(*(row[c] for row in rows), index) for c in range(self.width))

    def in_order(self, row):
        """A thread's elements of a row in the order of its columns."""
        if not self.scan.backward:
            return row
        found = [row[c] for c in range(self.width)]
        found = found if self.apart else found[::-1]
        monoid = self.scan.monoid
        return [monoid.backwards(word) for word in found] if isinstance(monoid, PackedMonoid) else found

    def column_in(self, column):
        """Where a thread's elements of a row begin in the inputs, from that of column 0 on; ``column`` is its first."""
        if not self.scan.backward:
            return column
        return -column if self.apart else -column - (self.width - 1)

    def store_row(self, at, states) -> None:
        """Store the results of a row's states."""
        columns = [self.scan.monoid.results_of(state) for state in states]
        for k, (pointer, dtype) in enumerate(zip(pointers_of(at), self.scan.monoid.results)):
            results = cute.make_rmem_tensor((self.width,), dtype.cutlass)
            for c in range(self.width):
                results[c] = columns[c][k]
            cute.autovec_copy(results, self.vector(pointer, dtype, self.aligned_out))

    def combine(self, a, b):
        """Combine the states of a thread's columns, column by column."""
        return tuple(self.scan.combine(x, y) for x, y in zip(a, b))

    @cute.jit
    def then(self, a: Maybe, b: Maybe):
        """``a`` followed by ``b``, column by column."""
        columns = [Maybe(x, a.valid).then(Maybe(y, b.valid), self.scan.combine) for x, y in zip(a.state, b.state)]
        return Maybe(tuple(column.state for column in columns), a.valid | b.valid)

    def carry_in(self, a: Arguments, row, column) -> Maybe:
        starts = [self.scan.carry_in(a, row, at) for at in self.columns_from(column, a)]
        return Maybe(tuple(start.state for start in starts), starts[0].valid)

    def columns_from(self, column, a: Arguments) -> list:
        """A thread's columns, from its first one on."""
        return [column + c for c in range(self.width)]


class ColumnScan(ThreadColumns):
    """The kernel: ``lanes`` threads side by side, with ``unroll`` rows in flight each. With ``flat``, ``a.tiles``
    threads have a row's columns. Columns that lie ``apart`` are loaded and stored one by one. Joined words are combined
    at once, if the operator has word arithmetic: a thread has ``columns`` columns in ``width`` words then."""

    def __init__(self, scan: Scan, policy: ColumnPolicy) -> None:
        self.columns, self.width, self.lanes, self.unroll = policy.width, policy.width, policy.lanes, policy.unroll
        self.aligned_out, self.flat, self.apart = policy.aligned_out, policy.flat, policy.apart
        self.skew, self.strips = policy.skew, policy.strips
        first_values = len(scan.monoid.types)
        self.packed = packed_monoid(scan) if policy.skew == ANYWHERE and scan.monoid.source.size < WORD_BYTES else None
        if self.packed is not None:
            self.width = policy.width * scan.monoid.source.size // WORD_BYTES
            scan = replace(scan, monoid=self.packed)
        super().__init__(scan, -(-policy.lanes // 32) * 32, 0, 1)
        self.first_values = first_values

    @cute.jit
    def body(self, a: Arguments):
        let_next_start()
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        row, column, exists = self.place(a, block, thread)
        if exists:
            begin, target = self.row_places(a, Int64(row))
            carry = self.carry_in(a, row, column)
            x, out = a.x + (begin + self.column_in(column)), a.out + (target + column)
            if cutlass.const_expr(self.skew == ANYWHERE):
                self.scan_joined(a, x, out, carry, column)
            else:
                count = Int32(cutlass.min((a.inner - column + (self.lanes - 1)) // self.lanes, Int64(self.width)))
                self.scan_columns(a, x, out, carry, count)

    def carry_in(self, a: Arguments, row, column) -> Maybe:
        if self.packed is None or self.scan.start is None:
            return super().carry_in(a, row, column)
        return Maybe((self.packed.of_number(a.init[0]),) * self.width, Boolean(True))

    def columns_from(self, column, a: Arguments) -> list:
        if not self.apart:
            return super().columns_from(column, a)
        return [cutlass.min(column + c * self.lanes, a.inner - 1) for c in range(self.width)]

    def place(self, a: Arguments, block, thread):
        """A thread's row and first column, and whether they exist."""
        if self.flat:
            number = block * self.lanes + thread
            row = number // a.tiles
            return row, Int64(number - row * a.tiles) * self.columns, row < a.rows
        if self.apart:
            column = Int64(block % a.tiles) * (self.lanes * self.width) + thread
            return block // a.tiles, column, column < a.inner
        column = (Int64(block % a.tiles) * self.lanes + thread) * self.columns
        return block // a.tiles, column, (column < a.inner) & (thread < self.lanes)

    @cute.jit
    def scan_columns(self, a: Arguments, x, out, carry: Maybe, count: Int32):
        """Scan a thread's columns, whose first elements are at ``x``; ``carry`` comes before them. Of columns that lie
        apart ``count`` exist."""
        layout = cute.make_layout((self.width, self.unroll), stride=(1, self.width))
        elements = tuple(cute.make_rmem_tensor(layout, dtype.cutlass) for dtype in self.scan.monoid.sources)
        first = Int64(0)
        while first < a.length:
            left = Int32(cutlass.min(a.length - first, Int64(self.unroll)))
            for u in cutlass.range_constexpr(self.unroll):
                if u < left:
                    at = x + self.scan.flip(first + u, a.length) * a.x_step
                    self.load_row(at, [e[(None, u)] for e in elements], count)
            for u in cutlass.range_constexpr(self.unroll):
                if u < left:
                    row = Maybe.of(self.lifted([e[(None, u)] for e in elements], first + u, a))
                    following = self.then(carry, row)
                    at = out + self.scan.flip(first + u, a.length) * a.out_step
                    states = carry.state if self.scan.exclusive else following.state
                    if cutlass.const_expr(self.apart):
                        for c in cutlass.range_constexpr(self.width):
                            if c < count:
                                self.store_element(at + c * self.lanes, states[c])
                    else:
                        self.store_row(at, states)
                    carry = Maybe.of(following.state)
            first += self.unroll

    @cute.jit
    def scan_joined(self, a: Arguments, x, out, start: Maybe, column):
        """Scan a thread's columns in all strips that have them; ``unroll`` rows are all. ``column`` is the first."""
        count = 2 * self.width * self.scan.monoid.source.size // WORD_BYTES  # words of a pair of vectors
        pairs = cute.make_rmem_tensor(
            cute.make_layout((count, self.unroll, self.strips), stride=(1, count, count * self.unroll)), Int32
        )
        end, far = self.end_of(a), Int64(a.tiles) * self.columns
        for k in cutlass.range_constexpr(self.strips):
            for u in cutlass.range_constexpr(self.unroll):
                if self.has(a, u, column, k):
                    load_pair(x + (k * far + self.scan.flip(u, a.length) * a.x_step), pairs[(None, u, k)], end)
        for k in cutlass.range_constexpr(self.strips):
            carry = start
            for u in cutlass.range_constexpr(self.unroll):
                if self.has(a, u, column, k):
                    place = self.scan.flip(u, a.length)
                    row = self.joined(pairs[(None, u, k)], x + (k * far + place * a.x_step))
                    following = self.then(carry, Maybe.of(self.lifted([row], Int64(u), a)))
                    states = carry.state if self.scan.exclusive else following.state
                    self.store_row(out + (k * far + place * a.out_step), states)
                    carry = Maybe.of(following.state)

    def has(self, a: Arguments, row: int, column, strip: int):
        """Whether a thread whose first column is ``column`` has a row, and a vector in a strip."""
        exists = Int64(row) < a.length
        return exists & (column + strip * Int64(a.tiles) * self.columns < a.inner) if strip else exists

    def load_row(self, at, targets, count) -> None:
        """Load a thread's elements of a row; its first one in place of those of columns that do not exist."""
        for pointer, dtype, target in zip(pointers_of(at), self.scan.monoid.sources, targets):
            if self.apart:
                lanes = -self.lanes if self.scan.backward else self.lanes
                for c in range(self.width):
                    place = pointer + choose(c < count, Int32(c * lanes), Int32(0)) if c else pointer
                    target[c] = cute.make_tensor(place, cute.make_layout((1,)))[0]
            elif self.skew:
                self.load_skewed(pointer, dtype, target)
            else:
                cute.autovec_copy(self.vector(pointer, dtype), target)

    def joined(self, pair, at):
        """A thread's elements of the row at ``at``, of a pair of vectors."""
        found = of_pair(pair, at)
        words = cute.make_rmem_tensor(cute.make_layout((len(found),), stride=(1,)), Int32)
        for w, word in enumerate(found):
            words[w] = Int32(word)
        return cute.recast_tensor(words, self.scan.monoid.sources[0].cutlass)

    def load_skewed(self, pointer, dtype, target) -> None:
        """Load a thread's elements of a row, which begin behind a boundary: the vector there, and what lies behind it
        one by one."""
        count = self.width * dtype.size // WORD_BYTES
        hops, rest = divmod(self.skew * dtype.size, WORD_BYTES)
        words = cute.make_rmem_tensor((count + hops + 1,), Int32)
        start = cute.make_ptr(Int32, (pointer - self.skew).toint(), pointer.memspace, assumed_align=count * WORD_BYTES)
        first = cute.make_rmem_tensor((count,), Int32)
        cute.autovec_copy(cute.make_tensor(start, cute.make_layout((count,))), first)
        for i in range(count):
            words[i] = first[i]
        elements = cute.recast_tensor(words, dtype.cutlass)
        for i in range(self.skew):
            elements[self.width + i] = element(pointer + (self.width - self.skew + i))[0]
        found = cute.recast_tensor(target, Int32)
        for i in range(count):
            low, high = words[i + hops], words[i + hops + 1]
            found[i] = funnel_shift(low, high, Int32(rest * 8)) if rest else low

    def store_element(self, at, state) -> None:
        """Store the result of a state."""
        for k, (pointer, dtype) in enumerate(zip(pointers_of(at), self.scan.monoid.results)):
            result = dtype.cutlass(self.scan.monoid.results_of(state)[k])
            cute.make_tensor(pointer, cute.make_layout((1,)))[0] = result
