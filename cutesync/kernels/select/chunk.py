"""A chunk of a tile, which a warp compacts in shared memory and stores in whole vectors. All 32 lanes call.

    word r of a chunk      bits of positions 32 r to 32 r + 31, and in the upper half the tally of those before them

An element of the chunk's results that has rank q (so many selected elements are before it) goes to ``begin - shift +
q * size`` in shared memory: ``shift``, of 0 to 15 bytes, makes that address as far from a multiple of 16 as its address
in the result. The elements before the first such multiple are stored from registers, those behind the last one by one.
An element never moves up, so a warp that reads its rows in order before it writes them overwrites nothing unread.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32

from ...warp import LANES
from ..gather import WORDS, Stepped
from .tally import count_of
from .where import below

VECTOR_BYTES = 16
UNROLL = {1: 8, 2: 4, 4: 4}  # loads that a lane has on their way, by the elements of one

# The part of a result that a chunk gives: ``stop`` elements at index ``offset``; selected elements of a higher rank do
# not fit the result. ``words`` points to the chunk's words (Int64).
Part = namedtuple("Part", "words offset stop")


def cells(kind, address, count: int, space=cute.AddressSpace.smem, align: int = 0):
    """A tensor of ``count`` elements of type ``kind`` at an address (a number)."""
    pointer = cute.make_ptr(kind, address, space, assumed_align=align or kind.width // 8)
    return cute.make_tensor(pointer, cute.make_layout((count,)))


def put(kind, address, value, space=cute.AddressSpace.smem) -> None:
    """Store one element at an address."""
    cells(kind, address, 1, space)[0] = value


def put_if(condition, kind, address, value) -> None:
    """Store one element at an address of shared memory if ``condition`` (an Int32) is not 0, without a branch."""
    width, register = kind.width, Int64 if kind.width == 64 else Int32
    text = f"{{ .reg .pred p; setp.ne.b32 p, {{$r0}}, 0; @p st.shared.b{width} [{{$r1}}], {{$r2}}; }}"
    cute.arch.inline_ptx(text, read_only_args=[condition, Int32(address), register(value)])


def row_of(part: Part, row):
    """``(word, tally)`` of a row of the chunk: which of its positions are selected, and what comes before them."""
    pair = cells(Int64, (part.words + row).toint(), 1)[0]
    return Uint32(Int32(pair & 0xFFFFFFFF)), Int32(pair >> 32)


class ChunkMover:
    """Moves the selected elements of one array, ``size`` bytes each, in chunks of ``rows`` rows of 32 positions. A lane
    loads ``unit`` of them at a time."""

    def __init__(self, size: int, unit: int, rows: int) -> None:
        self.size, self.unit, self.steps = size, unit, rows // unit
        self.kind = WORDS[size]
        self.load_kind = WORDS[size * unit]
        self.unroll = min(UNROLL[unit], self.steps)
        while self.steps % self.unroll:
            self.unroll -= 1

    @cute.jit
    def move(self, begin, out, part: Part, lane):
        """Store the selected elements of the chunk that begins at address ``begin`` of shared memory."""
        size = self.size
        target = out.toint() + part.offset * size
        shift = Int32((begin - target) & (VECTOR_BYTES - 1))
        # this many elements come before the first whole vector
        head = (((begin + VECTOR_BYTES - 1) & -VECTOR_BYTES) - begin + shift) // size
        low = begin - shift
        for step in cutlass.range(0, self.steps, self.unroll, unroll=1):
            self.scatter(begin, low, target, head, part, step, lane)
        cute.arch.sync_warp()
        self.store(low, target, head, part.stop, lane)

    @cute.jit
    def move_apart(self, begin, out: Stepped, part: Part, lane):
        """The same for a result whose elements do not lie side by side."""
        for step in cutlass.range(0, self.steps, self.unroll, unroll=1):
            self.scatter(begin, begin, out.toint(), Int32(0), part, step, lane)
        cute.arch.sync_warp()
        for rank in cutlass.range(lane, part.stop, LANES, unroll=4):
            value = cells(self.kind, begin + rank * self.size, 1)[0]
            put(self.kind, (out + (part.offset + rank)).toint(), value, cute.AddressSpace.gmem)

    @cute.jit
    def scatter(self, begin, low, target, head, part: Part, step, lane):
        """Read ``unroll`` units a lane, and put the selected elements where they are stored from."""
        unit, size = self.unit, self.size
        shift = (lane * unit) % LANES
        units = []
        for u in cutlass.range_constexpr(self.unroll):
            word, tally = row_of(part, (step + u) * unit + lane * unit // LANES)
            bits = Int32(word >> Uint32(shift)) & ((1 << unit) - 1)
            rank = count_of(tally) + Int32(cute.arch.popc(Int32(word & below(shift))))
            place = begin + ((step + u) * LANES + lane) * (unit * size)
            units.append((bits, rank, self.load(place, bits)))
        cute.arch.sync_warp()  # the elements may overwrite those that other lanes have read
        for chosen, rank, value in self.elements(units):
            put_if(chosen & Int32(rank >= head), self.kind, low + rank * size, value)
        if count_of(row_of(part, step * unit)[1]) < head:
            for chosen, rank, value in self.elements(units):
                self.put_early(chosen, rank, value, target, cutlass.min(head, part.stop))

    def elements(self, units) -> Iterator:
        """Yield of each element of some units ``(chosen, rank, value)``."""
        for bits, rank, loaded in units:
            for v in range(self.unit):
                chosen = (bits >> v) & 1
                yield chosen, rank, self.kind(loaded >> type(loaded)(8 * self.size * v)) if self.unit > 1 else loaded
                rank = rank + chosen

    @cute.jit
    def load(self, place, bits):
        """The unit at ``place``; any value if none of its elements is selected."""
        value = self.load_kind(0)
        if bits != 0:
            value = self.load_kind(cells(self.load_kind, place, 1)[0])
        return value

    @cute.jit
    def put_early(self, chosen, rank, value, target, head):
        """Store an element that comes before the first whole vector."""
        if (chosen != 0) & (rank < head):
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
