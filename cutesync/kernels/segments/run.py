"""A chunk of a tile, of which each lane goes through a run of neighbouring positions. Device code; all 32 lanes call.

Lanes read their elements in shared memory one by one. An operator is called about twice a position, once to reduce and
once to emit, and lanes exchange states once a chunk. Results are put together in shared memory and stored by whole
rows of lanes:

    positions  a result at the place of each position of the chunk
    segments   result k of the chunk is that of the segment that ends where the chunk's segment k begins: so the first
               belongs to a segment of an earlier chunk, and the last segment of all is stored by the lane that has the
               last position
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ...block.reduce import put
from ...warp import LANES, Maybe, broadcast, combine_valid, scan_states, select, shift_up, zeros
from ..select.chunk import cells
from .base import Arguments
from .policy import PipelinePolicy
from .spec import SegmentsSpec
from .states import SegmentStates

UNROLL = 4  # rows of results that are loaded together

# A lane's run: the addresses of its first position in the buffers of heads and inputs, the position among all, how many
# of its positions exist (0 or less: none), where the tile stops, and how many positions there are in all. ``bits`` says
# where segments begin, if a call gives their offsets: bit i belongs to position i of the run.
Part = namedtuple("Part", "at position exists stop count bits")


class ChunkRuns:
    """Runs of ``policy.run`` positions."""

    def __init__(self, spec: SegmentsSpec, states: SegmentStates, policy: PipelinePolicy, buffers: tuple) -> None:
        self.spec, self.states, self.run, self.chunk = spec, states, policy.run, policy.chunk
        self.buffers, self.keys = buffers, len(spec.heads.sources)
        staged = not (spec.reduced and spec.by_offsets)
        self.results = (*spec.keys, *spec.operation.results) if staged else ()

    # Positions

    def is_whole(self, part: Part, lane) -> Boolean:
        """Whether all positions of the chunk exist."""
        return part.position + ((LANES - lane) * self.run) <= part.stop

    def elements(self, part: Part, i, first: int = 0, last: int | None = None) -> list:
        """The elements at position ``i`` of the run, of some of the buffers."""
        pairs = list(zip(self.buffers, part.at))[first:last]
        return [b.dtype.cutlass(cells(b.dtype.cutlass, at + i * b.step, 1)[0]) for b, at in pairs]

    def head(self, part: Part, i, before: list, elements: list) -> Boolean:
        """Whether position ``i`` of the run begins a segment. The first of all does."""
        if self.spec.heads.kind == "offsets":
            begins = (part.bits >> i) & 1 != 0
        else:
            begins = self.states.begins(before, elements)
        if isinstance(i, int) and i > 0:
            return begins
        return begins | (part.position + i == 0)

    def value(self, part: Part, i):
        """The value of the operation at position ``i`` of the run."""
        position = part.position + i
        index = part.count - 1 - position if self.spec.reverse else position
        return self.states.lift(self.elements(part, i, self.keys), index)

    def walk(self, part: Part):
        """Yield of each position of a whole run ``(i, head, keys)``."""
        before = self.elements(part, -1, 0, self.keys)
        for i in range(self.run):
            keys = self.elements(part, i, 0, self.keys)
            yield i, self.head(part, i, before, keys), keys
            before = keys

    def visit(self, part: Part, i):
        """``(head, keys)`` of one position."""
        keys = self.elements(part, i, 0, self.keys)
        return self.head(part, i, self.elements(part, i - 1, 0, self.keys), keys), keys

    # Reducing

    @cute.jit
    def reduce(self, part: Part, lane):
        """``(before, total)``: the state of the lanes before a lane (``Maybe``), and in the last lane that of all."""
        inclusive = (*zeros(self.states.types), Int32(0))
        if self.is_whole(part, lane):
            inclusive = (*scan_states(self.reduce_run(part), self.states.combine, lane), Int32(1))
        else:
            merge = lambda a, b: combine_valid(a, b, self.states.combine)  # noqa: E731
            inclusive = scan_states(self.reduce_rest(part), merge, lane)
        before = Maybe.unpack(shift_up(inclusive))
        return Maybe(before.state, before.valid & (lane > 0)), Maybe.unpack(inclusive)

    def reduce_run(self, part: Part):
        """The state of a whole run."""
        state = None
        for i, head, _ in self.walk(part):
            value = self.value(part, i)
            state = self.states.one(head, value) if state is None else self.states.append(state, head, value)
        return state

    @cute.jit
    def reduce_rest(self, part: Part):
        """The packed state of the positions of a run that exist."""
        packed = (*zeros(self.states.types), Int32(0))
        for i in cutlass.range(part.exists, unroll=1):
            head, _ = self.visit(part, i)
            one = Maybe.of(self.states.one(head, self.value(part, i)))
            packed = combine_valid(packed, one.pack(), self.states.combine)
        return packed

    # A result for each position

    @cute.jit
    def emit_positions(self, part: Part, a: Arguments, state, staged: cutlass.Constexpr, lane):
        """Store a result for each position of the chunk; ``state`` is the one before the lane's run."""
        whole = self.is_whole(part, lane)
        if whole:
            for i, head, _ in self.walk(part):
                state = self.emit_position(part, i, head, state, staged, lane)
        else:
            for i in cutlass.range(part.exists, unroll=1):
                head, _ = self.visit(part, i)
                state = self.emit_position(part, i, head, state, staged, lane)
        cute.arch.sync_warp()
        first = part.position - lane * self.run  # of the chunk
        if whole:
            for row in cutlass.range(0, self.run, UNROLL, unroll=1):
                for u in cutlass.range_constexpr(UNROLL):
                    self.store_position(a, first, (row + u) * LANES + lane, self.chunk, staged)
        else:
            stop = Int32(part.stop - first)
            for row in cutlass.range(self.run, unroll=1):
                self.store_position(a, first, row * LANES + lane, stop, staged)

    def emit_position(self, part: Part, i, head, state, staged, lane):
        """Put the result of a position in shared memory; the state behind it."""
        following = self.states.append(state, head, self.value(part, i))
        shown = following[1:]
        if self.spec.exclusive:
            shown = select(head, self.states.start, state[1:])
        self.put(staged, lane * self.run + i, self.states.monoid.results_of(shown))
        return following

    @cute.jit
    def store_position(self, a: Arguments, first, place, stop, staged: cutlass.Constexpr):
        """Store the result at ``place`` < ``stop`` of the chunk whose first position is ``first``."""
        if place < stop:
            index = a.count - 1 - (first + place) if self.spec.reverse else first + place
            self.store(a.out, index, staged, place)

    # A result for each segment

    @cute.jit
    def emit_segments(self, part: Part, a: Arguments, state, begun, staged: cutlass.Constexpr, lane):
        """Store the keys of the segments that begin in the chunk, and the results of those before them; ``state`` is
        the one before the lane's run, and ``begun`` segments begin before the chunk."""
        if self.is_whole(part, lane):
            for i, head, keys in self.walk(part):
                state = self.emit_segment(part, i, head, keys, state, begun, staged)
        else:
            for i in cutlass.range(part.exists, unroll=1):
                head, keys = self.visit(part, i)
                state = self.emit_segment(part, i, head, keys, state, begun, staged)
        self.report(part, a, state, lane)
        count = Int32(broadcast((state[0],), LANES - 1)[0] - begun)
        cute.arch.sync_warp()
        first, keys = Int64(begun), len(a.keys)
        for k in cutlass.range(lane, count, LANES, unroll=UNROLL):
            if first + k < a.capacity:
                self.store(a.keys, first + k, staged[:keys], k)
            if (first + k > 0) & (first + k <= a.capacity):
                self.store(a.out, first + k - 1, staged[keys:], k)

    def emit_segment(self, part: Part, i, head, keys, state, begun, staged):
        """Where a segment begins, put its keys and the result of the one before it in shared memory; the state behind
        the position."""
        self.put_segment(head, keys, state, begun, staged)
        return self.states.append(state, head, self.value(part, i))

    @cute.jit
    def put_segment(self, head, keys, state, begun, staged: cutlass.Constexpr):
        place, count = Int32(state[0] - begun), len(self.spec.keys)
        if head:
            self.put(staged[:count], place, keys[:count])
        if head & (state[0] > 0):
            self.put(staged[count:], place, self.states.monoid.results_of(state[1:]))

    @cute.jit
    def report(self, part: Part, a: Arguments, state, lane):
        """The lane that has the last position: store how many segments there are, and the result of the last one."""
        if (part.exists > 0) & (part.position + part.exists == part.count):
            count = Int64(state[0])
            cells(Int64, a.found.toint(), 1, cute.AddressSpace.gmem)[0] = count
            if count <= a.capacity:
                for out, value in zip(a.out, self.states.monoid.results_of(state[1:])):
                    cute.make_tensor(out + (count - 1), cute.make_layout((1,)))[0] = value
        elif (part.count == 0) & (part.position == 0):
            cells(Int64, a.found.toint(), 1, cute.AddressSpace.gmem)[0] = Int64(0)

    # States at the ends of segments

    @cute.jit
    def emit_ends(self, part: Part, state, ends, staged: cutlass.Constexpr, first, lane):
        """Put the states at the positions that the bits ``ends`` of the run name in shared memory, from place ``first``
        on."""
        if self.is_whole(part, lane):
            for i, head, _ in self.walk(part):
                state = self.emit_end(part, i, head, state, ends, staged, first)
        else:
            for i in cutlass.range(part.exists, unroll=1):
                head, _ = self.visit(part, i)
                state = self.emit_end(part, i, head, state, ends, staged, first)

    def emit_end(self, part: Part, i, head, state, ends, staged, first):
        """Put the state of a position in shared memory if a segment ends there; the state behind it."""
        following = self.states.append(state, head, self.value(part, i))
        self.put_end((ends >> i) & 1 != 0, following[1:], staged, first + i)
        return following

    @cute.jit
    def put_end(self, ends: Boolean, values, staged: cutlass.Constexpr, place):
        if ends:
            put(staged, place, values)

    # Shared memory

    def put(self, staged, place, values) -> None:
        for array, value in zip(staged, values):
            cute.make_tensor(array + place, cute.make_layout((1,)))[0] = value

    def store(self, outs, index, staged, place) -> None:
        """Store one result of each array."""
        for out, array in zip(outs, staged):
            value = cute.make_tensor(array + place, cute.make_layout((1,)))[0]
            cute.make_tensor(out + index, cute.make_layout((1,)))[0] = value
