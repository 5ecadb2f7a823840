"""Candidates of a row as words of 32 bits, which lanes of a warp sort in registers. Device code.

A word is how far its candidate's key is above the least one, without the lowest bits that there is no room for, and how
many elements of the row are left from it on. So the greatest word comes first, of equal keys that of the lowest index.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Uint32, Uint64

from ...monoid import choose, tree
from ..select.chunk import cells
from .network import partners, sort
from .order import Order
from .policy import VECTOR_BYTES

SPARE = {"float16": 13, "bfloat16": 16}  # the lowest bits of keys that are zero

# A lane's candidates: keys and indexes, -1 where there is none. All keys are from ``low`` to ``top``.
Candidates = namedtuple("Candidates", "keys places low top")


class Words:
    """The words of rows of up to ``elements`` elements, a power of two, each of which ``lanes`` lanes have with
    ``slots`` candidates a lane."""

    def __init__(self, order: Order, lanes: int, slots: int, elements: int) -> None:
        self.order, self.lanes, self.slots, self.elements = order, lanes, slots, elements
        self.bits = elements.bit_length()
        self.spare = SPARE.get(order.dtype.name, 0)
        self.unsigned: Any = Uint64 if order.type.width == 64 else Uint32

    def over_lanes(self, one, combine):
        """Combine what the lanes of a row have."""
        for log in range(self.lanes.bit_length() - 1):
            one = combine(one, *partners([one], 1 << log))
        return one

    def candidates(self, keys: list, places: list) -> Candidates:
        """Candidates of any keys."""
        ends = []
        for combine, none in ((cutlass.min, self.order.highest), (cutlass.max, self.order.lowest)):
            there = [choose(place >= 0, key, self.order.type(none)) for key, place in zip(keys, places)]
            ends.append(self.over_lanes(tree(there, combine), combine))
        return Candidates(keys, places, *ends)

    def sorted(self, found: Candidates, lane, key_of) -> tuple:
        """``(words, exact)``: sorted words, 0 behind the last one, and whether they are in the order of the candidates.
        ``key_of`` an index is the key of the element there. All lanes of the warp call, and ``exact`` is the same in
        all."""
        span = self.order.type(self.unsigned(found.top) - self.unsigned(found.low))
        bits = self.order.type.width - Int32(cute.arch.clz(span)) - self.spare
        shift = cutlass.max(bits - (32 - self.bits), Int32(0))
        words = sort(self.of(found, shift), lane, self.lanes * self.slots)
        return words, self.exact(words, shift, lane, key_of)

    def of(self, found: Candidates, shift) -> list:
        """Candidates as words, without the ``shift`` lowest bits of keys."""
        words = []
        for key, place in zip(found.keys, found.places):
            span = (self.unsigned(key) - self.unsigned(found.low)) >> self.unsigned(shift + self.spare)
            word = (Uint32(span) << Uint32(self.bits)) | Uint32(self.elements - place)
            words.append(choose(place >= 0, word, Uint32(0)))
        return words

    def index(self, word):
        """The index of a word."""
        return self.elements - Int32(word & Uint32((1 << self.bits) - 1))

    @cute.jit
    def exact(self, words: cutlass.Constexpr, shift, lane, key_of: cutlass.Constexpr):
        """Whether no candidate comes before a greater one."""
        exact = Boolean(True)
        if cutlass.const_expr(self.order.dtype.size >= 4):  # keys of narrow elements have few enough bits
            following = self.following(words, lane)
            close = [self.same_bits(*pair) for pair in zip(words, following)]
            if cute.arch.vote_any_sync(tree(close, lambda a, b: a | b) & (shift > 0)):
                for c in cutlass.range_constexpr(self.slots):
                    if self.same_bits(words[c], following[c]):
                        one, other = key_of(self.index(words[c])), key_of(self.index(following[c]))
                        exact = exact & (one >= other)
                exact = Boolean(cute.arch.vote_all_sync(exact))
        return exact

    def following(self, words: list, lane) -> list:
        """The words that come after a lane's, 0 after the last one of a row."""
        following = Uint32(cute.arch.shuffle_sync_down(words[0], 1))
        last = (lane & (self.lanes - 1)) == self.lanes - 1
        return [*words[1:], choose(last, Uint32(0), following)]

    def same_bits(self, one, other):
        """Whether two words, of which the second may be none, differ in their indexes alone."""
        return (other != 0) & ((one ^ other) < Uint32(1 << self.bits))

    @cute.jit
    def stage(self, words: cutlass.Constexpr, address, lane):
        """Put a row's sorted words side by side at an address of shared memory."""
        mine, size = cute.make_rmem_tensor((self.slots,), Uint32), 4 * self.slots
        for c in cutlass.range_constexpr(self.slots):
            mine[c] = words[c]
        to = address + (lane & (self.lanes - 1)) * size
        cute.autovec_copy(mine, cells(Uint32, to, self.slots, align=min(size, VECTOR_BYTES)))
        cute.arch.sync_warp()

    def at(self, address, number):
        """A staged word."""
        return Uint32(cells(Uint32, address + 4 * number, 1)[0])
