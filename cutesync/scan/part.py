"""Chunks at the ends of a row, of which only positions [begin, end) exist.

They are gone through a few rows of vectors at a time, once to fold and once to store, so that they take few registers beside the
full chunks' code. ``vectors`` is where the whole vectors are read, if not at ``start``: in shared memory, where the chunk's places are the same. In such a piece the vectors that exist are counted from the one that holds position ``begin``, so that all lanes
before a lane with a vector have one. Whole vectors are loaded as such; the first and the last may be partial: those go element by
element. The operator never sees anything but elements.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32

from ..block.warps import after
from ..warp import LANES, combine_valid, scan_states
from .tile import WarpScan

ROWS = 4  # rows of vectors in a piece


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
            found, fold = self.fold_piece(start + self.place(piece), vectors + self.place(piece), low, high, elements, prefixes, lane)
            have, state = after(have, state, found, fold, self.scan.combine)
            piece += 1
        return have, state

    @cute.jit
    def emit(self, start: cute.Pointer, out: cute.Pointer, begin: Int32, end: Int32, have: Boolean, state, lane: Int32, vectors=None):
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

    def moved(self, start, shift):
        return start - shift * self.scan.width if self.scan.reverse else start + shift * self.scan.width

    def whole(self, vector, skip, count, tail):
        inner = (vector > 0) | (skip == 0)
        return inner & ((vector < count - 1) | ((vector == count - 1) & (tail == self.tile.items)))

    @cute.jit
    def fold_piece(self, start: cute.Pointer, vectors: cute.Pointer, begin: Int32, end: Int32, elements, prefixes, lane: Int32):
        """``(any, state)`` of a piece; fills ``elements`` and ``prefixes``."""
        shift, skip, count, tail = self.geometry(begin, end)
        start, vectors = self.moved(start, shift), self.moved(vectors, shift)
        for u in cutlass.range_constexpr(self.tile.rows):
            whole = self.whole(lane + u * LANES, skip, count, tail)
            self.tile.load_vector(vectors + self.tile.place(u, lane), elements, u, whole)
        first, last = self.nothing(), self.nothing()
        if (skip > 0) & (lane == 0):
            first = self.fold_edge(start, Int32(0), skip, cutlass.select_(count == 1, tail, Int32(self.tile.items)))
        if (tail < self.tile.items) & (lane == (count - 1) % LANES):
            last = self.fold_edge(start, count - 1, cutlass.select_(count == 1, skip, Int32(0)), tail)
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
        elif (vector == 0) & (skip > 0):
            state = first
        return scan_states(state, self.scan.combine, lane, LANES, vector < count)

    @cute.jit
    def fold_edge(self, start: cute.Pointer, vector: Int32, low: Int32, high: Int32):
        """The state of elements ``low`` to ``high`` of a vector."""
        source = cute.make_tensor(start, cute.make_layout((self.tile.chunk * self.scan.width,)))
        state = (*self.nothing(), Int32(0))
        for i in cutlass.range(low, high, unroll=1):
            value = self.scan.lift(source, self.scan.flip(vector * self.tile.items + i, self.tile.chunk) * self.scan.width)
            state = combine_valid(state, (*value, Int32(1)), self.scan.combine)
        return state[:-1]

    @cute.jit
    def emit_piece(self, start: cute.Pointer, out: cute.Pointer, begin: Int32, end: Int32, elements, prefixes, have: Boolean, state, lane: Int32):
        """Store a scanned piece; ``state`` (if ``have``) is that of everything before it."""
        shift, skip, count, tail = self.geometry(begin, end)
        start, out = self.moved(start, shift), self.moved(out, shift)
        before_last = self.nothing()
        for u in cutlass.range_constexpr(self.tile.rows):
            vector = lane + u * LANES
            before = tuple(t(member[u]) for t, member in zip(self.scan.types, prefixes))
            first = lane == 0 if u == 0 else False
            self.tile.emit_vector(elements, u, have, state, first, before, out + self.tile.place(u, lane), self.whole(vector, skip, count, tail))
            if vector == count - 1:
                before_last = before
        if (skip > 0) & (lane == 0) & (count > 0):
            self.emit_edge(start, out, Int32(0), skip, cutlass.select_(count == 1, tail, Int32(self.tile.items)), have, state)
        if (tail < self.tile.items) & (lane == (count - 1) % LANES) & (count > 1 - Int32(skip == 0)):
            known, joined = have, state
            if count > 1:
                *joined, flag = combine_valid((*state, Int32(have)), (*before_last, Int32(1)), self.scan.combine)
                known, joined = flag != 0, tuple(joined)
            self.emit_edge(start, out, count - 1, Int32(0), tail, known, joined)

    @cute.jit
    def emit_edge(self, start, out, vector: Int32, low: Int32, high: Int32, have: Boolean, state):
        """Store elements ``low`` to ``high`` of a vector; ``state`` (if ``have``) is that of everything before them."""
        source = cute.make_tensor(start, cute.make_layout((self.tile.chunk * self.scan.width,)))
        target = cute.make_tensor(out, cute.make_layout((self.tile.chunk * self.scan.width,)))
        running = (*state, Int32(have))
        for i in cutlass.range(low, high, unroll=1):
            place = self.scan.flip(vector * self.tile.items + i, self.tile.chunk) * self.scan.width
            following = combine_valid(running, (*self.scan.lift(source, place), Int32(1)), self.scan.combine)
            self.scan.lower((running if self.scan.exclusive else following)[:-1], target, place)
            running = following
