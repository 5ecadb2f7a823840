"""Flags and differences of short rows whose results lie behind each other, but whose elements lie far apart.

Each thread has all elements of a few rows, so their results are a run, which it stores in vectors. Neighbouring threads
read neighbouring elements: these lie along a short axis, of which each result lies elsewhere, and then along the rows.
No thread waits for another.
"""

from __future__ import annotations

import cutlass
from cutlass import Boolean, Int32, Int64, cute

from .strided import Arguments, StridedKernel
from .tiles import least

ALONG = 2  # the digit of the flagged axis, which counts nothing


class StripFlags(StridedKernel):
    """The kernel: ``rows`` rows of ``length`` elements. Digit 0 of a thread's number is its place on the short axis,
    digit 1 counts groups of rows; the others, behind that of the flagged axis, are those of other axes."""

    def __init__(self, marking, policy) -> None:
        super().__init__(marking, policy)
        self.length, self.rows, self.unit = policy.length, policy.rows, policy.unit

    @cute.jit
    def mark(self, a: Arguments, number):
        """Flag a thread's rows."""
        digits = self.split(a, number)
        first = [digits[0], digits[1] * self.rows, *digits[2:]]
        left = Int32(least(a.extents[1] - first[1], Int64(self.rows)))
        items = self.items(a, a.x + self.offset(first, a.steps[0]), left)
        for target, steps, side in zip(a.outs, a.steps[1:], self.sides):
            values = [value for row in items for value in self.row_results(a, side, row)]
            self.store_rows(target + self.offset(first, steps), values, left)

    def items(self, a: Arguments, x, left) -> list:
        """The elements of the rows; those of the last one in place of what is not there."""
        rows = [x + Int64(least(Int32(r), left - 1)) * a.steps[0][1] if r else x for r in range(self.rows)]
        return [[self.get(row, a.steps[0][ALONG] * i) for i in range(self.length)] for row in rows]

    def row_results(self, a: Arguments, side: int, row) -> list:
        """The results of a row on a side."""
        found = []
        for i, item in enumerate(row):
            at_end = i == (self.length - 1 if side else 0)
            other = item if at_end else row[i + 1 if side else i - 1]
            pair = (item, other) if side else (other, item)
            edge = Boolean(True) if at_end else None
            found.append(self.lowered(self.compared(side, *pair, edge, Int64(i + side), a.ends[side])))
        return found

    @cute.jit
    def store_rows(self, target, values: cutlass.Constexpr, left):
        """Store the results of the rows that there are."""
        if left == self.rows:
            each = self.unit
            for i in cutlass.range_constexpr(0, len(values), each):
                self.store_vector(target + i, values[i : i + each])
        else:
            for i in cutlass.range_constexpr(len(values)):
                if i < left * self.length:
                    self.put(target, i, values[i])
