"""Flags and differences of rows that are contiguous inside but lie anywhere, as those of a slice of an array do; and of
the first ``n`` items of rows.

A warp has a run of a row, which it flags as ``kernel.FlagKernel`` does. No thread waits for another.
"""

from __future__ import annotations

from cutlass import Int32, cute

from ...warp import LANES
from .kernel import FlagKernel, Run
from .strided import Arguments, StridedKernel


class RowFlags(StridedKernel):
    """The kernel. Digit 0 of the number of a warp is that of its run in the row; the others are those of the row."""

    def __init__(self, marking, policy) -> None:
        super().__init__(marking, policy)
        self.inside = FlagKernel(marking, policy.run)

    @cute.jit
    def mark(self, a: Arguments, number):
        """Flag a run; its warp's threads have 32 numbers."""
        digits = self.split(a, number // LANES)
        begin = digits[0] * self.inside.elements
        if begin < a.n:
            x = a.x + self.offset(digits[1:], a.steps[0][1:])
            outs = tuple(out + self.offset(digits[1:], steps[1:]) for out, steps in zip(a.outs, a.steps[1:]))
            run = Run(x, outs, a.ends, a.n, Int32(a.period), begin, Int32(0))
            self.inside.mark(run, Int32(number % LANES))
