"""Scan down the columns of narrow arrays: resident blocks stream tiles of whole rows through shared memory.

    transfer    (one thread) copies tiles into a ring of ``stages`` in shared memory, and results out of it
    reduce      reduces each tile as it comes, and publishes its columns' aggregates
    scan        looks back for a tile, and scans it in place

There are as many threads to reduce as to scan; such a *worker* has a column of one of the tile's ``runs`` of rows. The
aggregates of the runs are exchanged through shared memory. So neighbouring threads read neighbouring elements whatever
the number of columns, and memory is read and written in whole lines, each element once.

    barrier           completed by                                 waited for by
    full[stage]       transfer: 1 arrival and the tile's bytes     reduce, scan
    reduced[stage]    one lane of each warp of reduce              scan
    empty[stage]      one lane of each warp of scan                transfer
    REDUCE, SCAN      all threads of the role                      the same

A stage is empty when its tile has been scanned in place; transfer stores the results before it loads the next tile.

Tiles that begin anywhere lie as far behind a boundary of 16 bytes in shared memory as in global memory: transfer copies
the whole vectors that hold them, and workers store the results, as vectors of the output hold others.

Look-back: ``groups`` describes it. A tile is reduced and published while those before it in its block are scanned, so
what a look-back asks for is mostly there. Progress: tile numbers come from an atomic, when a stage is free; whoever
reduces waits for copies alone, so every tile that has a number is published. Before a block waits for the launches
before its own, it asks the L2 for the tile with its rank.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from enum import IntEnum

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32
from cutlass.memory import SmemAllocator

from ...block.reduce import get, load_partial, partial_array, partial_bytes, store_partial
from ...monoid import tree
from ...sync.barrier import Barriers
from ...sync.named_barrier import NamedBarrier
from ...sync.roles import Role, Roles
from ...sync.tiles import DONE, TileRing, Visit
from ...warp import LANES, Maybe, combine_valid, scan_states, shift_up, zeros
from ..hardware import VECTOR_BYTES
from ..words import store_run
from .base import Arguments, Scan
from .groups import TileGroups
from .narrow_policy import NarrowPolicy
from .narrow_transfer import NarrowTransfer, element

UNROLL = 8  # elements of a run that are read at once

# A worker's rows of a tile, from ``first`` to ``stop`` of ``count``; the tile begins at ``base`` in shared memory.
Span = namedtuple("Span", "first stop count base")


class Named(IntEnum):
    REDUCE = 1
    SCAN = 2


@dataclass(frozen=True)
class Shared:
    """Shared memory: the tiles and their ring, and the barriers that say which are ``reduced``.

    For each stage: the prefix of each run in its tile (``before``), and the tile's aggregates (``totals``). Of the tile
    that is scanned: what a look-back finds (``found``), and the tile's prefixes."""

    buffer: cute.Pointer
    tiles: TileRing
    reduced: Barriers
    before: tuple
    found: tuple
    totals: tuple
    prefixes: tuple


