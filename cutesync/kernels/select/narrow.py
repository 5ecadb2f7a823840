"""A chunk of elements of one or two bytes: a lane has ``rows`` neighbours, in words of 32 bits. All 32 lanes call.

A ballot for each row, and a store for each element, take 12 instructions an element; this takes 6 to 8. A lane has one
bit for each of its positions, in words of 32 of them, a scan of the lanes' counts says where the selected ones go, and
``squeeze`` stores them in whole words.

A chunk that is not whole, or that begins inside a vector, is compacted by rows, those of 256 places together.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Uint16, Uint32

from ...dtypes import BY_NAME, DType
from ...monoid import choose, tree
from ...warp import LANES
from ..hardware import VECTOR_BYTES, WORD_BYTES
from ..words import dot, funnel_shift_left
from .chunk import NEAR, NEAR_BITS, Chunk, ChunkCompactor, cells, nears_of, popc, put, put_if
from .squeeze import Part, Stream, add_if, squeeze
from .where import Where, word_of_bits

MASK = BY_NAME["uint8"]
HALVES = {16: Uint16, 32: Uint32}  # of a row's word, by the positions of a lane
CHAINS = 4  # of additions that do not wait for each other
WORDS = LANES // WORD_BYTES  # that have bytes for the bits of one
LOW_BITS = 0x7F7F7F7F  # of bytes
WEIGHTS = 0x08040201, 0x80402010  # bits of the bytes of a word, and of the next one


class NarrowCompactor:
    """Compacts chunks of ``rows`` (16 or 32; 64 if places are not kept) times 32 positions."""

    def __init__(self, where: Where, rows: int) -> None:
        self.where, self.selection, self.rows = where, where.selection, rows
        self.chunk = rows * LANES
        self.by_rows = ChunkCompactor(where, NEAR // LANES)
        sources = self.selection.sources
        self.compares_bytes = self.selection.fn is None and [(t.kind in "iu", t.size) for t in sources] == [(True, 1)]
        self.held = (*sources, *((MASK,) if self.selection.kind == "mask" else ()))

    @cute.jit
    def compact(self, at: Chunk, bits: cute.Pointer, lane):
        """Compact a chunk, some of whose positions exist: ``(tally, near)``. ``bits`` are in global memory."""
        tally, near = Int32(0), Int32(0)
        if self.begins_on_vectors(at) & (at.position + self.chunk <= at.length):
            tally, near = self.compact_words(at, bits, lane)
        else:
            tally, near = self.compact_parts(at, bits, lane)
        return tally, near

    def begins_on_vectors(self, at: Chunk) -> Any:
        skew = Int32(0)
        for begin in at.begins:
            skew = skew | begin
        return (skew & (VECTOR_BYTES - 1)) == 0

    @cute.jit
    def compact_parts(self, at: Chunk, bits: cute.Pointer, lane):
        """The same by rows, one part after the other."""
        count, near, size = Int32(0), Int32(0), self.by_rows.chunk
        for start in cutlass.range(0, self.chunk, size, unroll=1):
            if at.position + start < at.length:
                more, _ = self.by_rows.compact_part(at, bits, lane, start, count)
                count = count + more
            if cutlass.const_expr(self.selection.located):
                if start < self.chunk - size:
                    near = near | (count << (NEAR_BITS * (start // size)))
        return self.by_rows.tally(at, count, nears_of(near, self.chunk)), near

    def compact_words(self, at: Chunk, bits, lane) -> tuple:
        """A whole chunk whose arrays begin on vectors."""
        chosen = self.selection
        words = [self.load(begin, t.size, lane) for t, begin in zip(self.by_rows.read, at.begins)]
        flags = self.flags(at, words, bits, lane)
        count = sum(popc(word) for word in flags)
        through = through_lanes(count, lane)
        before, total = through - count, Int32(cute.arch.shuffle_sync(through, LANES - 1))
        # where all are kept the last one stays: the next chunk may be comparing its first element with it
        ends = total < self.chunk if chosen.kind == "heads" else Boolean(True)
        streams = [
            Stream(listed(held), t.size, begin, ends) for held, t, begin in zip(words, chosen.results, at.begins)
        ]
        if chosen.located:
            streams.append(Stream(self.places(lane), 1, at.places, Boolean(True)))
        cute.arch.sync_warp()  # what is stored may overwrite what other lanes have read
        squeeze(streams, Part(flags, before, count), lane)
        if chosen.inverse:
            self.put_words(at, flags[0], before, lane)
        near = Int32(0)
        if chosen.located:
            for k in range(self.chunk // NEAR - 1):
                there = Int32(cute.arch.shuffle_sync(before, (k + 1) * NEAR // self.rows))
                near = near | (there << (NEAR_BITS * k))
        return self.by_rows.tally(at, total, nears_of(near, self.chunk)), near

    def load(self, begin, size: int, lane) -> cute.Tensor:
        """A lane's elements of an array, as words."""
        each, count = self.rows * size, self.rows * size // WORD_BYTES
        found = cute.make_rmem_tensor((count,), Uint32)
        cute.autovec_copy(cells(Uint32, begin + lane * each, count, align=min(each, VECTOR_BYTES)), found)
        return found

    def places(self, lane) -> list:
        """The places of a lane's positions, modulo 256."""
        first = Uint32((lane * self.rows) & 0xFF) * 0x01010101
        return [first + 0x03020100 + k * 0x01010101 for k in range(0, self.rows, WORD_BYTES)]

    def flags(self, at: Chunk, words: list, bits, lane) -> list:
        """Which of a lane's positions are selected, as bits."""
        chosen, first = self.selection, at.position + lane * self.rows
        if chosen.kind == "bits":
            places = [(first & -LANES) + k for k in range(0, self.rows, LANES)]
            found = [Uint32(word_of_bits(bits, place, place + LANES)) for place in places]
            if self.rows < LANES:
                found = [(found[0] >> Uint32(Int32(first) & (LANES - self.rows))) & (2**self.rows - 1)]
            return found
        if chosen.kind == "mask":
            return flags_of_bytes(listed(self.load(at.begins[-1], MASK.size, lane)))
        if chosen.kind != "heads":
            return self.flags_of_elements(words, None, first)
        before = self.by_rows.elements(at, lane * self.rows - 1)
        if self.compares_bytes:
            flags = flags_of_bytes(changes(listed(words[0]), before[0]))
        else:
            flags = self.flags_of_elements(words, before, first)
        head = self.where.begins((flags[0] & 1) != 0, first == 0)
        return [(flags[0] & ~1) | choose(head, Uint32(1), Uint32(0)), *flags[1:]]

    def flags_of_elements(self, words: list, before: Any, first) -> list:
        """The same by the elements; ``before`` are those before a lane's, which begin at position ``first``."""
        arrays = [elements_of(held, t) for held, t in zip(words, self.by_rows.read)]
        flags = [[Uint32(0)] * CHAINS for _ in range(0, self.rows, LANES)]
        for k in range(self.rows):
            elements, chains = [array[k] for array in arrays], flags[k // LANES]
            flag = self.by_rows.holds(elements, before, first + k)
            chains[k % CHAINS] = add_if(flag, Uint32(1 << k % LANES), chains[k % CHAINS])
            before = elements
        return [tree([(part,) for part in chains], lambda a, b: (a[0] | b[0],))[0] for chains in flags]

    def put_words(self, at: Chunk, flags, before, lane) -> None:
        """Store a lane's part of its row's word, and the tally of those before the row."""
        half, parts = HALVES[self.rows], LANES // self.rows
        row = at.words + lane // parts * 8
        put(half, row + lane % parts * (self.rows // 8), half(flags))
        put_if(lane % parts == 0, Int32, row + WORD_BYTES, before)


def through_lanes(count, lane) -> Any:
    """The sum of the counts of the lanes up to this one."""
    for log in range(LANES.bit_length() - 1):
        count = add_if(lane >= 1 << log, Uint32(cute.arch.shuffle_sync_up(count, 1 << log)), count)
    return count


def flags_of_bytes(words: list) -> list:
    """Words of a bit for each byte of words, which says whether it is not 0."""
    return [nonzero_bytes(words[k : k + WORDS]) for k in range(0, len(words), WORDS)]


def nonzero_bytes(words: list) -> Any:
    """A bit for each byte of up to eight words, which says whether it is not 0. Products take no part of the units that
    comparisons, shifts and logic share."""
    sums = []  # of each pair of words, 128 times its bits
    for k in range(0, len(words), len(WEIGHTS)):
        total = Uint32(0)
        for word, weights in zip(words[k:], WEIGHTS):
            # A byte's top bit gets a carry unless its lower bits are 0.
            tops = (((word & LOW_BITS) + LOW_BITS) | word) & ~Uint32(LOW_BITS)
            total = dot(tops, weights, total)
        sums.append(total)
    pairs = [sum(more << 8 for more in sums[k + 1 : k + 2]) + sums[k] for k in range(0, len(sums), 2)]
    return sum((high << 9 for high in pairs[1:]), pairs[0] >> 7)


def changes(words: list, before) -> list:
    """The bytes of words, each xor the byte before it; ``before`` is the one before the first."""
    earlier = [Uint32(before) << 24, *words[:-1]]
    return [word ^ funnel_shift_left(last, word, Uint32(8)) for last, word in zip(earlier, words)]


def elements_of(words: cute.Tensor, dtype: DType) -> Any:
    """The elements in words, by number."""
    if dtype.kind == "f":
        return cute.recast_tensor(words, dtype.cutlass)
    each = WORD_BYTES // dtype.size
    return [dtype.cutlass(word >> (8 * dtype.size * k)) for word in listed(words) for k in range(each)]


def listed(words: cute.Tensor) -> list:
    return [Uint32(words[k]) for k in range(cute.size(words))]
