"""Scan of outer slices of which a vector, or a few side by side, has one or several: axes of extent 1, where every
element is alone after the first operand if there is one, and short axes with few columns. A thread scans its vectors in
registers."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...sync.overlap import let_next_start
from ..arrays import pointers_of
from .base import Arguments, Scan, ScanKernel
from .columns import ThreadColumns
from .slice_policy import SINGLE_THREADS, SinglePolicy


class SingleScan(ThreadColumns):
    """The kernel: ``unroll`` times ``width`` elements a thread, a vector or a few; slices of ``length`` positions with
    ``inner`` columns divide them."""

    def __init__(self, scan: Scan, policy: SinglePolicy) -> None:
        self.width, self.unroll, self.aligned_out = policy.width, policy.unroll, policy.aligned_out
        self.length, self.inner = policy.length, policy.inner
        self.slice = policy.length * policy.inner  # elements
        ScanKernel.__init__(self, scan, SINGLE_THREADS, 0, 1)

    @cute.jit
    def body(self, a: Arguments):
        let_next_start()
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        first = (Int64(block) * (SINGLE_THREADS * self.unroll) + thread) * self.width
        end = a.rows * self.slice
        layout = cute.make_layout((self.width, self.unroll), stride=(1, self.width))
        elements = tuple(cute.make_rmem_tensor(layout, dtype.cutlass) for dtype in self.scan.monoid.sources)
        for u in cutlass.range_constexpr(self.unroll):
            at = first + u * (SINGLE_THREADS * self.width)
            if at + self.width <= end:
                self.load_row(a.x + at, [e[(None, u)] for e in elements])
        for u in cutlass.range_constexpr(self.unroll):
            at = first + u * (SINGLE_THREADS * self.width)
            if at + self.width <= end:
                self.store_row(a.out + at, self.results(self.lifted([e[(None, u)] for e in elements], 0, a), a))
            elif at < end:
                self.scan_rest(a, at, Int32(end - at))

    @cute.jit
    def scan_rest(self, a: Arguments, at: Int64, count: Int32):
        """The last slices, fewer than a vector has."""
        for i in cutlass.range(0, count, self.slice, unroll=1):
            self.scan_slice(a, at + i)

    def scan_slice(self, a: Arguments, at) -> None:
        found = self.scanned(lambda place: self.state_at(a.x + (at + place)), self.slice, a)
        for place, state in enumerate(found):
            self.put_results(pointers_of(a.out + (at + place)), state)

    def state_at(self, at):
        values = [element(pointer)[0] for pointer in pointers_of(at)]
        return self.scan.monoid.lift(*values, Int64(0))

    def put_results(self, pointers, state) -> None:
        for pointer, result in zip(pointers, self.scan.monoid.results_of(state)):
            element(pointer)[0] = result

    def results(self, row, a: Arguments):
        """The states whose results are stored."""
        return self.scanned(lambda place: row[place], self.width, a)

    def scanned(self, state_at, count: int, a: Arguments) -> list:
        """The states whose results are stored, of ``count`` elements; ``state_at`` gives that of an element."""
        start, found = self.scan.carry_in(a, 0), [None] * count
        for column in range(count // self.length):
            before = start
            first = column // self.inner * self.slice + column % self.inner
            for position in range(self.length):
                place = first + self.scan.flip(position, self.length) * self.inner
                following = before.append(state_at(place), self.scan.combine)
                found[place] = before.state if self.scan.exclusive else following.state
                before = following
        return found

    def load_row(self, at, targets) -> None:
        for pointer, dtype, target in zip(pointers_of(at), self.scan.monoid.sources, targets):
            cute.autovec_copy(self.vector(pointer, dtype), target)


def element(pointer):
    return cute.make_tensor(pointer, cute.make_layout((1,)))