class NarrowScan(NarrowTransfer):
    """The kernel: ``runs`` (a power of two) of ``height`` rows of ``inner`` columns are a tile, ``group``
    tiles a group.

    Elements and results are of one size. ``aligned``: every outer slice begins on a boundary of 16 bytes, and so does
    every tile."""

    def __init__(self, scan: Scan, policy: NarrowPolicy, row: int | None = None, results: int = 0) -> None:
        """``row``: the elements of the input from a position to the next, if these are not ``inner``; ``results``:
        those of the memory where a tile's results are put, if this is not in place."""
        self.inner, self.runs, self.height, self.stages, self.group = (
            policy.inner,
            policy.runs,
            policy.height,
            policy.stages,
            policy.group,
        )
        self.tile, self.states = (
            policy.runs * policy.height,
            policy.runs * policy.inner,
        )  # rows of a tile, and states in it
        self.aligned = policy.aligned
        self.size = scan.monoid.source.size
        self.row, self.results = row or policy.inner, results
        bytes_of_tile = self.tile * self.row * self.size
        vectors = -(-bytes_of_tile // VECTOR_BYTES) + (0 if policy.aligned else 1)  # stages begin on boundaries
        self.stage = vectors * (VECTOR_BYTES // self.size)  # elements
        self.workers = -(-self.states // LANES) * LANES
        warps = self.workers // LANES
        self.roles = Roles(Role("transfer", 1), Role("reduce", warps), Role("scan", warps))
        partials = sum(partial_bytes(scan.types, count) for count in self.partials())
        smem = policy.stages * (self.stage * self.size + 28) + results * self.size + partials + 72
        self.positions = self.tile
        super().__init__(scan, self.roles.threads, smem, 1)
        self.waits = scan.reads_at_once

    def partials(self) -> tuple[int, ...]:
        """How many partials each array of ``Shared`` has."""
        return self.stages * self.states, self.states, self.stages * self.inner, self.inner

    @cute.jit
    def body(self, a: Arguments):
        shared = Shared(
            SmemAllocator().allocate_array(
                self.scan.monoid.source.cutlass, self.stages * self.stage + self.results, byte_alignment=128
            ),
            TileRing.make(self.stages, consumers=self.workers // LANES),
            Barriers.make(self.stages, self.workers // LANES, name="reduced"),
            *(partial_array(self.scan.types, count) for count in self.partials()),
        )
        shared.tiles.clear()
        cute.arch.sync_threads()
        thread, _, _ = cute.arch.thread_idx()
        # not negative: the compiler divides by shifts and multiplications
        reducer, scanner = (cutlass.max(thread - before, 0) for before in (LANES, LANES + self.workers))
        self.roles.run(
            transfer=lambda _: self.transfer(shared, a),
            reduce=lambda _: self.reduce_tiles(shared, a, reducer),
            scan=lambda _: self.scan_tiles(shared, a, scanner),
        )

    @cute.jit
    def reduce_tiles(self, shared: cutlass.Constexpr, a: Arguments, worker):
        at = shared.tiles.first()
        while at.number != DONE:
            self.reduce(shared, a, at, worker)
            shared.reduced[at.stage].arrive_once()
            at = shared.tiles.next(at)

    @cute.jit
    def scan_tiles(self, shared: cutlass.Constexpr, a: Arguments, worker):
        at = shared.tiles.first()
        while at.number != DONE:
            shared.reduced.await_phase(at.stage, at.parity)
            self.look_back(shared, a, at, worker)
            self.scan_run(shared, a, at, worker)
            self.finish(shared, a, at, worker)
            at = shared.tiles.next(at)

    def finish(self, shared, a: Arguments, at: Visit, worker) -> None:
        """Store the results of a tile, unless transfer does, and release its stage."""
        if not self.aligned:
            self.store_all(shared, a, at, worker)
        shared.tiles.ring.release(at)

    @cute.jit
    def store_all(self, shared: cutlass.Constexpr, a: Arguments, at: Visit, worker):
        """Store the results of a tile, by all threads that scan."""
        NamedBarrier(Named.SCAN, self.workers).sync()
        place, target, _, elements = self.extent(at.number, a)
        first = shared.buffer + self.base(a, at, place)
        results = cute.make_ptr(
            self.scan.monoid.result.cutlass, first.toint(), cute.AddressSpace.smem, assumed_align=self.size
        )
        store_run(lambda i: results + i, a.out + target, self.size, elements, Boolean(True), worker, self.workers)

    def base(self, a: Arguments, at: Visit, place):
        """Where a tile's first element lies in shared memory."""
        first = at.stage * self.stage
        return first if self.aligned else first + Int32((a.x + place).toint() & (VECTOR_BYTES - 1)) // self.size

    def span(self, at: Visit, a: Arguments, worker) -> Span:
        """A worker's rows of a tile, in scan order. Excess threads have none."""
        place, _, count = self.place(at.number, a)
        first = worker // self.inner * self.height
        return Span(first, cutlass.min(first + self.height, count), count, self.base(a, at, place))

    def at(self, shared, span: Span, position, worker):
        """A worker's element at a position of a tile: where it lies in shared memory."""
        return shared.buffer + (span.base + self.scan.flip(position, span.count) * self.inner + worker % self.inner)

    def target(self, shared, span: Span, position, worker):
        """Where its result is put: in its place."""
        return self.at(shared, span, position, worker)

    def groups(self, shared, number, a: Arguments):
        """``(groups, tile)``: the groups of the outer slice that tile ``number`` is in, and its number there."""
        outer, tag = number // a.tiles, shared.tiles.word[0]
        return TileGroups.make(a, outer, tag, self.scan.types, self.group), number % a.tiles

    @cute.jit
    def reduce(self, shared: cutlass.Constexpr, a: Arguments, at: Visit, worker):
        """Reduce a tile: store the prefix of each run, and publish the aggregates of the columns."""
        span = self.span(at, a, worker)
        first, stop = span.first, span.stop
        partial = Maybe(zeros(self.scan.types), first < stop)
        state = partial.state
        if partial.valid:
            state = self.scan.monoid.lift(element(self.at(shared, span, first, worker))[0], 0)
            first += 1
        while first + UNROLL <= stop:
            values = [element(self.at(shared, span, first + u, worker))[0] for u in range(UNROLL)]
            states = [self.scan.monoid.lift(value, 0) for value in values]
            state = self.scan.combine(state, tree(states, self.scan.combine))
            first += UNROLL
        while first < stop:
            value = self.scan.monoid.lift(element(self.at(shared, span, first, worker))[0], 0)
            state = self.scan.combine(state, value)
            first += 1
        if worker < self.states:
            store_partial(shared.before, at.stage * self.states + worker, Maybe(state, partial.valid))
        NamedBarrier(Named.REDUCE, self.workers).sync()
        column, last, total = self.scan_runs(shared.before, at.stage * self.states, worker)
        if last:
            store_partial(shared.totals, at.stage * self.inner + column, Maybe.of(total.state))
            groups, tile = self.groups(shared, at.number, a)
            groups.publish(tile, column, total.state)

    @cute.jit
    def scan_runs(self, partials: cutlass.Constexpr, base, worker):
        """Replace each run's partial by its prefix; a lane has those of some neighbouring runs. ``(column, last,
        aggregate)``: whether this worker has a column's aggregate, and which column."""
        lanes = min(self.runs, LANES)
        each = self.runs // lanes
        column, group = worker // lanes, worker % lanes
        inside = worker < lanes * self.inner
        combine = lambda a, b: combine_valid(a, b, self.scan.combine)  # noqa: E731
        places = [base + (group * each + i) * self.inner + column for i in range(each)]
        found = [self.partial_at(partials, place, inside) for place in places]
        state = found[0]
        for partial in found[1:]:
            state = combine(state, partial)
        inclusive = scan_states(state, combine, worker % LANES, lanes)
        before = Maybe.unpack(shift_up(inclusive))
        before = Maybe(before.state, (group > 0) & before.valid)
        for place, partial in zip(places, found):
            if inside:
                store_partial(partials, place, before)
            before = before.then(Maybe.unpack(partial), self.scan.combine)
        return column, (group == lanes - 1) & inside, Maybe.unpack(inclusive)

    @cute.jit
    def partial_at(self, partials: cutlass.Constexpr, place, inside):
        state = (*zeros(self.scan.types), Int32(0))
        if inside:
            state = get(partials, place, (*self.scan.types, Int32))
        return state

    @cute.jit
    def look_back(self, shared: cutlass.Constexpr, a: Arguments, at: Visit, worker):
        """Store the prefixes of a tile, those of its columns."""
        types, combine = self.scan.types, self.scan.combine
        groups, tile = self.groups(shared, at.number, a)
        part = worker // self.inner
        if worker >= self.states:
            part = Int32(-1)
        found = groups.collect(tile, worker % self.inner, part, self.runs, combine)
        if worker < self.states:
            store_partial(shared.found, worker, Maybe(found.state[0], found.valid))
        NamedBarrier(Named.SCAN, self.workers).sync()
        column, last, before = self.scan_runs(shared.found, Int32(0), worker)
        if last:
            start = self.scan.carry_in(a, at.number // a.tiles, column)
            carry = Maybe(start.state, start.valid & (tile < self.group)).then(before, combine)
            store_partial(shared.prefixes, column, carry)
            if groups.ends_group(tile):
                total = load_partial(shared.totals, at.stage * self.inner + column, types)
                groups.publish_end(tile, column, carry.then(Maybe.of(total.state), combine).state)
        NamedBarrier(Named.SCAN, self.workers).sync()

    @cute.jit
    def scan_run(self, shared: cutlass.Constexpr, a: Arguments, at: Visit, worker):
        """Replace a worker's elements by its results."""
        types = self.scan.types
        span = self.span(at, a, worker)
        first, stop = span.first, span.stop
        state = zeros(types)
        if first < stop:
            carry = load_partial(shared.prefixes, worker % self.inner, types)
            prefix = load_partial(shared.before, at.stage * self.states + worker, types)
            before = carry.then(prefix, self.scan.combine)
            element_at = self.at(shared, span, first, worker)
            following = before.append(self.scan.monoid.lift(element(element_at)[0], 0), self.scan.combine).state
            place = self.target(shared, span, first, worker)
            self.put(place, before.state if self.scan.exclusive else following)
            state = following
            first += 1
        while first + UNROLL <= stop:
            values = [element(self.at(shared, span, first + u, worker))[0] for u in range(UNROLL)]
            for u in cutlass.range_constexpr(UNROLL):
                state = self.step(self.target(shared, span, first + u, worker), state, (values[u],))
            first += UNROLL
        while first < stop:
            value = element(self.at(shared, span, first, worker))[0]
            state = self.step(self.target(shared, span, first, worker), state, (value,))
            first += 1

    def step(self, place, state, elements):
        """Store the result for the element ``elements[0]``, which ``state`` comes before; the state behind it."""
        following = self.scan.combine(state, self.scan.monoid.lift(elements[0], 0))
        self.put(place, state if self.scan.exclusive else following)
        return following

    def put(self, place, state) -> None:
        result = self.scan.monoid.result
        place = cute.make_ptr(result.cutlass, place.toint(), cute.AddressSpace.smem, assumed_align=result.size)
        element(place)[0] = self.scan.monoid.results_of(state)[0]
