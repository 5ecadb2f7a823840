"""A warp's tile of elements, of which each lane has a run of neighbouring ones in registers. Device code; all 32 lanes
call.

The ends of segments in a tile are *marked*: a byte of shared memory for each element, 1 where a segment ends behind it.
A lane goes through its run once: it combines elements, begins anew behind a mark, and puts the state at a mark in
shared memory (``Stage``). The first state that a lane puts there lacks what lanes before it have of the segment; that
follows from a scan of the lanes' last states, and is added. A tile without a mark takes no part of this: the states of
runs are combined pairwise, then those of lanes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32

from ...monoid import choose, tree
from ...warp import LANES, broadcast, prepend, prepend_between_states, reduce_states, shift_up
from ..coordinates import element
from ..gather import Tile
from ..select.chunk import VECTOR_BYTES, cells, put, put_if
from ..select.where import below
from .reduced_base import Arguments
from .run import bits_of
from .spec import SegmentsSpec


@dataclass(frozen=True)
class Stage:
    """A warp's shared memory: the addresses of its states, number by number, with a gap behind each lane's run, so that
    lanes use different banks; of its marks; and of gathered elements, array by array. ``own`` are the addresses of the
    states of a lane's run."""

    states: tuple
    marks: Any
    elements: tuple
    own: tuple


class TileRuns:
    """Tiles of runs of ``run`` elements."""

    def __init__(self, spec: SegmentsSpec, monoid: Any, run: int, gather: Any) -> None:
        self.spec, self.monoid, self.run, self.tile, self.gather = spec, monoid, run, LANES * run, gather
        self.sources, self.types = spec.operation.sources, monoid.types

    # Elements

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
    def fetch(self, a: cutlass.Constexpr, held: cutlass.Constexpr, position):
        """Load a lane's run, from a position on. For what does not exist, the first or last element is taken."""
        for registers, x, dtype in zip(held, a.x, self.sources):
            (kind, size), width = self.word(dtype), math.gcd(self.run * dtype.size, VECTOR_BYTES)
            address = x.toint() + position * dtype.size
            whole = (position >= 0) & (position + self.run <= a.whole) & (address % width == 0)
            if whole:
                for v in cutlass.range_constexpr(self.run * dtype.size // width):
                    source = cells(kind, address + v * width, width // size, cute.AddressSpace.gmem, width)
                    cute.autovec_copy(source, registers[(None, v)])
            else:
                places = [clamp(position + i, a.whole) for i in range(self.run)]
                if cutlass.const_expr(dtype.size < 4):
                    each = 4 // dtype.size
                    for w in cutlass.range_constexpr(self.run // each):
                        registers[w] = packed(
                            [element(x + place) for place in places[w * each : (w + 1) * each]], dtype
                        )
                else:
                    for i in cutlass.range_constexpr(self.run):
                        registers[i] = element(x + places[i])

    def gathered(self, a: Arguments, stage: Stage, held: list, position, lane) -> None:
        """The same of strided arrays; ``position`` is that of the tile. Elements go through shared memory."""
        sizes = tuple(dtype.size for dtype in self.sources)
        store = lambda k, place, word: put(type(word), stage.elements[k] + place * sizes[k], word)  # noqa: E731
        tile = Tile(position, position + self.tile, a.whole, Int64(0), False)
        cute.arch.sync_warp()
        self.gather.fill(a.x, sizes, store, tile, 0, Int32(0), 1)
        cute.arch.sync_warp()
        for registers, address, dtype in zip(held, stage.elements, self.sources):
            kind, size = self.word(dtype)
            words = cells(kind, address + lane * self.run * dtype.size, self.run * dtype.size // size, align=size)
            for i in range(self.run * dtype.size // size):
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

    def ends(self, stage: Stage, lane):
        """The bits of a lane's run, 1 where a segment ends; the marks are cleared."""
        words, bits = cells(Int32, stage.marks + lane * self.run, self.run // 4), Uint32(0)
        for w in range(self.run // 4):
            bits = bits | (((Uint32(words[w]) * Uint32(0x01020408)) >> Uint32(24)) << Uint32(4 * w))
        for w in range(self.run // 4):
            words[w] = Int32(0)
        return Int32(bits)

    def heads(self, ends, opens, lane):
        """Where segments begin in a run; ``opens``: one does at the first element of the tile."""
        before = Int32(cute.arch.shuffle_sync_up((ends >> (self.run - 1)) & 1, 1))
        return (ends << 1) | choose(lane == 0, Int32(opens), before)

    @cute.jit
    def go(self, stage: cutlass.Constexpr, values: cutlass.Constexpr, ends, heads, carry: tuple, lane):
        """Go through a run, and put the states at marks in shared memory. Return the last one. ``carry`` is the state
        before the tile."""
        state = prepend((lane == 0) & (heads & 1 == 0), carry, values[0](), self.monoid.combine)
        self.put_if(stage, ends, 0, state)
        for i in cutlass.range_constexpr(1, self.run):
            goes_on = (heads >> i) & 1 == 0
            state = prepend_between_states(goes_on, state, values[i](), self.monoid.combine)
            self.put_if(stage, ends, i, state)
        return state

    def put_if(self, stage: Stage, ends, i: int, state) -> None:
        for address, kind, number in zip(stage.own, self.types, state):
            bits = bits_of(number)
            put_if((ends >> i) & 1 != 0, type(bits), address + i * (kind.width // 8), bits)

    @cute.jit
    def scan(self, heads, state: tuple, lane):
        """The state at the last element of each lane's run."""
        within = Int32(below(self.run)) if self.run < 32 else Int32(-1)
        begins = Int32(cute.arch.vote_ballot_sync(heads & within != 0)) & self.up_to(lane)
        back = choose(begins != 0, lane - (31 - Int32(cute.arch.clz(begins))), lane)
        for log in cutlass.range_constexpr(5):
            before = shift_up(state, 1 << log)
            state = prepend_between_states(back >= (1 << log), before, state, self.monoid.combine)
        return state

    def up_to(self, lane):
        """The bits of the lanes up to this one."""
        return Int32(Uint32(0xFFFFFFFF) >> Uint32(31 - lane))

    @cute.jit
    def complete(self, stage: cutlass.Constexpr, ends, heads, state: tuple, lane):
        """Add to the first state that a lane has put what comes before it; ``state`` is that of ``scan``."""
        before = shift_up(state)
        if (lane > 0) & (heads & 1 == 0) & (ends != 0):
            place = lane * (self.run + 1) + Int32(cute.arch.popc((ends & -ends) - 1))
            self.put(stage, place, self.monoid.combine(before, self.get(stage, place)))

    def get(self, stage: Stage, place) -> tuple:
        """The state at a place of the stage."""
        found = zip(self.types, stage.states)
        return tuple(kind(cells(kind, address + place * (kind.width // 8), 1)[0]) for kind, address in found)

    def put(self, stage: Stage, place, state) -> None:
        for kind, address, number in zip(self.types, stage.states, state):
            put(kind, address + place * (kind.width // 8), number)

    def at(self, stage: Stage, place) -> tuple:
        """The state at element ``place`` of the tile."""
        return self.get(stage, place + place // self.run)

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
