"""Scan along an axis that is not the last, where there are columns enough to fill a GPU: neighbouring threads scan
neighbouring columns, row by row, and no thread waits for another. Each element is read once.

``ThreadColumns`` is what this kernel shares with ``column_tiles``: the elements of a thread's columns in registers.
"""

from __future__ import annotations

import math

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...dtypes import DType
from ...warp import Maybe
from ..arrays import pointers_of
from .base import Arguments, Scan, ScanKernel
from .policy import ColumnPolicy

WORD_BYTES = 4


class ThreadColumns(ScanKernel):
    """Threads with ``width`` columns each, loaded as one vector. A ``Maybe`` has one flag here for the states of a
    thread's columns.

    ``aligned_out``: results can be stored as one vector, too."""

    width: int
    aligned_out: bool

    def packed(self, dtype: DType) -> bool:
        """Whether the elements of a row are held as 32-bit words. Else each has a register."""
        return self.width * dtype.size % WORD_BYTES == 0

    def registers(self, rows: int):
        """Registers for the elements of ``rows`` rows of a thread's columns: a tensor (words, rows) of each input."""
        tensors = []
        for dtype in self.scan.monoid.sources:
            packed = self.packed(dtype)
            each = self.width * dtype.size // WORD_BYTES if packed else self.width
            layout = cute.make_layout((each, rows), stride=(1, each))
            tensors.append(cute.make_rmem_tensor(layout, Int32 if packed else dtype.cutlass))
        return tuple(tensors)

    def load_row(self, at, elements, u: int) -> None:
        """Load the row at ``at`` as number ``u``."""
        for pointer, dtype, target in zip(pointers_of(at), self.scan.monoid.sources, elements):
            word = Int32 if self.packed(dtype) else dtype.cutlass
            align = math.gcd(self.width * dtype.size, 16)
            source = cute.make_ptr(word, pointer.toint(), cute.AddressSpace.gmem, assumed_align=align)
            row = cute.make_tensor(source, cute.make_layout((cute.size(target, mode=[0]),)))
            cute.autovec_copy(row, target[(None, u)])

    def lifted(self, elements, u: int, index):
        """The states of the row loaded as number ``u``; ``index`` is the row's."""
        rows = []
        for dtype, target in zip(self.scan.monoid.sources, elements):
            row = target[(None, u)]
            rows.append(cute.recast_tensor(row, dtype.cutlass) if self.packed(dtype) else row)
        return tuple(self.scan.monoid.lift(*(row[c] for row in rows), index) for c in range(self.width))

    def index(self, position, a: Arguments):
        """The index along the axis of a position in scan order, if the callables take it."""
        return self.scan.flip(position, a.length) if self.scan.monoid.takes_index else 0

    def store_row(self, at, states) -> None:
        """Store the results of a row's states."""
        columns = [self.scan.monoid.results_of(state) for state in states]
        for k, (pointer, dtype) in enumerate(zip(pointers_of(at), self.scan.monoid.results)):
            results = cute.make_rmem_tensor((self.width,), dtype.cutlass)
            for c in range(self.width):
                results[c] = columns[c][k]
            align = math.gcd(dtype.size * (self.width if self.aligned_out else 1), 16)
            target = cute.make_ptr(dtype.cutlass, pointer.toint(), cute.AddressSpace.gmem, assumed_align=align)
            cute.autovec_copy(results, cute.make_tensor(target, cute.make_layout((self.width,))))

    def combine(self, a, b):
        """Combine the states of a thread's columns, column by column."""
        return tuple(self.scan.combine(x, y) for x, y in zip(a, b))

    @cute.jit
    def then(self, a: Maybe, b: Maybe):
        """``a`` followed by ``b``, column by column."""
        columns = [Maybe(x, a.valid).then(Maybe(y, b.valid), self.scan.combine) for x, y in zip(a.state, b.state)]
        return Maybe(tuple(column.state for column in columns), a.valid | b.valid)

    def carry_in(self, a: Arguments) -> Maybe:
        start = self.scan.carry_in(a)
        return Maybe(tuple(start.state for _ in range(self.width)), start.valid)


class ColumnScan(ThreadColumns):
    """The kernel: ``lanes`` threads side by side, with ``unroll`` rows in flight each."""

    def __init__(self, scan: Scan, policy: ColumnPolicy) -> None:
        self.width, self.lanes, self.unroll = policy.width, policy.lanes, policy.unroll
        self.aligned_out = policy.aligned_out
        super().__init__(scan, -(-policy.lanes // 32) * 32, 0, 1)

    @cute.jit
    def body(self, a: Arguments):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        column = (Int64(block % a.tiles) * self.lanes + thread) * self.width
        if (column < a.inner) & (thread < self.lanes):
            place = Int64(block // a.tiles) * a.length * a.inner + column
            self.scan_columns(a, a.x + place, a.out + place)

    @cute.jit
    def scan_columns(self, a: Arguments, x, out):
        """Scan a thread's columns, whose first elements are at ``x``."""
        carry = self.carry_in(a)
        elements = self.registers(self.unroll)
        first = Int64(0)
        while first < a.length:
            left = Int32(cutlass.min(a.length - first, Int64(self.unroll)))
            self.load(x, elements, first, left, a)
            for u in cutlass.range_constexpr(self.unroll):
                if u < left:
                    row = Maybe.of(self.lifted(elements, u, self.index(first + u, a)))
                    following = self.then(carry, row)
                    at = out + self.scan.flip(first + u, a.length) * a.inner
                    self.store_row(at, carry.state if self.scan.exclusive else following.state)
                    carry = Maybe.of(following.state)
            first += self.unroll

    @cute.jit
    def load(self, x, elements, first, left, a: Arguments):
        for u in cutlass.range_constexpr(self.unroll):
            if u < left:
                self.load_row(x + self.scan.flip(first + u, a.length) * a.inner, elements, u)
