"""The bytes of a tile in the ring, in either direction: whole vectors by bulk copies, the ends of an array by lanes.

    forward    a tile has the elements from its first position on; the one before it comes along
    reverse    a tile ends as many elements before the end of the array; the one behind it comes along

An element lies as far from a multiple of 128 bytes as in the array, as in ``select.window``.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...dtypes import DType
from ...sync.overlap import LINE_BYTES
from ..hardware import VECTOR_BYTES
from ..select.chunk import put
from ..select.window import copy_lane

# The positions of a tile, in scan order: those from ``first`` up to ``stop``.
Span = namedtuple("Span", "first stop")


@dataclass(frozen=True)
class TileBuffer:
    """A ring's buffers for tiles of ``tile`` elements of one array, at ``start`` in shared memory. The neighbour of the
    first position in scan order is 0 in the first tile."""

    dtype: DType
    tile: int
    reverse: bool
    start: Any = None

    @property
    def stage_bytes(self) -> int:
        """The shared memory of a stage: a line before the tile, one behind it, and one for its skew."""
        return self.dtype.size * self.tile + 3 * LINE_BYTES

    def begin(self, array: cute.Pointer, first, length):
        """The address of the lowest element of the tile whose first position is ``first``; it may lie before the
        array."""
        lowest = length - first - self.tile if self.reverse else first
        return Int64(array.toint()) + lowest * self.dtype.size

    def lowest(self, stage, array: cute.Pointer, first, length):
        """The address in shared memory of a tile's lowest element."""
        skew = Int32(self.begin(array, first, length) & (LINE_BYTES - 1))
        return Int32(self.start.toint()) + stage * self.stage_bytes + (skew + LINE_BYTES)

    def position(self, stage, array: cute.Pointer, first, length, place):
        """The address in shared memory of the element at ``place`` of a tile, in scan order."""
        place = self.tile - 1 - place if self.reverse else place
        return self.lowest(stage, array, first, length) + place * self.dtype.size

    @property
    def step(self) -> int:
        """Bytes from a position to the next one in scan order."""
        return -self.dtype.size if self.reverse else self.dtype.size

    def fill(self, stage, array: cute.Pointer, span: Span, length, lane):
        """Bring the positions of ``span`` of an array of ``length`` elements: ``(target, source, bytes)`` of the bulk
        copy that is left to do. All lanes of a warp call."""
        return _fill(self, stage, array, span, length, lane)


@cute.jit
def _fill(buffer: cutlass.Constexpr, stage, array: cute.Pointer, span: Span, length, lane):
    kind, size = buffer.dtype.cutlass, buffer.dtype.size
    base, tile = Int64(array.toint()), buffer.begin(array, span.first, length)
    limit = base + length * size
    # what exists of the tile, and its neighbour
    if cutlass.const_expr(buffer.reverse):
        begin, end = base + (length - span.stop) * size, base + (length - span.first + 1) * size
    else:
        begin, end = base + (span.first - 1) * size, base + span.stop * size
    begin, end = cutlass.max(begin, base), cutlass.min(end, limit)
    # whole vectors that lie in the array
    low = cutlass.max(begin & -VECTOR_BYTES, (base + VECTOR_BYTES - 1) & -VECTOR_BYTES)
    high = cutlass.min((end + VECTOR_BYTES - 1) & -VECTOR_BYTES, limit & -VECTOR_BYTES)
    lowest = Int64(buffer.lowest(stage, array, span.first, length))
    if (span.first == 0) & (lane == 0):
        put(kind, buffer.position(stage, array, span.first, length, -1), kind(0))
    if cutlass.const_expr(buffer.reverse and size < 4):
        cute.arch.sync_warp()  # copy_lane may write a zero to the same byte
    rest = cutlass.max(low, high)
    if (low > begin) | (rest < end):
        copy_lane(kind, lowest + (begin - tile), begin, cutlass.min(low, end), lane)
        copy_lane(kind, lowest + (rest - tile), rest, end, lane)
    return Int32(lowest + (low - tile)), low, Int32(cutlass.max(high - low, Int64(0)))
