"""Flags and differences of bytes by words, in vectors of results: shared by the kernels of ``flat``."""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import Int32, Int64, Uint32, cute

from ...monoid import choose
from ..words import funnel_shift
from . import words
from .strided import Arguments, StridedKernel
from .vector import Vector


class FlatWords(StridedKernel):
    """What threads do with words of bytes, and with elements that are joined from words."""

    starts: Any
    edges: Any
    shift: Any

    def __init__(self, marking, policy) -> None:
        super().__init__(marking, policy)
        self.vector, self.whole, self.adjacent = policy.vector, policy.whole, policy.adjacent
        self.piece, self.near, self.size = policy.piece, policy.near, marking.source.size
        self.close, self.uniform = policy.close, policy.uniform
        self.single = len(self.sides) == 1 and not self.uniform  # whether alike places are at edges

    def joins(self, count: int, piece: int) -> bool:
        """Whether elements are joined from aligned words; or, of two vectors that would be loaded in words, and the
        neighbours of halves of words on one side, from aligned vectors."""
        loaded, size = piece * self.size, count * self.size
        vectors = loaded == words.BYTES and size == 2 * words.VECTOR and (piece == 1 or len(self.sides) > 1)
        return vectors or loaded < words.BYTES <= size

    @staticmethod
    def clamped(a: Arguments, first, count: int):
        """The nearest number from which on there are ``count`` elements."""
        return choose(first < 0, Int64(0), choose(first > a.work - count, a.work - count, first))

    @cute.jit
    def sequence_words(self, a: Arguments, first, count: cutlass.Constexpr):
        """The words of ``count`` elements of up to 4 bytes from number ``first`` on."""
        found = [Uint32(0) for _ in range(count * self.size // words.BYTES)]
        if (first >= words.MARGIN) & (first + count + words.MARGIN <= a.work):
            found = words.shifted(a.x + first, len(found))
        else:
            for i in cutlass.range_constexpr(count):
                element = words.element(a.x + self.clamped(a, first + i, 1), self.size)
                place = i * self.size
                found[place // words.BYTES] = found[place // words.BYTES] | (element << (8 * (place % words.BYTES)))
        return found

    def packed_results(self, a: Arguments, v: Vector, alike: bool) -> list:
        """The results of one byte as words, each of four: a list for each output."""
        start = a.x + v.first if self.whole else self.starts(a, v, alike)[0]
        keys = self.keys(a, v.first, self.piece) if self.whole else self.keys_at(start)
        found = []
        for side in self.sides:
            edges = self.edges(a, side, v, alike)
            if alike and self.single:
                flags = [Uint32(0)] * len(keys)
            elif self.adjacent:
                outer = Int64(self.vector) if side else Int64(-1)
                edge = edges[-1 if side else 0]
                end = self.get(start + (outer if edge is None else choose(edge, Int64(0), outer)), 0)
                flags = (words.tails if side else words.heads)(self.marking.op.name, keys, end)
            elif self.close:
                flags = self.paired_words(keys, self.close_keys(a, side, v.first, keys))
            else:
                others = self.keys(a, v.first + self.shift(a, side, edges, alike), self.near)
                flags = self.paired_words(keys, others)
            found.append(flags if v.limit is None else self.forced(side, keys, flags, edges, a.ends[side], alike))
        return found

    def forced(self, side: int, keys, flags, edges, given, alike: bool) -> list:
        """The words of flags, with those of the edges set, or by what the caller gave for the neighbour there; those of
        differences, with the items at the edges."""
        one = 1 if self.marking.is_flag else 0xFF
        if alike:
            masks = [choose(edges[0], Uint32(one * words.ONES), Uint32(0))] * len(flags)
        else:
            ones = [choose(edge, Uint32(one << (8 * (i % words.KEYS))), Uint32(0)) for i, edge in enumerate(edges)]
            masks = [ones[i] | ones[i + 1] | ones[i + 2] | ones[i + 3] for i in range(0, len(ones), words.KEYS)]
        if not self.marking.is_flag:
            return [(flag & ~mask) | (key & mask) for flag, key, mask in zip(flags, keys, masks)]
        if not self.given[side]:
            return [flag | mask for flag, mask in zip(flags, masks)]
        end = words.repeated(given)
        there = [words.flags(self.marking.op.name, key, end) for key in keys]
        return [(flag & ~mask) | (one & mask) for flag, one, mask in zip(flags, there, masks)]

    def keys(self, a: Arguments, first, piece: int) -> list:
        """The words of a vector of keys from number ``first`` on, loaded ``piece`` at once."""
        if self.joins(self.vector, piece):
            found = self.sequence_words(a, first, self.vector)
        else:
            found = []
            for i in range(0, self.vector, piece):
                loaded = cute.recast_tensor(self.loaded(a.x + self.clamped(a, first + i, piece), piece, piece), Uint32)
                found += [Uint32(loaded[k]) for k in range(piece * self.size // words.BYTES)]
        return [words.keys(word, self.marking.source) for word in found]

    def keys_at(self, start) -> list:
        """The words of a vector of keys that lies in one slice."""
        found = []
        for i in range(0, self.vector, self.piece):
            loaded = cute.recast_tensor(self.loaded(start + i, self.piece, self.piece), Uint32)
            found += [words.keys(Uint32(loaded[k]), self.marking.source) for k in range(self.piece // words.KEYS)]
        return found

    def close_keys(self, a: Arguments, side: int, first, keys) -> list:
        """The words of the neighbours of a vector's keys, less than a word away; anything for those outside of the
        array, which is whole words."""
        place = self.clamped(a, first + (self.vector if side else -words.KEYS), words.KEYS)
        outer = words.keys(words.load_at(Uint32, (a.x + place).toint()), self.marking.source)
        row = [*keys, outer] if side else [outer, *keys]
        bits = Int32(a.extents[0]) * 8
        return [funnel_shift(low, high, bits if side else 32 - bits) for low, high in zip(row, row[1:])]
