"""What is stored of a tile whose selected elements lie side by side: elements, indices, lengths of runs.

Warps take turns in sections of the tile's selected elements. All lanes call.
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Uint16, Uint32

from ...warp import LANES
from ..gather import WORDS, Stepped
from ..hardware import WORD_BYTES
from .chunk import cells, put
from .flow_chunk import PLACE_BYTES
from .spec import Selection
from .store import UNROLL, put_length, store_narrow

# What is selected of a tile at ``position`` of the array: ``count`` elements, whose values, and at last places, lie at
# the addresses ``areas``. There is ``room`` for so many in the results (-1: nor for the one before), of which
# ``before`` come before the tile.
Kept = namedtuple("Kept", "areas count room before position")


def store_kept(selection: Selection, a, kept: Kept, worker: tuple, lane) -> None:
    """Store what is asked for. ``worker`` is the number of this warp, and how many there are."""
    offset = kept.before.count
    skew = Int32(offset & (LANES - 1))
    stop = cutlass.min(cutlass.max(kept.room, 0), kept.count)
    for out, source, area in zip(a.out, selection.results, kept.areas):
        store_elements(out, WORDS[source.size], area, offset, (skew, stop), worker, lane)
    place = lambda rank: Int32(Uint32(cells(Uint16, kept.areas[-1] + rank * PLACE_BYTES, 1)[0]))  # noqa: E731
    if selection.indices:
        store = lambda rank, index: a.places.store(offset + rank, index)  # noqa: E731
        in_turns(lambda rank: kept.position + place(rank), store, (skew, stop), worker, lane)
    if selection.lengths is not None:
        ends = cutlass.min(kept.room + 1, kept.count)  # runs that end in the tile, or before
        store_length_before(a, kept, ends, place, worker, lane)
        if isinstance(a.lengths, Stepped):
            length = lambda rank: place(rank + 1) - place(rank)  # noqa: E731
            store = lambda rank, length: put_length(a.lengths, offset + rank, length)  # noqa: E731
            in_turns(length, store, (skew, ends - 1), worker, lane)
        else:
            target = a.lengths.toint() + offset * (a.lengths.dtype.width // 8)
            store_pairs(a.lengths.dtype, target, place, ends - 1, worker, lane)


def store_elements(out, kind, area, offset, part: tuple, worker: tuple, lane) -> None:
    """Store elements from an address of shared memory to index ``offset`` of a result and on."""
    size, space = kind.width // 8, cute.AddressSpace.gmem
    target = out.toint() + offset * size
    if size < WORD_BYTES and not isinstance(out, Stepped):
        store_narrow(kind, area, target, part[1], worker, lane)
        return

    def store(rank, value) -> None:
        address = (out + (offset + rank)).toint() if isinstance(out, Stepped) else target + rank * size
        put(kind, address, value, space)

    in_turns(lambda rank: cells(kind, area + rank * size, 1)[0], store, part, worker, lane)


@cute.jit
def store_length_before(a, kept: cutlass.Constexpr, ends, place: cutlass.Constexpr, worker: tuple, lane):
    """Store the length of the run that ends before the first selected position of the tile."""
    last = kept.before.last
    if (worker[0] == 0) & (lane == 0) & (ends > 0) & (last > 0):
        put_length(a.lengths, kept.before.count - 1, kept.position + place(Int32(0)) - (last - 1))


@cute.jit
def store_pairs(kind: cutlass.Constexpr, target, place: cutlass.Constexpr, stop, worker: tuple, lane):
    """Store ``place(rank + 1) - place(rank)`` for the ranks below ``stop`` from an address on, two neighbours a lane. A
    warp takes as many in a turn as ``in_turns``."""
    (warp, warps), size, section = worker, kind.width // 8, UNROLL * LANES
    skew = Int32(target & (section * size - 1)) // size
    for start in cutlass.range(warp * section - skew, stop, warps * section, unroll=1):
        if (start >= 0) & (start + section <= stop):
            ranks = [start + 2 * (k * LANES + lane) for k in range(UNROLL // 2)]
            for rank, places in [(rank, [place(rank + i) for i in range(3)]) for rank in ranks]:
                put_pair(kind, target + rank * size, *places)
        else:
            for rank in cutlass.range(start + lane, cutlass.min(start + section, stop), LANES, unroll=1):
                if rank >= 0:
                    put(kind, target + rank * size, kind(place(rank + 1) - place(rank)), cute.AddressSpace.gmem)


def put_pair(kind, address, first, second, behind) -> None:
    """Store the differences of three places, at an address that is a multiple of their size together."""
    found = cute.make_rmem_tensor((2,), kind)
    found[0], found[1] = kind(second - first), kind(behind - second)
    cute.autovec_copy(found, cells(kind, address, 2, cute.AddressSpace.gmem, 2 * kind.width // 8))


@cute.jit
def in_turns(load: cutlass.Constexpr, store: cutlass.Constexpr, part: tuple, worker: tuple, lane):
    """``store(rank, load(rank))`` for the ranks below a number, ``part`` = ``(skew, stop)``: rank 0 lies ``skew`` (0 to
    31) elements behind a multiple of 32 in the result. A warp takes ``UNROLL`` times 32 of them in a turn."""
    (skew, stop), (warp, warps) = part, worker
    section = UNROLL * LANES
    for start in cutlass.range(warp * section - skew, stop, warps * section, unroll=1):
        ranks = [start + (k * LANES + lane) for k in range(UNROLL)]
        if (start >= 0) & (start + section <= stop):
            for rank, value in [(rank, load(rank)) for rank in ranks]:
                store(rank, value)
        else:
            for k in cutlass.range_constexpr(UNROLL):
                if Uint32(ranks[k]) < Uint32(cutlass.max(stop, 0)):
                    store(ranks[k], load(ranks[k]))
