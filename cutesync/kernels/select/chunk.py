"""A chunk of a tile: a warp puts its selected elements side by side, in place in shared memory. All 32 lanes call.

Row r of a chunk has its positions 32 r to 32 r + 31, a lane each. A lane reads its elements of all rows first, so an
element of which ``rank`` selected ones come before goes to place ``rank`` at once: no place is written that is unread.
A row takes one ballot, of which a lane's rank follows.

    values   the selected elements; in a partition, the others behind them
    places   where in the chunk each of these was, modulo 256, if indices or lengths are asked for: the first ``near``
             of them were among the first 256 (chunks of more than 512 positions have more such numbers: ``nears_of``)
    words    of each row, which positions are selected, and the tally of those before it, if ranks are asked for
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8, Uint32

from ...monoid import choose
from ...warp import LANES
from .tally import pack
from .where import Where, word_of_bits

NEAR, NEAR_BITS = 256, 10  # places that a byte tells apart; of how many elements come before a multiple of them
NEAR_ROWS = NEAR // LANES
UNROLL = 8  # rows whose elements are loaded together

# Where a chunk lies: ``begins`` are the addresses in shared memory of its elements of each array; its places and words
# are at addresses, too. It begins at ``position`` of an array, whose positions stop at ``length``.
Chunk = namedtuple("Chunk", "begins position length places words")


def cells(kind, address, count: int, space=cute.AddressSpace.smem, align: int = 0):
    """A tensor of ``count`` elements of type ``kind`` at an address (a number)."""
    pointer = cute.make_ptr(kind, address, space, assumed_align=align or kind.width // 8)
    return cute.make_tensor(pointer, cute.make_layout((count,)))


def put(kind, address, value, space=cute.AddressSpace.smem) -> None:
    """Store one element at an address."""
    cells(kind, address, 1, space)[0] = value


@cute.jit
def put_if(condition, kind: cutlass.Constexpr, address, value):
    """Store one element at an address of shared memory where ``condition`` (a Boolean) holds."""
    if condition:
        put(kind, address, value)


@cute.jit
def put_next(condition, kind: cutlass.Constexpr, address, value):
    """Store one element at an address of shared memory where ``condition`` holds: the address behind it. Else the same
    address."""
    if condition:
        put(kind, address, value)
        address = address + kind.width // 8
    return address


def nears_of(near, chunk: int) -> tuple:
    """How many selected elements of a chunk come before its places 256, 512 and so on; ``near`` has all of them."""
    if chunk <= 2 * NEAR:
        return (near,)
    return tuple((near >> (NEAR_BITS * k)) & (2**NEAR_BITS - 1) for k in range(chunk // NEAR - 1))


def place_at(places, nears: tuple, rank) -> Any:
    """Where in a chunk its element of a rank was; ``places`` and ``nears`` are those of the chunk."""
    place = Int32(Uint32(cells(Uint8, places + rank, 1)[0])) & 0xFF
    for near in nears:
        place = place + choose(rank < near, Int32(0), Int32(NEAR))
    return place


def popc(word) -> Any:
    return Int32(cute.arch.popc(Int32(word)))


class ChunkCompactor:
    """Compacts chunks of ``rows`` rows."""

    def __init__(self, where: Where, rows: int) -> None:
        self.where, self.selection, self.rows = where, where.selection, rows
        self.chunk = rows * LANES
        # the mask comes last
        self.read = self.selection.sources if self.selection.values or self.selection.of_elements else ()

    def compact(self, at: Chunk, bits: cute.Pointer, lane) -> tuple:
        """Compact a chunk, some of whose positions exist: ``(tally, near)``. ``bits`` are in global memory."""
        count, near = self.compact_part(at, bits, lane, 0, 0)
        return self.tally(at, count, (near,)), near

    @cute.jit
    def compact_part(self, at: Chunk, bits: cute.Pointer, lane, start, before):
        """Compact so many rows of a chunk from place ``start`` on, before which ``before`` places are selected:
        ``(count, near)`` of these rows."""
        count, near = Int32(0), Int32(0)
        if at.position + start + self.chunk <= at.length:
            count, near = self.compact_rows(at, bits, None, lane, start, before)
        else:
            count, near = self.compact_rows(at, bits, Int32(at.length - at.position), lane, start, before)
        return count, near

    def tally(self, at: Chunk, count, nears: tuple) -> Any:
        """The tally of a compacted chunk."""
        return pack(count, self.last(at, count, nears) if self.selection.lengths is not None else 0)

    def compact_rows(self, at: Chunk, bits, stop, lane, start, first) -> tuple:
        """``stop``: how many positions exist; None: all of them."""
        word = self.word(at, bits, start, lane) if self.selection.kind == "bits" else None
        elements: list[list] = []
        ballots: list = []
        for row in range(0, self.rows, UNROLL):
            rows = range(row, min(row + UNROLL, self.rows))
            loaded = [self.load(at, self.existing(start + r * LANES + lane, stop)) for r in rows]
            elements += [mine for mine, _ in loaded]
            if word is not None:
                ballots += [Uint32(cute.arch.shuffle_sync(word, r)) for r in rows]
                continue
            for r, (mine, other) in zip(rows, loaded):
                place = start + r * LANES + lane
                flag = self.holds(mine, other, at.position + place)
                if self.selection.kind == "heads" and r == 0:
                    flag = self.where.begins(flag, at.position + place == 0)
                flag = flag if stop is None else flag & (place < stop)
                ballots.append(Uint32(cute.arch.vote_ballot_sync(flag)))
        before = [Int32(first)]  # each row
        for ballot in ballots:
            before.append(before[-1] + popc(ballot))
        cute.arch.sync_warp()  # what is stored may overwrite what other lanes have read
        self.put_all(at, elements, ballots, before, start, lane)
        return before[-1] - first, before[min(NEAR_ROWS, self.rows)] - first

    def existing(self, place, stop) -> Any:
        """A place, or the last one of those that exist."""
        return place if stop is None else cutlass.max(cutlass.min(place, stop - 1), 0)

    def load(self, at: Chunk, place) -> tuple:
        """The elements of a place, and its byte of a mask, or the elements before it."""
        if self.selection.kind == "mask":
            return self.elements(at, place), cells(Uint8, at.begins[-1] + place, 1)[0]
        return self.elements(at, place), self.elements(at, place - 1) if self.selection.kind == "heads" else None

    def holds(self, elements: list, other: Any, position) -> Any:
        """Whether the position is selected of which ``load`` returned this."""
        if self.selection.kind == "mask":
            return other != Uint8(0)
        if self.selection.kind == "heads":
            return self.where.differ(other, elements)
        return self.where.holds(elements, position)

    def elements(self, at: Chunk, place) -> list:
        """The elements of a place of the chunk, or of the one before it."""
        return [cells(t.cutlass, begin + place * t.size, 1)[0] for t, begin in zip(self.read, at.begins)]

    def put_all(self, at: Chunk, elements: list, ballots: list, before: list, start, lane) -> None:
        """Store what is kept of a chunk."""
        chosen, bit = self.selection, Uint32(1) << Uint32(lane)
        kinds = [source.cutlass for source in chosen.results]
        for r, ballot in enumerate(ballots):
            holds, place = (ballot & bit) != Uint32(0), start + r * LANES + lane
            to = self.target(r, holds, bit, ballots, before, lane)
            kept, moves = holds | chosen.rejects, holds | chosen.rejects
            if chosen.kind == "heads" and r == self.rows - 1:
                moves = holds & (to < place)  # the next chunk may be comparing its first element with the last one
            for kind, begin, value in zip(kinds, at.begins, elements[r]):
                put_if(moves, kind, begin + to * (kind.width // 8), value)
            if chosen.located:
                put_if(kept, Uint8, at.places + to, Uint8(place & 0xFF))
        if chosen.inverse:
            self.put_words(at, ballots, before, start, lane)

    def target(self, r: int, holds, bit, ballots: list, before: list, lane) -> Any:
        """Where the lane's element of row ``r`` goes, which is selected if ``holds``."""
        rank = before[r] + popc(ballots[r] & (bit - Uint32(1)))
        return choose(holds, rank, before[-1] + (r * LANES + lane) - rank) if self.selection.rejects else rank

    def put_words(self, at: Chunk, ballots: list, before: list, start, lane) -> None:
        word, tally = Int32(0), Int32(0)
        for r, ballot in enumerate(ballots):
            word, tally = choose(lane == r, Int32(ballot), word), choose(lane == r, before[r], tally)
        put_if(
            lane < self.rows,
            Int64,
            at.words + (start // LANES + lane) * 8,
            (Int64(tally) << 32) | (Int64(word) & 0xFFFFFFFF),
        )

    @cute.jit
    def last(self, at: Chunk, total, nears: cutlass.Constexpr):
        """The last place of a chunk with ``total`` ones, counted from 1; 0: there is none."""
        cute.arch.sync_warp()
        place = Int32(0)
        if total > 0:
            place = place_at(at.places, nears, total - 1) + 1
        return place

    @cute.jit
    def word(self, at: Chunk, bits: cute.Pointer, start, lane):
        """Lane r: the word of row r."""
        word, first = Int32(0), at.position + start + lane * LANES
        if (lane < self.rows) & (first < at.length):
            word = word_of_bits(bits, first, at.length)
        return word
