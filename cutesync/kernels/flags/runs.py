"""Flags and differences between short rows that lie in memory one behind the other, with gaps or each backwards.

A thread has several whole rows, whose results are one run of memory, as are its elements with what lies between them.
So both are loaded and stored in vectors, and where a row begins is known when the kernel is compiled. The row before,
and the one behind, come with as many elements as their alignment needs. The groups at the ends of a slice, which have
rows without neighbours, and beside which nothing may be loaded, are flagged element by element. No thread waits for
another.
"""

from __future__ import annotations

import cutlass
from cutlass import Int32, Int64, cute

from ...monoid import choose
from .strided import Arguments, StridedKernel


class RunFlags(StridedKernel):
    """The kernel: ``rows`` rows of ``columns`` elements, ``pitch`` apart. Digit 0 of a thread's number counts its
    groups of rows; the others are those of other axes. ``margins``: the elements that are loaded before those of the
    thread, and behind them."""

    def __init__(self, marking, policy) -> None:
        super().__init__(marking, policy)
        self.rows, self.columns, self.pitch, self.back = policy.rows, policy.columns, policy.pitch, policy.back
        self.piece, self.stored, size = policy.piece, policy.stored, policy.piece
        wanted = self.pitch if self.looks[0] else 0, self.columns if self.looks[1] else 0
        self.margins = tuple(-(-count // size) * size for count in wanted)

    @cute.jit
    def mark(self, a: Arguments, number):
        """Flag a thread's rows."""
        digits = self.split(a, number)
        first, others = digits[0] * self.rows, digits[1:]
        if (digits[0] > 0) & (first + 2 * self.rows <= a.n):
            self.mark_rows(a, [first, *others])
        else:
            left = Int32(cutlass.min(a.n - first, Int64(self.rows)))
            for k in cutlass.range(left * self.columns, unroll=1):
                self.mark_one(a, [first + k // self.columns, *others], k % self.columns)

    def mark_rows(self, a: Arguments, first) -> None:
        """Flag rows that all have neighbours, the first at the coordinates ``first``."""
        before, behind = self.margins
        begin = a.x + (self.offset(first, a.steps[0]) - (before + (self.columns - 1) * self.back))
        count = before + self.rows * self.pitch + behind
        items = self.lifted(self.loaded(begin, count, self.piece), count)
        rows = [
            items[before + j * self.pitch :][: self.columns] if before + j * self.pitch >= 0 else []
            for j in range(-1, self.rows + 1)
        ]
        rows = [row[::-1] if self.back else row for row in rows]
        for target, steps, side in zip(a.outs, a.steps[1:], self.sides):
            values = []
            for j in range(self.rows):
                pairs = zip(rows[j + side], rows[j + side + 1])
                values += [self.compared(side, *pair, None, first[0] + (j + side), a.ends[side]) for pair in pairs]
            values = [self.lowered(value) for value in values]
            at = target + self.offset(first, steps)
            for k in range(0, len(values), self.stored):
                self.store_vector(at + k, values[k : k + self.stored])

    def mark_one(self, a: Arguments, place, column) -> None:
        """Flag the element of a column of the row at the coordinates ``place``."""
        x = a.x + (self.offset(place, a.steps[0]) + (-column if self.back else column))
        item = self.get(x, 0)
        for target, steps, side in zip(a.outs, a.steps[1:], self.sides):
            edge = place[0] + 1 >= a.n if side else place[0] == 0
            step = choose(edge, Int64(0), Int64(self.pitch if side else -self.pitch))
            other = self.get(x, step)
            pair = (item, other) if side else (other, item)
            value = self.compared(side, *pair, edge, place[0] + side, a.ends[side])
            self.put(target + self.offset(place, steps), column, self.lowered(value))
