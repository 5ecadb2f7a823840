"""Reductions of segments that offsets give, of elements as large as states: bulk copies bring the tiles. Device code.

As ``reduced``, but each warp has a ring of tiles in shared memory: its lane 0 asks for a tile as soon as the warp is
done with the one that lay in the same stage. So as many bytes are on their way whatever the warps do, and a
multiprocessor whose segments are long takes more than its share of the memory's rate while others store many results.
No other warp takes part: a stage is full when its barrier has the bytes, and empty when the warp has met.

Runs of 4-byte elements are an odd number of vectors long, so that lanes which read theirs use different banks. States
of tiles whose runs have several ends take the place of the elements. A tile lies as far from a multiple of 128 bytes as
in memory. Neighbouring parts of the merged list lie in blocks far apart.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8, Uint32
from cutlass.memory import SmemAllocator

from ...monoid import tree
from ...sync.barrier import Barriers
from ...sync.overlap import LINE_BYTES
from ...sync.ring import copy_bulk
from ...warp import LANES, prepend, select
from ..coordinates import element
from ..hardware import VECTOR_BYTES
from ..select.chunk import cells, put
from .reduced import SegmentReduction
from .reduced_base import Ends, Work
from .reduced_kept import KeptWindows
from .reduced_policy import RingPolicy
from .reduced_run import Stage, TileRuns
from .reduced_window import Windows
from .spec import SegmentsSpec


class CopiedRuns(TileRuns):
    """Tiles of one array, in a ring of ``stages``."""

    apart, boundary = 0, LINE_BYTES

    def __init__(self, spec: SegmentsSpec, monoid: Any, run: int, stages: int) -> None:
        super().__init__(spec, monoid, run, None)
        self.stages, self.size = stages, self.sources[0].size
        self.bytes = self.tile * self.size

    def same(self, a, b):
        """As of ``TileRuns``, of runs of any length."""
        return Uint32(a) // self.run == Uint32(b) // self.run

    def number(self, place):
        """``(stage, turn)`` of the tile at a place of the chunk."""
        number = Uint32(place) // self.tile
        return Int32(number % self.stages), Int32(number // self.stages)

    def elements_of(self, stage: Stage, place):
        """The address of the elements of the tile at a place of the chunk."""
        return stage.elements[0] + self.number(place)[0] * self.bytes

    def exists(self, c: Work, at):
        """Whether there is a tile: a chunk may have ends alone."""
        return (at < c.chunk.stop) & (c.chunk.first < c.chunk.stop)

    # What ``SegmentReduction`` calls

    def start(self, c: Work, held: list) -> None:
        for k in range(self.stages):
            self.bring(c, Int32(k * self.tile))

    def ahead(self, c: Work, held: list, place) -> None:
        """The next tile is on its way."""

    @cute.jit
    def arrived(self, c: cutlass.Constexpr, held: cutlass.Constexpr, at):
        if self.exists(c, at):
            (full, first), (number, turn) = c.stage.full, self.number(at)
            full.await_phase(first + number, turn & 1)
        address = self.elements_of(c.stage, at)
        if self.exists(c, at + c.lane * self.run):
            vectors, each = held[0].shape[1], VECTOR_BYTES // self.size
            for v in cutlass.range_constexpr(vectors):
                place = address + (c.lane * vectors + v) * VECTOR_BYTES
                cute.autovec_copy(cells(held[0].element_type, place, each, align=VECTOR_BYTES), held[0][(None, v)])

    def here(self, c: Work, at) -> Work:
        """States take the place of the elements."""
        return c._replace(stage=replace(c.stage, states=(self.elements_of(c.stage, at),)))

    def go_to_end(self, c: Work, values: list, place, end, begins, carry: tuple) -> tuple:
        """As of ``TileRuns``: the vectors of a run are reduced first. Only the one with the end is divided, which is
        read again."""
        combine, each = self.monoid.combine, VECTOR_BYTES // self.size
        sums = [tree([v() for v in values[k : k + each]], combine) for k in range(0, self.run, each)]
        before, behind = [sums[0]], [sums[-1]]  # the first vectors, and the last ones
        for k in range(1, len(sums) - 1):
            before.append(combine(before[-1], sums[k]))
        for k in range(len(sums) - 2, -1, -1):
            behind.insert(0, combine(sums[k], behind[0]))
        at = 31 - Int32(cute.arch.clz(end))  # -1: there is no end
        vector, which = at >> (each.bit_length() - 1), at & (each - 1)
        head, rest = before[0], behind[1]
        for k in range(2, len(sums)):
            head = select(vector >= k, before[k - 1], head)
            rest = select(vector >= k - 1, behind[k], rest)
        first, other = self.divided(c, place, cutlass.max(vector, 0), which)
        found = select(vector > 0, combine(head, first), first)
        state = select(vector == len(sums) - 1, other, combine(other, rest))
        state = select(which == each - 1, rest, state)
        state = select(at < 0, behind[0], state)
        goes_on = (c.lane == 0) & (begins == 0)
        return prepend(goes_on & (at < 0), carry, state, combine), prepend(goes_on, carry, found, combine)

    def divided(self, c: Work, place, vector, which) -> tuple:
        """The state of the elements of a vector of a lane's run up to number ``which``, and of those behind it."""
        combine, each = self.monoid.combine, VECTOR_BYTES // self.size
        held = self.vector(c, place, vector)
        position = c.chunk.origin + (place + vector * each)
        values = [self.monoid.lift(held[k], position + k) for k in range(each)]
        first, other = [values[0]], [values[-1]]
        for k in range(1, each):
            first.append(combine(first[-1], values[k]))
        for k in range(each - 2, 0, -1):
            other.insert(0, combine(values[k], other[0]))
        found, rest = first[0], other[0]
        for k in range(1, each):
            found = select(which >= k, first[k], found)
            if k < each - 1:
                rest = select(which >= k, other[k], rest)
        return found, rest

    @cute.jit
    def vector(self, c: cutlass.Constexpr, place, vector):
        """A vector of the run at a place of the chunk; 0, if there is no such run."""
        kind, each = self.sources[0].cutlass, VECTOR_BYTES // self.size
        held = cute.make_rmem_tensor((each,), kind)
        held.fill(0)
        if self.exists(c, place):
            address = c.stage.states[0] + (c.lane * self.run + vector * each) * self.size
            cute.autovec_copy(cells(kind, address, each, align=VECTOR_BYTES), held)
        return held

    @cute.jit
    def left(self, c: cutlass.Constexpr, at):
        cute.arch.fence_proxy("async.shared", space="cta")  # generic accesses before the next copy
        cute.arch.sync_warp()
        self.bring(c, at + self.stages * self.tile)

    @cute.jit
    def bring(self, c: cutlass.Constexpr, place):
        """Ask for the tile at a place of the chunk, as far as there are runs. What lies outside of the array is 0."""
        if place < c.chunk.stop:
            x, whole, first = c.a.x[0], c.a.whole, c.chunk.origin + place
            base, runs = Int64(x.toint()), (cutlass.min(c.chunk.stop - place, self.tile) + (self.run - 1)) // self.run
            begin = base + first * self.size
            end, limit = begin + runs * (self.run * self.size), base + whole * self.size
            low = cutlass.max(begin, (base + (VECTOR_BYTES - 1)) & -VECTOR_BYTES)
            high = cutlass.min(end, limit & -VECTOR_BYTES)
            address, rest = self.elements_of(c.stage, place), cutlass.max(low, high)
            if (low > begin) | (rest < end):
                self.fill(c, address, (first, 0), Int32(cutlass.min(low, end) - begin) // self.size)
                self.fill(c, address, (first, Int32(rest - begin) // self.size), runs * self.run)
            if c.lane == 0:
                full, barrier = c.stage.full
                there = full[barrier + self.number(place)[0]]
                size = Int32(cutlass.max(high - low, Int64(0)))
                there.arrive_tx(1, size)
                target = cute.make_ptr(
                    Uint8, address + Int32(low - begin), cute.AddressSpace.smem, assumed_align=VECTOR_BYTES
                )
                source = cute.make_ptr(Uint8, low, cute.AddressSpace.gmem, assumed_align=VECTOR_BYTES)
                copy_bulk(target, source, there.pointer, size)

    @cute.jit
    def fill(self, c: cutlass.Constexpr, address, start: tuple, stop):
        """Bring elements of a tile one by one up to ``stop``; ``start`` has the position of the tile's first one, and
        the place from which on."""
        first, place = start
        kind = self.sources[0].cutlass
        for k in cutlass.range(place + c.lane, stop, LANES, unroll=1):
            value, position = kind(0), first + k
            if (position >= 0) & (position < c.a.whole):
                value = kind(element(c.a.x[0] + position))
            put(kind, address + k * self.size, value)


class RingReduction(SegmentReduction):
    """The kernel, with the sizes of a ``RingPolicy``. Each warp has one chunk."""

    policy: RingPolicy
    runs: CopiedRuns

    def make_runs(self) -> CopiedRuns:
        return CopiedRuns(self.spec, self.states.monoid, self.policy.run, self.policy.stages)

    def make_windows(self) -> Windows:
        return KeptWindows(self.spec, self.states, self.runs)

    def stage(self, warp, lane) -> Stage:
        """The shared memory of a warp; no element is marked."""
        found, stages, tile = [], self.policy.stages, self.runs.tile
        sizes = (stages * self.runs.bytes, LINE_BYTES), (tile, VECTOR_BYTES), (LANES * 4, 4), (2 * tile, 4)
        for size, align in sizes:
            start = SmemAllocator().allocate_array(Uint8, self.warps * size, byte_alignment=align)
            found.append(Int32(start.toint()) + warp * size)
        full = Barriers.make(self.warps * stages, 1, name="full of the warps' tiles")
        stage = Stage((found[0],), found[1], found[2], (found[0],), (full, warp * stages), found[3])
        self.runs.ends(stage, lane)  # which clears them
        return stage

    def cut(self, ends: Ends, size, chunks, places, warp, lane) -> None:
        self.cut_once(ends, size, places, warp, lane)
