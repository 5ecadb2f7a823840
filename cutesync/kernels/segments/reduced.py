"""Reductions of segments that offsets give, in one launch. Device code.

Each warp has a share of the elements and of the ends of segments (``reduced_base``). It goes through the elements in
tiles (``reduced_run``), with the ends in them (``reduced_window``), and stores the results of segments that begin and
end in its share. It has two states left: ``tail``, of what comes behind its last end, and ``head``, of what comes
before its first one. The first warp of a block combines those of its warps, in order, and publishes the block's; the
block that entered the launch last waits for all of them (``sync.gather``), and stores the results of segments that
cross blocks. Nobody else waits.

A *summary* of neighbouring shares is ``(seen, *values, valid)``: whether a segment ends in them, and the state of the
tail, if it has elements (as ``warp.Maybe``). Two are combined by

    a then b  =  b                                  if b has seen an end
                 (a's flag, a's state then b's)     else

Bytes: every element is read once, a few at the borders of shares twice; every end is read once, and every result is
written once. The order of operations follows from lengths, types and offsets.
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
from ..select.chunk import cells
from ..tiled import positions
from .reduced_base import Arguments, Ends, Share, share_of
from .reduced_policy import ReducedPolicy
from .reduced_run import Stage, TileRuns
from .reduced_window import Windows
from .spec import SegmentsSpec
from .states import SegmentStates

# What neighbouring shares have left: the summary of their tail, whether a segment ends in them, which one first, and
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
        whole, segments, *rest = numbers
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
        return Arguments(x, out, offsets, segments, whole, nothing, slots, counters)

    @cute.jit
    def body(self, a: Arguments):
        thread, block = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
        blocks, _, _ = cute.arch.grid_dim()
        lane, warp = thread % LANES, thread // LANES
        entry = Entry.none()
        if thread == 0:
            entry = enter(a.counters)
        stage = self.stage(warp, lane)
        tails, heads = (partial_array((kind, *self.types), self.warps) for kind in (Int32, Int64))
        notice = Notice.make()
        cute.arch.sync_warp()
        ends = Ends(a.offsets, a.segments, a.whole, self.spec.heads.ends).bounded()
        share = self.share(a, ends, block * self.warps + warp, blocks * self.warps, lane)
        if lane == 0:
            store_partial(heads, warp, Maybe((Int64(share.segment), *zeros(self.types)), Boolean(False)))
        cute.arch.sync_warp()
        keep = lambda state, valid: store_partial(heads, warp, Maybe((Int64(share.segment), *state), valid))  # noqa: E731
        tail, valid = self.go(a, ends, share, stage, keep, lane)
        if lane == 0:
            store_partial(tails, warp, Maybe((Int32(share.ends > 0), *tail), valid != 0))
        let_next_start()
        cute.arch.sync_threads()
        if warp == 0:
            left = self.combine_lanes(a, self.left(tails, heads, lane), lane)
            if lane == 0:
                collector, tag = entry.close(a.counters, blocks, blocks)
                self.slots(a, blocks, tag).publish(block, self.packed(left))
                notice.post(collector, tag)
        cute.arch.sync_threads()
        if notice.collector:
            self.collect(a, self.slots(a, blocks, notice.tag), tails, blocks, thread)

    def stage(self, warp, lane) -> Stage:
        """The shared memory of a warp; no element is marked."""
        tile, found = self.runs.tile, []
        gathered = self.runs.sources if self.gather is not None else ()
        sizes = [(kind.width // 8, tile + LANES) for kind in self.types]
        for size, count in (*sizes, (1, tile), *((t.size, tile) for t in gathered)):
            start = SmemAllocator().allocate_array(Uint8, self.warps * size * count, byte_alignment=16)
            found.append(Int32(start.toint()) + warp * (size * count))
        values = len(self.types)
        words = cells(Int32, found[values] + lane * self.runs.run, self.runs.run // 4)
        for i in range(self.runs.run // 4):
            words[i] = Int32(0)
        # The compiler computes an address anew before each store under a condition, three instructions of seven, unless
        # it comes from another lane, for all that it knows.
        run = [lane * ((self.runs.run + 1) * (kind.width // 8)) for kind in self.types]
        own = tuple(Int32(cute.arch.shuffle_sync(at + skip, lane)) for at, skip in zip(found, run))
        return Stage(tuple(found[:values]), found[values], tuple(found[values + 1 :]), own)

    def share(self, a: Arguments, ends: Ends, worker, workers, lane) -> Share:
        first, stop, segment, following = share_of(ends, worker, workers, lane)
        skew = Int32(0)
        if self.gather is None:  # runs lie in memory where vectors do
            size = self.runs.sources[0].size
            skew = Int32((a.x[0].toint() + first * size) % (self.runs.run * size)) // size
        return Share(first - skew, skew, Int32(stop - first) + skew, segment, Int32(following - segment))

    @cute.jit
    def go(
        self,
        a: cutlass.Constexpr,
        ends: cutlass.Constexpr,
        share: cutlass.Constexpr,
        stage: cutlass.Constexpr,
        keep: cutlass.Constexpr,
        lane,
    ):
        """Go through a share: the state of its tail, and whether there is one."""
        tile = self.runs.tile
        held = self.runs.registers()
        carry, opens, tail, valid = zeros(self.types), Int32(1), zeros(self.types), Int32(0)
        w = self.windows.begin(ends, share, lane)
        exist = share.stop > share.first
        if cutlass.const_expr(self.gather is None):
            if exist:
                self.runs.fetch(a, held, share.origin + lane * self.runs.run)
        if (lane == 0) & (share.first > 0) & exist:  # what comes before is a segment of its own
            cells(Uint8, stage.marks + (share.first - 1), 1)[0] = Uint8(1)
        marked, at, more = Int32(share.first > 0), Int32(0), Int32((share.stop > share.first) | (share.ends > 0))
        while more != 0:
            before = w
            w, count = self.windows.mark(ends, share, stage, w, at, lane)
            more = Int32(at + tile < share.stop)
            if more == 0:
                cute.arch.sync_warp()
                valid = Int32(share.stop > self.last_end(w, share, lane))
                if (valid != 0) & (lane == 0):
                    cells(Uint8, stage.marks + (share.stop - 1 - at), 1)[0] = Uint8(1)
            cute.arch.sync_warp()
            position = share.origin + at
            if cutlass.const_expr(self.gather is not None):
                self.runs.gathered(a, stage, held, position, lane)
            carry, opens = self.go_tile(a, held, stage, (marked | count | valid, more), carry, opens, position, lane)
            cute.arch.sync_warp()
            if count > 0:
                self.windows.emit(a, ends, share, stage, keep, before, w.first + w.used, at, lane)
            if valid != 0:
                tail = self.runs.at(stage, share.stop - 1 - at)
            at += tile
            marked = Int32(0)
        return tail, valid

    def last_end(self, w, share: Share, lane):
        """Where the last segment of the share ends, all of whose ends went by; where the share begins if there is
        none."""
        known = choose(lane == 0, w.begin, Int32(0))  # the end before the window
        return Int32(cute.arch.warp_redux_sync(choose(w.end <= share.stop, w.end, known), "max"))

    @cute.jit
    def go_tile(
        self,
        a: cutlass.Constexpr,
        held: cutlass.Constexpr,
        stage: cutlass.Constexpr,
        what: tuple,
        carry: tuple,
        opens,
        position,
        lane,
    ):
        """Go through a tile, of which ``held`` has the elements; that of the next one is loaded. ``what``: whether it
        has marks, and whether there is a next one. ``carry`` is the state before it; ``opens``: a segment begins at its
        first element. Return the same for the next tile."""
        marked, more = what
        own = position + lane * self.runs.run
        values = self.runs.values(held, own)
        state, found, heads = zeros(self.types), Int32(0), Int32(0)
        if marked != 0:
            found = self.runs.ends(stage, lane)
            heads = self.runs.heads(found, opens, lane)
            state = self.runs.go(stage, values, found, heads, carry, lane)
        else:
            state = self.runs.total(values)
        if cutlass.const_expr(self.gather is None):
            if more != 0:
                self.runs.fetch(a, held, own + self.runs.tile)
        if marked != 0:
            state = self.runs.scan(heads, state, lane)
            self.runs.complete(stage, found, heads, state, lane)
            carry = self.runs.last(state)
            opens = Int32(cute.arch.shuffle_sync((found >> (self.runs.run - 1)) & 1, LANES - 1))
        else:
            total = self.runs.of_lanes(state, lane)
            if opens == 0:
                total = self.states.monoid.combine(carry, total)
            carry = total
            opens = Int32(0)
        return carry, opens

    # What shares have left

    @cute.jit
    def merge(self, a: tuple, b: tuple):
        """The summary of ``a`` then ``b``."""
        if b[0] == 0:
            b = (a[0], *combine_valid(a[1:], b[1:], self.states.monoid.combine))
        return b

    def nobody(self) -> Left:
        """What no shares have left."""
        nothing = (*zeros(self.types), Int32(0))
        return Left((Int32(0), *nothing), Int32(0), Int64(0), nothing)

    @cute.jit
    def left(self, tails, heads, lane):
        """What the shares of a block's warps have left, a lane each."""
        found = self.nobody()
        if lane < self.warps:
            tail = get(tails, lane, (Int32, *self.types, Int32))
            segment, *head = get(heads, lane, (Int64, *self.types, Int32))
            found = Left(tail, tail[0], segment, tuple(head))
        return found

    @cute.jit
    def combine_lanes(self, a: cutlass.Constexpr, left: Left, lane):
        """What neighbouring shares, a lane each, have left together; results that are complete are stored."""
        inclusive = scan_states(left.tail, self.merge, lane)
        before = self.before(self.nobody().tail, inclusive, lane)
        left = self.completed(before, left)
        self.store(a, left, before[0] != 0)
        seen = Int32(cute.arch.vote_ballot_sync(left.seen != 0))
        source = cutlass.max(Int32(cute.arch.popc((seen & -seen) - 1)) & 31, 0)
        segment, *head = broadcast((left.segment, *left.head), source)
        tail = broadcast(inclusive, LANES - 1)
        return Left(tail, tail[0], segment, tuple(head))

    @cute.jit
    def before(self, entry: tuple, inclusive: tuple, lane):
        """The summary before a lane, of that before the warp and those of ``scan_states``."""
        mine = shift_up(inclusive)
        if lane > 0:
            entry = self.merge(entry, mine)
        return entry

    def completed(self, before: tuple, left: Left) -> Left:
        """What a share has left, its head behind what is summed up before it."""
        return left._replace(head=combine_valid(before[1:], left.head, self.states.monoid.combine))

    @cute.jit
    def store(self, a: cutlass.Constexpr, left: Left, begins: Boolean):
        """Store the result of the first segment that ends in a share, if its head is all of it."""
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
        lane, warp, types = thread % LANES, thread // LANES, (Int32, *self.types, Int32)
        left = self.nobody()
        if thread < blocks:
            flags, segment, *states = slots.wait(thread, slots.read(thread))
            tail, head = states[: len(self.types)], states[len(self.types) :]
            left = Left((flags & 1, *tail, (flags >> 1) & 1), flags & 1, segment, (*head, (flags >> 2) & 1))
        inclusive = scan_states(left.tail, self.merge, lane)
        if lane == LANES - 1:
            put(partials, warp, inclusive)
        cute.arch.sync_threads()
        of_warps = scan_states(get(partials, cutlass.min(lane, self.warps - 1), types), self.merge, lane)
        entry = self.nobody().tail
        if warp > 0:
            entry = broadcast(of_warps, warp - 1)
        self.store(a, self.completed(self.before(entry, inclusive, lane), left), Boolean(True))
