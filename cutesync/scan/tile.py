"""A warp scans a run of consecutive elements held in registers: the inner loop of every scan of long rows.

A *vector* is what one lane handles at a time: as many elements as make 16 bytes of the wider of input and output. A *chunk* is what a warp
holds: ``rows`` rows of 32 vectors. First the warp folds it (``fold``): each lane its vectors, a shuffle scan each row, the row totals in order;
what it keeps is the elements, still packed in words, and the state before each vector. When the state before the chunk is known,
``emit`` runs through the elements again and stores. The operator is applied twice to an element and about 5 / items times in shuffles.

Positions are in scan order; ``Scan.flip`` turns them into places in memory. A chunk that is not full (the first and the last of a
row) goes element by element through ``ragged_fold`` and ``ragged_emit``, which never show the operator anything but elements.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ..monoid import tree
from ..warp import LANES, append, broadcast, combine_valid, prepend, reduce_rows, reduce_states, scan_states, shift_up
from .base import Scan

VECTOR_BYTES = 16


class WarpScan:
    """Chunks of ``rows`` rows; ``warps`` warps share a tile. All 32 lanes call every method.

    ``items`` elements a vector (default: 16 bytes of the wider type); vectors are aligned in memory, those stored only with ``aligned_out``.
    """

    def __init__(self, scan: Scan, rows: int, warps: int, aligned_out: bool, items: int | None = None) -> None:
        self.scan, self.rows, self.warps, self.aligned_out = scan, rows, warps, aligned_out
        self.monoid = scan.monoid
        self.items = items or VECTOR_BYTES // max(self.monoid.source.size, self.monoid.result.size)
        self.vectors = rows * LANES
        self.chunk = self.vectors * self.items  # elements
        self.tile = warps * self.chunk
        self.in_bytes = self.items * self.monoid.source.size
        self.words = max(1, self.in_bytes // 4)

    @cute.jit
    def span(self, start: cute.Pointer, length: Int64, position: Int64, extent: cutlass.Constexpr):
        """``(offset, begin, end)`` of the ``extent`` positions from ``position`` of the row of ``length`` elements at ``start``: where they
        lie in memory from there, and which of them exist. Position 0 lies on a 16-byte boundary (of the row's end, in reverse), up to 15
        bytes before the first element; ``position`` is a multiple of ``extent``."""
        size = self.monoid.source.size
        edge = (start + length).toint() if self.scan.reverse else start.toint()
        skew = Int64(edge & (VECTOR_BYTES - 1)) // size
        slack = (VECTOR_BYTES // size - skew) % (VECTOR_BYTES // size) if self.scan.reverse else skew
        offset = length + slack - position - extent if self.scan.reverse else position - slack
        begin = cutlass.min(cutlass.max(slack - position, Int64(0)), Int64(extent))
        end = cutlass.min(cutlass.max(slack + length - position, Int64(0)), Int64(extent))
        return offset, Int32(begin), Int32(end)

    # Registers

    def registers(self):
        """``(elements, prefixes)`` of a chunk: packed elements (words, rows), and a tensor of ``rows`` values a state member."""
        held = Int32 if self.in_bytes >= 4 else self.monoid.source.cutlass
        each = self.words if self.in_bytes >= 4 else self.items
        layout = cute.make_layout((each, self.rows), stride=(1, each))  # stated: a mode of one element would get stride 0, which recasting spreads
        return cute.make_rmem_tensor(layout, held), tuple(cute.make_rmem_tensor((self.rows,), t) for t in self.monoid.types)

    def _vector(self, start, align: int):
        """A lane's vector in memory, as wide units where it fills words."""
        if self.in_bytes >= 4:
            words = cute.make_ptr(Int32, start.toint(), start.memspace, assumed_align=align)
            return cute.make_tensor(words, cute.make_layout((self.words,)))
        return cute.make_tensor(cute.make_ptr(self.monoid.source.cutlass, start.toint(), start.memspace, assumed_align=align), cute.make_layout((self.items,)))

    def load(self, start, lane, elements, count=None) -> None:
        """Fill ``elements`` from the chunk that starts in memory at ``start`` (any address space); its first ``count`` vectors, if given."""
        for u in range(self.rows):
            self.load_vector(start + self._place(u, lane), elements, u, self._exists(u, lane, count))

    def _place(self, u, lane):
        """Where in the chunk a lane's vector of row ``u`` lies, in elements."""
        return self.scan.flip(lane + u * LANES, self.vectors) * self.items

    def _exists(self, u, lane, count):
        return True if count is None else lane + u * LANES < count

    @cute.jit
    def load_vector(self, start, elements, u: cutlass.Constexpr, exists):
        if exists:
            cute.autovec_copy(self._vector(start, self.in_bytes), elements[(None, u)])

    def lifted(self, elements, u: int):
        """The states of the elements of a lane's vector of row ``u``, in scan order."""
        values = elements[(None, u)]
        if self.in_bytes >= 4:
            values = cute.recast_tensor(values, self.monoid.source.cutlass)
        return [self.monoid.lift(values[self.scan.flip(i, self.items)], 0) for i in range(self.items)]

    # Any chunk in global memory

    @cute.jit
    def fold(self, start: cute.Pointer, begin: Int32, end: Int32, elements, prefixes, lane: Int32):
        """``(any, state)`` of the chunk at ``start``."""
        have = Boolean(True)
        state = tuple(t(0) for t in self.monoid.types)
        if (begin == 0) & (end == self.chunk):
            self.load(start, lane, elements)
            state = self.fold_full(elements, prefixes, lane)
        else:
            have, state = self.ragged_fold(start, begin, end, lane)
        return have, state

    @cute.jit
    def emit(self, start: cute.Pointer, out: cute.Pointer, begin: Int32, end: Int32, elements, prefixes, have: Boolean, state, lane: Int32):
        """Store the scanned chunk at ``out``; ``state`` (if ``have``) is that of everything before the chunk."""
        if (begin == 0) & (end == self.chunk):
            self.emit_full(elements, prefixes, have, state, out, lane)
        else:
            self.ragged_emit(start, out, begin, end, have, state, lane)

    # Full chunks

    def fold_full(self, elements, prefixes, lane, count=None):
        """Fold a full chunk: the state of it all, in every lane. ``prefixes`` gets the state before each vector (no meaning for the
        first of all). With ``count`` only the first ``count`` vectors exist, and the state means something if that is all of them."""
        inclusive = [self.scan_row(elements, u, lane, self._exists(u, lane, count)) for u in range(self.rows)]
        total = None
        for u in range(self.rows):
            before = shift_up(inclusive[u])
            last = broadcast(inclusive[u], LANES - 1)
            if u > 0:
                before = append((lane > 0) & self._exists(u, lane, count), total, before, self.scan.combine)
                last = prepend(self._exists(u, LANES - 1, count), total, last, self.scan.combine)
            total = last
            for member, value in zip(prefixes, before):
                member[u] = value
        return total

    @cute.jit
    def scan_row(self, elements, u: cutlass.Constexpr, lane, exists, width: cutlass.Constexpr = LANES):
        """The inclusive scan of row ``u``'s vectors over groups of ``width`` lanes."""
        state = tuple(t(0) for t in self.monoid.types)
        if exists:
            state = self.fold_vector(elements, u)
        return scan_states(state, self.scan.combine, lane, width, exists)

    def fold_only(self, elements, lane):
        """As ``fold_full`` without the prefixes, at less cost. The operands are grouped differently."""
        vectors = [self.fold_vector(elements, u) for u in range(self.rows)]
        if self.monoid.commutative:
            return reduce_states(tree(vectors, self.scan.combine), self.scan.combine, lane)
        return reduce_rows(vectors, self.scan.combine, lane)

    def fold_vector(self, elements, u: int):
        if self.in_bytes >= 4 and not self.scan.reverse:
            return self.monoid.fold(elements[(None, u)], 0)
        return tree(self.lifted(elements, u), self.scan.combine)

    def emit_full(self, elements, prefixes, have, state, out, lane, count=None) -> None:
        """Store the scanned chunk at ``out``, or its first ``count`` vectors."""
        for u in range(self.rows):
            before = tuple(t(member[u]) for t, member in zip(self.monoid.types, prefixes))
            first = lane == 0 if u == 0 else False
            self.emit_vector(elements, u, have, state, first, before, out + self._place(u, lane), self._exists(u, lane, count))

    @cute.jit
    def emit_vector(self, elements, u: cutlass.Constexpr, have, state, first, before, out, exists):
        """Store a scanned vector at ``out``. ``before``: the state of the vectors before it in its chunk; it means nothing in the ``first``."""
        if exists:
            if cutlass.const_expr(first is False):
                before = prepend(have, state, before, self.scan.combine)
                self._store(self._running(self.lifted(elements, u), before, True), out)
            else:
                before, known = _first_prefix(have, state, first, before, self.scan.combine)
                self._store(self._running(self.lifted(elements, u), before, known), out)

    def _running(self, values, before, known):
        """The results of one vector, in scan order. ``before`` means nothing unless ``known``."""
        found = []
        for i, value in enumerate(values):
            following = prepend(known, before, value, self.scan.combine) if i == 0 else self.scan.combine(before, value)
            found.append(self.monoid.lower(before if self.scan.exclusive else following))
            before = following
        return found

    def _store(self, values, out) -> None:
        results = cute.make_rmem_tensor((self.items,), self.monoid.result.cutlass)
        for i, value in enumerate(values):
            results[self.scan.flip(i, self.items)] = value
        align = self.items * self.monoid.result.size if self.aligned_out else self.monoid.result.size
        target = cute.make_ptr(self.monoid.result.cutlass, out.toint(), cute.AddressSpace.gmem, assumed_align=align)
        cute.autovec_copy(results, cute.make_tensor(target, cute.make_layout((self.items,))))

    # Chunks that are not full: elements [begin, end) of the chunk, in scan order, exist

    @cute.jit
    def ragged_fold(self, start: cute.Pointer, begin: Int32, end: Int32, lane: Int32):
        """``(any, state)`` of the elements that exist."""
        total = (*(t(0) for t in self.monoid.types), Int32(0))
        row = begin // (LANES * self.items)
        while row * (LANES * self.items) < end:
            mine = self.ragged_vector(start, row, begin, end, lane)
            total = combine_valid(total, reduce_states(mine, self.combine_valid, lane), self.scan.combine)
            row += 1
        return total[-1] != 0, total[:-1]

    @cute.jit
    def ragged_emit(self, start: cute.Pointer, out: cute.Pointer, begin: Int32, end: Int32, have: Boolean, state, lane: Int32):
        """Store the scanned elements that exist at ``out``; ``state`` (if ``have``) is that of everything before the chunk."""
        total = (*state, Int32(have))
        source = cute.make_tensor(start, cute.make_layout((self.chunk,)))
        target = cute.make_tensor(out, cute.make_layout((self.chunk,)))
        row = begin // (LANES * self.items)
        while row * (LANES * self.items) < end:
            inclusive = scan_states(self.ragged_vector(start, row, begin, end, lane), self.combine_valid, lane)
            before = shift_up(inclusive)
            running = total
            if lane > 0:
                running = combine_valid(total, before, self.scan.combine)
            first = (row * LANES + lane) * self.items
            for i in cutlass.range(self.items, unroll=1):
                if (first + i >= begin) & (first + i < end):
                    place = self.scan.flip(first + i, self.chunk)
                    value = (*self.monoid.lift(source[place], 0), Int32(1))
                    following = combine_valid(running, value, self.scan.combine)
                    target[place] = self.monoid.lower((running if self.scan.exclusive else following)[:-1])
                    running = following
            total = combine_valid(total, broadcast(inclusive, LANES - 1), self.scan.combine)
            row += 1

    @cute.jit
    def ragged_vector(self, start: cute.Pointer, row: Int32, begin: Int32, end: Int32, lane: Int32):
        """The state and flag of those elements of a lane's vector that exist."""
        source = cute.make_tensor(start, cute.make_layout((self.chunk,)))
        state = (*(t(0) for t in self.monoid.types), Int32(0))
        first = (row * LANES + lane) * self.items
        for i in cutlass.range(self.items, unroll=1):
            if (first + i >= begin) & (first + i < end):
                value = (*self.monoid.lift(source[self.scan.flip(first + i, self.chunk)], 0), Int32(1))
                state = combine_valid(state, value, self.scan.combine)
        return state

    def combine_valid(self, a, b):
        return combine_valid(a, b, self.scan.combine)


@cute.jit
def _first_prefix(have: Boolean, state, first: Boolean, before, combine: cutlass.Constexpr):
    """The state before each vector of a chunk's first row, and whether there is one."""
    known = cutlass.not_(first)
    if have:
        if first:
            before = state
        else:
            before = combine(state, before)
        known = Boolean(True)
    return before, known
