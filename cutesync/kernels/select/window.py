"""The bytes of a tile in the ring: whole vectors by bulk copies, the first and last elements of an array by lanes.

A bulk copy is slower where its target is not as far from a multiple of 128 as its source: tiles of 24 KiB alone, of 1
GiB, come in 290 us instead of 256 (H200). So an element lies as far from such a multiple as in the array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8

from ...dtypes import DType
from ...sizes import ceil_div
from ...sync.overlap import LINE_BYTES
from ..hardware import VECTOR_BYTES
from .chunk import cells, put


@dataclass(frozen=True)
class TileBuffer:
    """A ring's buffers for tiles of ``tile`` elements of one array, at ``start`` in shared memory, a multiple of 128.
    With ``lead``, the element before a tile comes along; before the first tile it is 0."""

    dtype: DType
    tile: int
    lead: bool = False
    start: Any = None

    @property
    def stage_bytes(self) -> int:
        """The shared memory of a stage: a tile that begins inside a line takes one line more."""
        return (ceil_div(self.dtype.size * self.tile, LINE_BYTES) + 1 + self.lead) * LINE_BYTES

    def first(self, stage, array: cute.Pointer):
        """The address in shared memory of a tile's first element."""
        address: Any = array.toint()
        skew = Int32(address & (LINE_BYTES - 1))
        return Int32(self.start.toint()) + stage * self.stage_bytes + (skew + LINE_BYTES * self.lead)

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
    low = cutlass.max((begin - VECTOR_BYTES * buffer.lead) & -VECTOR_BYTES, (base + VECTOR_BYTES - 1) & -VECTOR_BYTES)
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
