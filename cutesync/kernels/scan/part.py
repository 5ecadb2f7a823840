"""Chunks at the ends of a row, of which only positions [begin, end) exist.

They are gone through a few rows of vectors at a time, once to fold and once to store, so that they take few registers beside the
full chunks' code. ``vectors`` is where the whole vectors are read, if not at ``start``: in shared memory, where the chunk's places are the same. In such a piece the vectors that exist are counted from the one that holds position ``begin``, so that all lanes
before a lane with a vector have one. Whole vectors are loaded as such; the first and the last may be partial: of those a lane has
an element. The operator never sees anything but elements.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32

from ...block.warps import after
from ...monoid import choose
from ...warp import LANES, broadcast, combine_valid, scan_states, shift_up
from .tile import WarpScan

ROWS = 4  # rows of vectors in a piece
HALF = LANES // 2  # lanes, and the most elements of a vector


class PartScan:
    """The chunks of ``tile`` in global memory, full or not, in pieces of ``rows`` rows of vectors."""

    def __init__(self, tile: WarpScan, rows: int = ROWS) -> None:
        self.chunk = tile.chunk
        self.tile = WarpScan(tile.scan, min(rows, tile.rows), 1, None if tile.shift else tile.shift, tile.items)
        self.scan, self.monoid = tile.scan, tile.monoid

    @cute.jit
    def fold(self, start: cute.Pointer, begin: Int32, end: Int32, lane: Int32, vectors=None):
        """``(any, state)`` of the chunk whose lowest address is ``start``."""
        vectors = start if vectors is None else vectors
        have, state = Boolean(False), self.nothing()
        piece = begin // self.tile.chunk
        while piece * self.tile.chunk < end:
            elements, prefixes = self.tile.registers()
            low, high = self.clip(begin, end, piece)
            found, fold = self.fold_piece(
                start + self.place(piece), vectors + self.place(piece), low, high, elements, prefixes, lane
            )
            have, state = after(have, state, found, fold, self.scan.combine)
            piece += 1
        return have, state

    @cute.jit
    def emit(
        self,
        start: cute.Pointer,
        out: cute.Pointer,
        begin: Int32,
        end: Int32,
        have: Boolean,
        state,
        lane: Int32,
        vectors=None,
    ):
        """Store the scanned chunk at ``out``; ``state`` (if ``have``) is that of everything before the chunk."""
        vectors = start if vectors is None else vectors
        piece = begin // self.tile.chunk
        while piece * self.tile.chunk < end:
            elements, prefixes = self.tile.registers()
            low, high = self.clip(begin, end, piece)
            source, target = start + self.place(piece), out + self.place(piece)
            found, fold = self.fold_piece(source, vectors + self.place(piece), low, high, elements, prefixes, lane)
            self.emit_piece(source, target, low, high, elements, prefixes, have, state, lane)
            have, state = after(have, state, found, fold, self.scan.combine)
            piece += 1

    def place(self, piece):
        """Where a piece lies in the chunk, in elements."""
        return self.scan.flip(piece, self.chunk // self.tile.chunk) * self.tile.chunk * self.scan.width

    def clip(self, begin, end, piece):
        """The positions of a piece that exist, counted from its first."""
        low = cutlass.max(begin - piece * self.tile.chunk, 0)
        return low, cutlass.min(end - piece * self.tile.chunk, self.tile.chunk)

    def geometry(self, begin, end):
        """``(shift, skip, count, tail)``: the first vector begins at position ``shift`` and lacks ``skip`` elements; ``count`` vectors exist,
        the last one up to its element ``tail``."""
        items = self.tile.items
        shift = begin // items * items
        count = cutlass.max((end - shift + items - 1) // items, 0)
        return shift, begin - shift, count, end - shift - (count - 1) * items

    def ragged(self, skip, tail):
        """Whether the first or the last vector is partial."""
        return Boolean(False) if self.tile.items == 1 else (skip > 0) | (tail < self.tile.items)

    def moved(self, start, shift):
        return start - shift * self.scan.width if self.scan.reverse else start + shift * self.scan.width

    def whole(self, vector, skip, count, tail):
        inner = (vector > 0) | (skip == 0)
        return inner & ((vector < count - 1) | ((vector == count - 1) & (tail == self.tile.items)))

    @cute.jit
    def fold_piece(
        self, start: cute.Pointer, vectors: cute.Pointer, begin: Int32, end: Int32, elements, prefixes, lane: Int32
    ):
        """``(any, state)`` of a piece; fills ``elements`` and ``prefixes``."""
        shift, skip, count, tail = self.geometry(begin, end)
        start, vectors = self.moved(start, shift), self.moved(vectors, shift)
        for u in cutlass.range_constexpr(self.tile.rows):
            whole = self.whole(lane + u * LANES, skip, count, tail)
            self.tile.load_vector(vectors + self.tile.place(u, lane), elements, u, whole)
        first, last = self.nothing(), self.nothing()
        if self.ragged(skip, tail):
            _, _, inclusive = self.edges(start, skip, count, tail, lane)
            first, last = broadcast(inclusive[:-1], HALF - 1), broadcast(inclusive[:-1], LANES - 1)
        rows = []
        for u in cutlass.range_constexpr(self.tile.rows):
            rows.append(self.scan_row(elements, u, first, last, skip, count, tail, lane))
        return count > 0, self.tile.join_rows(rows, prefixes, lane, count)

    def nothing(self):
        return tuple(t(0) for t in self.scan.types)

    @cute.jit
    def scan_row(self, elements, u: cutlass.Constexpr, first, last, skip, count, tail, lane):
        vector = lane + u * LANES
        state = last
        if self.whole(vector, skip, count, tail):
            state = self.tile.fold_vector(elements, u)
        elif vector == 0:
            state = first
        return scan_states(state, self.scan.combine, lane, LANES, vector < count)

    @cute.jit
    def edges(self, start: cute.Pointer, skip: Int32, count: Int32, tail: Int32, lane: Int32):
        """The elements of the first vector in the warp's first half, those of the last in its second, if they are partial: ``(place, exists, inclusive)``,
        where a lane's element lies, whether there is one, and the scan of each half with a flag. A vector that is both is in the first half."""
        second, i = lane >= HALF, lane % HALF
        vector = choose(second, count - 1, Int32(0))
        low = choose(vector == 0, skip, Int32(0))
        high = choose(vector == count - 1, tail, Int32(self.tile.items))
        exists = (i >= low) & (i < high) & (high - low < self.tile.items) & (vector >= Int32(second))
        place = self.scan.flip(vector * self.tile.items + i, self.tile.chunk) * self.scan.width
        state = (*self.nothing(), Int32(0))
        if exists:
            state = (
                *self.scan.lift(cute.make_tensor(start, cute.make_layout((self.tile.chunk * self.scan.width,))), place),
                Int32(1),
            )
        return place, exists, scan_states(state, lambda a, b: combine_valid(a, b, self.scan.combine), lane, HALF)

    @cute.jit
    def emit_piece(
        self,
        start: cute.Pointer,
        out: cute.Pointer,
        begin: Int32,
        end: Int32,
        elements,
        prefixes,
        have: Boolean,
        state,
        lane: Int32,
    ):
        """Store a scanned piece; ``state`` (if ``have``) is that of everything before it."""
        shift, skip, count, tail = self.geometry(begin, end)
        start, out = self.moved(start, shift), self.moved(out, shift)
        before_last = self.nothing()
        for u in cutlass.range_constexpr(self.tile.rows):
            vector = lane + u * LANES
            before = tuple(t(member[u]) for t, member in zip(self.scan.types, prefixes))
            first = lane == 0 if u == 0 else False
            self.tile.emit_vector(
                elements,
                u,
                have,
                state,
                first,
                before,
                out + self.tile.place(u, lane),
                self.whole(vector, skip, count, tail),
            )
            if vector == count - 1:
                before_last = before
        if self.ragged(skip, tail) & (count > 0):
            self.emit_edges(
                start, out, skip, count, tail, have, state, broadcast(before_last, (count - 1) % LANES), lane
            )

    @cute.jit
    def emit_edges(self, start, out, skip, count, tail, have: Boolean, state, before_last, lane):
        """Store the results of the first and last vector if they are not whole; ``state`` (if ``have``) is that of everything before the first,
        ``before_last`` that of what comes between it and the last."""
        place, exists, inclusive = self.edges(start, skip, count, tail, lane)
        front = (*state, Int32(have))
        if lane >= HALF:
            front = combine_valid(front, (*before_last, Int32(1)), self.scan.combine)
        own = inclusive
        if cutlass.const_expr(self.scan.exclusive):
            before = shift_up(inclusive)
            own = (*before[:-1], choose(lane % HALF > 0, before[-1], Int32(0)))
        result = combine_valid(front, own, self.scan.combine)
        if exists:
            self.scan.lower(
                result[:-1], cute.make_tensor(out, cute.make_layout((self.tile.chunk * self.scan.width,))), place
            )
