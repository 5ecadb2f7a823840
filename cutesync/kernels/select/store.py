"""What is stored of a chunk: elements, indices, lengths of runs, ranks of all positions.

All 32 lanes of a warp call. Results of a chunk lie side by side in the arrays: a warp stores whole lines of 128 bytes.
"""

from __future__ import annotations

from collections import namedtuple
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32, Uint64

from ...monoid import choose
from ...warp import LANES
from ..coordinates import element
from ..gather import WORDS, Stepped, coordinates
from ..hardware import LINE_BYTES, WORD_BYTES
from ..words import funnel_shift
from .chunk import NEAR, cells, place_at, popc, put
from .tally import Before
from .where import below

UNROLL = 4
PAIR_BYTES = 8
EDGE = 16  # more than the elements before the pairs of words of a chunk, or behind them

# What a compacted chunk has: ``count`` selected elements, which begin at index ``offset`` of the results. There is room
# for ``room`` elements from there (-1: nor for the one before), and for ``stop`` of the chunk's. The chunk begins at
# ``position`` of the array, whose positions stop at ``end``; its places and words (``chunk``) at these addresses.
Part = namedtuple("Part", "offset count room stop nears position end places words")


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


@cute.jit
def store_by_rank(load: cutlass.Constexpr, store: cutlass.Constexpr, skew, stop, lane):
    """``store(rank, load(rank))`` for the ranks below ``stop``, a lane each; those of lane 0 are ``skew`` (0 to 31)
    less than a multiple of 32."""
    first = lane - skew
    if (first >= 0) & (first < stop):
        store(first, load(first))
    for rank in cutlass.range(first + LANES, stop, LANES, unroll=UNROLL):
        store(rank, load(rank))


def store_values(out, size: int, begin, offset, stop, lane) -> None:
    """Store ``stop`` elements of ``size`` bytes, which begin at address ``begin`` of shared memory, to index ``offset``
    of a result and on."""
    kind = WORDS[size]
    if size < WORD_BYTES and not isinstance(out, Stepped):
        store_narrow(kind, begin, out.toint() + offset * size, stop, (0, 1), lane)
        return
    space, target = cute.AddressSpace.gmem, out.toint() + offset * size

    def store(rank, value) -> None:
        address = (out + (offset + rank)).toint() if isinstance(out, Stepped) else target + rank * size
        put(kind, address, value, space)

    load = lambda rank: cells(kind, begin + rank * size, 1)[0]  # noqa: E731
    store_by_rank(load, store, Int32(offset & (LANES - 1)), stop, lane)


