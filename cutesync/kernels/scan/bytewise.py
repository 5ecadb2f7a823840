"""Vectors of bytes, scanned four at a time in words of 32 bits: an element alone costs more instructions than a word.

Of integers, a word's bytes are widened to two words of two numbers of 16 bits, those of even and those of odd places,
whose upper bytes they are. An operation on both words combines two pairs of neighbours. Sums carry into lower bytes
only, which do not count.
"""

from __future__ import annotations

from typing import Any

from cutlass import Int32, Uint32

from ...monoid import Monoid, choose, tree
from ..words import permuted
from . import bools
from .packed_monoid import instruction

HALVES, ODD_BYTES = 0x01000100, 0xFF00FF00
# Selectors of bytes, of which 4 to 7 are those of a second word: bytes of even places; the bytes that two words of
# numbers have; the first number behind what is neutral, or the last before it; and one number twice, of the last or of
# the first
EVEN, JOINED, BEHIND, AHEAD, LAST, FIRST = 0x2404, 0x7351, 0x1054, 0x5432, 0x3434, 0x1414
SWAPPED = 0x1032


def bytewise(monoid: Any) -> BoolWords | ByteWords | None:
    """Return how words of a monoid's elements are scanned; None for others."""
    op = bools.operator_of(monoid)
    if op is not None:
        return BoolWords(op)
    if not isinstance(monoid, Monoid) or monoid.op.fn is not None or monoid.transform is not None:
        return None
    byte = monoid.source.size == 1 and monoid.source.kind in "iu"
    alike = byte and monoid.source is monoid.accumulate is monoid.result
    return ByteWords(monoid) if alike and monoid.op.name in ("add", "min", "max") else None


class BoolWords:
    """Bools: 0 or 1 in each byte."""

    reduces = True

    def __init__(self, op: str) -> None:
        self.op = op

    def reduce(self, words):
        return bools.reduce_words(words, self.op)

    def scan(self, words, before, exclusive: bool, from_end: bool) -> list:
        return bools.scan_words(words, before, self.op, exclusive, from_end)


class ByteWords:
    """Integers: their sums, which vectors have by dot products, or extrema."""

    def __init__(self, monoid: Monoid) -> None:
        self.name, self.register, self.signed = monoid.op.name, monoid.types[0], monoid.source.kind == "i"
        self.reduces = self.name != "add"
        least, most = (0x80, 0x7F) if self.signed else (0, 0xFF)
        self.neutral = {"add": 0, "max": least, "min": most}[self.name] * HALVES

    def combine(self, a, b):
        if self.name == "add":
            return a + b
        numbers = (instruction("mov.b32 {$w0}, {$r0};", word) for word in (a, b))  # constants are no operands
        return instruction(f"{self.name}.{'s' if self.signed else 'u'}16x2 {{$w0}}, {{$r0}}, {{$r1}};", *numbers)

    def numbers(self, word):
        """The numbers of even places, and those of odd ones."""
        word = Uint32(word)
        return permuted(word, Uint32(0), Uint32(EVEN)), word & Uint32(ODD_BYTES)

    def reduce(self, words):
        """The state of a vector."""
        pairs = tree([(n,) for word in words for n in self.numbers(word)], lambda a, b: (self.combine(a[0], b[0]),))[0]
        found = self.combine(pairs, permuted(pairs, pairs, Uint32(SWAPPED)))
        return self.register(Int32(found) >> 24 if self.signed else Int32(found >> Uint32(24)))

    def scan(self, words, before, exclusive: bool, from_end: bool) -> list:
        """The results of a vector, in the order of ``words``. ``before``, a ``Maybe``, is what comes before it;
        ``from_end``: the last byte of the last word comes first."""
        neutral, found = Uint32(self.neutral), {}
        carry = (Uint32(before.state[0]) & Uint32(0xFF)) * Uint32(HALVES)
        carry = carry if before.valid is True else choose(before.valid, carry, neutral)
        for w in range(len(words) - 1, -1, -1) if from_end else range(len(words)):
            even, odd = self.numbers(words[w])
            pairs = self.combine(even, odd)
            first = self.combine(carry, permuted(pairs, neutral, Uint32(AHEAD if from_end else BEHIND)))
            second, last = self.combine(first, odd if from_end else even), self.combine(first, pairs)
            low, high = (first, second) if exclusive else (second, last)
            if from_end:
                low, high = high, low
            found[w] = Int32(permuted(low, high, Uint32(JOINED)))
            carry = permuted(last, Uint32(0), Uint32(FIRST if from_end else LAST))
        return [found[w] for w in range(len(words))]
