"""A warp's tile of elements, of which each lane has a run of neighbouring ones. Device code; all 32 lanes call.

Lanes copy the elements of ``stages`` tiles ahead, 16 bytes each and neighbours side by side, to where the lane that has
them reads its run: a vector lies behind each run that is not used, so that lanes use different banks. (Loads of whole
runs to registers, 64 bytes apart, keep the first-level cache busy for half of the time.)

The ends of segments in a tile are *marked*: a byte of shared memory for each element, 1 where a segment ends behind it.
A lane goes through its run once: it combines elements, begins anew behind a mark, and puts the states in shared memory
(``Stage``). That at its first mark lacks what lanes before it have of the segment; this follows from a scan of the
lanes' last states, and is added. A tile without a mark takes no part of this: the states of runs are combined pairwise,
then those of lanes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8, Uint32
from cutlass.experimental import primitives

from ...monoid import choose, tree
from ...warp import LANES, broadcast, prepend, prepend_between_states, reduce_states, shift_up
from ..coordinates import element
from ..gather import Tile
from ..select.chunk import VECTOR_BYTES, cells, put
from ..select.where import below
from .reduced_base import Work
from .reduced_policy import ReducedPolicy, pitch
from .spec import SegmentsSpec

MIN_COPY = 4  # bytes of an asynchronous copy
UNROLL = 8  # elements of a lane that are copied together


@dataclass(frozen=True)
class Stage:
    """A warp's shared memory: the addresses of its states, number by number; of its marks; and of the elements of the
    tiles ahead, array by array."""

    states: tuple
    marks: Any
    elements: tuple


class TileRuns:
    """Tiles of runs of ``run`` elements, a power of two."""

    def __init__(self, spec: SegmentsSpec, monoid: Any, policy: ReducedPolicy, gather: Any) -> None:
        self.spec, self.monoid, self.gather = spec, monoid, gather
        self.run, self.tile, self.stages = policy.run, policy.tile, policy.stages
        self.sources, self.types = spec.operation.sources, monoid.types

    # Elements

    @cute.jit
    def fetch(self, c: cutlass.Constexpr, at, slot):
        """Start to copy the tile at a place of the chunk to a slot, as far as it lies in the chunk. For what does not
        exist, the first or last element is taken."""
        if at < c.chunk.stop:
            first = c.chunk.origin + at
            if cutlass.const_expr(self.gather is not None):
                self.bring(c, first, slot)
            else:
                inside = (first >= 0) & (first + self.tile <= c.a.whole)
                for k in cutlass.range_constexpr(len(self.sources)):
                    self.copy(c, k, (first, at, slot), inside)
        cute.arch.cp_async_commit_group()

    @cute.jit
    def copy(self, c: cutlass.Constexpr, k: cutlass.Constexpr, where: tuple, inside):
        """The same of array ``k``; ``inside``: all elements of the tile exist."""
        first, at, slot = where
        x, size, target = c.a.x[k], self.sources[k].size, self.slot(c.stage, k, slot)
        width = min(self.run * size, VECTOR_BYTES)
        start = x.toint() + first * size
        if inside & (start % width == 0) & (width >= MIN_COPY):
            pieces = self.pieces(start, target, size, c.lane)
            if at + self.tile <= c.chunk.stop:
                for source, to, _ in pieces:
                    copy_async(source, to, width)
            else:
                for source, to, run in pieces:
                    if at + run * self.run < c.chunk.stop:
                        copy_async(source, to, width)
        elif cutlass.const_expr(size >= MIN_COPY):
            for i in cutlass.range(self.run, unroll=UNROLL):
                place = i * LANES + c.lane
                if at + place // self.run * self.run < c.chunk.stop:
                    source = x + clamp(first + place, c.a.whole)
                    copy_async(source.toint(), target + place * size + place // self.run * VECTOR_BYTES, size)
        else:
            place, position = target + c.lane * pitch(self.run, size), first + c.lane * self.run
            if at + c.lane * self.run < c.chunk.stop:
                for i in cutlass.range(self.run, unroll=UNROLL):
                    put(self.sources[k].cutlass, place + i * size, element(x + clamp(position + i, c.a.whole)))

    def pieces(self, start, target, size: int, lane) -> list:
        """The vectors of a tile at ``start`` that a lane copies to ``target``: from where, to where, of which run."""
        width = min(self.run * size, VECTOR_BYTES)
        found = []
        for v in range(self.run * size // width):
            piece = v * LANES + lane
            run = piece // (self.run * size // width)
            found.append((start + piece * width, target + piece * width + run * VECTOR_BYTES, run))
        return found

    def bring(self, c: Work, first, slot) -> None:
        """The same of strided arrays."""
        sizes, targets = [t.size for t in self.sources], [self.slot(c.stage, k, slot) for k in range(len(self.sources))]

        def store(k: int, place, word) -> None:
            put(type(word), targets[k] + place * sizes[k] + (place // self.run) * VECTOR_BYTES, word)

        tile = Tile(first, first + self.tile, c.a.whole, Int64(0), False)
        self.gather.fill(c.a.x, tuple(sizes), store, tile, 0, Int32(0), 1)

    def slot(self, stage: Stage, k: int, slot):
        """The address of the elements of array ``k`` in a slot."""
        return stage.elements[k] + slot * (LANES * pitch(self.run, self.sources[k].size))

    def registers(self) -> list:
        """Registers of a run: elements of one and two bytes in 32-bit words."""
        held = []
        for dtype in self.sources:
            size, width = self.run * dtype.size, min(self.run * dtype.size, VECTOR_BYTES)
            kind, each = (Int32, 4) if dtype.size < 4 else (dtype.cutlass, dtype.size)
            # the stride is stated: a mode of one element would get stride 0
            layout = cute.make_layout((width // each, size // width), stride=(1, width // each))
            held.append(cute.make_rmem_tensor(layout, kind))
            held[-1].fill(0)
        return held

    @cute.jit
    def hold(self, c: cutlass.Constexpr, held: cutlass.Constexpr, at, slot):
        """Read a lane's run of the tile at a place of the chunk, unless it lies behind that."""
        if at + c.lane * self.run < c.chunk.stop:
            for k in cutlass.range_constexpr(len(self.sources)):
                each, count = held[k].shape
                size = held[k].element_type.width // 8
                place = self.slot(c.stage, k, slot) + c.lane * pitch(self.run, self.sources[k].size)
                for v in cutlass.range_constexpr(count):
                    vector = cells(held[k].element_type, place + v * each * size, each, align=each * size)
                    cute.autovec_copy(vector, held[k][(None, v)])

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
                place = address + (lane * (count + 1) + v) * VECTOR_BYTES
                cute.autovec_copy(registers[(None, v)], cells(kind, place, each, align=VECTOR_BYTES))
        return state

    def vectors(self, kind):
        """The layout of a run of numbers of type ``kind``."""
        each = VECTOR_BYTES * 8 // kind.width
        return cute.make_layout((each, self.run // each), stride=(1, each))

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
        skipped = (place // self.run) * VECTOR_BYTES
        return [address + (place * (kind.width // 8) + skipped) for address, kind in zip(stage.states, self.types)]

    def at(self, stage: Stage, place) -> tuple:
        """The state at element ``place`` of the tile."""
        return tuple(kind(cells(kind, at, 1)[0]) for at, kind in zip(self.addresses(stage, place), self.types))

    def last(self, state: tuple):
        """The state at the last element of a tile, of that of ``scan``."""
        return broadcast(state, LANES - 1)


def clamp(position, whole):
    return cutlass.min(cutlass.max(position, Int64(0)), whole - 1)


def copy_async(source, target, width: int) -> None:
    """Start to copy ``width`` bytes from an address in global memory to one in shared memory."""
    source = cute.make_ptr(Uint8, source, cute.AddressSpace.gmem, assumed_align=width)
    target = cute.make_ptr(Uint8, target, cute.AddressSpace.smem, assumed_align=width)
    primitives.cp_async_shared_global(target, source, width, "cg" if width == VECTOR_BYTES else "ca")
