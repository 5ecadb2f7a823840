"""The bytes of a tile in the ring, in either direction: whole vectors by bulk copies, the ends of an array by lanes.

    forward    tile t has the elements from t * tile on; the one before the tile comes along
    reverse    tile t ends t * tile elements before the end of the array; the one behind the tile comes along

An element lies as far from a multiple of 16 bytes as in the array, so any array is copied in whole vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...dtypes import DType
from ..select.chunk import VECTOR_BYTES, put
from ..select.window import copy_lane


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
        """The shared memory of a stage: a vector before the tile, one behind it, and one for its skew."""
        return self.dtype.size * self.tile + 3 * VECTOR_BYTES

    def begin(self, array: cute.Pointer, number, length):
        """The address of a tile's lowest element, which may lie before the array."""
        size = self.dtype.size
        first = length - (Int64(number) + 1) * self.tile if self.reverse else Int64(number) * self.tile
        return Int64(array.toint()) + first * size

    def lowest(self, stage, array: cute.Pointer, length):
        """The address in shared memory of a tile's lowest element."""
        skew = Int32(self.begin(array, 0, length) & (VECTOR_BYTES - 1))
        return Int32(self.start.toint()) + stage * self.stage_bytes + (skew + VECTOR_BYTES)

    def position(self, stage, array: cute.Pointer, length, place):
        """The address in shared memory of the element at ``place`` of a tile, in scan order."""
        place = self.tile - 1 - place if self.reverse else place
        return self.lowest(stage, array, length) + place * self.dtype.size

    @property
    def step(self) -> int:
        """Bytes from a position to the next one in scan order."""
        return -self.dtype.size if self.reverse else self.dtype.size

    def fill(self, stage, array: cute.Pointer, number, length, lane):
        """Bring tile ``number`` of an array of ``length`` elements: ``(target, source, bytes)`` of the bulk copy that
        is left to do. All lanes of a warp call."""
        return _fill(self, stage, array, number, length, lane)


@cute.jit
def _fill(buffer: cutlass.Constexpr, stage, array: cute.Pointer, number, length, lane):
    kind, size = buffer.dtype.cutlass, buffer.dtype.size
    base = Int64(array.toint())
    limit = base + length * size
    tile = buffer.begin(array, number, length)
    # what exists of the tile and its neighbours
    begin = cutlass.max(tile - size, base)
    end = cutlass.min(tile + (buffer.tile + 1) * size, limit)
    # whole vectors that lie in the array
    low = cutlass.max(begin & -VECTOR_BYTES, (base + VECTOR_BYTES - 1) & -VECTOR_BYTES)
    high = cutlass.min((end + VECTOR_BYTES - 1) & -VECTOR_BYTES, limit & -VECTOR_BYTES)
    first = Int64(buffer.lowest(stage, array, length))
    if (number == 0) & (lane == 0):
        put(kind, buffer.position(stage, array, length, -1), kind(0))
    cute.arch.sync_warp()  # copy_lane may write a zero to the same byte
    copy_lane(kind, first + (begin - tile), begin, cutlass.min(low, end), lane)
    rest = cutlass.max(low, high)
    copy_lane(kind, first + (rest - tile), rest, end, lane)
    return Int32(first + (low - tile)), low, Int32(cutlass.max(high - low, Int64(0)))
