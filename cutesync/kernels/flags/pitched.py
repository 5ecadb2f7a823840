"""Flags and differences of one-byte types between rows that begin anywhere and lie apart, where results have no gaps.

Each thread has 16 results that lie side by side and are stored at once, also where a row ends among them. It joins the
elements of a row, and their neighbours in the row before and behind, from aligned words, wherever they begin, and
compares four at a time; where a row ends among them it does so for both rows. Neighbours come from the caches.

Of the last results, less than a vector, a thread has one each. No thread waits for another.
"""

from __future__ import annotations

import cutlass
from cutlass import Int32, Int64, Uint32, cute

from ...monoid import choose
from ..words import joined
from . import words
from .strided import Arguments, StridedKernel

VECTOR = 16  # results of a thread


class PitchedFlags(StridedKernel):
    """The kernel. Digit 0 of a result's number is its column, digit 1 its place on the flagged axis. ``work`` counts
    results."""

    @cute.jit
    def body(self, a: Arguments):
        """What a thread does."""
        number = Int64(cute.arch.block_idx()[0]) * self.threads + cute.arch.thread_idx()[0]
        whole = a.work // VECTOR
        if number < whole:
            self.mark_vector(a, number * VECTOR)
        elif number < whole + a.work % VECTOR:
            self.mark_one(a, number + whole * (VECTOR - 1))

    def mark_vector(self, a: Arguments, first) -> None:
        """Flag the results of a thread."""
        for target, values in zip(a.outs, self.vector_results(a, first)):
            self.store_vector(target + first, values, Uint32)

    @cute.jit
    def vector_results(self, a: Arguments, first):
        """Their words, a list for each output."""
        digits = self.split(a, first)
        here = Int32(a.extents[0] - digits[0])  # columns from the first on
        found = self.row_results(a, digits, Int32(0))
        if here < VECTOR:
            others = self.row_results(a, self.split(a, first + (VECTOR - 1)), Int32(VECTOR - 1))
            found = [joined(one, other, here, 1) for one, other in zip(found, others)]
        return found

    def row_results(self, a: Arguments, digits, behind) -> list:
        """The results of a row, of which the one at ``digits`` has so many of the vector ``behind`` it."""
        place = self.offset(digits, a.steps[0]) - behind
        keys = self.keys(a, place)
        found = []
        for side in self.sides:
            edge = digits[1] + 1 == a.extents[1] if side else digits[1] == 0
            step = a.steps[0][1] if side else -a.steps[0][1]
            others = self.keys(a, place + choose(edge, Int64(0), step))
            flags = [words.results(self.marking.op.name, key, other) for key, other in zip(keys, others)]
            found.append([choose(edge, *pair) for pair in zip(self.at_edge(side, keys, a.ends[side]), flags)])
        return found

    def at_edge(self, side: int, keys, given) -> list:
        """The results of keys that have no neighbours."""
        if not self.marking.is_flag:
            return keys
        if not self.given[side]:
            return [Uint32(words.ONES)] * len(keys)
        return [words.flags(self.marking.op.name, key, words.repeated(given)) for key in keys]

    def keys(self, a: Arguments, place) -> list:
        """The words of the vector of keys from an offset on; of those outside of the array anything."""
        return [words.keys(word, self.marking.source) for word in self.loads(a, place)]

    @cute.jit
    def loads(self, a: Arguments, place):
        last = sum(((extent - 1) * step for extent, step in zip(a.extents, a.steps[0])), Int64(0))
        found = cute.make_rmem_tensor((VECTOR // words.BYTES,), Uint32)
        if (place >= words.MARGIN) & (place + (VECTOR + words.MARGIN) <= last):
            for i, word in enumerate(words.shifted(a.x + place, VECTOR // words.BYTES)):
                found[i] = word
        else:
            found.fill(0)
            for i in cutlass.range(VECTOR // words.BYTES, unroll=1):
                word = self.clamped_word(a, place + i * words.BYTES, last)
                for k in cutlass.range_constexpr(VECTOR // words.BYTES - 1):
                    found[k] = found[k + 1]
                found[VECTOR // words.BYTES - 1] = word
        return [Uint32(found[i]) for i in range(VECTOR // words.BYTES)]

    @staticmethod
    def clamped_word(a: Arguments, place, last):
        """The word of four keys from an offset on, the nearest ones that there are."""
        word = Uint32(0)
        for k in range(words.KEYS):
            at = choose(place + k < 0, Int64(0), choose(place + k > last, last, place + k))
            word = word | (words.element(a.x + at, 1) << (8 * k))
        return word

    def mark_one(self, a: Arguments, number) -> None:
        """Flag one result."""
        digits = self.split(a, number)
        x = a.x + self.offset(digits, a.steps[0])
        item = self.get(x, 0)
        for target, side in zip(a.outs, self.sides):
            edge = digits[1] + 1 == a.extents[1] if side else digits[1] == 0
            step = a.steps[0][1] if side else -a.steps[0][1]
            other = self.get(x, choose(edge, Int64(0), step))
            pair = (item, other) if side else (other, item)
            self.put(target, number, self.lowered(self.compared(side, *pair, edge, digits[1] + side, a.ends[side])))
