"""Flags as bits of short rows that lie side by side: each thread has several whole ones, which are a run of memory.

A row's flags are the bits of a word. A thread stores the words of its rows at once, so that the stores of a warp cover
whole lines, as its loads do. No thread waits for another.
"""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import Int32, Int64, Uint32, cute

from ...monoid import choose, tree
from . import words
from .strided import Arguments, StridedKernel


class ShortFlags(StridedKernel):
    """The kernel: ``rows`` rows of ``length`` elements. Digit 0 of a thread's number counts its groups of rows; the
    others are those of other axes."""

    def __init__(self, marking, policy) -> None:
        super().__init__(marking, policy)
        self.length, self.rows, self.piece, self.by_words = policy.length, policy.rows, policy.piece, policy.by_words
        self.size = marking.source.size

    def mark(self, a: Arguments, number) -> None:
        """Flag a thread's rows."""
        digits = self.split(a, number)
        first = [digits[0] * self.rows, *digits[1:]]
        left = Int32(cutlass.min(a.extents[0] - first[0], Int64(self.rows)))
        items = self.rows_of(a.x + self.offset(first, a.steps[0]), left)
        for target, steps, side in zip(a.outs, a.steps[1:], self.sides):
            if self.by_words:
                found = [self.word_bits(side, row, a.ends[side]) for row in items]
            else:
                found = [self.bits(side, row, a.ends[side], left <= r if r else None) for r, row in enumerate(items)]
            self.store_run(target + self.offset(first, steps), steps[0], found, left, True)

    def rows_of(self, x, left) -> list:
        """The elements of each row, or its words of four keys; anything for those behind the rows that are ``left``."""
        count = self.rows * self.length
        found = self.registers(count)
        self.fill(x, found, left)
        if self.by_words:
            each = self.length // words.KEYS
            keys = [words.keys(Uint32(found[i]), self.marking.source) for i in range(count // words.KEYS)]
        else:
            each, keys = self.length, self.lifted(found, count)
        return [keys[r * each : (r + 1) * each] for r in range(self.rows)]

    def registers(self, count: int):
        """The registers of so many elements: words, if elements are less."""
        kind = self.marking.source.cutlass if self.size >= words.BYTES else Uint32
        return cute.make_rmem_tensor((max(2, count * self.size * 8 // kind.width),), kind)

    @cute.jit
    def fill(self, x: cute.Pointer, found: cute.Tensor, left: Int32):
        """Load the rows, in pieces; if there are fewer, the elements of those that are ``left``, one by one."""
        count, size = cutlass.const_expr(self.rows * self.length), cutlass.const_expr(self.size)
        if left >= self.rows:
            kind = found.element_type
            shape = cute.make_layout((count * size * 8 // kind.width,))
            at = cute.make_ptr(kind, x.toint(), cute.AddressSpace.gmem, assumed_align=self.piece * size)
            cute.autovec_copy(cute.make_tensor(at, shape), cute.make_tensor(found.iterator, shape))
        else:
            last = left * self.length - 1
            for i in cutlass.range_constexpr(count):
                at = x + Int64(cutlass.min(Int32(i), last))
                if cutlass.const_expr(size >= words.BYTES):
                    found[i] = cute.make_tensor(at, cute.make_layout((1,)))[0]
                else:
                    place = cutlass.const_expr(i * size)
                    word = words.element(at, size) << (8 * (place % words.BYTES))
                    if cutlass.const_expr(place % words.BYTES == 0):
                        found[place // words.BYTES] = word
                    else:
                        found[place // words.BYTES] = found[place // words.BYTES] | word

    def bits(self, side: int, row, given, outside):
        """The flags of a row's elements as the bits of a word. A callable is not called ``outside`` of the array."""
        terms = []
        for i, item in enumerate(row):
            at_end = i == (self.length - 1 if side else 0)
            if at_end and not self.given[side]:
                terms.append((Int32(1 << i if i < 31 else -(1 << 31)),))
                continue
            other = given if at_end else row[i + 1 if side else i - 1]
            pair = (item, other) if side else (other, item)
            flag = self.guarded(outside if self.called else None, side, pair, (None, Int64(i + side), given))
            terms.append((Int32(flag) << i,))
        return Uint32(tree(terms, lambda a, b: (a[0] | b[0],))[0])

    def word_bits(self, side: int, keys, given):
        """The same of a row's words of four keys."""
        end: Any = given if self.given[side] else Uint32(0)
        flags = (words.tails if side else words.heads)(self.marking.op.name, keys, end)
        if not self.given[side]:
            flags[-side] = flags[-side] | Uint32(1 << 24 if side else 1)
        return Uint32(words.packed(flags))
