"""Flags as bits of short rows that lie side by side: each thread has several whole ones, which are a run of memory.

A row's flags are the bits of a word. A thread stores the words of its rows at once, so that the stores of a warp cover
whole lines, as its loads do. No thread waits for another.
"""

from __future__ import annotations

import cutlass
from cutlass import Int32, Int64, Uint32, cute

from ...monoid import tree
from . import words
from .strided import Arguments, StridedKernel


class ShortFlags(StridedKernel):
    """The kernel: ``rows`` rows of ``length`` elements. Digit 0 of a thread's number counts its groups of rows; the
    others are those of other axes."""

    def __init__(self, marking, policy) -> None:
        super().__init__(marking, policy)
        self.length, self.rows, self.piece, self.by_words = policy.length, policy.rows, policy.piece, policy.by_words

    @cute.jit
    def mark(self, a: Arguments, number):
        """Flag a thread's rows; one by one if it has fewer than others."""
        digits = self.split(a, number)
        first, others = digits[0] * self.rows, digits[1:]
        left = Int32(cutlass.min(a.extents[0] - first, Int64(self.rows)))
        if left == self.rows:
            self.mark_rows(a, [first, *others], self.rows)
        else:
            for r in cutlass.range(left, unroll=1):
                self.mark_rows(a, [first + r, *others], 1)

    def mark_rows(self, a: Arguments, first, rows: int) -> None:
        """Flag so many rows, the first at the coordinates ``first``; a single one begins anywhere."""
        count, piece = rows * self.length, self.piece if rows > 1 else 1
        packed = self.by_words and rows > 1
        found = self.loaded(a.x + self.offset(first, a.steps[0]), count, piece)
        if packed:
            words_of_keys = cute.recast_tensor(found, Uint32)
            items = [words.keys(Uint32(words_of_keys[i]), self.marking.source) for i in range(count // words.KEYS)]
        else:
            items = self.lifted(found, count)
        each = len(items) // rows
        bits = self.word_bits if packed else self.bits
        for target, steps, side in zip(a.outs, a.steps[1:], self.sides):
            values = [bits(side, items[r * each : (r + 1) * each], a.ends[side]) for r in range(rows)]
            self.store_vector(target + self.offset(first, steps), values)

    def bits(self, side: int, row, given):
        """The flags of a row's elements as the bits of a word."""
        terms = []
        for i, item in enumerate(row):
            at_end = i == (self.length - 1 if side else 0)
            if at_end and not self.given[side]:
                terms.append((Uint32(1 << i),))
                continue
            other = given if at_end else row[i + 1 if side else i - 1]
            pair = (item, other) if side else (other, item)
            terms.append((Uint32(self.compared(side, *pair, None, Int64(i + side), given)) << i,))
        return tree(terms, lambda a, b: (a[0] | b[0],))[0]

    def word_bits(self, side: int, keys, given):
        """The same of a row's words of four keys."""
        end = given if self.given[side] else Uint32(0)
        flags = (words.tails if side else words.heads)(self.marking.op.name, keys, end)
        if not self.given[side]:
            flags[-side] = flags[-side] | Uint32(1 << 24 if side else 1)
        return Uint32(words.packed(flags))
