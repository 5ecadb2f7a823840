"""Vectors of bools, scanned four bytes at a time in words of 32 bits: an element alone costs more instructions than a
word.

A word is first made one of bytes that are 0 or 1. "and" is "or" of the opposites, here and in the result.
"""

from __future__ import annotations

from typing import Any

from cutlass import Int32, Uint32

from ...monoid import Monoid, choose

ONES, LOW_BITS = 0x01010101, 0x7F7F7F7F
_NAMES = {"add": "or", "max": "or", "or": "or", "mul": "and", "min": "and", "and": "and"}


def operator_of(monoid: Any) -> str | None:
    """Return "or" or "and" if that is the operator, on bools; None for others."""
    if not isinstance(monoid, Monoid) or monoid.op.fn is not None or monoid.transform is not None:
        return None
    bools = monoid.source.kind == monoid.accumulate.kind == monoid.result.kind == "b"
    return _NAMES.get(monoid.op.name) if bools else None


def reduce_words(words, op: str):
    """The state of a vector: 0 or 1."""
    if op == "or":
        found = words[0]
        for word in words[1:]:
            found = found | word
        return choose(found != 0, Int32(1), Int32(0))
    found = _opposites(words[0], op)
    for word in words[1:]:
        found = found | _opposites(word, op)
    return choose(found == 0, Int32(1), Int32(0))


def scan_words(words, before, op: str, exclusive: bool, from_end: bool) -> list:
    """The results of a vector, in the order of ``words``. ``before``, a ``Maybe``, is what comes before it;
    ``from_end``: the last byte of the last word comes first."""
    state = before.state[0] if op == "or" else 1 - before.state[0]
    carry = Uint32(state if before.valid is True else choose(before.valid, state, Int32(0))) * Uint32(ONES)
    found = {}
    for w in range(len(words) - 1, -1, -1) if from_end else range(len(words)):
        run = _opposites(words[w], op)
        for bits in (8, 16):
            run = run | (run >> Uint32(bits) if from_end else run << Uint32(bits))
        inclusive = run | carry
        result = inclusive
        if exclusive:
            result = carry | (run >> Uint32(8) if from_end else run << Uint32(8))
        found[w] = Int32(result if op == "or" else result ^ Uint32(ONES))
        last = inclusive & Uint32(1) if from_end else inclusive >> Uint32(24)
        carry = last * Uint32(ONES)
    return [found[w] for w in range(len(words))]


def _opposites(word, op: str):
    """1 in each byte that is not 0; for "and", in each that is."""
    word = Uint32(word)
    ones = ((((word & Uint32(LOW_BITS)) + Uint32(LOW_BITS)) | word) >> Uint32(7)) & Uint32(ONES)
    return ones if op == "or" else ones ^ Uint32(ONES)


def backwards(words) -> list:
    """The same bytes in the opposite order."""
    found = []
    for word in reversed(words):
        word = Uint32(word)
        word = (word << Uint32(16)) | (word >> Uint32(16))
        word = ((word & Uint32(0x00FF00FF)) << Uint32(8)) | ((word >> Uint32(8)) & Uint32(0x00FF00FF))
        found.append(Int32(word))
    return found
