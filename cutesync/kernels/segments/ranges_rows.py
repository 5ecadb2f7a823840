"""Reductions of segments that begins and ends give, of one array, in one launch. Device code.

Cuts, chunks and what they have left are those of ``reduced``; segments lie one after the other as ``ends`` says, and
their elements anywhere. A warp takes the segments of its chunk in batches of 32, a lane each, and of the elements those
vectors of 16 bytes, on boundaries of memory, in which a segment lies: the vectors of one segment after the other are
the list of the batch. Its rows of 32 vectors, a lane each, are loaded ``rows`` at a time. What segments have in the
vector of a lane is combined there, and what they have in a row by a scan that begins anew where a segment begins; the
lane that has a segment's last vector stores its result. While a tile of rows lies inside one segment, nothing of this
is asked. Where all segments of a batch are short, each lane goes through its own (``ranges_lanes``).

In shared memory a warp has of each segment of the batch that has elements: its *base*, the address that the list's
vector 0 would have if all of the list were the segment's; its *span*, its first place in the list and the one behind
its last, in elements; and its *name*, the number of its lane, -1 if it does not end in the batch.

Bytes: every vector is read once for each segment in it; begins and ends are read, and results written, once. The order
of operations follows from lengths, types, begins, ends, and where in 16 bytes the array begins.
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64, Uint8, Uint32
from cutlass.memory import SmemAllocator

from ...block.reduce import get, store_partial
from ...monoid import choose
from ...warp import (
    LANES,
    Maybe,
    broadcast,
    prepend,
    prepend_between_states,
    reduce_rows,
    scan_states,
    shift_up,
    zeros,
)
from ..coordinates import element
from ..gather import Stepped
from ..hardware import VECTOR_BYTES
from ..select.chunk import cells, popc, put
from ..tiled import positions
from .ranges_base import clamped
from .ranges_lanes import LanesReduction, Own
from .ranges_policy import BASE, NAME, RECORD_BYTES, SPAN, RowsPolicy
from .reduced_base import Arguments, Ends
from .reduced_run import TileRuns

MOST = 1 << 24  # positions of a batch: places in its list are numbers of 32 bits
NONE = -(1 << 30)  # where a segment without elements begins in the list

# A chunk: the positions from ``first`` up to ``stop``, and the ``ends`` of segments from number ``segment`` on.
Share = namedtuple("Share", "first stop segment ends")

# A batch: the number in the chunk of its first segment, the first vector of a lane's segment in the list, which has
# ``vectors`` of ``live`` segments, and whether elements beside the array lie in one of these.
Batch = namedtuple("Batch", "number first vectors live edge")

# What a warp works with: the arguments, its chunk, the addresses of bases, spans and names; ``keep`` takes the state of
# the chunk's first segment.
Work = namedtuple("Work", "a chunk bases spans names keep lane")


class RangesReduction(LanesReduction):
    """The kernel, with the sizes of a policy and ``shared`` bytes of shared memory."""

    name = "segment_ranges"
    policy: RowsPolicy

    def make_runs(self) -> TileRuns:
        """Runs are vectors."""
        return TileRuns(self.spec, self.states.monoid, self.policy.run // self.policy.rows, None)

    def arguments(self, arrays: tuple, numbers: tuple, slots: cute.Pointer, counters: cute.Pointer) -> Arguments:
        """The parameters of a launch, of the kernel that is traced."""
        count, begins, ends, x, *outs = arrays
        whole, segments, rounds, step, *rest = numbers
        out = tuple(outs)
        if self.spec.stepped:
            out, rest = tuple(map(Stepped, out, rest)), rest[len(out) :]
        nothing = self.states.bind_last(rest)
        segments = positions(segments, count) if self.spec.counted else segments
        rounds, begins = Int32(rounds), Stepped(begins, step)
        return Arguments((x,), out, ends, segments, whole, rounds, nothing, slots, counters, begins)

    def ends(self, a: Arguments) -> Ends:
        """Segments may have more positions than there are elements."""
        return Ends(a.offsets, a.segments, Int64((1 << 63) - 1), True, self.policy.end)

    def stage(self, warp, lane) -> tuple:
        """The addresses of a warp's bases, spans and names."""
        start = SmemAllocator().allocate_array(Uint8, self.warps * RECORD_BYTES, byte_alignment=VECTOR_BYTES)
        bases = Int32(start.toint()) + warp * RECORD_BYTES
        return bases, bases + LANES * BASE, bases + LANES * (BASE + SPAN)

    def chunk(self, a: Arguments, places, number) -> Share:
        (first, segment), (stop, following) = (get(places, number + k, (Int64, Int64)) for k in (0, 1))
        return Share(first, stop, segment, Int32(following - segment))

    @cute.jit
    def go(
        self, a: cutlass.Constexpr, ends: cutlass.Constexpr, chunk: Share, stage: cutlass.Constexpr, to: tuple, lane
    ):
        """Go through a chunk; what it has left goes to a place of the arrays ``to`` of tails and heads."""
        tails, heads, place = to
        carry = (*zeros(self.types), Int32(0))  # the state of a segment of which elements went by
        keep = lambda state, valid: store_partial(heads, place, Maybe((chunk.segment, *state), valid))  # noqa: E731
        if lane == 0:
            keep(carry[:-1], Boolean(False))
        bases, spans, names = stage
        c = Work(a, chunk, bases, spans, names, keep, lane)
        at, begin, number = chunk.first, Int64(0), Int32(0)
        if chunk.segment > 0:
            begin = ends.raw(chunk.segment - 1)
        following = self.load_segments(c, ends, number)
        while (number < chunk.ends) | (at < chunk.stop):
            end, closes, origin = self.batch_ends(c, following, at, number)
            following = self.load_segments(c, ends, number + LANES)
            start = choose(lane == 0, at, Int64(cute.arch.shuffle_sync_up(end, 1)))
            origin += start - choose(lane == 0, begin, start)
            own = self.own(c, number, origin, Int32(end - start), closes)
            closed = popc(cute.arch.vote_ballot_sync(closes))
            at = Int64(cute.arch.shuffle_sync(end, LANES - 1))
            before = Int64(cute.arch.shuffle_sync(end, cutlass.max(closed - 1, 0)))
            begin = choose(closed > 0, before, begin)
            carry = self.go_batch(c, number, own, carry)
            number += closed
            if (closed < LANES) & ((number < chunk.ends) | (at < chunk.stop)):
                following = self.load_segments(c, ends, number)
        if lane == 0:
            store_partial(tails, place, Maybe((Int32(chunk.ends > 0), *carry[:-1]), carry[-1] != 0))

    @cute.jit
    def load_segments(self, c: cutlass.Constexpr, ends: cutlass.Constexpr, number):
        """Where a lane's segment of the batch whose first one has a number ends, and where in the array it begins."""
        k, end, origin = number + c.lane, Int64(0), Int64(0)
        if (k <= c.chunk.ends) & (c.chunk.segment + k < c.a.segments):
            end = ends.raw(c.chunk.segment + k)
            origin = Int64(element(c.a.begins + (c.chunk.segment + k)))
        return end, origin

    @cute.jit
    def batch_ends(self, c: cutlass.Constexpr, found: tuple, at, number):
        """Where a lane's segment of the batch that begins at a position ends in it, whether it ends there, and the
        place in the array where it begins; ``found`` as it is in memory."""
        k, limit = number + c.lane, cutlass.min(c.chunk.stop, at + MOST)
        end, closes = limit, Boolean(False)
        if (k <= c.chunk.ends) & (c.chunk.segment + k < c.a.segments):
            closes = (found[0] <= limit) & (k < c.chunk.ends)
            end = cutlass.min(found[0], limit)
        return end, closes, clamped(found[1], c.a.whole)

    @cute.jit
    def go_batch(self, c: cutlass.Constexpr, number, own: Own, carry: tuple):
        """Go through a batch whose first segment has a number, from the state of the segment of which elements went
        by. Return the state of the last segment with elements, and whether it goes on behind the batch."""
        there = Uint32(cute.arch.vote_ballot_sync(own.count > 0))
        if there != 0:
            opens = Int32(cute.arch.vote_any_sync((own.count > 0) & cutlass.not_(own.closes)))
            edge = Int32(cute.arch.vote_any_sync(own.edge))
            most = Int32(cute.arch.warp_redux_sync(own.vectors, "max"))
            if (edge == 0) & (most <= self.policy.longest):
                carry = (*self.go_lanes(c, number, own, (there, most), carry), opens)
            else:
                batch = self.put_records(c, number, own, there)._replace(edge=edge)
                carry = (*self.go_rows(c, batch, carry), opens)
        return carry

    @cute.jit
    def put_records(self, c: cutlass.Constexpr, number, own: Own, there):
        """The batch whose first segment has a number, of which lanes have segments with elements that are ``there``."""
        each, lane = self.runs.run, c.lane
        (stop,) = scan_states((own.vectors,), lambda p, q: (p[0] + q[0],), lane)
        first, live = stop - own.vectors, own.count > 0
        cute.arch.sync_warp()  # what the batch before has put there has been read
        if live:
            rank = popc(there & ((Uint32(1) << Uint32(lane)) - 1))
            low = first * each + own.skew
            put(Int64, c.bases + rank * BASE, own.address - Int64(first) * VECTOR_BYTES)
            put(Int64, c.spans + rank * SPAN, Int64(low) | (Int64(low + own.count) << 32))
            put(Int32, c.names + rank * NAME, choose(own.closes, lane, Int32(-1)))
        cute.arch.sync_warp()
        total = Int32(cute.arch.shuffle_sync(stop, LANES - 1))
        return Batch(number, choose(live, first, Int32(NONE)), total, popc(there), Int32(0))

    def base(self, c: Work, rank):
        return Int64(cells(Int64, c.bases + rank * BASE, 1)[0])

    def span(self, c: Work, rank) -> tuple:
        found = Int64(cells(Int64, c.spans + rank * SPAN, 1)[0])
        return Int32(found), Int32(found >> 32)

    @cute.jit
    def go_rows(self, c: cutlass.Constexpr, batch: Batch, carry: tuple):
        """Go through the list of a batch, from the state of the segment of which elements went by. Return that at the
        last vector."""
        rows, each = self.policy.rows, self.runs.run
        held = [self.runs.registers() for _ in range(rows)]
        state, goes_on = carry[:-1], carry[-1]
        at, begun = Int32(0), Int32(0)
        while at < batch.vectors:
            inner, base = Int32(0), Int64(0)
            if begun > 0:
                base, (_, high) = self.base(c, begun - 1), self.span(c, begun - 1)
                inner = cutlass.max((high - 1) // each - at, Int32(0)) // (rows * LANES)
            if inner > 0:
                for _ in cutlass.range(inner, unroll=1):
                    state = self.go_inside(c, held, state, base + Int64(at) * VECTOR_BYTES)
                    at += rows * LANES
            else:
                begun, found = self.find(c, batch, held, at, begun)
                for r in cutlass.range_constexpr(rows):
                    if at + r * LANES < batch.vectors:
                        state = self.go_row(c, batch, held[r], found[r], state, (at + r * LANES, goes_on))
                    goes_on = Int32(0)
                at += rows * LANES
        return state

    @cute.jit
    def go_inside(self, c: cutlass.Constexpr, held: cutlass.Constexpr, state: tuple, address):
        """The state behind a tile of rows that lie inside one segment, whose first vector has an address."""
        found, combine = [], self.states.monoid.combine
        places = [address + (r * LANES + c.lane) * VECTOR_BYTES for r in range(len(held))]
        for registers, place in zip(held, places):
            self.load(registers, place)
        for registers, place in zip(held, places):
            found.append(self.runs.total(self.runs.values(registers, self.position(c, place))))
        return combine(state, reduce_rows(found, combine, c.lane))

    @cute.jit
    def find(self, c: cutlass.Constexpr, batch: Batch, held: cutlass.Constexpr, at, begun):
        """Load the vectors of a tile of rows, ``begun`` segments of the list having begun before it. Return how many
        have behind it, and of each row the bits of the lanes where one begins, the rank of a lane's, and the address of
        its vector. Lanes behind the list take its last vector."""
        found, up_to = [], self.runs.up_to(c.lane)
        for r in cutlass.range_constexpr(self.policy.rows):
            first = at + r * LANES
            place = Uint32(batch.first - first)
            heads = Int32(cute.arch.warp_redux_sync(choose(place < LANES, Int32(Uint32(1) << place), Int32(0)), "or"))
            rank = begun + popc(heads & up_to) - 1
            begun += popc(heads)
            vector = cutlass.min(first + c.lane, batch.vectors - 1)
            found.append((heads, rank, self.base(c, rank) + Int64(vector) * VECTOR_BYTES))
        if batch.edge == 0:
            for registers, (_, _, address) in zip(held, found):
                self.load(registers, address)
        else:
            for registers, (_, _, address) in zip(held, found):
                self.load_edge(c, registers, address)
        return begun, found

    @cute.jit
    def load_edge(self, c: cutlass.Constexpr, registers: cutlass.Constexpr, address):
        """Load a vector, of which what does not exist is replaced."""
        place, (dtype,) = self.position(c, address), self.runs.sources
        inside = (place >= 0) & (place <= c.a.whole - self.runs.run)
        self.runs.fetch_of(registers[0], c.a.x[0], dtype, place, inside, c.a.whole)

    @cute.jit
    def go_row(self, c: cutlass.Constexpr, batch: Batch, registers: cutlass.Constexpr, found: tuple, state, of: tuple):
        """Go through a row that begins at a vector of the list; ``state`` is that at the vector before it, and whether
        it is one of the first segment of the list. Return the state at its last vector."""
        (heads, rank, address), (at, goes_on) = found, of
        low, high = self.span(c, rank)
        each, lane, combine = self.runs.run, c.lane, self.states.monoid.combine
        vector = at + lane
        first, stop = low - vector * each, high - vector * each
        heads = heads & ~goes_on
        own, values = zeros(self.types), self.runs.values(registers, self.position(c, address))
        whole = Boolean(False)
        if cutlass.const_expr(self.size > 1):  # registers are short for both forms of vectors of 16
            whole = cute.arch.vote_all_sync((first <= 0) & (stop >= each))
        if whole:
            own = self.runs.total(values)
        else:
            own = self.of_vector(values, first, stop)
        own = prepend((lane == 0) & (heads & 1 == 0), state, own, combine)
        begins = heads & self.runs.up_to(lane)
        back = choose(begins != 0, lane - (31 - Int32(cute.arch.clz(begins))), lane)
        for log in cutlass.range_constexpr(5):
            own = prepend_between_states(back >= (1 << log), shift_up(own, 1 << log), own, combine)
        if (vector < batch.vectors) & (stop <= each):
            name = Int32(cells(Int32, c.names + rank * NAME, 1)[0])
            if name >= 0:
                self.store_own(c, batch.number + name, own)
        return broadcast(own, cutlass.min(batch.vectors - 1 - at, LANES - 1))
