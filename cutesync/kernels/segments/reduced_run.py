"""A warp's tile of elements, of which each lane has a run of neighbouring ones in registers. Device code; all 32 lanes
call.

The ends of segments in a tile are *marked*. If no run has two of them: by a word of shared memory for each run, which
says where it is. A lane goes through its run once: it combines elements, keeps the state at the end, and begins anew
behind it. If a run has several ends: by a byte for each element, 1 where a segment ends behind it. A lane puts all its
states in shared memory then (``Stage``). The state at the first end of a run lacks what lanes before it have of the
segment; this follows from a scan of the lanes' last states, and is added. Here both ways combine in the same order.

A tile without a mark takes no part of this: the states of runs are combined pairwise, then those of lanes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64, Uint32

from ...monoid import choose, tree
from ...warp import LANES, broadcast, prepend, prepend_between_states, reduce_states, select, shift_up
from ..coordinates import element
from ..gather import Tile
from ..hardware import VECTOR_BYTES
from ..select.chunk import cells, put
from ..select.where import below
from .reduced_base import Work
from .spec import SegmentsSpec


@dataclass(frozen=True)
class Stage:
    """A warp's shared memory: the addresses of its states, number by number, with a vector behind each lane's run that
    is not used, so that lanes use different banks; of its marks; of the end in each run; and of gathered elements,
    array by array. Of ``reduced_ring`` alone: the barriers of tiles with the number of the warp's first one, and the
    address of the ends that are kept."""

    states: tuple
    marks: Any
    ends: Any
    elements: tuple
    full: Any = None
    kept: Any = None


class TileRuns:
    """Tiles of runs of ``run`` elements."""

    apart = 1  # vectors of shared memory behind the states of a run

    def __init__(self, spec: SegmentsSpec, monoid: Any, run: int, gather: Any) -> None:
        self.spec, self.monoid, self.run, self.tile, self.gather = spec, monoid, run, LANES * run, gather
        self.sources, self.types = spec.operation.sources, monoid.types

    @property
    def boundary(self) -> int:
        """The bytes of which an address of the first array is a multiple where a chunk's first run begins."""
        return self.run * self.sources[0].size

    # Elements

    def start(self, c: Work, held: list) -> None:
        """A chunk begins."""
        self.ahead(c, held, c.lane * self.run)

    def ahead(self, c: Work, held: list, place) -> None:
        """Load the run of a lane in the next tile; ``held`` has been read."""
        if self.gather is None:
            self.fetch(c, held, place)

    def arrived(self, c: Work, held: list, at) -> None:
        """Wait until ``held`` has the elements of a tile."""
        if self.gather is not None:
            self.gathered(c, held, at)

    def here(self, c: Work, at) -> Work:
        """What the warp works with in the tile at a place of the chunk."""
        return c

    def left(self, c: Work, at) -> None:
        """The tile at a place of the chunk has been gone through."""

    def registers(self) -> list:
        """Registers of a run, a tensor of vectors for each array: elements of one and two bytes in 32-bit words."""
        held = []
        for dtype in self.sources:
            kind, size = self.word(dtype)
            each = math.gcd(self.run * dtype.size, VECTOR_BYTES) // size
            # the stride is stated: a mode of one element would get stride 0
            layout = cute.make_layout((each, self.run * dtype.size // size // each), stride=(1, each))
            held.append(cute.make_rmem_tensor(layout, kind))
            held[-1].fill(0)
        return held

    def word(self, dtype) -> tuple:
        """The type of the registers of elements, and its size."""
        return (Int32, 4) if dtype.size < 4 else (dtype.cutlass, dtype.size)

    @cute.jit
    def fetch(self, c: cutlass.Constexpr, held: cutlass.Constexpr, place):
        """Load the run of a lane that begins at a place of the chunk, unless it lies behind that. For what does not
        exist, the first or last element is taken."""
        if place < c.chunk.stop:
            position, inside = c.chunk.origin + place, (place >= c.chunk.low) & (place < c.chunk.high)
            for registers, x, dtype in zip(held, c.a.x, self.sources):
                self.fetch_of(registers, x, dtype, position, inside, c.a.whole)

    @cute.jit
    def fetch_of(
        self,
        registers,
        x: cute.Pointer,
        dtype: cutlass.Constexpr,
        position,
        inside,
        whole,
    ):
        (kind, size), width = self.word(dtype), math.gcd(self.run * dtype.size, VECTOR_BYTES)
        address = x.toint() + position * dtype.size
        if inside & (address % width == 0):
            for v in cutlass.range_constexpr(self.run * dtype.size // width):
                source = cells(kind, address + v * width, width // size, cute.AddressSpace.gmem, width)
                cute.autovec_copy(source, registers[(None, v)])
        else:
            places = [clamp(position + i, whole) for i in range(self.run)]
            each = max(1, 4 // dtype.size)
            for w in cutlass.range_constexpr(self.run // each):
                found = [element(x + place) for place in places[w * each : (w + 1) * each]]
                registers[w] = packed(found, dtype) if dtype.size < 4 else found[0]

    def gathered(self, c: Work, held: list, place) -> None:
        """The same of strided arrays; ``place`` is that of the tile. Elements go through shared memory."""
        sizes, first = tuple(dtype.size for dtype in self.sources), c.chunk.origin + place
        store = lambda k, at, word: put(type(word), c.stage.elements[k] + at * sizes[k], word)  # noqa: E731
        cute.arch.sync_warp()
        tile = Tile(first, first + self.tile, c.a.whole, Int64(0), False)
        self.gather.fill(c.a.x, sizes, store, tile, 0, Int32(0), 1)
        cute.arch.sync_warp()
        for registers, address, dtype in zip(held, c.stage.elements, self.sources):
            kind, size = self.word(dtype)
            count = self.run * dtype.size // size
            words = cells(kind, address + c.lane * (count * size), count, align=size)
            for i in range(count):
                registers[i] = words[i]

    def values(self, held: list, position) -> list:
        """The state of each element of a run."""
        rows = [
            cute.recast_tensor(registers, dtype.cutlass) if dtype.size < 4 else registers
            for registers, dtype in zip(held, self.sources)
        ]
        return [lambda i=i: self.monoid.lift(*(row[i] for row in rows), position + i) for i in range(self.run)]

    # Tiles without a mark

    def total(self, values: list):
        """The state of a run."""
        return tree([value() for value in values], self.monoid.combine)

    def of_lanes(self, state, lane):
        """The state of all lanes, in each of them."""
        return reduce_states(state, self.monoid.combine, lane)

    # Tiles with marks

    def mark(self, stage: Stage, place) -> None:
        """Mark an end behind an element of a tile, the only one in the run."""
        place = Uint32(place)
        put(Int32, stage.ends + (place // self.run) * 4, Int32(place % self.run) + 1)

    def same(self, a, b) -> Boolean:
        """Whether two places of a tile, of which the first one may lie before it, lie in one run."""
        return Uint32(a ^ b) < Uint32(self.run)

    def end(self, stage: Stage, lane):
        """The bit of the end in a lane's run; there is at most one. 0: there is none."""
        word = cells(Int32, stage.ends + lane * 4, 1)
        found = Int32(word[0])
        word[0] = Int32(0)
        return choose(found != 0, Int32(Uint32(1) << Uint32(found - 1)), Int32(0))

    def ends(self, stage: Stage, lane):
        """The bits of a lane's run, 1 where a segment ends; the marks are cleared."""
        words, bits = cells(Int32, stage.marks + lane * self.run, self.run // 4), Uint32(0)
        put(Int32, stage.ends + lane * 4, Int32(0))
        for w in range(self.run // 4):
            bits = bits | (((Uint32(words[w]) * Uint32(0x01020408)) >> Uint32(24)) << Uint32(4 * w))
        for w in range(self.run // 4):
            words[w] = Int32(0)
        return Int32(bits)

    def opens(self, ends, opens, lane):
        """Whether a segment begins at the first element of a run; ``opens``: at that of the tile."""
        before = Int32(cute.arch.shuffle_sync_up((ends >> (self.run - 1)) & 1, 1))
        return choose(lane == 0, Int32(opens), before)

    @cute.jit
    def go(self, stage: cutlass.Constexpr, values: cutlass.Constexpr, ends, opens, carry: tuple, lane):
        """Go through a run, and put the states behind its elements in shared memory: all of them, as whole vectors cost
        less than each state at a mark alone. Return the last one. ``carry`` is the state before the tile, ``opens``:
        a segment begins at the first element of the run."""
        state = prepend((lane == 0) & (opens == 0), carry, values[0](), self.monoid.combine)
        shown = [cute.make_rmem_tensor(self.vectors(kind), kind) for kind in self.types]
        for i in cutlass.range_constexpr(self.run):
            if cutlass.const_expr(i > 0):
                goes_on = (ends >> (i - 1)) & 1 == 0
                state = prepend_between_states(goes_on, state, values[i](), self.monoid.combine)
            for registers, number in zip(shown, state):
                registers[i] = number
        for address, kind, registers in zip(stage.states, self.types, shown):
            each, count = self.vectors(kind).shape
            for v in cutlass.range_constexpr(count):
                place = address + (lane * (count + self.apart) + v) * VECTOR_BYTES
                cute.autovec_copy(registers[(None, v)], cells(kind, place, each, align=VECTOR_BYTES))
        return state

    def vectors(self, kind):
        """The layout of a run of numbers of type ``kind``."""
        each = VECTOR_BYTES * 8 // kind.width
        return cute.make_layout((each, self.run // each), stride=(1, each))

    @cute.jit
    def go_to_end(self, c: cutlass.Constexpr, values: cutlass.Constexpr, place, end, begins, carry: tuple):
        """Go through a run at a place of the chunk, in which one segment ends at most, of whose end ``end`` is the bit:
        the state behind its last element, and that at the end. ``begins``: a segment begins at the first element; else
        ``carry`` comes before that of lane 0."""
        state = prepend((c.lane == 0) & (begins == 0), carry, values[0](), self.monoid.combine)
        found = state
        for i in cutlass.range_constexpr(1, self.run):
            goes_on = (end >> (i - 1)) & 1 == 0
            found = select(goes_on, found, state)
            state = prepend_between_states(goes_on, state, values[i](), self.monoid.combine)
        return state, select((end >> (self.run - 1)) & 1 == 0, found, state)

    @cute.jit
    def at_end(self, found: tuple, begins, state: tuple, lane):
        """The state at the end in a run; ``state`` is that of ``scan``."""
        before = shift_up(state)
        return prepend_between_states((lane > 0) & (begins == 0), before, found, self.monoid.combine)

    @cute.jit
    def scan(self, ends, opens, state: tuple, lane):
        """The state at the last element of each lane's run."""
        inner = ends & Int32(below(self.run - 1))  # a segment begins behind one of these
        begins = Int32(cute.arch.vote_ballot_sync((inner | opens) != 0)) & self.up_to(lane)
        back = choose(begins != 0, lane - (31 - Int32(cute.arch.clz(begins))), lane)
        for log in cutlass.range_constexpr(5):
            before = shift_up(state, 1 << log)
            state = prepend_between_states(back >= (1 << log), before, state, self.monoid.combine)
        return state

    def up_to(self, lane):
        """The bits of the lanes up to this one."""
        return Int32(Uint32(0xFFFFFFFF) >> Uint32(31 - lane))

    @cute.jit
    def complete(self, stage: cutlass.Constexpr, ends, opens, state: tuple, lane):
        """Add what comes before a run to the state at its first mark; ``state`` is that of ``scan``."""
        before = shift_up(state)
        if (lane > 0) & (opens == 0) & (ends != 0):
            place = lane * self.run + Int32(cute.arch.popc((ends & -ends) - 1))
            found = self.monoid.combine(before, self.at(stage, place))
            for address, kind, number in zip(self.addresses(stage, place), self.types, found):
                put(kind, address, number)

    def addresses(self, stage: Stage, place) -> list:
        """Where the numbers of the state at element ``place`` of the tile are."""
        skipped = (place // self.run) * (self.apart * VECTOR_BYTES)
        return [address + (place * (kind.width // 8) + skipped) for address, kind in zip(stage.states, self.types)]

    def at(self, stage: Stage, place) -> tuple:
        """The state at element ``place`` of the tile."""
        return tuple(kind(cells(kind, at, 1)[0]) for at, kind in zip(self.addresses(stage, place), self.types))

    def closed(self, ends):
        """Whether a segment ends behind a tile."""
        return Int32(cute.arch.shuffle_sync((ends >> (self.run - 1)) & 1, LANES - 1))

    def of_runs(self, found: tuple, place):
        """The state that the lane whose run has element ``place`` of the tile has found."""
        return broadcast(found, Int32(Uint32(place) // self.run) & (LANES - 1))

    def last(self, state: tuple):
        """The state at the last element of a tile, of that of ``scan``."""
        return broadcast(state, LANES - 1)


def clamp(position, whole):
    return cutlass.min(cutlass.max(position, Int64(0)), whole - 1)


def packed(elements: list, dtype) -> Int32:
    """Elements of one or two bytes in a word."""
    kind: Any = {1: cutlass.Uint8, 2: cutlass.Uint16}[dtype.size]
    word = Uint32(0)
    for i, value in enumerate(elements):
        bits = value.bitcast(kind) if type(value).is_float else kind(value)
        word = word | (Uint32(bits) << Uint32(8 * dtype.size * i))
    return Int32(word)
