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
from ..hardware import VECTOR_BYTES
from ..select.chunk import cells
from .network import partners, sort
from .order import Order

SPARE = {"float16": 13, "bfloat16": 16}  # the lowest bits of keys that are zero

TURNS = 8  # in which words that share the bits of keys change places: most are two or three

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
        if cutlass.const_expr(self.order.dtype.size < 4):  # keys of narrow elements have few enough bits
            return words, Boolean(True)
        held = cute.make_rmem_tensor((self.slots,), Uint32)
        for c, word in enumerate(words):
            held[c] = word
        exact = self.mended(held, shift, lane, key_of)
        return [Uint32(held[c]) for c in range(self.slots)], exact

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
    def mended(self, held, shift, lane, key_of: cutlass.Constexpr):
        """Let neighbouring words whose bits of the key are the same change places, until their keys are in order;
        whether they are, after so many turns."""
        words = [*[Uint32(held[c]) for c in range(self.slots)], self.beyond(held, lane)[1]]
        close = tree([self.same_bits(*pair) for pair in zip(words, words[1:])], lambda a, b: a | b)
        again, turns = Boolean(cute.arch.vote_any_sync(close & (shift > 0))), Int32(0)
        while again & (turns < TURNS):
            changed = Boolean(self.turn(held, lane, 0, key_of) | self.turn(held, lane, 1, key_of))
            again = Boolean(cute.arch.vote_any_sync(changed))
            turns += 1
        return cutlass.not_(again)

    def beyond(self, held, lane) -> tuple:
        """The words before and behind a lane's, 0 where it is the first or the last one of the row."""
        first, last = Uint32(held[0]), Uint32(held[self.slots - 1])
        before, after = Uint32(cute.arch.shuffle_sync_up(last, 1)), Uint32(cute.arch.shuffle_sync_down(first, 1))
        lane = lane & (self.lanes - 1)
        return choose(lane == 0, Uint32(0), before), choose(lane == self.lanes - 1, Uint32(0), after)

    @cute.jit
    def turn(self, held, lane, odd: cutlass.Constexpr, key_of: cutlass.Constexpr):
        """Each second word from the first (``odd``: the second) one on changes places with the next one, if its key is
        less; whether a lane's has."""
        changed = Boolean(False)
        for c in cutlass.range_constexpr(odd, self.slots - 1, 2):
            one, other = Uint32(held[c]), Uint32(held[c + 1])
            if self.wrong(one, other, key_of):
                held[c], held[c + 1] = other, one
                changed = Boolean(True)
        if cutlass.const_expr(odd or self.slots == 1):
            before, after = self.beyond(held, lane)
            one, other = Uint32(held[0]), Uint32(held[self.slots - 1])
            second = Boolean(True) if self.slots > 1 else (lane & 1) != odd
            if second & (before != 0):
                if self.wrong(before, one, key_of):
                    held[0] = before
                    changed = Boolean(True)
            if (cutlass.not_(second) | (self.slots > 1)) & (after != 0):
                if self.wrong(other, after, key_of):
                    held[self.slots - 1] = after
                    changed = Boolean(True)
        return changed

    @cute.jit
    def wrong(self, one, other, key_of: cutlass.Constexpr):
        """Whether the first of two words, of which the second may be none, has the same bits and a lesser key."""
        wrong = Boolean(False)
        if self.same_bits(one, other):
            wrong = Boolean(key_of(self.index(one)) < key_of(self.index(other)))
        return wrong

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
