"""A warp scans a run of consecutive elements held in registers: the inner loop of every scan along the last axis.

A *vector* is what one lane handles at a time: as many elements as make 16 bytes of the wider of input and output. A *chunk* is what a warp
holds: ``rows`` rows of 32 vectors. First the warp folds it: each lane its vectors, a shuffle scan each row, the row totals in order; what it
keeps is the elements, still packed in words, and the state before each vector. When the state before the chunk is known, the elements
are gone through again and stored. The operator is applied twice to an element, and about 5 / items times in shuffles.

Positions are in scan order; ``Scan.flip`` turns them into places in memory.
"""

from __future__ import annotations

import math

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ...monoid import choose, tree
from ...warp import LANES, append, broadcast, prepend, reduce_rows, reduce_states, scan_states, shift_up
from .base import Scan

VECTOR_BYTES = 16


class WarpScan:
    """Chunks of ``rows`` rows; ``warps`` warps share a tile. All 32 lanes call every method.

    ``items`` positions a vector (default: what makes a multiple of 16 bytes of the wider type), aligned in the input. ``shift``: how many elements past such a
    boundary the output's vectors begin; None: unknown, they are stored element by element. Tiles begin on multiples of ``boundary`` bytes in the input.
    """

    def __init__(
        self,
        scan: Scan,
        rows: int,
        warps: int,
        shift: int | None,
        items: int | None = None,
        boundary: int = VECTOR_BYTES,
    ) -> None:
        self.scan, self.rows, self.warps, self.shift, self.boundary = scan, rows, warps, shift, boundary
        self.monoid = scan.monoid
        self.items = items or VECTOR_BYTES // math.gcd(
            VECTOR_BYTES, scan.width * max(self.monoid.source.size, self.monoid.result.size)
        )
        self.vectors = rows * LANES
        self.chunk = self.vectors * self.items  # positions
        self.tile = warps * self.chunk
        self.elements = self.items * scan.width  # of a vector
        self.in_bytes = self.elements * self.monoid.source.size
        self.out_bytes = self.elements * self.monoid.result.size

    @cute.jit
    def span(self, start: cute.Pointer, length: Int64, position: Int64, extent: cutlass.Constexpr):
        """``(offset, begin, end)`` of the ``extent`` positions from ``position`` of the row of ``length`` elements at ``start``: where they
        lie in memory from there, and which of them exist. Position 0 lies on a boundary (of the row's end, in reverse) before the first element
        or at it; ``position`` is a multiple of ``extent``."""
        slack = self.slack(start, length)
        offset = length + slack - position - extent if self.scan.reverse else position - slack
        begin = cutlass.min(cutlass.max(slack - position, Int64(0)), Int64(extent))
        end = cutlass.min(cutlass.max(slack + length - position, Int64(0)), Int64(extent))
        return offset * self.scan.width, Int32(begin), Int32(end)

    def slack(self, start, length):
        """How many positions before a row's first one position 0 lies. Rows of several columns begin on a boundary."""
        if self.scan.width > 1:
            return (self.items - length % self.items) % self.items if self.scan.reverse else Int64(0)
        most = self.boundary // self.monoid.source.size
        edge = (start + length).toint() if self.scan.reverse else start.toint()
        skew = Int64(edge & (self.boundary - 1)) // self.monoid.source.size
        return (most - skew) % most if self.scan.reverse else skew

    def place(self, u, lane):
        """Where in the chunk a lane's vector of row ``u`` lies, in elements."""
        return self.scan.flip(lane + u * LANES, self.vectors) * self.elements

    # Loading

    def registers(self):
        """``(elements, prefixes)`` of a chunk: packed elements (words, rows), and a tensor of ``rows`` values a state member."""
        held = Int32 if self.in_bytes % 4 == 0 else self.monoid.source.cutlass
        each = self.in_bytes // 4 if self.in_bytes % 4 == 0 else self.elements
        layout = cute.make_layout(
            (each, self.rows), stride=(1, each)
        )  # stated: a mode of one element would get stride 0, which recasting spreads
        return cute.make_rmem_tensor(layout, held), tuple(
            cute.make_rmem_tensor((self.rows,), t) for t in self.scan.types
        )

    def load(self, start, lane, elements) -> None:
        """Fill ``elements`` from the chunk that starts in memory at ``start`` (any address space)."""
        for u in range(self.rows):
            self.load_vector(start + self.place(u, lane), elements, u, True)

    @cute.jit
    def load_vector(self, start, elements, u: cutlass.Constexpr, exists):
        if exists:
            held = Int32 if self.in_bytes % 4 == 0 else self.monoid.source.cutlass
            source = cute.make_ptr(
                held, start.toint(), start.memspace, assumed_align=math.gcd(self.in_bytes, VECTOR_BYTES)
            )
            cute.autovec_copy(
                cute.make_tensor(source, cute.make_layout((cute.size(elements, mode=[0]),))), elements[(None, u)]
            )

    def lifted(self, elements, u: int):
        """The states of the elements of a lane's vector of row ``u``, in scan order."""
        values = elements[(None, u)]
        if self.in_bytes % 4 == 0:
            values = cute.recast_tensor(values, self.monoid.source.cutlass)
        return [self.scan.lift(values, self.scan.flip(i, self.items) * self.scan.width) for i in range(self.items)]

    # Folding

    def fold(self, elements, prefixes, lane):
        """Fold a loaded chunk: the state of it all, in every lane. ``prefixes`` gets the state before each vector (no meaning for the
        first of all)."""
        return self.join_rows([self.scan_row(elements, u, lane, True) for u in range(self.rows)], prefixes, lane)

    @cute.jit
    def scan_row(self, elements, u: cutlass.Constexpr, lane, exists, width: cutlass.Constexpr = LANES):
        """The inclusive scan of row ``u``'s vectors over groups of ``width`` lanes."""
        state = tuple(t(0) for t in self.scan.types)
        if exists:
            state = self.fold_vector(elements, u)
        return scan_states(state, self.scan.combine, lane, width, exists)

    def join_rows(self, inclusive, prefixes, lane, count=None):
        """From the rows' scans to the state before each vector and that of the chunk. Only the first ``count`` vectors exist."""
        total = None
        for u in range(self.rows):
            before = shift_up(inclusive[u])
            last = broadcast(
                inclusive[u], LANES - 1 if count is None else cutlass.max(cutlass.min(count - u * LANES, LANES) - 1, 0)
            )
            if u > 0:
                here, some = (True, True) if count is None else (lane + u * LANES < count, u * LANES < count)
                before = append((lane > 0) & here, total, before, self.scan.combine)
                last = append(some, total, last, self.scan.combine)
            total = last
            for member, value in zip(prefixes, before):
                member[u] = value
        return total

    def fold_only(self, elements, lane):
        """As ``fold`` without the prefixes, at less cost. The operands are grouped differently."""
        vectors = [self.fold_vector(elements, u) for u in range(self.rows)]
        if self.monoid.commutative:
            return reduce_states(tree(vectors, self.scan.combine), self.scan.combine, lane)
        return reduce_rows(vectors, self.scan.combine, lane)

    def fold_vector(self, elements, u: int):
        if self.in_bytes % 4 == 0 and self.scan.width == 1 and not self.scan.reverse:
            return self.monoid.fold(elements[(None, u)], 0)
        return tree(self.lifted(elements, u), self.scan.combine)

    # Emitting

    def emit(self, elements, prefixes, have, state, out, lane) -> None:
        """Store the scanned chunk at ``out``; ``state`` (if ``have``) is that of everything before the chunk."""
        order = range(self.rows - 1, -1, -1) if self.scan.reverse else range(self.rows)  # memory order
        held = None
        for u in order:
            before = tuple(t(member[u]) for t, member in zip(self.scan.types, prefixes))
            results = self.results(elements, u, have, state, lane == 0 if u == 0 else False, before)
            if self.shift:
                held = self._store_shifted(results, held, out + self.place(u, lane), lane)
            else:
                self.store(results, out + self.place(u, lane))
        if self.shift:
            self._store_last(results, out + self.place(order[-1], lane), lane)

    @cute.jit
    def emit_vector(self, elements, u: cutlass.Constexpr, have, state, first, before, out, exists):
        """Store one scanned vector at ``out``; see ``results``."""
        if exists:
            self.store(self.results(elements, u, have, state, first, before), out)

    def results(self, elements, u: int, have, state, first, before):
        """A scanned vector, in registers in memory order. ``state`` (if ``have``) comes before the chunk and ``before`` after it, which means
        nothing in the ``first`` vector of the chunk."""
        if first is False:
            before, known = prepend(have, state, before, self.scan.combine), True
        else:
            before, known = first_prefix(have, state, first, before, self.scan.combine)
        results = cute.make_rmem_tensor((self.elements,), self.monoid.result.cutlass)
        for i, value in enumerate(self.lifted(elements, u)):
            following = prepend(known, before, value, self.scan.combine) if i == 0 else self.scan.combine(before, value)
            self.scan.lower(
                before if self.scan.exclusive else following, results, self.scan.flip(i, self.items) * self.scan.width
            )
            before = following
        return results

    def store(self, results, out) -> None:
        align = math.gcd(self.out_bytes, VECTOR_BYTES) if self.shift == 0 else self.monoid.result.size
        target = cute.make_ptr(self.monoid.result.cutlass, out.toint(), cute.AddressSpace.gmem, assumed_align=align)
        cute.autovec_copy(results, cute.make_tensor(target, cute.make_layout((self.elements,))))

    @cute.jit
    def _store_shifted(self, results, held, out, lane):
        """Store the aligned vector that ends inside this lane's: the end of the vector before it in memory and the beginning of its own.
        Rows come in memory order; ``held`` are a lane's words of the row before, None for the first. Returns this row's."""
        words = cute.recast_tensor(results, Int32)
        count = cute.size(words)
        own = tuple(words[w] for w in range(count))
        last, step = (
            (0, 1) if self.scan.reverse else (LANES - 1, LANES - 1)
        )  # the last lane in memory, and the way to the one before
        sent = own if cutlass.const_expr(held is None) else tuple(choose(lane == last, a, b) for a, b in zip(held, own))
        both = cute.make_rmem_tensor((2 * count,), Int32)
        for w in cutlass.range_constexpr(count):
            both[w] = cute.arch.shuffle_sync(sent[w], (lane + step) % LANES)
            both[count + w] = own[w]
        elements = cute.recast_tensor(both, self.monoid.result.cutlass)
        joined = cute.make_rmem_tensor((self.items,), self.monoid.result.cutlass)
        for i in cutlass.range_constexpr(self.items):
            joined[i] = elements[self.items - self.shift + i]
        if cutlass.const_expr(held is None):
            if lane == LANES - 1 - last:
                self._store_elements(results, out, 0, self.items - self.shift)
            else:
                self._store_aligned(joined, out - self.shift)
        else:
            self._store_aligned(joined, out - self.shift)
        return own

    @cute.jit
    def _store_last(self, results, out, lane):
        """Store what ``_store_shifted`` left of the chunk's last vector in memory."""
        if lane == (0 if self.scan.reverse else LANES - 1):
            self._store_elements(results, out, self.items - self.shift, self.items)

    def _store_elements(self, results, out, begin: int, end: int) -> None:
        for i in range(begin, end):
            cute.make_tensor(out + i, cute.make_layout((1,)))[0] = results[i]

    def _store_aligned(self, results, out) -> None:
        target = cute.make_ptr(
            self.monoid.result.cutlass, out.toint(), cute.AddressSpace.gmem, assumed_align=self.out_bytes
        )
        cute.autovec_copy(results, cute.make_tensor(target, cute.make_layout((self.items,))))


@cute.jit
def first_prefix(have: Boolean, state, first: Boolean, before, combine: cutlass.Constexpr):
    """The state before each vector of a chunk's first row, and whether there is one."""
    known = cutlass.not_(first)
    if have:
        if first:
            before = state
        else:
            before = combine(state, before)
        known = Boolean(True)
    return before, known
