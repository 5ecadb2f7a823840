"""Flags of one-byte integers four at a time: a word (Uint32) holds four keys, or four flags of 0 or 1, the first in the lowest byte.

One instruction at a time would do for a byte what here does for four: at the rate of an H200's memory there are eight for each byte of input.
"""

from __future__ import annotations

from cutlass import Uint32

from ..monoid import tree

KEYS = 4  # in a word
ONES = 0x01010101
LOW_BITS = 0x7F7F7F7F


def fit(marking, periodic: bool, vector: int) -> bool:
    """Whether the flags of a vector can be found so: "ne" or "eq" of integers, and flags of one byte, or bits."""
    named = marking.is_flag and marking.op.fn is None and marking.op.name in ("ne", "eq")
    narrow = marking.source.size == 1 and marking.source.kind in "iu" and (marking.bits or marking.result.size == 1)
    return named and narrow and not periodic and vector % KEYS == 0


def heads(op: str, words, before) -> list:
    """The flags of the keys in ``words``; ``before`` (a register of the keys' type) is the key before the first."""
    earlier = [_key(before), *(word >> 24 for word in words[:-1])]
    return [_flags(op, word, (word << 8) | key) for word, key in zip(words, earlier)]


def tails(op: str, words, behind) -> list:
    """The flags of the keys in ``words``; ``behind`` is the key behind the last."""
    later = [*words[1:], _key(behind)]
    return [_flags(op, word, (word >> 8) | (key << 24)) for word, key in zip(words, later)]


def _key(value):
    return Uint32(value) & 0xFF  # a negative one has its sign in the upper bytes


def _flags(op: str, a, b):
    differing = a ^ b
    # A byte's top bit gets a carry unless its lower bits are 0, and no byte carries into the next.
    ne = ((((differing & LOW_BITS) + LOW_BITS) | differing) >> 7) & ONES
    return ne if op == "ne" else ne ^ ONES


def packed(flags):
    """The flags in ``flags``, four a word, as bits. The product has the flag of byte k at bit 28 + k, and no two terms at one bit."""
    fours = [((word * 0x10204080) >> 28) << (KEYS * k) for k, word in enumerate(flags)]
    return tree([(four,) for four in fours], lambda a, b: (a[0] | b[0],))[0]
