"""Copies an operand that TMA cannot read, because of its base, its strides or both, into rows that begin on 16-byte boundaries.

One read and one write of the operand: at 4097 x 4095 x 4099 the two copies take a tenth of the multiplication.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

VECTOR_BYTES = 16


class Pack:
    """``out[item, row, :inner] = x[item, row, :inner]`` for elements of ``size`` bytes, moved as bits: ``x`` with any strides, ``out`` with
    rows ``pitch`` elements apart, a multiple of 16 bytes. What pads a row of ``out`` is not defined. One block copies a row."""

    threads, smem = 256, 0

    def __init__(self, element) -> None:
        self.element = element

    @cute.jit
    def __call__(self, x: cute.Pointer, out: cute.Pointer, rows: Int64, inner: Int64, steps, pitch: Int64, grid: Int32, stream):
        self.kernel.set_name_prefix("cutesync_matmul_pack", remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(x, out, rows, inner, steps, pitch).launch(
            grid=(grid, 1, 1), block=(self.threads, 1, 1), smem=0, min_blocks_per_mp=4, preferred_smem_carveout=-1, stream=stream
        )

    @cute.kernel
    def kernel(self, x: cute.Pointer, out: cute.Pointer, rows: Int64, inner: Int64, steps, pitch: Int64):
        """``steps`` are the strides of ``x``: (item, row, element)."""
        of_item, of_row, of_element = steps
        width = VECTOR_BYTES * 8 // self.element.width
        block = Int64(cute.arch.block_idx()[0])
        item = block // rows
        source = x + (item * of_item + (block - item * rows) * of_row)
        target = cute.make_ptr(self.element, (out + block * pitch).toint(), cute.AddressSpace.gmem, assumed_align=VECTOR_BYTES)
        vector = Int64(cute.arch.thread_idx()[0])
        while vector * width < inner:
            moved = cute.make_rmem_tensor((width,), self.element)
            for i in cutlass.range_constexpr(width):
                moved[i] = self.element(0)
                if vector * width + i < inner:
                    moved[i] = cute.make_tensor(source + (vector * width + i) * of_element, cute.make_layout((1,)))[0]
            cute.autovec_copy(moved, cute.make_tensor(target + vector * width, cute.make_layout((width,))))
            vector += self.threads
