"""A chunk of a tile, which a warp compacts in shared memory and stores in whole vectors. All 32 lanes call.

    word r of a chunk      bits of positions 32 r to 32 r + 31, and how many are selected before them in the chunk

An element of the chunk's results that has rank q (so many selected elements are before it) goes to ``begin - shift +
q * size`` in shared memory: ``shift``, of 0 to 15 bytes, makes that address as far from a multiple of 16 as its address
in the result. The elements before the first such multiple are stored from registers, those behind the last one by one.
An element never moves up, so a warp that reads its rows in order before it writes them overwrites nothing unread.
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8, Uint16, Uint32

from ...warp import LANES
from .where import below

VECTOR_BYTES = 16
UNROLL = 8  # loads that a lane has on their way

_WORDS = {1: Uint8, 2: Uint16, 4: Int32, 8: Int64}  # registers of elements, by size

# The part of a result that a chunk gives: ``count`` elements at index ``offset``, of which those from ``stop`` on (if
# any) do not fit the result. ``words`` points to the chunk's words (Int64).
Part = namedtuple("Part", "words offset count stop")


def cells(kind, address, count: int, space=cute.AddressSpace.smem, align: int = 0):
    """A tensor of ``count`` elements of type ``kind`` at an address (a number)."""
    pointer = cute.make_ptr(kind, address, space, assumed_align=align or kind.width // 8)
    return cute.make_tensor(pointer, cute.make_layout((count,)))


def put(kind, address, value, space=cute.AddressSpace.smem) -> None:
    """Store one element at an address."""
    cells(kind, address, 1, space)[0] = value


class ChunkMover:
    """Moves the selected elements of one array, ``size`` bytes each, in chunks of ``rows`` rows of 32 positions. A lane
    loads ``unit`` of them at a time."""

    def __init__(self, size: int, unit: int, rows: int) -> None:
        self.size, self.unit, self.steps = size, unit, rows // unit
        self.kind = _WORDS[size]
        self.load_kind = _WORDS[size * unit]
        self.unroll = min(UNROLL, self.steps)
        while self.steps % self.unroll:
            self.unroll -= 1

    @cute.jit
    def move(self, begin, out, part: Part, lane):
        """Store the selected elements of the chunk that begins at address ``begin`` of shared memory. ``out`` is the
        address of the result."""
        size = self.size
        target = out + part.offset * size
        shift = Int32((begin - target) & (VECTOR_BYTES - 1))
        # this many elements come before the first whole vector
        head = (((begin + VECTOR_BYTES - 1) & -VECTOR_BYTES) - begin + shift) // size
        low = begin - shift
        for step in cutlass.range(0, self.steps, self.unroll, unroll=1):
            self.scatter(begin, low, target, head, part, step, lane)
        cute.arch.sync_warp()
        self.store(low, target, head, part.stop, lane)

    @cute.jit
    def scatter(self, begin, low, target, head, part: Part, step, lane):
        """Read ``unroll`` units a lane, and put the selected elements where they are stored from."""
        unit, size = self.unit, self.size
        shift = (lane * unit) % LANES
        units = []
        for u in cutlass.range_constexpr(self.unroll):
            pair = cells(Int64, (part.words + ((step + u) * unit + lane * unit // LANES)).toint(), 1)[0]
            word = Uint32(Int32(pair & 0xFFFFFFFF))
            bits = Int32(word >> Uint32(shift)) & ((1 << unit) - 1)
            rank = Int32(pair >> 32) + Int32(cute.arch.popc(Int32(word & below(shift))))
            place = begin + ((step + u) * LANES + lane) * (unit * size)
            units.append((bits, rank, self.load(place, bits)))
        cute.arch.sync_warp()  # the elements may overwrite those that other lanes have read
        for bits, rank, loaded in units:
            for v in cutlass.range_constexpr(unit):
                chosen = ((bits >> v) & 1) != 0
                value = self.kind(loaded >> type(loaded)(8 * size * v)) if unit > 1 else loaded
                self.place(chosen, rank, value, low, target, head, part.stop)
                rank = rank + ((bits >> v) & 1)

    @cute.jit
    def load(self, place, bits):
        """The unit at ``place``; any value if none of its elements is selected."""
        value = self.load_kind(0)
        if bits != 0:
            value = self.load_kind(cells(self.load_kind, place, 1)[0])
        return value

    @cute.jit
    def place(self, chosen, rank, value, low, target, head, stop):
        if chosen:
            if rank >= head:
                put(self.kind, low + rank * self.size, value)
            elif rank < stop:
                put(self.kind, target + rank * self.size, value, cute.AddressSpace.gmem)

    @cute.jit
    def store(self, low, target, head, stop, lane):
        """Store the elements from ``head`` on: in whole vectors, then one by one."""
        size = self.size
        vectors = cutlass.max(stop - head, 0) * size // VECTOR_BYTES
        source = low + head * size
        sink = target + head * size
        for v in cutlass.range(lane, vectors, LANES, unroll=4):
            held = cells(Int32, source + v * VECTOR_BYTES, 4, align=VECTOR_BYTES)
            there = cells(Int32, sink + v * VECTOR_BYTES, 4, cute.AddressSpace.gmem, VECTOR_BYTES)
            cute.autovec_copy(held, there)
        last = head + vectors * (VECTOR_BYTES // size) + lane
        if last < stop:
            value = cells(self.kind, low + last * size, 1)[0]
            put(self.kind, target + last * size, value, cute.AddressSpace.gmem)


@cute.jit
def store_indices(out: cute.Pointer, part: Part, first, rows: cutlass.Constexpr, lane):
    """Store the indices of a chunk's selected elements; ``first`` is that of its first position."""
    before = below(lane)
    for row in cutlass.range(0, rows, 1, unroll=4):
        pair = cells(Int64, (part.words + row).toint(), 1)[0]
        word = Uint32(Int32(pair & 0xFFFFFFFF))
        rank = Int32(pair >> 32) + Int32(cute.arch.popc(Int32(word & before)))
        if (((word >> Uint32(lane)) & Uint32(1)) != Uint32(0)) & (rank < part.stop):
            put(Int64, (out + (part.offset + rank)).toint(), first + row * LANES + lane, cute.AddressSpace.gmem)
