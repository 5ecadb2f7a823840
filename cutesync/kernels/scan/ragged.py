"""Ragged chunks: those at the ends of a row, of which only positions [begin, end) exist.

They are gone through a piece (a few rows of vectors) at a time, once to reduce and once to store, so that they take few
registers beside the full chunks' code. In a piece the vectors that exist are counted from the one that holds position
``begin``, so that all lanes before a lane with a vector have one. With vectors of 4 items:

    position   4       8       12      16      20
               | . . x x | x x x x | x x x x | x . . . |          x exists: begin = 6, end = 17
    vector     0         1         2         3
               skip = 2                       tail = 1            shift = 4, count = 4

Whole vectors are loaded as such. The first and the last may be partial (*edges*): of those a lane has an element, the
first vector's in the warp's lower half, the last one's in its upper half. The operator never sees anything but
elements.
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32

from ...monoid import choose
from ...warp import LANES, Maybe, broadcast, combine_valid, scan_states, shift_up, zeros
from ..arrays import index_of, pointers_of
from .tile import Chunk, Span, WarpScan

ROWS = 4  # rows of vectors in a piece
HALF = LANES // 2  # lanes, and the most elements of a vector


# The vectors of a piece: the first begins at position ``shift`` and lacks ``skip`` items; ``count`` exist, the last one
# up to its item ``tail``.
Vectors = namedtuple("Vectors", "shift skip count tail")

# A lane's element of a partial vector: its position, how many of the vector come before it, whether there is one, and
# the scan of the vector up to it.
Edges = namedtuple("Edges", "position rank exists inclusive")


class RaggedScan:
    """The chunks of ``tile`` in global memory, full or not, in pieces of ``rows`` rows of vectors.

    ``vectors`` is where the methods read whole vectors, if not at ``start``: in shared memory, where the chunk's places
    are the same."""

    def __init__(self, tile: WarpScan, rows: int = ROWS) -> None:
        self.chunk = tile.chunk
        one = WarpScan(tile.scan, min(rows, tile.rows), 1, tile.shift, tile.items, aligned=tile.aligned)
        self.tile = one.apart(tile.gap)
        self.scan, self.edgeless = tile.scan, tile.items == 1

    @cute.jit
    def reduce(self, start, span: Span, lane: Int32, vectors=None):
        """The aggregate (``Maybe``) of the chunk whose lowest address is ``start``."""
        vectors = start if vectors is None else vectors
        partial = Maybe.none(self.scan.types)
        piece = span.begin // self.tile.chunk
        while piece * self.tile.chunk < span.end:
            chunk = self.tile.registers()
            inner = self.clip(span, piece)
            place = self.place_in(piece)
            total, _ = self.reduce_piece(start + place, vectors + place, inner, chunk, lane)
            partial = partial.then(total, self.scan.combine)
            piece += 1
        return partial

    @cute.jit
    def emit(self, start, out, span: Span, carry: Maybe, lane: Int32, vectors=None):
        """Store the scanned chunk at ``out``; ``carry`` is the state of everything before the chunk."""
        vectors = start if vectors is None else vectors
        piece = span.begin // self.tile.chunk
        while piece * self.tile.chunk < span.end:
            chunk = self.tile.registers()
            inner = self.clip(span, piece)
            source, target = start + self.place_in(piece), out + self.place(piece)
            total, edges = self.reduce_piece(source, vectors + self.place_in(piece), inner, chunk, lane)
            self.emit_piece(target, inner, chunk, edges, carry, lane)
            carry = carry.then(total, self.scan.combine)
            piece += 1

    def place(self, piece):
        """Where a piece lies in the chunk in the outputs, in elements."""
        return self.scan.flip(piece, self.chunk // self.tile.chunk) * self.tile.chunk * self.scan.width

    def place_in(self, piece):
        """Where it lies in the inputs."""
        return self.scan.flip_in(piece, self.chunk // self.tile.chunk) * self.tile.chunk * self.tile.unit

    def clip(self, span: Span, piece) -> Span:
        """The positions of a piece that exist, counted from its first."""
        low = cutlass.max(span.begin - piece * self.tile.chunk, 0)
        return Span(0, low, cutlass.min(span.end - piece * self.tile.chunk, self.tile.chunk), 0)

    def cut(self, span: Span) -> Vectors:
        """The vectors of a piece."""
        items = self.tile.items
        shift = span.begin // items * items
        count = cutlass.max((span.end - shift + items - 1) // items, 0)
        return Vectors(shift, span.begin - shift, count, span.end - shift - (count - 1) * items)

    def has_edges(self, v: Vectors):
        """Whether the first or the last vector is partial."""
        return Boolean(False) if self.edgeless else (v.skip > 0) | (v.tail < self.tile.items)

    def first_vector(self, start, v: Vectors, from_end: bool, unit: int):
        """Where vector 0 of the piece at ``start`` lies, whose positions lie ``unit`` elements apart; ``from_end``: the
        piece is scanned from its last address on."""
        offset = v.shift * unit
        return start - offset if from_end else start + offset

    def whole(self, vector, v: Vectors):
        if self.edgeless:
            return vector < v.count
        inner = (vector > 0) | (v.skip == 0)
        return inner & ((vector < v.count - 1) | ((vector == v.count - 1) & (v.tail == self.tile.items)))

    @cute.jit
    def reduce_piece(self, start, vectors, span: Span, chunk: Chunk, lane: Int32):
        """The aggregate (``Maybe``) of a piece, and its edges; fills the registers ``chunk``."""
        v = self.cut(span)
        start, vectors = (self.first_vector(at, v, self.tile.from_end, self.tile.unit) for at in (start, vectors))
        for u in cutlass.range_constexpr(self.tile.rows):
            whole = self.whole(lane + u * LANES, v)
            self.tile.load_vector(vectors + self.tile.place_in(u, lane), chunk.elements, u, whole)
        edges = Edges(Int32(0), Int32(0), Boolean(False), zeros(self.scan.types))
        first, last = zeros(self.scan.types), zeros(self.scan.types)
        if self.has_edges(v):
            edges = self.scan_edges(start, v, lane)
            end = choose(v.count == 1, v.tail, Int32(self.tile.items))
            first, last = (broadcast(edges.inclusive, place - 1) for place in (end, v.tail + HALF))
        rows = []
        for u in cutlass.range_constexpr(self.tile.rows):
            rows.append(self.scan_row(chunk.elements, u, first, last, v, lane))
        exists = v.count > 0
        return Maybe(self.tile.join_rows(rows, chunk, lane, v.count), exists), edges

    @cute.jit
    def scan_row(self, elements, u: cutlass.Constexpr, first, last, v: Vectors, lane):
        """The inclusive scan of row ``u``'s vectors; ``first`` and ``last`` are the aggregates of partial ones."""
        vector = lane + u * LANES
        state = last
        if self.whole(vector, v):
            state = self.tile.reduce_vector(elements, u)
        elif vector == 0:
            state = first
        return scan_states(state, self.scan.combine, lane, LANES, vector < v.count)

    @cute.jit
    def scan_edges(self, start, v: Vectors, lane: Int32):
        """The edges, scanned by each half of the warp. A vector that is both the first and the last is in the lower
        half."""
        second, i = lane >= HALF, lane % HALF
        vector = choose(second, v.count - 1, Int32(0))
        low = choose(vector == 0, v.skip, Int32(0))
        high = choose(vector == v.count - 1, v.tail, Int32(self.tile.items))
        exists = (i >= low) & (i < high) & (high - low < self.tile.items) & (vector >= Int32(second))
        position = vector * self.tile.items + i
        place = self.scan.flip_in(position, self.tile.chunk) * self.scan.width
        state = zeros(self.scan.types)
        if exists:
            state = self.scan.lift(self.elements(start, self.tile.gap), place, index_of(start))
        return Edges(position, i - low, exists, scan_states(state, self.scan.combine, i - low, HALF, exists))

    def elements(self, start, gap: int = 1):
        """A piece's elements, which lie ``gap`` apart, as a tensor for each array."""
        layout = cute.make_layout((self.tile.chunk * self.scan.width,), stride=(gap,))
        return tuple(cute.make_tensor(pointer, layout) for pointer in pointers_of(start))

    @cute.jit
    def emit_piece(self, out, span: Span, chunk: Chunk, edges: Edges, carry: Maybe, lane: Int32):
        """Store a scanned piece; ``carry`` is the state of everything before it."""
        v = self.cut(span)
        out = self.first_vector(out, v, self.scan.reverse, self.scan.width)
        before_last, previous, skew = zeros(self.scan.types), None, self.tile.skew(out)
        for row in cutlass.range_constexpr(self.tile.rows):
            u = self.tile.rows - 1 - row if self.scan.reverse else row  # memory order
            vector = lane + u * LANES
            prefix = self.tile.prefix(chunk, u, lane)
            target = out + self.tile.place(u, lane)
            if cutlass.const_expr(self.tile.shift):
                results = self.tile.results(chunk.elements, u, carry, prefix)
                previous = self.store_joined(results, previous, target, vector, v, skew, lane)
            else:
                self.tile.emit_vector(chunk.elements, u, carry, prefix, target, self.whole(vector, v))
            if vector == v.count - 1:
                before_last = prefix.state
        if self.has_edges(v) & (v.count > 0):
            self.emit_edges(out, edges, carry, broadcast(before_last, (v.count - 1) % LANES), lane)

    @cute.jit
    def store_joined(self, results, previous, out, vector, v: Vectors, skew, lane: Int32):
        """Store a whole vector whose neighbours in memory share aligned vectors with it; what it shares with a partial
        one, or with none, element by element. ``previous`` and the result are those of ``WarpScan.join``."""
        own, joined = self.tile.join(results, previous, skew, lane)
        step = -1 if self.scan.reverse else 1
        exists = self.whole(vector, v)
        before = (self.whole(vector - step, v) & (vector - step >= 0)) | (skew == 0)
        after = self.whole(vector + step, v) & (vector + step >= 0)
        if exists & before:
            self.tile.store_aligned(joined, out, skew)
        boundary = Int32(self.tile.items_before(skew))
        begin, end = choose(before, boundary, Int32(0)), choose(after, boundary, Int32(self.tile.items))
        if exists & (begin < end):
            self.tile.store_elements(results, out, begin, end)
        return own

    @cute.jit
    def emit_edges(self, out, edges: Edges, carry: Maybe, before_last, lane):
        """Store the results of a partial first and last vector.

        ``carry`` is the state of everything before the first, ``before_last`` that of what lies between it and the
        last."""
        front = carry.pack()
        if lane >= HALF:
            front = combine_valid(front, (*before_last, Int32(1)), self.scan.combine)
        own = (*edges.inclusive, Int32(1))
        if cutlass.const_expr(self.scan.exclusive):
            own = (*shift_up(edges.inclusive), Int32(edges.rank > 0))
        result = combine_valid(front, own, self.scan.combine)
        if edges.exists:
            place = self.scan.flip(edges.position, self.tile.chunk) * self.scan.width
            self.scan.lower(result[:-1], self.elements(out), place)
