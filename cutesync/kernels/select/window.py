"""The bytes of a tile in the ring: whole vectors by bulk copies, the first and last elements of an array by lanes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8

from ...dtypes import DType
from .chunk import VECTOR_BYTES, cells, put


@dataclass(frozen=True)
class TileBuffer:
    """A ring's buffers for tiles of ``tile`` elements of one array, at ``start`` in shared memory. An element lies as
    far from a multiple of 16 as in the array, so any array can be copied in whole vectors. With ``lead``, the element
    before a tile comes along; before the first tile it is 0."""

    dtype: DType
    tile: int
    lead: bool = False
    start: Any = None

    @property
    def stage_bytes(self) -> int:
        """The shared memory of a stage. A tile that begins inside a vector takes one vector more."""
        return self.dtype.size * self.tile + VECTOR_BYTES + self.ahead

    @property
    def ahead(self) -> int:
        """How many bytes before a tile are copied, too."""
        return VECTOR_BYTES if self.lead else 0

    def first(self, stage, array: cute.Pointer):
        """The address in shared memory of a tile's first element."""
        address: Any = array.toint()
        skew = Int32(address & (VECTOR_BYTES - 1))
        return Int32(self.start.toint()) + stage * self.stage_bytes + (skew + self.ahead)

    def fill(self, stage, array: cute.Pointer, number, length, lane):
        """Bring tile ``number`` of an array of ``length`` elements: ``(target, source, bytes)`` of the bulk copy that
        is left to do. All lanes of a warp call."""
        return _fill(self, stage, array, number, length, lane)


@cute.jit
def _fill(buffer: cutlass.Constexpr, stage, array: cute.Pointer, number, length, lane):
    size = buffer.dtype.size
    base = Int64(array.toint())
    begin = base + Int64(number) * (buffer.tile * size)
    end = cutlass.min(begin + buffer.tile * size, base + length * size)
    # whole vectors that lie in the array
    low = cutlass.max((begin - buffer.ahead) & -VECTOR_BYTES, (base + VECTOR_BYTES - 1) & -VECTOR_BYTES)
    high = cutlass.min((end + VECTOR_BYTES - 1) & -VECTOR_BYTES, (base + length * size) & -VECTOR_BYTES)
    first = Int64(buffer.first(stage, array))
    if cutlass.const_expr(buffer.lead):
        if (number == 0) & (lane == 0):
            put(buffer.dtype.cutlass, Int32(first) - size, buffer.dtype.cutlass(0))
    rest = cutlass.max(low, high)
    if (low > begin) | (rest < end):
        copy_lane(buffer.dtype.cutlass, first, begin, cutlass.min(low, end), lane)
        copy_lane(buffer.dtype.cutlass, first + (rest - begin), rest, end, lane)
    return Int32(first + (low - begin)), low, Int32(cutlass.max(high - low, Int64(0)))


@cute.jit
def copy_lane(kind: cutlass.Constexpr, target, begin, end, lane):
    """Copy the elements from address ``begin`` to ``end``, of which there are fewer than lanes, to shared memory.

    The last word of narrow elements, which is read as a whole, is filled with zeros."""
    ahead = lane * (kind.width // 8)
    if begin + ahead < end:
        put(kind, Int32(target) + ahead, cells(kind, begin + ahead, 1, cute.AddressSpace.gmem)[0])
    elif begin + ahead < (end + 3 & -4):
        put(kind, Int32(target) + ahead, kind(0))


def as_copy(found) -> tuple:
    """What ``fill`` returned, as ``Ring.load_alone`` takes it."""
    target, source, size = found
    into = cute.make_ptr(Uint8, target, cute.AddressSpace.smem, assumed_align=VECTOR_BYTES)
    return into, cute.make_ptr(Uint8, source, cute.AddressSpace.gmem, assumed_align=VECTOR_BYTES), size
