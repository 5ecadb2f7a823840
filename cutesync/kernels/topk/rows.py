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
from cutlass import Int32

from ...monoid import choose
from ...warp import LANES
from ..coordinates import element
from .order import Order

VECTOR_BYTES = 16

# A row: its elements are ``step`` apart (1 with vectors). ``chunks`` is the number of chunks, head and tail included.
# Elements count only behind ``bound``, a key and an index, or None.
Row = namedtuple("Row", "x step length head full chunks bound")

# A loaded chunk, as a lane has it: its element j is at index ``base + (j // vector) * 32 * vector + (j % vector) *
# step`` of the row, where that is below ``limit``. No element of the chunk is before ``first``.
At = namedtuple("At", "first base step limit")


class Rows:
    """Loads chunks. A lane has ``unroll`` vectors of a chunk, or so many elements where ``vectors`` is false; indexes
    are of type ``index``."""

    def __init__(self, order: Order, unroll: int, vectors: bool, index: Any) -> None:
        self.order, self.unroll, self.vectors, self.index = order, unroll, vectors, index
        self.vector = VECTOR_BYTES // order.dtype.size if vectors else 1
        self.each = self.vector * unroll  # elements of a lane
        self.elements = LANES * self.each

    def row(self, x, step, length, bound=None) -> Row:
        """The row of ``length`` elements from ``x`` on."""
        if not self.vectors:
            chunks = Int32((length + self.elements - 1) // self.elements)
            return Row(x, step, length, self.index(0), Int32(length // self.elements), chunks, bound)
        size = self.order.dtype.size
        skew = Int32(x.toint() & (VECTOR_BYTES - 1)) // size
        head = cutlass.min(self.index((self.vector - skew) % self.vector), length)
        full = Int32((length - head) // self.elements)
        return Row(x, step, length, head, full, full + 2, bound)

    def registers(self):
        """Where keys of a chunk are put."""
        return cute.make_rmem_tensor((self.each,), self.order.type)

    def place(self, at: At, j: int):
        """The index of element ``j`` of a lane."""
        return at.base + (j // self.vector) * LANES * self.vector + (j % self.vector) * at.step

    @cute.jit
    def load(self, keys, row: Row, chunk, lane):
        """Put the keys of a chunk into registers; where it is. Missing elements have the lowest key."""
        first = row.head + self.index(chunk) * self.elements
        limit = row.length
        base, step = first + lane * self.vector, Int32(1)
        if cutlass.const_expr(self.vectors):
            if chunk < row.full:
                self.load_vectors(keys, row.x + base)
            else:
                if chunk == row.full:
                    first, limit = self.index(0), row.head
                else:
                    first = row.head + self.index(row.full) * self.elements
                base, step = first + lane, Int32(LANES)
                self.load_elements(keys, row, At(first, base, step, limit))
        else:
            base, step = first + lane, Int32(LANES)
            self.load_elements(keys, row, At(first, base, step, limit))
        at = At(first, base, step, limit)
        if cutlass.const_expr(row.bound is not None):
            for j in cutlass.range_constexpr(self.each):
                behind = is_behind(row.bound, self.order.type(keys[j]), self.place(at, j))
                keys[j] = choose(behind, self.order.type(keys[j]), self.order.type(self.order.lowest))
        return at

    def load_vectors(self, keys, start) -> None:
        """The keys of a lane's vectors; ``start`` points to its first."""
        dtype = self.order.dtype
        word: Any = Int32 if dtype.size < 8 else dtype.cutlass  # elements of a byte would take a register each
        words = VECTOR_BYTES // (word.width // 8)
        source = cute.make_ptr(word, start.toint(), cute.AddressSpace.gmem, assumed_align=VECTOR_BYTES)
        layout = cute.make_layout((words, self.unroll), stride=(1, LANES * words))
        held = cute.make_rmem_tensor(cute.make_layout((words, self.unroll), stride=(1, words)), word)
        cute.autovec_copy(cute.make_tensor(source, layout), held)
        for u in range(self.unroll):
            row = cute.recast_tensor(held[(None, u)], dtype.cutlass)
            for i in range(self.vector):
                keys[u * self.vector + i] = self.order.of(dtype.cutlass(row[i]))

    @cute.jit
    def load_elements(self, keys, row: Row, at: At):
        """The keys of a lane's elements, one by one."""
        for j in cutlass.range_constexpr(self.each):
            keys[j] = self.order.type(self.order.lowest)
        for j in cutlass.range_constexpr(self.each):
            place = self.place(at, j)
            if place < at.limit:
                keys[j] = self.key(row, place)

    def key(self, row: Row, place):
        """The key of the element at an index."""
        return self.order.of(self.value(row, place))

    def value(self, row: Row, place):
        """The element at an index."""
        return self.order.dtype.cutlass(element(row.x + place * row.step))


def is_behind(bound, key, index):
    """Whether an element comes after ``bound``, a key and an index, in the order of the results."""
    return (key < bound[0]) | ((key == bound[0]) & (index > bound[1]))
