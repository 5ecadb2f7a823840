"""The elements of a row, in chunks that a warp loads. Device code.

    x       x + head                                          x + length
    | head  | chunk 0 | chunk 1 | ... | chunk full - 1 | tail  |
            ^ a 16-byte boundary

A lane loads 16-byte vectors of the whole chunks. Head and tail, of less than a chunk each, follow them in number, and
are loaded element by element, as is every chunk of a row whose elements are not neighbours.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32

from ...monoid import tree
from ...warp import LANES
from ..coordinates import element
from ..hardware import VECTOR_BYTES
from .order import Order
from .policy import GROUP

# A row: its elements are ``step`` apart (1 with vectors). ``chunks`` is the number of chunks, head and tail included
# if there is one of them.
# Elements count only behind ``bound``, a key and an index, or None.
Row = namedtuple("Row", "x step length head full chunks bound")

# A loaded chunk, as a lane has it: its element j is at index ``base + (j // vector) * 32 * vector + (j % vector) *
# step`` of the row, where that is below ``limit``: everywhere in a ``whole`` chunk. No element of the chunk is before
# ``first``.
At = namedtuple("At", "first base step limit whole")


class Rows:
    """Loads chunks. A lane has ``unroll`` vectors of a chunk, or so many elements where ``vectors`` is false; indexes
    are of type ``index``."""

    def __init__(self, order: Order, unroll: int, vectors: bool, index: Any) -> None:
        self.order, self.unroll, self.vectors, self.index = order, unroll, vectors, index
        self.vector = VECTOR_BYTES // order.dtype.size if vectors else 1
        self.each = self.vector * unroll  # elements of a lane
        self.elements = LANES * self.each
        self.group = min(GROUP, self.each)  # elements that are looked at together
        self.groups = range(0, self.each, self.group)

    def row(self, x, step, length, bound=None) -> Row:
        """The row of ``length`` elements from ``x`` on."""
        if not self.vectors:
            chunks = Int32((length + self.elements - 1) // self.elements)
            return Row(x, step, length, self.index(0), Int32(length // self.elements), chunks, bound)
        size = self.order.dtype.size
        skew = Int32(x.toint() & (VECTOR_BYTES - 1)) // size
        head = cutlass.min(self.index((self.vector - skew) % self.vector), length)
        full = Int32((length - head) // self.elements)
        rest = length - self.index(full) * self.elements
        return Row(x, step, length, head, full, full + 2 * Int32(rest > 0), bound)

    def registers(self):
        """Where elements of a chunk are held."""
        return cute.make_rmem_tensor((self.each,), self.order.held)

    def place(self, at: At, j):
        """The index of element ``j`` of a lane."""
        vectors = (j >> (self.vector.bit_length() - 1)) * (LANES * self.vector)
        return at.base + (vectors + (j & (self.vector - 1)) * at.step)

    @cute.jit
    def load(self, held, row: Row, chunk, lane):
        """Put the elements of a chunk into registers; where it is."""
        first = row.head + self.index(chunk) * self.elements
        limit, whole = row.length, Boolean(chunk < row.full)
        base, step = first + lane * self.vector, Int32(1)
        if cutlass.const_expr(self.vectors):
            if chunk < row.full:
                self.load_vectors(held, row.x + base)
            else:
                if chunk == row.full:
                    first, limit = self.index(0), row.head
                else:
                    first = row.head + self.index(row.full) * self.elements
                base, step = first + lane, Int32(LANES)
                self.load_elements(held, row, At(first, base, step, limit, whole))
        else:
            base, step = first + lane, Int32(LANES)
            self.load_elements(held, row, At(first, base, step, limit, whole))
        return At(first, base, step, limit, whole)

    def load_vectors(self, held, start) -> None:
        """The elements of a lane's vectors; ``start`` points to its first."""
        dtype = self.order.dtype
        word: Any = Int32 if dtype.size < 8 else dtype.cutlass  # elements of a byte would take a register each
        words = VECTOR_BYTES // (word.width // 8)
        source = cute.make_ptr(word, start.toint(), cute.AddressSpace.gmem, assumed_align=VECTOR_BYTES)
        layout = cute.make_layout((words, self.unroll), stride=(1, LANES * words))
        loaded = cute.make_rmem_tensor(cute.make_layout((words, self.unroll), stride=(1, words)), word)
        cute.autovec_copy(cute.make_tensor(source, layout), loaded)
        for u in range(self.unroll):
            row = cute.recast_tensor(loaded[(None, u)], dtype.cutlass)
            for i in range(self.vector):
                held[u * self.vector + i] = self.order.hold(dtype.cutlass(row[i]))

    @cute.jit
    def load_elements(self, held, row: Row, at: At):
        """A lane's elements, one by one."""
        for j in cutlass.range_constexpr(self.each):
            held[j] = self.order.missing()
        for j in cutlass.range_constexpr(self.each):
            place = self.place(at, j)
            if place < at.limit:
                held[j] = self.order.hold(self.value(row, place))

    def greatest(self, held, first: int, count: int):
        """The first of a lane's ``count`` elements from element ``first`` on, in the order of the results, as it is
        held."""
        return tree([self.order.held(held[j]) for j in range(first, first + count)], self.order.first)

    @cute.jit
    def reaching(self, held, row: Row, at: At, floor):
        """The elements of a lane that may be among the results: those that are not after ``floor``. A bit for each."""
        found = Int32(0)
        for j in range(self.each):
            found = found | (Int32(self.order.reaches(self.order.held(held[j]), floor)) << j)
        # elements that exist: where some do not, element j is ``LANES * j`` behind the first
        number = Int32(cutlass.max((at.limit - at.base + (LANES - 1)) // LANES, self.index(0)))
        if cutlass.not_(at.whole) & (number < self.each):
            found = found & ((Int32(1) << number) - 1)
        if cutlass.const_expr(row.bound is not None):
            for j in range(self.each):
                behind = is_behind(row.bound, self.order.key(self.order.held(held[j])), self.place(at, j))
                found = found & ~(Int32(cutlass.not_(behind)) << j)
        return found

    def candidate(self, row: Row, at: At, j):
        """Element ``j`` of a lane, read again: its key and its index. A register is not found by a number."""
        place = self.place(at, j)
        return self.order.of(self.value(row, place)), place

    def value(self, row: Row, place):
        """The element at an index."""
        return self.order.dtype.cutlass(element(row.x + place * row.step))


def is_behind(bound, key, index):
    """Whether an element comes after ``bound``, a key and an index, in the order of the results."""
    return (key < bound[0]) | ((key == bound[0]) & (index > bound[1]))
