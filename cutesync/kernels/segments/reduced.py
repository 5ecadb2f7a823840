"""Reductions of segments that offsets give, in one launch. Device code.

The elements and the ends of segments are merged, and cut into chunks of as many members (``reduced_base``). A block has
neighbouring chunks, which its warps take in turn. A warp goes through the elements of a chunk in tiles
(``reduced_run``), with the ends in them (``reduced_window``), and stores the results of segments that begin and end in
the chunk. It has two states left: ``tail``, of what comes behind the last end, and ``head``, of what comes before the
first one. When all warps have met, a thread for each chunk combines these, and the block publishes its own; the block
that entered the launch last waits for all of them (``sync.gather``), and stores the results of segments that cross
blocks. Nobody else waits.

A *summary* of neighbouring chunks is ``(seen, *values, valid)``: whether a segment ends in them, and the state of the
tail, if it has elements (as ``warp.Maybe``). Two are combined by

    a then b  =  b                                  if b has seen an end
                 (a's flag, a's state then b's)     else

Bytes: every element and every end is read once, and every result is written once; a chunk's search for its cuts, and
the elements of a vector that chunks share, come on top. The order of operations follows from lengths, types, offsets
and where a run's boundary lies in memory.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64, Uint8, Uint32
from cutlass.memory import SmemAllocator

from ...block.reduce import get, partial_array, put, state_array, store_partial
from ...monoid import choose
from ...sync.gather import Entry, Notice, Slots, enter
from ...sync.overlap import let_next_start
from ...warp import LANES, Maybe, broadcast, combine_valid, scan_states, shift_up, zeros
from ..gather import Gather, Stepped
from ..hardware import VECTOR_BYTES
from ..plain import PlainKernel
from ..select.chunk import put_if
from ..tiled import positions
from .reduced_base import GROUP, HALF, Arguments, Chunk, Ends, Work, near_share, search
from .reduced_policy import DEALT, ReducedPolicy
from .reduced_run import Stage, TileRuns
from .reduced_window import Windows
from .spec import SegmentsSpec
from .states import SegmentStates

CUTS = LANES // GROUP  # that a warp searches for together

# What neighbouring chunks have left: the summary of their tail, whether a segment ends in them, which one first, and
# the packed state of its elements before that.
Left = namedtuple("Left", "tail seen segment head")


class SegmentReduction(PlainKernel):
    """The kernel, with the sizes of a policy and ``shared`` bytes of shared memory."""

    name = "segment_reduction"

    def __init__(self, spec: SegmentsSpec, shared: int, policy: ReducedPolicy) -> None:
        super().__init__(policy.warps * LANES, shared, policy.blocks_per_sm)
        self.spec, self.policy, self.warps = spec, policy, policy.warps
        self.states = SegmentStates(spec)
        self.types = self.states.monoid.types
        self.gather: Any = None if spec.strided is None else Gather(spec.strided.layout)
        self.runs: TileRuns = self.make_runs()
        self.windows = self.make_windows()

    def make_runs(self) -> TileRuns:
        return TileRuns(self.spec, self.states.monoid, self.policy.run, self.gather)

    def make_windows(self) -> Windows:
        return Windows(self.spec, self.states, self.runs)

    def arguments(self, arrays: tuple, numbers: tuple, slots: cute.Pointer, counters: cute.Pointer) -> Arguments:
        """The parameters of a launch, of the kernel that is traced."""
        count, offsets, *rest = arrays
        sources = len(self.spec.operation.sources)
        x, out = tuple(rest[:sources]), tuple(rest[sources:])
        whole, segments, rounds, *rest = numbers
        if self.spec.heads.stepped:
            offsets, rest = Stepped(offsets, rest[0]), rest[1:]
        if self.spec.stepped:
            out, rest = tuple(map(Stepped, out, rest)), rest[len(out) :]
        if self.gather is not None:
            rest = self.gather.bind(rest)
        nothing = self.states.bind_last(rest)
        segments = positions(segments, count) if self.spec.counted else segments
        return Arguments(x, out, offsets, segments, whole, Int32(rounds), nothing, slots, counters)

    @cute.jit
    def body(self, a: Arguments):
        thread, part = cute.arch.thread_idx()[0], self.part()
        blocks, _, _ = cute.arch.grid_dim()
        lane, warp = thread % LANES, cute.arch.make_warp_uniform(thread // LANES)
        entry = Entry.none()
        if thread == 0:
            entry = enter(a.counters)
        stage, notice = self.stage(warp, lane), Notice.make()
        tails, heads = (partial_array((t, *self.types), self.warps * self.policy.rounds) for t in (Int32, Int64))
        partials = partial_array((Int32, *self.types), self.warps)
        places = state_array((Int64, Int64), self.warps * self.policy.rounds + 1)
        ends = self.ends(a).bounded()
        chunks = self.warps * a.rounds
        size = (ends.members() + (chunks * blocks - 1)) // (chunks * blocks)
        size = (size + (self.runs.run - 1)) // self.runs.run * self.runs.run
        self.cut(ends, size, chunks, places, warp, lane)
        cute.arch.sync_threads()
        for turn in cutlass.range(a.rounds, unroll=1):
            place = turn * self.warps + warp
            self.go(a, ends, self.chunk(a, places, place), stage, (tails, heads, place), lane)
        let_next_start()
        cute.arch.sync_threads()
        left = self.combine_chunks(a, self.left(tails, heads, thread, chunks), heads, partials, thread)
        if thread == 0:
            segment, *head = get(heads, 0, (Int64, *self.types, Int32))
            collector, tag = entry.close(a.counters, blocks, blocks)
            self.slots(a, blocks, tag).publish(part, self.packed(Left(left, left[0], segment, tuple(head))))
            notice.post(collector, tag)
        cute.arch.sync_threads()
        if notice.collector:
            self.collect(a, self.slots(a, blocks, notice.tag), partials, blocks, thread)

    def ends(self, a: Arguments) -> Ends:
        return Ends(a.offsets, a.segments, a.whole, self.spec.heads.ends, self.policy.end)

    def part(self):
        """The part of the merged list that the block has."""
        block, blocks = (Uint32(of()[0]) for of in (cute.arch.block_idx, cute.arch.grid_dim))
        return Int32(block * DEALT % blocks) if self.policy.dealt else Int32(block)

    def stage(self, warp, lane) -> Any:
        """The shared memory of a warp; no element is marked."""
        tile, found = self.runs.tile, []
        gathered = self.runs.sources if self.gather is not None else ()
        sizes = [kind.width // 8 * tile + LANES * VECTOR_BYTES for kind in self.types]
        for size in (*sizes, tile, LANES * 4, *(t.size * tile for t in gathered)):
            start = SmemAllocator().allocate_array(Uint8, self.warps * size, byte_alignment=VECTOR_BYTES)
            found.append(Int32(start.toint()) + warp * size)
        values = len(self.types)
        stage = Stage(tuple(found[:values]), found[values], found[values + 1], tuple(found[values + 2 :]))
        self.runs.ends(stage, lane)  # which clears them
        return stage

    @cute.jit
    def cut(self, ends: cutlass.Constexpr, size, chunks, places: cutlass.Constexpr, warp, lane):
        """Find where the merged list is cut before each of the block's ``chunks`` of ``size`` members, and behind
        them."""
        if chunks == self.warps:
            self.cut_once(ends, size, places, warp, lane)
        else:
            self.cut_often(ends, size, chunks, places, warp, lane)

    @cute.jit
    def cut_once(self, ends: cutlass.Constexpr, size, places: cutlass.Constexpr, warp, lane):
        """Each warp searches for where its only chunk begins and stops."""
        number = self.part() * self.warps + warp + lane // HALF
        member = cutlass.min(size * number, ends.members())
        low, high = near_share(ends, member, HALF, lane)
        place, segment = search(ends, member, low, high, HALF, lane)
        if (lane == 0) | ((lane == HALF) & (warp == self.warps - 1)):
            put(places, warp + lane // HALF, (place, segment))

    @cute.jit
    def cut_often(self, ends: cutlass.Constexpr, size, chunks, places: cutlass.Constexpr, warp, lane):
        """All warps search for where the block's part begins and stops, then groups of lanes for a cut each."""
        members, first, half = ends.members(), self.part() * chunks, lane // HALF
        of_block = cutlass.min(size * (first + half * chunks), members)
        low, high = near_share(ends, of_block, HALF, lane)
        place, segment = search(ends, of_block, low, high, HALF, lane)
        if (warp == 0) & (lane % HALF == 0):
            put(places, half * chunks, (place, segment))
        low, high = (Int64(cute.arch.shuffle_sync(segment, at)) for at in (0, HALF))
        for turn in cutlass.range((chunks - 1 + self.warps * CUTS) // (self.warps * CUTS), unroll=1):
            number = (turn * self.warps + warp) * CUTS + lane // GROUP + 1
            member = cutlass.min(size * (first + cutlass.min(number, chunks)), members)
            place, segment = search(ends, member, low, high, GROUP, lane)
            if (number < chunks) & (lane % GROUP == 0):
                put(places, number, (place, segment))

    def chunk(self, a: Arguments, places, number) -> Any:
        (first, segment), (stop, following) = (get(places, number + k, (Int64, Int64)) for k in (0, 1))
        skew = Int32(0)
        if self.gather is None:  # runs lie in memory where vectors do
            size = self.runs.sources[0].size
            skew = Int32((a.x[0].toint() + first * size) % self.runs.boundary) // size
        origin = first - skew
        low, high = choose(origin < 0, Int32(1), Int32(0)), cutlass.min(stop, a.whole - (self.runs.run - 1)) - origin
        return Chunk(origin, skew, Int32(stop - origin), segment, Int32(following - segment), low, Int32(high))

    @cute.jit
    def go(
        self, a: cutlass.Constexpr, ends: cutlass.Constexpr, chunk: Chunk, stage: cutlass.Constexpr, to: tuple, lane
    ):
        """Go through a chunk; what it has left goes to a place of the arrays ``to`` of tails and heads."""
        tails, heads, place = to
        nobody, tile = zeros(self.types), self.runs.tile
        if lane == 0:
            store_partial(heads, place, Maybe((chunk.segment, *nobody), Boolean(False)))
        keep = lambda state, valid: store_partial(heads, place, Maybe((chunk.segment, *state), valid))  # noqa: E731
        c, held = Work(a, ends, chunk, stage, keep, lane), self.runs.registers()
        w, before = self.windows.begin(c), (nobody, Int32(1))  # a segment begins
        exist = chunk.stop > chunk.first
        if exist:
            self.runs.start(c, held)
        if (lane == 0) & (chunk.first > 0) & exist:  # what comes before is a segment of its own
            self.runs.mark(stage, chunk.first - 1)
        tail, result, valid = nobody, nobody, Int32(0)
        marked, at, more = Int32(chunk.first > 0), Int32(0), Int32(exist | (chunk.ends > 0))
        while more != 0:
            earlier = w
            w, count, several = self.windows.mark(c, w, at)
            more = Int32(at + tile < chunk.stop)
            if more == 0:
                last = self.last_end(w, chunk, lane)
                valid = Int32(chunk.stop > last)
                if valid != 0:
                    if self.runs.same(last - 1 - at, chunk.stop - 1 - at):
                        several = Int32(1)
                    elif lane == 0:
                        self.runs.mark(stage, chunk.stop - 1 - at)
            if several != 0:
                self.mark_again(c, earlier, w, at, valid)
            cute.arch.sync_warp()
            self.runs.arrived(c, held, at)
            here = self.runs.here(c, at)
            before, found = self.go_tile(here, held, (marked | count | valid, several), before, at)
            cute.arch.sync_warp()
            if count > 0:
                result = self.windows.take(here, earlier, w, result, found, several, at)
            if valid != 0:
                tail = broadcast(found, (chunk.stop - 1 - at) // self.runs.run)
                if several != 0:
                    tail = self.runs.at(here.stage, chunk.stop - 1 - at)
            self.runs.left(c, at)
            at += tile
            marked = Int32(0)
        self.windows.emit(c, w, result, w.used)
        if lane == 0:
            store_partial(tails, place, Maybe((Int32(chunk.ends > 0), *tail), valid != 0))

    @cute.jit
    def mark_again(self, c: cutlass.Constexpr, earlier, w, at, valid):
        """Mark one by one what is marked in the runs of a tile, as one of them has several ends."""
        chunk, lane, stage = c.chunk, c.lane, c.stage
        self.windows.mark_again(c, earlier, w.first + w.used, at)
        put_if((lane == 0) & (chunk.first > at), Uint8, stage.marks + (chunk.first - 1), Uint8(1))
        put_if((lane == 0) & (valid != 0), Uint8, stage.marks + (chunk.stop - 1 - at), Uint8(1))

    def last_end(self, w, chunk: Chunk, lane):
        """Where the last segment of a chunk ends, all of whose ends went by; or where the chunk begins."""
        known = choose(lane == 0, w.begin, Int32(0))  # the end before the window
        return Int32(cute.arch.warp_redux_sync(choose(w.end <= chunk.stop, w.end, known), "max"))

    @cute.jit
    def go_tile(self, c: cutlass.Constexpr, held: cutlass.Constexpr, marks: tuple, before: tuple, at):
        """Go through the tile at a place of the chunk, of which ``held`` has the elements; those of the next one are
        loaded. ``marks``: whether there are any, and whether runs have several. ``before`` the tile come a state, and
        whether a segment begins. Return the same for the next one, and the state at the end in the lane's run, if runs
        have one at most."""
        carry, opens = before
        marked, several = marks
        lane = c.lane
        place = at + lane * self.runs.run
        values = self.runs.values(held, c.chunk.origin + place)
        state, found, ends, begins = zeros(self.types), zeros(self.types), Int32(0), Int32(0)
        if marked != 0:
            if several != 0:
                ends = self.runs.ends(c.stage, lane)
                begins = self.runs.opens(ends, opens, lane)
                state = self.runs.go(c.stage, values, ends, begins, carry, lane)
            else:
                ends = self.runs.end(c.stage, lane)
                begins = self.runs.opens(ends, opens, lane)
                state, found = self.runs.go_to_end(c, values, place, ends, begins, carry)
        else:
            state = self.runs.total(values)
        self.runs.ahead(c, held, place + self.runs.tile)
        if marked != 0:
            state = self.runs.scan(ends, begins, state, lane)
            if several != 0:
                self.runs.complete(c.stage, ends, begins, state, lane)
            else:
                found = self.runs.at_end(found, begins, state, lane)
            carry = self.runs.last(state)
            opens = self.runs.closed(ends)
        else:
            total = self.runs.of_lanes(state, lane)
            if opens == 0:
                total = self.states.monoid.combine(carry, total)
            carry = total
            opens = Int32(0)
        return (carry, opens), found

    # What chunks have left

    @cute.jit
    def merge(self, a: tuple, b: tuple):
        """The summary of ``a`` then ``b``."""
        if b[0] == 0:
            b = (a[0], *combine_valid(a[1:], b[1:], self.states.monoid.combine))
        return b

    def nobody(self) -> Left:
        """What no chunks have left."""
        nothing = (*zeros(self.types), Int32(0))
        return Left((Int32(0), *nothing), Int32(0), Int64(0), nothing)

    @cute.jit
    def left(self, tails, heads, place, count):
        """What a chunk of a block has left, of the first ``count``."""
        found = self.nobody()
        if place < count:
            tail = get(tails, place, (Int32, *self.types, Int32))
            segment, *head = get(heads, place, (Int64, *self.types, Int32))
            found = Left(tail, tail[0], segment, tuple(head))
        return found

    @cute.jit
    def scan_threads(self, summary: tuple, partials, thread):
        """The summary before a thread, and that of all."""
        lane, warp, types = thread % LANES, thread // LANES, (Int32, *self.types, Int32)
        inclusive = scan_states(summary, self.merge, lane)
        if lane == LANES - 1:
            put(partials, warp, inclusive)
        cute.arch.sync_threads()
        of_warps = scan_states(get(partials, cutlass.min(lane, self.warps - 1), types), self.merge, lane)
        before, mine = self.nobody().tail, shift_up(inclusive)
        earlier = broadcast(of_warps, cutlass.max(warp - 1, 0))
        if warp > 0:
            before = earlier
        if lane > 0:
            before = self.merge(before, mine)
        return before, broadcast(of_warps, self.warps - 1)

    @cute.jit
    def combine_chunks(self, a: cutlass.Constexpr, left: Left, heads, partials, thread):
        """Combine what chunks have left, a thread each: results that are complete are stored, and the first head goes
        to place 0. Return the summary of the block."""
        before, total = self.scan_threads(left.tail, partials, thread)
        left = self.completed(before, left)
        self.store(a, left, before[0] != 0)
        if (left.seen != 0) & (before[0] == 0):
            put(heads, 0, (left.segment, *left.head))
        cute.arch.sync_threads()
        return total

    def completed(self, before: tuple, left: Left) -> Left:
        """What a chunk has left, its head behind what is summed up before it."""
        return left._replace(head=combine_valid(before[1:], left.head, self.states.monoid.combine))

    @cute.jit
    def store(self, a: cutlass.Constexpr, left: Left, begins: Boolean):
        """Store the result of the first segment that ends in a chunk, if its head is all of it."""
        if (left.seen != 0) & begins:
            self.windows.store(a, left.segment, left.head[:-1], left.head[-1] != 0)

    def slots(self, a: Arguments, blocks, tag) -> Slots:
        """What blocks have left, a place each."""
        return Slots(a.slots, Int64(blocks), tag, (Int32, Int64, *self.types, *self.types))

    def packed(self, left: Left) -> tuple:
        flags = left.seen | (left.tail[-1] << 1) | (left.head[-1] << 2)
        return flags, left.segment, *left.tail[1:-1], *left.head[:-1]

    @cute.jit
    def collect(self, a: cutlass.Constexpr, slots: cutlass.Constexpr, partials, blocks, thread):
        """The block that entered last, a thread for each block: the results of segments that cross blocks."""
        left = self.nobody()
        if thread < blocks:
            flags, segment, *states = slots.wait(thread, slots.read(thread))
            tail, head = states[: len(self.types)], states[len(self.types) :]
            left = Left((flags & 1, *tail, (flags >> 1) & 1), flags & 1, segment, (*head, (flags >> 2) & 1))
        before, _ = self.scan_threads(left.tail, partials, thread)
        self.store(a, self.completed(before, left), Boolean(True))
