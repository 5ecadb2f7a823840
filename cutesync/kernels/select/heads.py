"""The heads of a chunk as bits, and the list of their places. All 32 lanes call.

    find    a lane has four neighbours of every part of 128 positions, as in ``flow_chunk``. Integers of one or two
            bytes are compared in words. The chunk's tally takes two reductions of the warp, no scan
    words   the bits in the order of positions
    list    lane k takes word k: a scan of the words' counts says where its places go, which are found bit by bit

What is stored of a run, its first element and its length, follows from the places.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Uint8, Uint16, Uint32

from ...monoid import choose
from ...warp import LANES
from ..words import funnel_shift_left
from .chunk import Chunk, cells, popc, put
from .flow_chunk import PART_BITS, PARTS, PLACE_BYTES, FlowCompactor, last_bit
from .narrow import listed, nonzero_bytes, through_lanes
from .tally import pack
from .where import Where

WORD_BYTES = 4
LOW_BITS = 0x7FFF7FFF  # of elements of two bytes
ROWS = 32  # of a chunk
SPARSE = 256  # heads of a chunk: up to so many are found bit by bit


class HeadFinder(FlowCompactor):
    """Finds the heads of chunks."""

    def __init__(self, where: Where) -> None:
        super().__init__(where, ROWS)
        self.packed = self.selection.fn is None and [(t.kind in "iu", t.size <= 2) for t in self.read] == [(True, True)]

    @cute.jit
    def find(self, at: Chunk, lane):
        """The lane's heads of a chunk, some or none of whose positions exist: bit 4 r + j is that of neighbour j of
        part r."""
        flags = Uint32(0)
        if self.begins_on_vectors(at) & (at.position + self.chunk <= at.length):
            flags = self.flags(at, None, lane)
        else:
            if at.position < at.length:
                flags = self.flags(at, Int32(cutlass.min(at.length - at.position, self.chunk)), lane)
        return flags

    def flags(self, at: Chunk, stop, lane) -> Any:
        if stop is None and self.packed:
            return self.flags_of_words(at, lane)
        rows, found = self.rows_of(at, stop, lane), Uint32(0)
        for r in range(self.parts):
            found = found | self.flags_of_part(at, rows, r, stop, lane) << (r * self.each)
        return found

    def rows_of(self, at: Chunk, stop, lane) -> list:
        """The lane's elements of each part, of each array."""
        pairs, places = list(zip(self.read, at.begins)), [self.place(r, 0, lane) for r in range(self.parts)]
        return [[self.load(begin, t.size, t.cutlass, place, stop) for t, begin in pairs] for place in places]

    def flags_of_words(self, at: Chunk, lane) -> Any:
        """The same of a whole chunk of integers of one or two bytes."""
        (dtype,), (begin, *_) = self.read, at.begins
        bits, count = 8 * dtype.size, dtype.size * self.each // WORD_BYTES
        ahead = Uint32(Int32(cells(dtype.cutlass, begin - dtype.size, 1)[0])) << (8 * WORD_BYTES - bits)
        changed = []
        for r in range(self.parts):
            vector = cute.make_rmem_tensor((count,), Uint32)
            address = begin + self.place(r, 0, lane) * dtype.size
            cute.autovec_copy(cells(Uint32, address, count, align=count * WORD_BYTES), vector)
            words = listed(vector)
            last = choose(lane == LANES - 1, ahead, words[-1])
            earlier = Uint32(cute.arch.shuffle_sync(last, (lane + (LANES - 1)) & (LANES - 1)))
            ahead = words[-1]
            for word in words:
                changed.append(word ^ funnel_shift_left(earlier, word, Uint32(bits)))
                earlier = word
        flags = nonzero_bytes(changed) if dtype.size == 1 else nonzero_halves(changed)
        head = self.where.begins((flags & 1) != 0, at.position + lane == 0)
        return (flags & ~1) | choose(head, Uint32(1), Uint32(0))

    def tally_of(self, flags, lane) -> Any:
        """The tally of a chunk."""
        count, last = Int32(cute.arch.warp_redux_sync(popc(flags), "add")), Int32(0)
        if self.selection.lengths is not None:
            top = last_bit(flags)
            place = (top // self.each) * (LANES * self.each) + lane * self.each + (top & (self.each - 1))
            last = Int32(cute.arch.warp_redux_sync(choose(flags != 0, place + 1, Int32(0)), "max"))
        return pack(count, last)

    def put_words(self, words, flags, lane) -> None:
        """Store the bits in the order of positions. Of two lanes, the first one stores those of the lower half of the
        parts of both, and the second one the others."""
        other, odd = Uint32(cute.arch.shuffle_sync_bfly(flags, 1)), (lane & 1) != 0
        shift = choose(odd, Uint32(ROWS // 2), Uint32(0))
        low, high = (spread(choose(odd, *pair) >> shift) for pair in ((other, flags), (flags, other)))
        both, each = low | high << self.each, LANES * self.each // 8  # bytes of a part
        words = words + choose(odd, Int32(self.parts // 2 * each), Int32(0)) + lane // 2
        for r in range(self.parts // 2):
            put(Uint8, words + r * each, Uint8((both >> (PART_BITS * r)) & 0xFF))

    def put_found(self, at: Chunk, areas: list, first, begin: int, flags, lane) -> None:
        """As ``put``, of the chunk's elements and the lane's heads: the elements are read again."""
        held, each = self.reread(at, lane), PARTS * self.each  # bits of four parts
        selected = [self.counted(spread(flags >> (each * w)), lane) for w in range(self.words)]
        runs, arrays = [held[k : k + self.each] for k in range(0, len(held), self.each)], len(self.read)
        elements = [runs[r * arrays : (r + 1) * arrays] for r in range(self.parts)]
        self.put(areas, first, begin, elements, selected, lane)

    @cute.jit
    def reread(self, at: Chunk, lane):
        """The lane's elements of a chunk that has heads."""
        held = tuple(t.cutlass(0) for _ in range(self.parts) for t in self.read for _ in range(self.each))
        if self.begins_on_vectors(at) & (at.position + self.chunk <= at.length):
            held = flat(self.rows_of(at, None, lane))
        else:
            held = flat(self.rows_of(at, Int32(cutlass.min(at.length - at.position, self.chunk)), lane))
        return held


def flat(rows: list) -> tuple:
    return tuple(value for row in rows for values in row for value in values)


def spread(flags) -> Any:
    """The lower half of a word, four bits in each byte."""
    low = flags & 0xFFFF
    pairs = (low | low << 8) & 0x00FF00FF
    return (pairs | pairs << 4) & 0x0F0F0F0F


def nonzero_halves(words: list) -> Any:
    """A bit for each element of two bytes, which says whether it is not 0."""
    found = Uint32(0)
    for word in reversed(words):
        tops = (((word & LOW_BITS) + LOW_BITS) | word) & ~Uint32(LOW_BITS)  # as in ``nonzero_bytes``
        found = funnel_shift_left(tops * 0x8001, found, Uint32(2))
    return found


@cute.jit
def list_places(words, places, begin, lane):
    """List the places of the heads of a chunk, which begins at place ``begin`` of its tile: as numbers of 16 bits, at
    address ``places`` and on."""
    rest = Uint32(cells(Uint32, words + lane * WORD_BYTES, 1)[0])
    address, first = places + Int32(through_lanes(popc(rest), lane)) * PLACE_BYTES, begin + lane * LANES
    while rest != 0:
        top = last_bit(rest)
        address = address - PLACE_BYTES
        put(Uint16, address, Uint16(first + top))
        rest = rest & ~(Uint32(1) << Uint32(top))
    cute.arch.sync_warp()
