"""Word arithmetic on two or four elements of 32 bits. Device code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cutlass.cute as cute
from cutlass import Uint32

from ...monoid import Monoid, tree
from ..hardware import WORD_BYTES
from ..states import Single
from ..words import permuted
from .base import Scan
from .bools import LOW_BITS, ONES
from .packed import BITWISE, Packed, packed_single

UPPER_BYTES = 0xFF00FF00  # of both halves of a word
HIGH_BITS = 0x80808080  # of each byte
# Selectors of bytes, of which 4 to 7 are those of a second word: those of a pair as the upper ones of both halves of a
# word, and back; the lower halves of two words, and the upper ones
SPREAD, JOINED, LOWER, UPPER = 0x1202, 0x4431, 0x5410, 0x7632


def packed_monoid(scan: Scan) -> PackedMonoid | None:
    """The word arithmetic of a scan of elements, whose first operand, if any, is a number; None if there is none."""
    monoid = scan.monoid
    if not isinstance(monoid, Monoid) or monoid.transform is not None or scan.start not in (None, "value"):
        return None
    if isinstance(monoid, PackedMonoid):
        return None
    found = packed_single(Single(monoid.op, monoid.source, monoid.accumulate, monoid.result))
    return None if found is None else PackedMonoid(found)


def instruction(ptx: str, *operands):
    """What an instruction makes of some words."""
    return Uint32(cute.arch.inline_ptx(ptx, write_only_types=[Uint32], read_only_args=list(operands)))


class PackedMonoid(Monoid):
    """The monoid of words. Its elements are words, whatever these hold."""

    def __init__(self, operation: Packed) -> None:
        super().__init__(operation.op, operation.source, operation.accumulate, operation.output)
        self.element, self.is_spread = operation.element, operation.is_spread
        self.types = (Uint32,) * len(operation.registers)
        self.opposite = self.element.kind == "b" and BITWISE[self.op.name] == "and"
        self.commutative = self.op.fn is None
        word = operation.accumulate
        self.whole = PackedMonoid(replace(operation, source=word, output=word)) if operation.is_pair else None
        self.each: Any = Monoid(self.op, self.element, self.element, self.element) if operation.one_by_one else None

    def lift(self, value, index):
        word = Uint32(value)
        if self.element.kind == "b":
            ones = ((((word & Uint32(LOW_BITS)) + Uint32(LOW_BITS)) | word) >> Uint32(7)) & Uint32(ONES)
            return (ones ^ Uint32(ONES) if self.opposite else ones,)
        if self.is_spread and self.whole is not None:
            return (permuted(word, word, Uint32(SPREAD)),)
        if self.is_spread:
            return ((word << Uint32(8)) & Uint32(UPPER_BYTES), word & Uint32(UPPER_BYTES))
        return (word,)

    def fold(self, words, index):
        """The state of some words; pairs are combined two at a time."""
        if self.whole is None:
            return self.fold_vectors([words], index)
        states = [self.whole.lift(words[i], 0) for i in range(cute.size(words))]
        found = tree(states, self.whole.combine)
        first, last = found[0], found[-1]
        if self.is_spread:
            halves = [permuted(first, last, Uint32(selector)) for selector in (LOWER, UPPER)]
        else:
            halves = [first & Uint32(0xFFFF), first >> Uint32(16)]
        return (self.combined(*halves),)

    def backwards(self, word):
        """The elements of a word in the opposite order."""
        return permuted(Uint32(word), Uint32(word), Uint32(0x0123 if self.element.size == 1 else 0x1032))

    def of_number(self, number):
        """The state of a number in each element of a word."""
        word = self.holding(Uint32(0))
        elements = cute.recast_tensor(word, self.element.cutlass)
        for i in range(WORD_BYTES // self.element.size):
            elements[i] = self.element.cutlass(number)
        return self.lift(word[0], 0)

    def combine(self, a, b):
        return tuple(self.combined(x, y) for x, y in zip(a, b))

    def combined(self, a, b):
        if self.each is not None:
            return self.of_elements([self.each.combine(x, y) for x, y in zip(self.states_in(a), self.states_in(b))])
        name = self.op.name
        if self.element.kind == "b":
            return a ^ b if name == "xor" else a | b  # "and" is "or" of the opposites
        if name in ("and", "or", "xor"):
            return {"and": a & b, "or": a | b, "xor": a ^ b}[name]
        if name in ("min", "max"):
            return self.extremum(a, b)
        if self.element.size == 2:
            return instruction("add.u16x2 {$w0}, {$r0}, {$r1};", *self.in_registers(a, b))
        high = Uint32(HIGH_BITS)  # no carry leaves an element
        low = high ^ Uint32(0xFFFFFFFF)
        return ((a & low) + (b & low)) ^ ((a ^ b) & high)

    def states_in(self, word) -> list:
        """The states of the elements of a word."""
        elements = cute.recast_tensor(self.holding(word), self.element.cutlass)
        return [self.each.lift(elements[i], 0) for i in range(WORD_BYTES // self.element.size)]

    def of_elements(self, states):
        """The word of some states' elements."""
        word = self.holding(Uint32(0))
        elements = cute.recast_tensor(word, self.element.cutlass)
        for i, state in enumerate(states):
            elements[i] = self.each.lower(state)
        return Uint32(word[0])

    def holding(self, word):
        """A register with a word. The stride is stated: a mode of one element would get stride 0, which recasting
        spreads."""
        held = cute.make_rmem_tensor(cute.make_layout((1,), stride=(1,)), Uint32)
        held[0] = word
        return held

    def extremum(self, a, b):
        """NaN propagates."""
        kind = {"i": "s16x2", "u": "u16x2"}.get(self.element.kind)
        if kind is None:
            kind = "NaN.bf16x2" if self.element.name == "bfloat16" else "NaN.f16x2"
        return instruction(f"{self.op.name}.{kind} {{$w0}}, {{$r0}}, {{$r1}};", *self.in_registers(a, b))

    def in_registers(self, *words) -> tuple:
        """The words; no operand of a packed instruction may be a constant."""
        return tuple(instruction("mov.b32 {$w0}, {$r0};", word) for word in words)

    def lower(self, state):
        word = state[0]
        if self.is_spread and self.whole is not None:
            word = permuted(word, Uint32(0), Uint32(JOINED))
        elif self.is_spread:
            word = (word >> Uint32(8)) | state[1]
        elif self.opposite:
            word = word ^ Uint32(ONES)
        return self.result.cutlass(word)