def store_narrow(kind, begin, target, stop, worker: tuple, lane) -> None:
    """Store ``stop`` elements of one or two bytes from address ``begin`` of shared memory to ``target``: whole pairs of
    words, out of words that have no other bytes, and the elements before and behind them one by one. ``worker`` is the
    number of this warp, and how many share them."""
    size = kind.width // 8
    ahead = Int32(-target & (PAIR_BYTES - 1)) // size
    skew = (begin + ahead * size) & (WORD_BYTES - 1)
    ahead = cutlass.min(ahead + choose(skew > ahead * size, Int32(PAIR_BYTES // size), Int32(0)), stop)
    pairs = cutlass.max((stop - ahead) * size - (-skew & (WORD_BYTES - 1)), 0) // PAIR_BYTES
    behind = stop - ahead - pairs * (PAIR_BYTES // size)
    rank = choose(lane < EDGE, lane, stop - behind + (lane - EDGE))
    own = choose(lane < EDGE, lane < ahead, lane - EDGE < behind) & (worker[0] == 0)
    copy_if(own, kind, begin + rank * size, target + rank * size)
    copy_pairs((begin + ahead * size) & -WORD_BYTES, skew, target + ahead * size, pairs, worker, lane)


@cute.jit
def copy_pairs(source, skew, target, pairs, worker: tuple, lane):
    """Store ``pairs`` pairs of words, which begin ``skew`` (0 to 3) bytes behind ``source``, whole lines a warp."""
    (warp, warps), section = worker, UNROLL * LANES
    first = warp * section + lane - Int32(target & (LINE_BYTES - 1)) // PAIR_BYTES
    last = choose(skew > 0, Int32(PAIR_BYTES), Int32(WORD_BYTES))  # of the words that a pair comes out of
    for place in cutlass.range(first, pairs, warps * section, unroll=1):
        start, to, line = source + place * PAIR_BYTES, target + place * PAIR_BYTES, LANES * PAIR_BYTES
        if (place >= lane) & (place - lane + section <= pairs):
            for k in cutlass.range_constexpr(UNROLL):
                copy_pair(start + k * line, last, skew * 8, to + k * line)
        else:
            for k in cutlass.range_constexpr(UNROLL):
                if Uint32(place + k * LANES) < Uint32(pairs):
                    copy_pair(start + k * line, last, skew * 8, to + k * line)


def copy_pair(start, last, bits, to) -> None:
    """Copy the pair of words that begins ``bits`` behind ``start``."""
    low, middle, high = (Uint32(cells(Uint32, start + place, 1)[0]) for place in (0, WORD_BYTES, last))
    pair = Uint64(funnel_shift(low, middle, bits)) | (Uint64(funnel_shift(middle, high, bits)) << 32)
    put(Uint64, to, pair, cute.AddressSpace.gmem)


@cute.jit
def copy_if(condition, kind: cutlass.Constexpr, source, target):
    """Copy one element from shared memory, where ``condition`` holds."""
    if condition:
        put(kind, target, cells(kind, source, 1)[0], cute.AddressSpace.gmem)


def store_indices(places: Places, part: Part, lane) -> None:
    """Store the indices of the selected positions of a chunk."""
    store = lambda rank, place: places.store(part.offset + rank, part.position + place)  # noqa: E731
    store_by_rank(
        lambda rank: place_at(part.places, part.nears, rank), store, Int32(part.offset & (LANES - 1)), part.stop, lane
    )


def store_rejects(a, part: Part, begins: tuple, chunk: int, lane) -> None:
    """Store the elements of a chunk that are not selected behind all selected ones, and their indices. ``begins`` are
    the addresses of the chunk's elements in shared memory."""
    rejects = Int32(cutlass.min(part.end - part.position, Int64(chunk))) - part.count
    first = Int64(element(a.found)) + part.position - part.offset
    for out, begin in zip(a.out, begins):
        size = out.dtype.width // 8
        store_values(out, size, begin + part.count * size, first, rejects, lane)
    if a.places.arrays:
        nears = (min(NEAR, chunk) - part.nears[0],)
        behind = part._replace(offset=first, stop=rejects, nears=nears, places=part.places + part.count)
        store_indices(a.places, behind, lane)


@cute.jit
def store_ranks(out: cute.Pointer, part: Part, length, rows: cutlass.Constexpr, lane):
    """Store for every position of a chunk how many positions before it are selected; itself does not count if the one
    at index 0 is selected, so a head's run gets the head's rank."""
    for row in cutlass.range(0, rows, 1, unroll=UNROLL):
        pair = cells(Int64, part.words + row * 8, 1)[0]
        word, before = Uint32(Int32(pair & 0xFFFFFFFF)), Int32(pair >> 32)
        rank = before + popc(word & below(lane)) + Int32((word >> Uint32(lane)) & Uint32(1)) - 1
        place = part.position + row * LANES + lane
        if place < length:
            put_long(out, place, part.offset + rank)


@cute.jit
def store_lengths(out, part: Part, last, lane):
    """Store the length of each run that ends before a selected position of the chunk; ``last`` is the place of the
    selected position before the chunk, counted from 1 in the array; 0: there is none."""
    stop = cutlass.min(part.room + 1, part.count)
    if (lane == 0) & (stop > 0) & (last > 0):
        put_length(out, part.offset - 1, part.position + place_at(part.places, part.nears, 0) - (last - 1))
    place = lambda rank: place_at(part.places, part.nears, rank)  # noqa: E731
    load = lambda rank: place(rank + 1) - place(rank)  # noqa: E731
    store = lambda rank, length: put_length(out, part.offset + rank, length)  # noqa: E731
    store_by_rank(load, store, Int32(part.offset & (LANES - 1)), stop - 1, lane)


@cute.jit
def report(a, all_of_them: Before, places: cutlass.Constexpr):
    """One thread: store how many positions are selected, and the length of the last run."""
    count = all_of_them.count
    cells(Int64, a.found.toint(), 1, cute.AddressSpace.gmem)[0] = count
    if cutlass.const_expr(places):
        if (count > 0) & (count <= a.capacity):
            put_last_length(a, all_of_them)
