"""Scan along axes of extent 1: every element alone, after the first operand if there is one."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...sync.overlap import let_next_start
from ...warp import Maybe
from ..arrays import pointers_of
from .base import Arguments, Scan, ScanKernel
from .columns import ThreadColumns
from .slice_policy import SINGLE_THREADS, SinglePolicy


class SingleScan(ThreadColumns):
    """The kernel: ``unroll`` vectors of ``width`` elements a thread; ``a.rows`` elements."""

    def __init__(self, scan: Scan, policy: SinglePolicy) -> None:
        self.width, self.unroll, self.aligned_out = policy.width, policy.unroll, policy.aligned_out
        ScanKernel.__init__(self, scan, SINGLE_THREADS, 0, 1)

    @cute.jit
    def body(self, a: Arguments):
        let_next_start()
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        first = (Int64(block) * (SINGLE_THREADS * self.unroll) + thread) * self.width
        layout = cute.make_layout((self.width, self.unroll), stride=(1, self.width))
        elements = tuple(cute.make_rmem_tensor(layout, dtype.cutlass) for dtype in self.scan.monoid.sources)
        for u in cutlass.range_constexpr(self.unroll):
            at = first + u * (SINGLE_THREADS * self.width)
            if at + self.width <= a.rows:
                self.load_row(a.x + at, [e[(None, u)] for e in elements])
        for u in cutlass.range_constexpr(self.unroll):
            at = first + u * (SINGLE_THREADS * self.width)
            if at + self.width <= a.rows:
                self.store_row(a.out + at, self.results(self.lifted([e[(None, u)] for e in elements], 0, a), a))
            elif at < a.rows:
                self.scan_rest(a, at, Int32(a.rows - at))

    @cute.jit
    def scan_rest(self, a: Arguments, at: Int64, count: Int32):
        """The last elements, fewer than a vector."""
        carry = self.scan.carry_in(a)
        for i in cutlass.range(count, unroll=1):
            values = [element(pointer)[0] for pointer in pointers_of(a.x + (at + i))]
            state = Maybe.of(self.scan.monoid.lift(*values, Int64(0)))
            found = carry.state if self.scan.exclusive else carry.then(state, self.scan.combine).state
            self.put_results(pointers_of(a.out + (at + i)), found)

    def put_results(self, pointers, state) -> None:
        for pointer, result in zip(pointers, self.scan.monoid.results_of(state)):
            element(pointer)[0] = result

    def results(self, row, a: Arguments):
        """The states whose results are stored."""
        carry = self.carry_in(a)
        return carry.state if self.scan.exclusive else self.then(carry, Maybe.of(row)).state

    def load_row(self, at, targets) -> None:
        for pointer, dtype, target in zip(pointers_of(at), self.scan.monoid.sources, targets):
            cute.autovec_copy(self.vector(pointer, dtype), target)


def element(pointer):
    return cute.make_tensor(pointer, cute.make_layout((1,)))
