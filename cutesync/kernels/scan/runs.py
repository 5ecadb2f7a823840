"""Scan of long rows of states of several values: the pipeline of ``pipeline.py`` with a run of positions for each lane.

A lane scans neighbouring positions of a chunk, one after the other. So an operator is called about twice a position,
once to reduce and once to scan, and lanes exchange states once a chunk; in ``pipeline.py`` they exchange them for every
row of vectors, which costs an operator of several values more than twice as much.

    fold     reduces each lane's run, scans the lanes' aggregates, and stores the prefix of each lane
    emit     scans each lane's run in shared memory, in place of the elements; one lane starts the copies to memory

The roles' barriers are those of ``pipeline.py``. A stage is released when the copies have read it. Runs have an odd
number of vectors: so vectors of 16 bytes that eight lanes access together lie in different banks.

Whole *units* (16 bytes of the smallest elements) are in shared memory and are copied to memory from there. The other
elements, those at the ends of a row, are loaded from global memory and stored one by one:

    position    4       8       12      16      20          unit = 4
                | . . x x | x x x x | x x x x | x . . . |   x exists: begin = 6, end = 17
    units                 8 ............... 16              first = 8, stop = 16
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Int32

from ...block.reduce import load_partial, partial_array, partial_bytes, store_partial
from ...block.warps import scan_partials
from ...warp import LANES, Maybe, combine_valid, prepend, scan_states, shift_up, zeros
from ..arrays import index_of, pointers_of
from .base import Arguments, Scan
from .pipeline import PipelineScan
from .policy import RunPolicy
from .tile import VECTOR_BYTES, WarpScan

# A chunk of a tile: where it lies in shared memory (``held``), in the inputs (``start``) and in the outputs (``out``),
# the positions that exist, and those of whole units, [first, stop).
Part = namedtuple("Part", "held start out span first stop")


class RunScan(PipelineScan):
    """The kernel. Each output has an input with elements of its size, ``policy.places``, in whose place its results
    are put; both have the same alignment."""

    def __init__(self, scan: Scan, policy: RunPolicy) -> None:
        self.places = policy.places
        super().__init__(scan, policy)
        self.one = WarpScan(scan, 1, 1, 0, self.tile.items)

    def unit_of(self) -> int:
        return VECTOR_BYTES // min(dtype.size for dtype in self.tile.scan.monoid.sources)

    def more_shared(self):
        return partial_array(self.tile.scan.types, self.stages * self.warps * LANES)

    def more_bytes(self) -> int:
        return partial_bytes(self.tile.scan.types, self.stages * self.warps * LANES)

    def part(self, shared, a: Arguments, at, chunk) -> Part:
        """A chunk of the tile in hand."""
        row = self.row_in(a, at.number)
        span = self.span(row, a, at.number, chunk)
        start = row + span.offset
        first = (span.begin + self.unit - 1) // self.unit * self.unit
        out = a.out + (self.row(a, at.number) + span.target)
        return Part(
            self.chunk_in(shared, at.stage, chunk, start), start, out, span, first, span.end // self.unit * self.unit
        )

    def vector(self, u, lane):
        """``(position, place)`` of vector ``u`` of a lane's run: its first position, and its lowest address, in
        elements of the chunk."""
        number = lane * self.tile.rows + u
        return number * self.tile.items, self.scan.flip(number, self.tile.vectors) * self.tile.items

    def lifted(self, place):
        """The states of the vector at ``place``, in scan order."""
        elements = self.one.registers().elements
        self.one.copy_vector(place, elements, 0)
        return self.one.lifted(elements, 0)

    def append(self, packed, values):
        """A packed state followed by others."""
        partial = Maybe.unpack(packed)
        for value in values:
            partial = partial.append(value, self.scan.combine)
        return partial.pack()

    @cute.jit
    def fold_chunk(self, shared: cutlass.Constexpr, a: Arguments, at, chunk, lane):
        part = self.part(shared, a, at, chunk)
        place = at.stage * self.warps + chunk
        mine = place * LANES + lane
        if self.tile.is_full(part.span):
            state = self.reduce_run(part, lane)
            inclusive = scan_states(state, self.scan.combine, lane)
            store_partial(shared.more, mine, Maybe(shift_up(inclusive), lane > 0))
            if lane == LANES - 1:
                store_partial(shared.totals, place, Maybe.of(inclusive))
        else:
            state = self.reduce_ends(part, lane)
            inclusive = scan_states(state, lambda x, y: combine_valid(x, y, self.scan.combine), lane)
            before = Maybe.unpack(shift_up(inclusive))
            store_partial(shared.more, mine, Maybe(before.state, before.valid & (lane > 0)))
            if lane == LANES - 1:
                store_partial(shared.totals, place, Maybe.unpack(inclusive))

    def reduce_run(self, part: Part, lane):
        """The aggregate of a lane's run in a full chunk."""
        state = None
        for u in range(self.tile.rows):
            for value in self.lifted(part.held + self.vector(u, lane)[1]):
                state = value if state is None else self.scan.combine(state, value)
        return state

    @cute.jit
    def reduce_ends(self, part: Part, lane):
        """The packed aggregate of the positions that exist of a lane's run."""
        state = (*zeros(self.scan.types), Int32(0))
        for u in cutlass.range(self.tile.rows, unroll=1):
            position, place = self.vector(u, lane)
            if (position >= part.first) & (position + self.tile.items <= part.stop):
                state = self.append(state, self.lifted(part.held + place))
            elif (position < part.span.end) & (position + self.tile.items > part.span.begin):
                for i in cutlass.range(self.tile.items, unroll=1):
                    if self.exists(part, position + i):
                        state = self.append(state, [self.element(part, position + i)])
        return state

    def exists(self, part: Part, position):
        return (position >= part.span.begin) & (position < part.span.end)

    def element(self, part: Part, position):
        """The state of one position, loaded from global memory."""
        place = part.start + self.scan.flip(position, self.tile.chunk)
        tensors = tuple(cute.make_tensor(p, cute.make_layout((1,))) for p in pointers_of(place))
        return self.scan.lift(tensors, 0, index_of(place))

    @cute.jit
    def emit_tile(self, shared: cutlass.Constexpr, a: Arguments, at, warp, lane):
        types = self.scan.types
        part = self.part(shared, a, at, warp)
        shared.folded.await_phase(at.stage, at.parity)
        prefix, _ = scan_partials(
            shared.totals, at.stage * self.warps, self.warps, warp, lane, types, self.scan.combine
        )
        mine = load_partial(shared.more, (at.stage * self.warps + warp) * LANES + lane, types)
        prefix = prefix.then(mine, self.scan.combine)
        shared.ready.await_phase(at.stage, at.parity)
        before = load_partial(shared.prefixes, at.stage, types).then(prefix, self.scan.combine)
        if self.tile.is_full(part.span):
            self.scan_run(part, before, lane)
        else:
            self.scan_ends(part, before, lane)
        cute.arch.sync_warp()
        self.store(part, lane)
        shared.tiles.ring.release(at)

    @cute.jit
    def scan_run(self, part: Part, before: Maybe, lane):
        """Put the results of a lane's run in place of its elements, in a full chunk."""
        state = before.state
        places = [part.held + self.vector(u, lane)[1] for u in range(self.tile.rows)]
        elements = self.tile.registers().elements
        for u in cutlass.range_constexpr(self.tile.rows):
            self.tile.copy_vector(places[u], elements, u)
        for u in cutlass.range_constexpr(self.tile.rows):
            valid = before.valid if u == 0 else True
            state = self.scan_vector(self.tile.lifted(elements, u), Maybe(state, valid), places[u])

    def scan_vector(self, values, before: Maybe, place):
        """Put the results of a vector in shared memory; the state behind it."""
        results = tuple(cute.make_rmem_tensor((self.tile.items,), d.cutlass) for d in self.scan.monoid.results)
        state, valid = before
        for i, value in enumerate(values):
            following = (
                self.scan.combine(state, value) if valid is True else prepend(valid, state, value, self.scan.combine)
            )
            target = self.scan.flip(i, self.tile.items)
            self.scan.lower(state if self.scan.exclusive else following, results, target)
            state, valid = following, True
        self.put(results, place)
        return state

    def put(self, results, place) -> None:
        pointers = pointers_of(place)
        for dtype, result, k in zip(self.scan.monoid.results, results, self.places):
            align = self.tile.items * dtype.size
            target = cute.make_ptr(dtype.cutlass, pointers[k].toint(), cute.AddressSpace.smem, assumed_align=align)
            cute.autovec_copy(result, cute.make_tensor(target, cute.make_layout((self.tile.items,))))

    @cute.jit
    def scan_ends(self, part: Part, before: Maybe, lane):
        """As ``scan_run`` for the positions that exist; those outside of whole units go to global memory."""
        packed = before.pack()
        for u in cutlass.range(self.tile.rows, unroll=1):
            position, place = self.vector(u, lane)
            if (position >= part.first) & (position + self.tile.items <= part.stop):
                held = part.held + place
                state = self.scan_vector(self.lifted(held), Maybe.unpack(packed), held)
                packed = (*state, Int32(1))
            elif (position < part.span.end) & (position + self.tile.items > part.span.begin):
                for i in cutlass.range(self.tile.items, unroll=1):
                    if self.exists(part, position + i):
                        packed = self.scan_element(part, position + i, packed)

    def scan_element(self, part: Part, position, packed):
        """Store the result of one position in global memory; the packed state behind it."""
        following = self.append(packed, [self.element(part, position)])
        place = part.out + self.scan.flip(position, self.tile.chunk)
        tensors = tuple(cute.make_tensor(p, cute.make_layout((1,))) for p in pointers_of(place))
        self.scan.lower((packed if self.scan.exclusive else following)[:-1], tensors, 0)
        return following

    @cute.jit
    def store(self, part: Part, lane):
        """Copy a chunk's results of whole units to memory, whole lines at a time."""
        if self.tile.is_full(part.span):
            for u in range(self.tile.rows):
                self.store_vector(part, lane + u * LANES)
        else:
            for u in cutlass.range(self.tile.rows, unroll=1):
                position = (lane + u * LANES) * self.tile.items
                if (position >= part.first) & (position + self.tile.items <= part.stop):
                    self.store_vector(part, lane + u * LANES)

    def store_vector(self, part: Part, number) -> None:
        place = self.scan.flip(number, self.tile.vectors) * self.tile.items
        sources, targets = pointers_of(part.held + place), pointers_of(part.out + place)
        for dtype, k, target in zip(self.scan.monoid.results, self.places, targets):
            align, layout = self.tile.items * dtype.size, cute.make_layout((self.tile.items,))
            source = cute.make_ptr(dtype.cutlass, sources[k].toint(), cute.AddressSpace.smem, assumed_align=align)
            target = cute.make_ptr(dtype.cutlass, target.toint(), cute.AddressSpace.gmem, assumed_align=align)
            cute.autovec_copy(cute.make_tensor(source, layout), cute.make_tensor(target, layout))
