"""What is stored of a chunk's words alone: indices of selected positions, ranks of all, lengths of runs.

All 32 lanes of a warp call; a lane looks at one position of each row, and neighbouring results go to neighbouring
addresses.
"""

from __future__ import annotations

from typing import NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32

from ...monoid import choose
from ...warp import LANES
from ..coordinates import element
from ..gather import WORDS, coordinates
from .chunk import Part, cells, put, row_of
from .tally import Before, count_of, last_of
from .where import below

UNROLL = 4


class Places(NamedTuple):
    """The arrays of indices: one, or with ``axes`` (extent, factor and shift of each) one for each coordinate."""

    arrays: tuple
    axes: list

    def store(self, place, index) -> None:
        """Store the index of a selected element."""
        if not self.axes:
            put_long(self.arrays[0], place, index)
            return
        number = type(self.axes[0][0])  # of the DSL: positions are counted in it
        for d, value in enumerate(coordinates(self.axes, number(index))):
            put_long(self.arrays[d], place, Int64(value))


def put_long(out, place, value) -> None:
    """Store an Int64."""
    put(Int64, (out + place).toint(), value, cute.AddressSpace.gmem)


def put_length(out, place, value) -> None:
    """Store a length, in the type of ``out``."""
    put(out.dtype, (out + place).toint(), out.dtype(value), cute.AddressSpace.gmem)


def put_last_length(a, total: Before) -> None:
    """Store the length of the last run, the ``total.count``-th, of ``a.count`` positions."""
    put_length(a.lengths, total.count - 1, a.count - (total.last - 1))


def selects(word, lane):
    """Whether the lane's position of a row is selected."""
    return ((word >> Uint32(lane)) & Uint32(1)) != Uint32(0)


def rank_of(word, tally, lane):
    """How many positions of the chunk before the lane's are selected."""
    return count_of(tally) + Int32(cute.arch.popc(Int32(word & below(lane))))


@cute.jit
def store_indices(places: Places, part: Part, first, rows: cutlass.Constexpr, lane):
    """Store the indices of the selected positions of a chunk; ``first`` is that of its first position."""
    for row in cutlass.range(0, rows, 1, unroll=UNROLL):
        word, tally = row_of(part, row)
        rank = rank_of(word, tally, lane)
        if selects(word, lane) & (rank < part.stop):
            places.store(part.offset + rank, first + row * LANES + lane)


@cute.jit
def store_rejects(a, part: Part, first, begins: list, rows: cutlass.Constexpr, lane):
    """Store the elements of a chunk that are not selected behind all selected ones, and their indices. ``begins`` are
    the addresses of the chunk's elements in shared memory, whose order is changed only afterwards."""
    kinds = [WORDS[out.dtype.width // 8] for out in a.out]
    total = Int64(element(a.found))
    for row in cutlass.range(0, rows, 1, unroll=UNROLL):
        word, tally = row_of(part, row)
        position = first + row * LANES + lane
        place = total + position - (part.offset + rank_of(word, tally, lane))
        if cutlass.not_(selects(word, lane)) & (position < a.count):
            for kind, begin, out in zip(kinds, begins, a.out):
                value = cells(kind, begin + (row * LANES + lane) * (kind.width // 8), 1)[0]
                put(kind, (out + place).toint(), value, cute.AddressSpace.gmem)
            if cutlass.const_expr(len(a.places.arrays) > 0):
                a.places.store(place, position)
    cute.arch.sync_warp()


@cute.jit
def store_ranks(out: cute.Pointer, part: Part, first, length, rows: cutlass.Constexpr, lane):
    """Store for every position of a chunk how many positions before it are selected; itself does not count if the one
    at index 0 is selected, so a head's run gets the head's rank."""
    for row in cutlass.range(0, rows, 1, unroll=UNROLL):
        word, tally = row_of(part, row)
        rank = rank_of(word, tally, lane) + Int32(selects(word, lane)) - 1
        place = first + row * LANES + lane
        if place < length:
            put_long(out, place, part.offset + rank)


@cute.jit
def store_lengths(out, part: Part, first, last, capacity, rows: cutlass.Constexpr, packed: cutlass.Constexpr, lane):
    """Store the length of each run that ends before a selected position of the chunk; ``last`` is the place of the
    selected position before the chunk, counted from 1 in the array."""
    gap = first - (last - 1)  # from that position to the chunk; the first of a row has none before it
    for row in cutlass.range(0, rows, 1, unroll=UNROLL):
        word, tally = row_of(part, row)
        run = part.offset + rank_of(word, tally, lane) - 1
        lower, place = Int32(word & below(lane)), row * LANES + lane
        begin = choose(lower != 0, row * LANES + 31 - Int32(cute.arch.clz(lower)), last_of(tally) - 1)
        length = choose(begin >= 0, Int64(place - begin), gap + place)
        behind = (begin >= 0) | (last > 0) if packed else run >= 0
        if selects(word, lane) & behind & (run < capacity):
            put_length(out, run, length)
