"""A chunk of a tile, whose selected elements go to another place in shared memory. All 32 lanes call.

A lane has ``each`` neighbours of every part of 32 * ``each`` positions, so it reads them as a vector. Four parts share
a word: its bit 8 r + j says whether the lane's neighbour j of part r is selected. One scan over the lanes says how many
are selected before those of a lane, in a byte for each part (at most 31 * 8): no ballots, whose bits would have to be
counted.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Uint8, Uint16, Uint32

from ...dtypes import DType
from ...monoid import choose
from ...warp import LANES
from ..hardware import VECTOR_BYTES, WORD_BYTES
from .chunk import Chunk, cells, put_next
from .narrow import nonzero_bytes, through_lanes
from .squeeze import add_if
from .tally import pack
from .where import Where, word_of_bits

PLACE_BYTES = 2
PART_BITS, PARTS = 8, 4
MASKS = {1: Uint8, 2: Uint16, 4: Uint32}  # of a lane's bytes of a mask
NARROWEST = 2  # bytes of an element: a lane has as many narrower ones as of these

# What is selected of four parts: the lane's ``flags``, how many come ``before`` them in each part, and for each part
# how many come before the last lane (``ahead``), and how many are the last lane's (``last``).
Selected = namedtuple("Selected", "flags before ahead last")


def part_of(word, r: int) -> Any:
    """The number that a word has for part ``r`` of four."""
    return Int32((word >> (PART_BITS * r)) & (2**PART_BITS - 1))


def total_of(word: Selected, r: int) -> Any:
    """How many are selected of part ``r`` of four."""
    return part_of(word.ahead, r) + part_of(word.last, r)


def count_bits(flags, most: int) -> Any:
    """How many bits are set in each byte of a word, of whose bytes the bits from ``most`` (8, or up to 4) on are 0."""
    pairs = flags - ((flags >> 1) & 0x55555555)
    fours = (pairs & 0x33333333) + ((pairs >> 2) & 0x33333333)
    return fours if most <= PARTS else (fours + (fours >> PARTS)) & 0x0F0F0F0F


class FlowCompactor:
    """Reads chunks of ``rows`` times 32 positions, and puts what is selected of them where it is told to."""

    def __init__(self, where: Where, rows: int) -> None:
        self.where, self.selection, self.chunk = where, where.selection, rows * LANES
        chosen = self.selection
        self.read: tuple[DType, ...] = chosen.sources if chosen.values or chosen.of_elements else ()
        widest = max((t.size for t in self.read), default=0)
        self.each = min(rows, VECTOR_BYTES // max(widest, NARROWEST))
        self.parts = rows // self.each
        self.words = max(self.parts // PARTS, 1)
        self.held = (*self.read, *((Uint8,) * (chosen.kind == "mask")))

    def take(self, at: Chunk, bits: cute.Pointer, lane) -> tuple[list, list[Selected]]:
        """``(elements, selected)`` of a chunk, some or none of whose positions exist. Of each part, ``elements`` has a
        list for each array. ``bits`` are in global memory."""
        found = self.existing(at, bits, lane)
        held, words = found[: len(found) - self.words], found[len(found) - self.words :]
        runs = [held[k : k + self.each] for k in range(0, len(held), self.each)]
        arrays, selected = len(self.read), [self.counted(flags, lane) for flags in words]
        return [runs[r * arrays : (r + 1) * arrays] for r in range(self.parts)], selected

    def counted(self, flags, lane) -> Selected:
        """What is selected of four parts, by the lane's flags."""
        counts = count_bits(flags, self.each)
        before = through_lanes(counts, lane) - counts
        ahead, last = (Uint32(cute.arch.shuffle_sync(word, LANES - 1)) for word in (before, counts))
        return Selected(flags, before, ahead, last)

    @cute.jit
    def existing(self, at: Chunk, bits: cute.Pointer, lane):
        zeros = [t.cutlass(0) for _ in range(self.parts) for t in self.read for _ in range(self.each)]
        held = (*zeros, *(Uint32(0) for _ in range(self.words)))
        if self.begins_on_vectors(at) & (at.position + self.chunk <= at.length):
            held = self.look(at, bits, None, lane)
        else:
            if at.position < at.length:
                held = self.look(at, bits, Int32(cutlass.min(at.length - at.position, self.chunk)), lane)
        return held

    def begins_on_vectors(self, at: Chunk) -> Any:
        skew = Int32(0)
        for begin in at.begins:
            skew = skew | begin
        return (skew & (VECTOR_BYTES - 1)) == 0

    def look(self, at: Chunk, bits, stop, lane) -> tuple:
        """The lane's elements, and which of its positions are selected. ``stop``: how many positions exist; None: all
        of them, and arrays begin on vectors."""
        chosen, places = self.selection, [self.place(r, 0, lane) for r in range(self.parts)]
        arrays = list(zip(self.read, at.begins))
        rows = [[self.load(begin, t.size, t.cutlass, place, stop) for t, begin in arrays] for place in places]
        words = [Uint32(0)] * self.words
        for r in range(self.parts):
            if chosen.kind == "bits":
                part = self.flags_of_bits(bits, at, places[r])
            elif chosen.kind == "mask" and stop is None:
                part = self.flags_of_bytes(at.begins[-1] + places[r])
            else:
                part = self.flags_of_part(at, rows, r, stop, lane)
            words[r // PARTS] = words[r // PARTS] | part << (PART_BITS * (r % PARTS))
        return (*(value for row in rows for values in row for value in values), *words)

    def place(self, r: int, j: int, lane) -> Any:
        """Where in the chunk neighbour ``j`` of the lane's part ``r`` is."""
        return lane * self.each + (r * LANES * self.each + j)

    def load(self, begin, size: int, kind, place, stop) -> list:
        """A lane's neighbours of an array from a place on; those that do not exist are the last one that does."""
        if stop is None:
            found = cute.make_rmem_tensor((self.each,), kind)
            bytes_of = size * self.each
            cute.autovec_copy(cells(kind, begin + place * size, self.each, align=bytes_of), found)
            return [kind(found[j]) for j in range(self.each)]
        places = [cutlass.min(place + j, stop - 1) for j in range(self.each)]
        return [cells(kind, begin + there * size, 1)[0] for there in places]

    def flags_of_bytes(self, address) -> Any:
        """Which of the lane's positions of a part are selected, by bytes of a mask at an address."""
        word = cells(MASKS[min(self.each, WORD_BYTES)], address, max(self.each // WORD_BYTES, 1), align=self.each)
        held = cute.make_rmem_tensor((cute.size(word),), word.element_type)
        cute.autovec_copy(word, held)
        return nonzero_bytes([Uint32(held[k]) for k in range(cute.size(held))])

    def flags_of_part(self, at: Chunk, rows: list, r: int, stop, lane) -> Any:
        """Which of the lane's positions of a part are selected, by the elements or by bytes of a mask."""
        chosen, first, flags = self.selection, self.place(r, 0, lane), Uint32(0)
        mask = self.load(at.begins[-1], 1, Uint8, first, stop) if chosen.kind == "mask" else []
        before = self.before(at, rows, r, lane) if chosen.kind == "heads" else None
        for j in range(self.each):
            elements, place = [values[j] for values in rows[r]], first + j
            if chosen.kind == "mask":
                flag = mask[j] != Uint8(0)
            elif chosen.kind == "heads":
                flag = self.where.differ(before, elements)
                if (r, j) == (0, 0):
                    flag = self.where.begins(flag, at.position + place == 0)
                before = elements
            else:
                flag = self.where.holds(elements, at.position + place)
            flags = add_if(flag if stop is None else flag & (place < stop), Uint32(1 << j), flags)
        return flags

    def before(self, at: Chunk, rows: list, r: int, lane) -> list:
        """The elements before the lane's of a part: the last ones of the lane before, or of the part before."""
        found = []
        for k, (t, begin) in enumerate(zip(self.read, at.begins)):
            ahead = cells(t.cutlass, begin - t.size, 1)[0] if r == 0 else rows[r - 1][k][-1]
            last = choose(lane == LANES - 1, t.cutlass(ahead), t.cutlass(rows[r][k][-1]))
            found.append(t.cutlass(cute.arch.shuffle_sync(last, (lane + (LANES - 1)) & (LANES - 1))))
        return found

    @cute.jit
    def flags_of_bits(self, bits: cute.Pointer, at: Chunk, place):
        """Which of the lane's positions from a place on are selected, by bits in global memory."""
        found, first = Uint32(0), at.position + place
        if first < at.length:
            word = Uint32(word_of_bits(bits, first & -LANES, at.length))
            found = (word >> Uint32(Int32(first) & (LANES - 1))) & (2**self.each - 1)
        return found

    def tally(self, selected: list[Selected], lane) -> Any:
        """The tally of a chunk."""
        count, last = Int32(0), Int32(0)
        for w, word in enumerate(selected):
            for r in range(min(self.parts, PARTS)):
                count = count + total_of(word, r)
            if self.selection.lengths is not None:
                last = choose((word.ahead | word.last) != Uint32(0), self.last(word, w, lane), last)
        return pack(count, last)

    def last(self, word: Selected, w: int, lane) -> Any:
        """The last selected place of the parts of word ``w``, counted from 1 in the chunk, if there is one."""
        r = last_bit(word.ahead | word.last) // PART_BITS
        own = (word.flags >> Uint32(r * PART_BITS)) & (2**PART_BITS - 1)
        owner = last_bit(cute.arch.vote_ballot_sync(own != Uint32(0)))
        j = last_bit(cute.arch.shuffle_sync(own, owner & (LANES - 1)))
        return ((w * PARTS + r) * LANES + owner) * self.each + j + 1

    def put(self, areas: list, first, begin: int, elements: list, selected: list[Selected], lane) -> None:
        """Put what is selected at index ``first`` of the areas and on; the chunk begins at place ``begin`` of its
        tile."""
        kinds = [source.cutlass for source in self.selection.results]
        for r in range(self.parts):
            word, k = selected[r // PARTS], r % PARTS
            rank = first + part_of(word.before, k)
            first = first + total_of(word, k)
            runs = [*zip(kinds, areas, elements[r])] if kinds else []
            if self.selection.located:
                places = [Uint16(begin + self.place(r, j, lane)) for j in range(self.each)]
                runs.append((Uint16, areas[-1], places))
            flags = [(word.flags & (1 << (PART_BITS * k + j))) != Uint32(0) for j in range(self.each)]
            for kind, area, values in runs:
                address = area + rank * (kind.width // 8)
                for flag, value in zip(flags, values):
                    address = put_next(flag, kind, address, value)


def last_bit(word) -> Any:
    """The number of the last bit that is set; -1: none is."""
    text = "bfind.u32 {$w0}, {$r0};"
    return cute.arch.inline_ptx(text, write_only_types=[Int32], read_only_args=[Uint32(word)])
