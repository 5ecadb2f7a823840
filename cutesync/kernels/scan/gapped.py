"""Scan of rows whose elements lie a few elements apart. Memory is read in whole vectors, what lies between the elements
too, and warps pick the elements out of these in registers.

Long rows take the pipeline, whose ring holds what is copied. A row begins on a boundary of 16 bytes, or ends on one if
it is scanned from the end. The last element is in the row's last 16 bytes, of which memory may have no more: these are
loaded up to the element.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Uint32

from ...dtypes import DType
from ..arrays import pointers_of
from ..coordinates import element
from ..hardware import VECTOR_BYTES, WORD_BYTES
from ..words import word_of_range
from .base import Scan
from .pipeline import PipelineScan
from .tile import Chunk, WarpScan


class GappedTile(WarpScan):
    """Chunks of elements that are loaded in vectors with what lies between them."""

    def gather(self, pointer, target, dtype: DType) -> None:
        source = cute.make_ptr(dtype.cutlass, pointer.toint(), pointer.memspace, assumed_align=VECTOR_BYTES)
        held = cute.make_rmem_tensor((self.elements * self.gap,), dtype.cutlass)
        cute.autovec_copy(cute.make_tensor(source, held.layout), held)
        elements = cute.recast_tensor(target, dtype.cutlass)
        for i in range(self.elements):
            elements[i] = held[i * self.gap]


class GappedRowTile(WarpScan):
    """Chunks of vectors in global memory that are loaded with what lies between their elements. Of one that reaches
    beyond the array, elements are loaded one by one."""

    def loading(self, chunk: Chunk) -> tuple:
        each = VECTOR_BYTES // WORD_BYTES * self.gap
        return (cute.make_rmem_tensor(cute.make_layout((each, self.rows), stride=(1, each)), Int32),)

    @cute.jit
    def load_vector(self, start, elements, u: cutlass.Constexpr, exists, end=None):
        dtype, pointer, words = self.monoid.sources[0], pointers_of(start)[0], elements[0][(None, u)]
        if exists:
            if pointer.toint() + VECTOR_BYTES * self.gap <= end:
                source = cute.make_ptr(Int32, pointer.toint(), pointer.memspace, assumed_align=VECTOR_BYTES)
                cute.autovec_copy(cute.make_tensor(source, words.layout), words)
            else:
                held = cute.recast_tensor(words, dtype.cutlass)
                for i in cutlass.range_constexpr(self.elements):
                    held[i * self.gap] = element(pointer + i * self.gap)

    def loaded(self, held, chunk: Chunk, starts: list) -> None:
        dtype = self.monoid.sources[0].cutlass
        for u in range(self.rows):
            found, target = (cute.recast_tensor(words[(None, u)], dtype) for words in (held[0], chunk.elements[0]))
            for i in range(self.elements):
                target[i] = found[i * self.gap]


class GappedScan(PipelineScan):
    """The kernel: positions lie as many elements apart in the only input as a ``GappedPolicy`` says."""

    def tile_of(self, scan: Scan, policy: Any) -> WarpScan:
        return GappedTile(scan, policy.vectors_per_thread, policy.warps_per_squad, policy.shift).apart(policy.gap)

    @cute.jit
    def load_end(self, targets: tuple, sources: tuple, count, start, length):
        """The warps that read these words order them before the next copy, as what copies bring (``ring.release``)."""
        address = (sources[0] + count).toint() - VECTOR_BYTES
        room = (start + ((length - 1) * self.tile.gap + 1)).toint() - address
        if (count > 0) & (room < VECTOR_BYTES):
            count -= VECTOR_BYTES // self.sizes[0]
            words = cute.make_ptr(
                Uint32, (targets[0] + count).toint(), cute.AddressSpace.smem, assumed_align=VECTOR_BYTES
            )
            held = cute.make_tensor(words, cute.make_layout((VECTOR_BYTES // WORD_BYTES,)))
            for w in cutlass.range_constexpr(VECTOR_BYTES // WORD_BYTES):
                before = WORD_BYTES * w
                held[w] = word_of_range(address + before, Int32(0), Int32(room) - before)
        return count
