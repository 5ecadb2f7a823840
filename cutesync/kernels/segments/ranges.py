"""Operations on segments that begins and ends give: in any order, with gaps, empty, or overlapping. Device code.

The positions of all segments, one segment after the other, and the ends of the segments are merged: an end comes behind
the last position of its segment. Each warp takes an equal share of the members of this list (``block.merge_path``), and
goes through it in tiles, of which each lane has a run of neighbouring members. So the time does not depend on the
lengths of segments, and the order of operations follows from them alone. Reductions of one array with small states
have a kernel of their own (``ranges_rows``). Three kernels:

    shares    each warp reduces its share. Where segments are reduced, it stores the results of those that begin and end
              in it. It leaves two states: ``tail``, of what comes behind its last end, and ``first``, of what comes
              before its first end
    carries   one block combines the tails: what comes before each share. Where segments are reduced, it stores the
              result of the segment that ends first in each share; else it leaves what comes before
    results   (scans) each warp goes through its share again, from what comes before it, and stores results

A *summary* of neighbouring members is ``(seen, *values, valid)``: whether a segment ends in them, and the state behind
the last end, if there are elements (as ``warp.Maybe``). Two are combined by

    a then b  =  b                                  if b has seen an end
                 (a's flag, a's state then b's)     else

In reverse, the elements of each segment are taken from its last one, and ``op`` still gets the lower index first.
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8
from cutlass.memory import SmemAllocator

from ...block.merge_path import merge_path
from ...monoid import choose
from ...warp import LANES, broadcast, combine_valid, prepend, scan_states, shift_up
from ..coordinates import element
from ..gather import WORDS
from ..select.chunk import cells, put
from ..select.fill import fill_result
from .ranges_base import Arguments, RangesKernel, clamped
from .ranges_policy import INDEX_BYTES, RangesPolicy
from .spec import SegmentsSpec

# A tile: the first segment that ends in it, its first position, and its number of members.
Tile = namedtuple("Tile", "segment place count")

# A lane's run: its number of members, the bits of those that are ends, whether its first position begins a segment, and
# the number of the segment that is the first to end in it.
Run = namedtuple("Run", "exists ends head segment")


class SharesKernel(RangesKernel):
    """The kernel that reduces the shares. Where results are new and not of each segment, it fills them with 0 first."""

    name = "segment_shares"

    def __init__(self, spec: SegmentsSpec, policy: RangesPolicy, smem: int) -> None:
        super().__init__(spec, policy.warps * LANES, smem)
        self.policy, self.run, self.tile = policy, policy.run, policy.tile
        self.sizes = tuple(t.size for t in spec.operation.sources)

    @cute.jit
    def body(self, a: Arguments):
        room = self.room()
        lane, worker = cute.arch.lane_idx(), cute.arch.block_idx()[0] * self.policy.warps + cute.arch.warp_idx()
        if cutlass.const_expr(self.spec.zeroed):
            first, step = Int64(worker) * LANES + lane, Int64(a.workers) * LANES
            for out, dtype in zip(a.out, self.spec.operation.results):
                fill_result(out, dtype.cutlass(0), first, a.whole, step)
        carry = self.go(a, room, (Int32(0), *self.nobody()), worker, lane)
        if lane == 0:
            self.keep(a, 0, worker, carry[0] | (carry[-1] << 1), carry[1:-1])

    def room(self) -> list:
        """The addresses in shared memory of a warp's indices, elements and results."""
        start = SmemAllocator().allocate_array(Uint8, self.smem, byte_alignment=16)
        found, at = [], Int32(start.toint()) + cute.arch.warp_idx() * (self.smem // self.policy.warps)
        for size in (INDEX_BYTES, *self.sizes, *(t.size for t in self.shown)):
            found.append(at)
            at = at + self.tile * size
        return found

    @property
    def shown(self) -> tuple:
        """The types of the results that a position has in shared memory."""
        return ()

    @cute.jit
    def go(self, a: cutlass.Constexpr, room: cutlass.Constexpr, carry: tuple, worker, lane):
        """Go through a share; ``carry`` is the summary before it. Return that behind it."""
        members = a.total + a.segments
        size = (members + Int64(a.workers) * self.tile - 1) // (Int64(a.workers) * self.tile) * self.tile
        first = cutlass.min(size * worker, members)
        stop = cutlass.min(first + size, members)
        segment = merge_path(first, a.segments, a.total, lambda s, place: place < self.end(a, s))
        place = first - segment
        while segment + place < stop:
            count = Int32(cutlass.min(stop - (segment + place), Int64(self.tile)))
            carry, ends = self.go_tile(a, room, carry, Tile(segment, place, count), worker, lane)
            segment += ends
            place += count - ends
        return carry

    def end(self, a: Arguments, segment):
        """Where a segment ends among all positions."""
        return Int64(element(a.ends + segment))

    @cute.jit
    def go_tile(self, a: cutlass.Constexpr, room: cutlass.Constexpr, carry: tuple, tile: Tile, worker, lane):
        """Go through a tile: the summary behind it, and its number of ends."""
        segment, place, count = tile
        behind = merge_path(
            cutlass.min((lane + 1) * self.run, count),
            Int32(cutlass.min(a.segments - segment, Int64(count))),
            Int32(cutlass.min(a.total - place, Int64(count))),
            lambda s, p: place + p < self.end(a, segment + s),
        )
        before = choose(lane == 0, Int32(0), Int32(cute.arch.shuffle_sync_up(behind, 1)))
        begin = cutlass.min(lane * self.run, count)
        exists = cutlass.min(count - begin, self.run)
        ends, head = self.place_run(a, room, segment + before, place + (begin - before), exists, lane)
        cute.arch.sync_warp()
        self.bring(a, room, lane)
        cute.arch.sync_warp()
        run = Run(exists, ends, head, segment + before)
        first, own = self.reduce_run(a, room, run, lane)
        inclusive = scan_states(own, self.merge, lane)
        entry = self.merge(carry, shift_up(inclusive))
        if lane == 0:
            entry = carry
        self.leave(a, room, run, entry, first, worker, lane)
        carry = self.merge(carry, broadcast(inclusive, LANES - 1))
        return carry, broadcast((behind,), LANES - 1)[0]

    @cute.jit
    def bounds(self, a: cutlass.Constexpr, segment):
        """``(first, end, base)``: where a segment begins and ends among all positions; the element of position p has
        index base + p, in reverse base - p."""
        first, end, base = Int64(0), Int64(0), Int64(0)
        if segment < a.segments:
            end = self.end(a, segment)
            if segment > 0:
                first = self.end(a, segment - 1)
            base = clamped(element(a.begins + segment), a.whole)
            base = base + (end - 1) if self.spec.reverse else base - first
        return first, end, base

    @cute.jit
    def place_run(self, a: cutlass.Constexpr, room: cutlass.Constexpr, segment, place, exists, lane):
        """Put the index of the element of each member of a run in shared memory, -1 where there is none. Return which
        members are ends, and whether the first position begins its segment."""
        begin, end, base = self.bounds(a, segment)
        head, ends = Int32(place == begin), Int32(0)
        for i in cutlass.range(self.run, unroll=1):
            index = Int64(-1)
            if i < exists:
                if place < end:
                    index = base - place if self.spec.reverse else base + place
                    place += 1
                else:
                    ends = ends | (Int32(1) << i)
                    segment += 1
                    begin, end, base = self.bounds(a, segment)
            put(Int64, room[0] + (lane * self.run + i) * INDEX_BYTES, index)
        return ends, head

    def index(self, room: list, place):
        """The index of the element of a member."""
        return Int64(cells(Int64, room[0] + place * INDEX_BYTES, 1)[0])

    def bring(self, a: Arguments, room: list, lane) -> None:
        """Copy the elements of a tile to shared memory: neighbouring lanes read neighbouring members."""
        places = [row * LANES + lane for row in range(self.run)]
        loaded = [self.load(a, self.index(room, place)) for place in places]
        for place, words in zip(places, loaded):
            for size, at, word in zip(self.sizes, room[1:], words):
                put(WORDS[size], at + place * size, word)

    @cute.jit
    def load(self, a: cutlass.Constexpr, index):
        """The bits of the elements at an index, 0 where it is below 0."""
        words = tuple(WORDS[size](0) for size in self.sizes)
        if index >= 0:
            words = tuple(
                WORDS[size](cells(WORDS[size], (x + index).toint(), 1, cute.AddressSpace.gmem)[0])
                for size, x in zip(self.sizes, a.x)
            )
        return words

    @cute.jit
    def extend(self, room: cutlass.Constexpr, packed: tuple, head, place):
        """A packed state, followed by the member at a place of the tile; ``head``: it begins a segment."""
        sources = self.spec.operation.sources
        elements = [t.cutlass(cells(t.cutlass, at + place * t.size, 1)[0]) for t, at in zip(sources, room[1:])]
        value = self.states.begin(head != 0, self.states.lift(elements, self.index(room, place)))
        goes_on = (packed[-1] != 0) & (head == 0)
        return (*prepend(goes_on, packed[:-1], value, self.states.ordered), Int32(1))

    @cute.jit
    def reduce_run(self, a: cutlass.Constexpr, room: cutlass.Constexpr, run: Run, lane):
        """The packed state before the first end of a run, and its summary. Where segments are reduced, the results of
        those that begin and end in the run are stored."""
        seen, head, segment = Int32(0), run.head, run.segment
        packed, first = self.nobody(), self.nobody()
        for i in cutlass.range(run.exists, unroll=1):
            if (run.ends >> i) & 1 != 0:
                if seen == 0:
                    first = packed
                else:
                    self.close(a, segment, packed)
                seen, head, packed = Int32(1), Int32(1), self.nobody()
                segment += 1
            else:
                packed = self.extend(room, packed, head, lane * self.run + i)
                head = Int32(0)
        return first, (seen, *packed)

    def close(self, a: Arguments, segment, packed: tuple) -> None:
        """Store the result of a segment, where segments are reduced."""
        if self.spec.reduced:
            self.store_result(a, segment, packed)

    @cute.jit
    def leave(self, a: cutlass.Constexpr, room: cutlass.Constexpr, run: Run, entry: tuple, first: tuple, worker, lane):
        """Where segments are reduced: the first one that ends in a run, or if it is the first of the share, what the
        share has of it. ``entry`` is the summary before the run."""
        if cutlass.const_expr(self.spec.reduced):
            if run.ends != 0:
                state = combine_valid(entry[1:], first, self.states.ordered)
                if entry[0] != 0:
                    self.store_result(a, run.segment, state)
                else:
                    self.keep(a, 1, worker, (run.segment << 1) | Int64(state[-1]), state[:-1])


class ResultsKernel(SharesKernel):
    """The kernel of scans that stores a result for each position."""

    name = "segment_results"

    @property
    def shown(self) -> tuple:
        return self.spec.operation.results

    @cute.jit
    def body(self, a: Arguments):
        room = self.room()
        lane, worker = cute.arch.lane_idx(), cute.arch.block_idx()[0] * self.policy.warps + cute.arch.warp_idx()
        valid, values = self.kept(a, 1, worker)
        self.go(a, room, (Int32(0), *values, Int32(valid)), worker, lane)

    @cute.jit
    def leave(self, a: cutlass.Constexpr, room: cutlass.Constexpr, run: Run, entry: tuple, first: tuple, worker, lane):
        """Store the results of a tile; ``entry`` is the summary before the run."""
        packed, head = entry[1:], run.head
        for i in cutlass.range(run.exists, unroll=1):
            if (run.ends >> i) & 1 != 0:
                packed, head = self.nobody(), Int32(1)
            else:
                packed = self.show(room, packed, head, lane * self.run + i)
                head = Int32(0)
        cute.arch.sync_warp()
        for row in cutlass.range(self.run, unroll=1):
            place = row * LANES + lane
            index = self.index(room, place)
            if index >= 0:
                self.store(a.out, index, self.results(room, place))
        cute.arch.sync_warp()  # the next tile takes the place of what other lanes have read

    @cute.jit
    def show(self, room: cutlass.Constexpr, packed: tuple, head, place):
        """As ``extend``; the results of the member are put in shared memory."""
        following = self.extend(room, packed, head, place)
        shown = following[:-1]
        if cutlass.const_expr(self.spec.exclusive):
            shown = packed[:-1]
            if head != 0:
                shown = tuple(self.states.start)
        for at, t, value in zip(self.places(room), self.shown, self.states.monoid.results_of(shown)):
            put(t.cutlass, at + place * t.size, value)
        return following

    def places(self, room: list) -> list:
        """The addresses of the results."""
        return room[1 + len(self.sizes) :]

    def results(self, room: list, place) -> list:
        found = zip(self.places(room), self.shown)
        return [t.cutlass(cells(t.cutlass, at + place * t.size, 1)[0]) for at, t in found]
