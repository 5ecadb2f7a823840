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
the elements of a vector that chunks share, come on top. The order of operations follows from lengths, types and
offsets.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64, Uint8
from cutlass.memory import SmemAllocator

from ...block.reduce import get, partial_array, put, store_partial
from ...monoid import choose
from ...sync.gather import Entry, Notice, Slots, enter
from ...sync.overlap import let_next_start
from ...warp import LANES, Maybe, broadcast, combine_valid, scan_states, shift_up, zeros
from ..gather import Gather, Stepped
from ..plain import PlainKernel
from ..select.chunk import VECTOR_BYTES, cells
from ..tiled import positions
from .reduced_base import Arguments, Chunk, Ends, Work, cuts
from .reduced_policy import ReducedPolicy
from .reduced_run import Stage, TileRuns
from .reduced_window import Windows
from .spec import SegmentsSpec
from .states import SegmentStates

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
        self.runs = TileRuns(spec, self.states.monoid, policy.run, self.gather)
        self.windows = Windows(spec, self.states, self.runs)

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
        values = len(self.types)
        start, nothing, args = rest[:values], tuple(rest[values : 2 * values]), rest[2 * values :]
        self.states.bind(start, args)
        nothing = nothing if self.states.start is None else tuple(self.states.start)
        segments = positions(segments, count) if self.spec.counted else segments
        return Arguments(x, out, offsets, segments, whole, Int32(rounds), nothing, slots, counters)

    @cute.jit
    def body(self, a: Arguments):
        thread, block = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
        blocks, _, _ = cute.arch.grid_dim()
        lane, warp = thread % LANES, thread // LANES
        entry = Entry.none()
        if thread == 0:
            entry = enter(a.counters)
        stage, notice = self.stage(warp, lane), Notice.make()
        tails, heads = (partial_array((t, *self.types), self.warps * self.policy.rounds) for t in (Int32, Int64))
        partials = partial_array((Int32, *self.types), self.warps)
        cute.arch.sync_warp()
        ends = Ends(a.offsets, a.segments, a.whole, self.spec.heads.ends).bounded()
        chunks = self.warps * a.rounds
        size = (ends.members() + (chunks * blocks - 1)) // (chunks * blocks)
        size = (size + (self.runs.run - 1)) // self.runs.run * self.runs.run
        low, high = self.cut(a, ends, (size, chunks * block, chunks), (Int64(0), Int64(a.segments)), lane)[2:]
        for turn in cutlass.range(a.rounds, unroll=1):
            place = turn * self.warps + warp
            cut = self.cut(a, ends, (size, chunks * block + place, 1), (low, high), lane)
            self.go(a, ends, self.chunk(a, cut), stage, (tails, heads, place), lane)
        let_next_start()
        cute.arch.sync_threads()
        left = self.combine_chunks(a, self.left(tails, heads, thread, chunks), heads, partials, thread)
        if thread == 0:
            segment, *head = get(heads, 0, (Int64, *self.types, Int32))
            collector, tag = entry.close(a.counters, blocks, blocks)
            self.slots(a, blocks, tag).publish(block, self.packed(Left(left, left[0], segment, tuple(head))))
            notice.post(collector, tag)
        cute.arch.sync_threads()
        if notice.collector:
            self.collect(a, self.slots(a, blocks, notice.tag), partials, blocks, thread)

    def stage(self, warp, lane) -> Stage:
        """The shared memory of a warp; no element is marked."""
        tile, found = self.runs.tile, []
        gathered = self.runs.sources if self.gather is not None else ()
        sizes = [kind.width // 8 * tile + LANES * VECTOR_BYTES for kind in self.types]
        for size in (*sizes, tile, *(t.size * tile for t in gathered)):
            start = SmemAllocator().allocate_array(Uint8, self.warps * size, byte_alignment=VECTOR_BYTES)
            found.append(Int32(start.toint()) + warp * size)
        values = len(self.types)
        words = cells(Int32, found[values] + lane * self.runs.run, self.runs.run // 4)
        for i in range(self.runs.run // 4):
            words[i] = Int32(0)
        return Stage(tuple(found[:values]), found[values], tuple(found[values + 1 :]))

    def cut(self, a: Arguments, ends: Ends, where: tuple, among: tuple, lane) -> tuple:
        """The cuts of some chunks. ``where``: the members of a chunk, the first one, and how many there are."""
        size, first, count = where
        members = ends.members()
        begin, stop = (cutlass.min(size * number, members) for number in (first, first + count))
        return cuts(ends, begin, stop, *among, lane)

    def chunk(self, a: Arguments, cut: tuple) -> Chunk:
        first, stop, segment, following = cut
        skew = Int32(0)
        if self.gather is None:  # runs lie in memory where vectors do
            size = self.runs.sources[0].size
            skew = Int32((a.x[0].toint() + first * size) % (self.runs.run * size)) // size
        return Chunk(first - skew, skew, Int32(stop - first) + skew, segment, Int32(following - segment))

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
        if cutlass.const_expr(self.gather is None):
            if exist:
                self.runs.fetch(c, held, lane * self.runs.run)
        if (lane == 0) & (chunk.first > 0) & exist:  # what comes before is a segment of its own
            cells(Uint8, stage.marks + (chunk.first - 1), 1)[0] = Uint8(1)
        tail, valid = nobody, Int32(0)
        marked, at, more = Int32(chunk.first > 0), Int32(0), Int32(exist | (chunk.ends > 0))
        while more != 0:
            earlier = w
            w, count = self.windows.mark(c, w, at)
            more = Int32(at + tile < chunk.stop)
            if more == 0:
                valid = Int32(chunk.stop > self.last_end(w, chunk, lane))
                if (valid != 0) & (lane == 0):
                    cells(Uint8, stage.marks + (chunk.stop - 1 - at), 1)[0] = Uint8(1)
            cute.arch.sync_warp()
            if cutlass.const_expr(self.gather is not None):
                self.runs.gathered(c, held, at)
            before = self.go_tile(c, held, marked | count | valid, before, at)
            cute.arch.sync_warp()
            if count > 0:
                self.windows.emit(c, earlier, w.first + w.used, at)
            if valid != 0:
                tail = self.runs.at(stage, chunk.stop - 1 - at)
            at += tile
            marked = Int32(0)
        if lane == 0:
            store_partial(tails, place, Maybe((Int32(chunk.ends > 0), *tail), valid != 0))

    def last_end(self, w, chunk: Chunk, lane):
        """Where the last segment of a chunk ends, all of whose ends went by; or where the chunk begins."""
        known = choose(lane == 0, w.begin, Int32(0))  # the end before the window
        return Int32(cute.arch.warp_redux_sync(choose(w.end <= chunk.stop, w.end, known), "max"))

    @cute.jit
    def go_tile(self, c: cutlass.Constexpr, held: cutlass.Constexpr, marked, before: tuple, at):
        """Go through the tile at a place of the chunk, of which ``held`` has the elements; those of the next one are
        loaded. ``before`` it come a state, and whether a segment begins. Return the same for the next tile."""
        carry, opens = before
        lane = c.lane
        place = at + lane * self.runs.run
        values = self.runs.values(held, c.chunk.origin + place)
        state, found, begins = zeros(self.types), Int32(0), Int32(0)
        if marked != 0:
            found = self.runs.ends(c.stage, lane)
            begins = self.runs.opens(found, opens, lane)
            state = self.runs.go(c.stage, values, found, begins, carry, lane)
        else:
            state = self.runs.total(values)
        if cutlass.const_expr(self.gather is None):
            self.runs.fetch(c, held, place + self.runs.tile)
        if marked != 0:
            state = self.runs.scan(found, begins, state, lane)
            self.runs.complete(c.stage, found, begins, state, lane)
            carry = self.runs.last(state)
            opens = Int32(cute.arch.shuffle_sync((found >> (self.runs.run - 1)) & 1, LANES - 1))
        else:
            total = self.runs.of_lanes(state, lane)
            if opens == 0:
                total = self.states.monoid.combine(carry, total)
            carry = total
            opens = Int32(0)
        return carry, opens

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
