"""What the kernels of strided arrays share: arguments, the division of work among threads and blocks, the combination
of their partials, and the results.

Results are numbered along the kept axes, and positions along the reduced ones, in the order of ``normal``. A block has
``lanes * groups`` threads: a lane has one result (or those of a 16-byte vector), and the groups share its positions.
Neighbouring threads are neighbouring lanes where memory runs along the kept axes, else neighbouring groups: either way
they read neighbouring elements. The groups' partials are combined by shuffles and through shared memory, in order.
``splits`` blocks may share the positions of a tile of results; the one of them that started last combines the blocks'
aggregates (``sync.gather``).

The number of positions may be less than the axis has: ``n`` of a call counts, which lies in memory or is a parameter.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
from cutlass import Int32, Int64, cute

from ...block.reduce import get, put, state_array, state_bytes
from ...block.split import share
from ...monoid import ArgMonoid
from ...sync.gather import Entry, Notice, Slots, enter
from ...sync.overlap import let_next_start
from ...warp import LANES, reduce_valid, select
from ..coordinates import Axes, element
from .base import ReduceKernel, store_vector
from .orders import AnyOrder

# A launch's arguments: ``kept`` and ``reduced`` are the Axes of results and positions; there are ``units`` of results
# and ``length`` positions, of ``elements`` elements in all. The last kept axis has ``extent`` results (of words), or
# rows have so many elements behind their whole vectors. Each aggregate is to be combined with itself, ``repeats`` in
# all. ``copies``: how many of each result are stored, and the steps between them in each output.
Arguments = namedtuple(
    "Arguments", "x out init slots counters kept reduced units length elements extent repeats copies splits tiles"
)

# A thread of a block. ``inside``: whether its lane has a result; else it works on the last one.
Member = namedtuple("Member", "thread lane group unit inside")


class StridedKernel(ReduceKernel):
    """A compiled reduction of strided arrays. A subclass defines how threads get and combine their states."""

    name = "reduce_strided"
    counts_elements = False  # positions are elements, so that as many bits suffice for indexes
    own_states: Any
    combine_own: Any

    def __init__(self, monoid, has_init: bool, policy) -> None:
        self.policy = policy
        self.ordered = monoid  # of one thread, whose positions ascend
        found: Any = monoid
        if policy.in_turn and isinstance(monoid, ArgMonoid):
            short = self.counts_elements and not (policy.wide or policy.indexed or has_init)
            found = AnyOrder(monoid, Int32 if short else Int64)
        if policy.indexed:
            self.ordered = found  # higher positions may have lower indexes
        self.lanes, self.groups, self.unroll, self.split = policy.lanes, policy.groups, policy.unroll, policy.split
        self.width = self.results_of_unit(monoid, policy)
        self.warp_groups = 1 if policy.along_kept else min(policy.groups, LANES)  # groups that shuffles combine
        self.ranks = policy.groups // self.warp_groups
        self.places = self.ranks * policy.lanes * self.width if self.ranks > 1 else 0
        smem = state_bytes(found.types, self.places) + 32 if self.places or self.split else 0
        super().__init__(found, has_init, policy.lanes * policy.groups, smem, policy.resident)

    def arguments(self, x: tuple, out: tuple, init: tuple, memory: tuple, shape: tuple, blocks: tuple) -> Arguments:
        """The parameters of a launch, of the kernel that is traced."""
        (slots, counters), (kept, reduced), (splits, tiles) = memory, shape, blocks
        init, count, repeats, copies = self.parts(init)
        axes = Axes(kept, self.policy.kept, len(x) + len(out) + self.policy.kept_columns)
        positions = Axes(reduced, self.policy.reduced, len(x) + self.policy.columns)
        elements = self.elements_of(positions, reduced)
        if self.policy.count != "":
            elements = self.counted(count, elements)
        if self.policy.divides:  # the given divisor is what the number of elements is reduced by
            (less,) = self.monoid.args
            self.monoid.args = (cutlass.max(type(less)(elements) - less, type(less)(0)),)
        length = self.positions_of(positions, elements)
        units = axes.size
        numbers = units, length, elements, kept[-1], repeats, copies
        return Arguments(x, out, init, slots, counters, axes, positions, *numbers, splits, tiles)

    def results_of_unit(self, monoid, policy) -> int:
        """How many neighbouring results a thread has at a time."""
        return 1 if policy.load in ("element", "row") else policy.bytes // monoid.source.size // policy.pace

    def parts(self, given: tuple) -> tuple:
        """The registers of ``init``, then the number of positions, that of the repeats, and that of the copies with
        their steps, None if they are not given; bind the arguments between them."""
        sizes = self.policy.count != "", self.policy.repeated, self.policy.copied * (1 + len(self.monoid.results))
        found, stop = [], len(given)
        for size in reversed(sizes):
            found.append(given[stop - size : stop] if size else None)
            stop -= size
        own = stop - self.monoid.arg_count
        self.monoid.bind(given[own:stop])
        copies, repeats, count = found
        return given[:own], count and count[0], repeats and repeats[0], copies

    def elements_of(self, positions: Axes, reduced: tuple):
        """The number of elements of the reduced axis."""
        return positions.size

    def positions_of(self, positions: Axes, elements):
        """The number of positions that hold ``elements`` elements."""
        return elements

    def counted(self, count, length):
        """How many of ``length`` elements count: ``count``, a number or a pointer to one, or the next of 0 and
        ``length``."""
        found = Int64(element(count) if self.policy.count == "memory" else count)
        return type(length)(cutlass.max(cutlass.min(found, Int64(length)), Int64(0)))

    @cute.jit
    def body(self, a: cutlass.Constexpr):
        thread, block = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
        tile = block % a.tiles
        split = block // a.tiles
        if cutlass.const_expr(self.policy.along_kept):
            lane = thread % self.lanes
            group = thread // self.lanes
        else:
            lane = thread // self.groups
            group = thread % self.groups
        number = type(a.length)
        unit = number(tile) * self.lanes + lane
        me = Member(thread, lane, group, cutlass.min(unit, a.units - 1), unit < a.units)
        if cutlass.const_expr(self.split):
            notice = Notice.make()
            entry = Entry.none()
            if thread == 0:
                entry = enter(a.counters, tile, a.splits)
        begin, end = share(a.length, number(split), number(a.splits)) if self.split else (number(0), a.length)
        states = self.own_states(a, me, begin, end)
        let_next_start()
        if cutlass.const_expr(self.split):
            if thread == 0:
                notice.post(*entry.close(a.counters, a.splits, cute.arch.grid_dim()[0]))
        storage = ()
        if cutlass.const_expr(self.places > 0):
            storage = state_array(self.monoid.types, self.places)
        states = self.combine_own(states, storage, me, end - begin)
        if cutlass.const_expr(self.split):
            if cutlass.const_expr(self.places == 0):
                cute.arch.sync_threads()  # thread 0 has posted its notice
            slots = Slots(a.slots, Int64(a.splits) * a.units * self.width, notice.tag, self.monoid.types)
            if (group == 0) & me.inside & (begin < end):
                for c in cutlass.range_constexpr(self.width):
                    slots.publish(self.slot(a, split, me.unit) + c, states[c])
            if notice.collector:
                self.collect_tile(a, me, slots, storage)
        else:
            if (group == 0) & me.inside:
                self.store(a, me.unit, states)

    def slot(self, a: Arguments, split, unit):
        return (Int64(split) * a.units + unit) * self.width

    def used(self, count):
        """How many groups have a position of ``count``: the first ones."""
        return Int32(cutlass.min(count, type(count)(self.groups)))

    @cute.jit
    def append_tail(self, a: cutlass.Constexpr, x: cutlass.Constexpr, partial, number: cutlass.Constexpr):
        """Append the elements of a row that are a few apart and lie behind its last whole vector; indexes are of type
        ``number``."""
        each, pace = self.policy.bytes // self.monoid.source.size // self.policy.pace, self.policy.pace
        first, extent = Int64(a.length) * each, Int32(a.extent)
        values = [element(x[0] + (first + cutlass.min(Int32(i), extent - 1)) * pace) for i in range(each - 1)]
        for i in cutlass.range_constexpr(each - 1):
            if i < extent:
                partial = partial.append(self.monoid.lift(values[i], number(first + i)), self.ordered.combine)
        return partial

    @cute.jit
    def collect_tile(self, a: cutlass.Constexpr, me: Member, slots: cutlass.Constexpr, storage):
        """The tile's collector: each group combines a contiguous run of the blocks' aggregates, then the groups."""
        number = type(a.length)
        splits = Int32(cutlass.min(number(a.splits), a.length))  # blocks that have a position: the first ones
        first, stop = share(splits, me.group, Int32(self.groups))
        step = Int64(a.units) * self.width
        found = slots.collect(self.slot(a, first, me.unit), stop - first, step, self.monoid.combine, self.width)
        if cutlass.const_expr(self.places > 0):
            cute.arch.sync_threads()  # the storage is used again
        states = self.reduce_groups(found.state, storage, me, self.used(splits))
        if (me.group == 0) & me.inside:
            self.store(a, me.unit, states)

    @cute.jit
    def reduce_groups(self, states, storage, me: Member, used: Int32):
        """Combine the states of the first ``used`` groups in order, in group 0. The storage may be used again after a
        barrier."""
        if cutlass.const_expr(self.warp_groups > 1):
            count = cutlass.min(used - (me.group - me.group % self.warp_groups), Int32(self.warp_groups))
            lane, combine = me.thread % LANES, self.monoid.combine
            states = tuple(reduce_valid(state, count, combine, lane, self.warp_groups) for state in states)
        return self.reduce_ranks(states, storage, me, (used + (self.warp_groups - 1)) // self.warp_groups)

    @cute.jit
    def reduce_ranks(self, states, storage, me: Member, valid: Int32):
        """Combine the states of the first ``valid`` ranks in order, in the first group; a rank is the groups of a
        warp."""
        if cutlass.const_expr(self.places > 0):
            rank = me.group // self.warp_groups
            place = rank * self.lanes + me.lane
            holds = me.group % self.warp_groups == 0
            for log in cutlass.range_constexpr((self.ranks - 1).bit_length()):
                distance = 1 << log
                if holds & (rank % (2 * distance) == distance):
                    self.put(storage, place, states)
                cute.arch.sync_threads()
                if holds & (rank % (2 * distance) == 0) & (rank + distance < valid):
                    states = self.merge(states, self.get(storage, place + distance * self.lanes))
        return states

    def merge(self, a, b):
        return tuple(self.monoid.combine(x, y) for x, y in zip(a, b))

    def put(self, storage, place, states) -> None:
        for c in range(self.width):
            put(storage, c * (self.places // self.width) + place, states[c])

    def get(self, storage, place):
        each = self.places // self.width
        return tuple(get(storage, c * each + place, self.monoid.types) for c in range(self.width))

    @cute.jit
    def store(self, a: cutlass.Constexpr, unit, states):
        """Store the results of a unit; the steps of outputs along a unit are ``width`` times those along its
        columns."""
        shift = self.width.bit_length() - 1
        offsets = a.kept.offsets(unit)[len(a.x) :]
        steps = [step >> shift for step in a.kept.steps[len(a.x) :]]
        valid = Int64(self.width)
        if cutlass.const_expr(self.policy.load == "words"):
            valid = a.extent - offsets[-1]
        self.store_copies(a, offsets, steps, [self.monoid.results_of(self.total(a, state)) for state in states], valid)

    @cute.jit
    def store_copies(self, a: cutlass.Constexpr, offsets, steps, rows, valid):
        """Store the first ``valid`` of the rows of results, ``steps`` apart in the outputs, as often as they are
        wanted."""
        if cutlass.const_expr(self.policy.copied):
            count, *distances = a.copies
            for i in cutlass.range(Int32(count), unroll=1):
                self.store_rows(a, [o + Int64(i) * far for o, far in zip(offsets, distances)], steps, rows, valid)
        else:
            self.store_rows(a, offsets, steps, rows, valid)

    @cute.jit
    def store_rows(self, a: cutlass.Constexpr, offsets, steps, rows, valid):
        if cutlass.const_expr(self.policy.store == "element"):
            self.store_each(a, offsets, steps, rows, valid)
        elif valid >= self.width:
            self.store_unit(a, offsets, rows)
        else:
            self.store_each(a, offsets, steps, rows, valid)

    def store_unit(self, a: Arguments, offsets, rows) -> None:
        """Store rows of results as a vector for each output."""
        back = self.policy.store == "backward"
        for k, dtype in enumerate(self.monoid.results):
            column = [row[k] for row in rows]
            start = a.out[k] + (offsets[k] - (len(rows) - 1 if back else 0))
            store_vector(start, dtype, column[::-1] if back else column, min(16, len(rows) * dtype.size))

    @cute.jit
    def store_each(self, a: cutlass.Constexpr, offsets, steps, rows, valid):
        """Store the first ``valid`` rows of results, each element by itself."""
        for c in cutlass.range_constexpr(len(rows)):
            if c < valid:
                for k, (dtype, result) in enumerate(zip(self.monoid.results, rows[c])):
                    equal = [result] * self.policy.fill
                    store_vector(a.out[k] + (offsets[k] + steps[k] * c), dtype, equal, len(equal) * dtype.size)

    def total(self, a: Arguments, state):
        """The state of a result: ``init``, then ``state`` unless there are no positions."""
        if cutlass.const_expr(self.policy.repeated):
            state = self.power(state, a.repeats)
        found = self.monoid.combine(a.init, state) if self.has_init and not self.policy.identity else state
        return select(a.length > 0, found, a.init) if self.policy.empty else found

    @cute.jit
    def power(self, state, count: Int64):
        """The aggregate of ``count`` equal states."""
        total = state
        left = count - 1
        while left > 0:
            if left % 2 == 1:
                total = self.monoid.combine(total, state)
            state = self.monoid.combine(state, state)
            left = left // 2
        return total
