"""The warpgroup MMA for a pair of element types: 64 x N elements of the result a step of 32 bytes of K."""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import TFloat32
from cutlass.cute.nvgpu import warpgroup
from cutlass.utils import hopper_helpers


class MmaTF32Op(warpgroup.MmaF16BF16Op):
    """``wgmma.mma_async.m64nNk8.f32.tf32.tf32``, for which the DSL has no operation. Both operands are K-major; the
    tensor cores use the upper 19 bits of an element and ignore the rest."""

    descriptive_name = "warpgroup TF32 MMA operation"

    def _verify(self) -> None:
        object.__setattr__(self, "shape_mnk", (*self.shape_mnk[:2], 8))  # type: ignore[index]


def tiled_mma(element_a, element_b, a_major, b_major, accumulator, columns: int) -> cute.TiledMma:
    """64 x ``columns`` by one warpgroup, both operands out of shared memory."""
    if element_a is not TFloat32:
        return hopper_helpers.make_trivial_tiled_mma(
            element_a, element_b, a_major, b_major, accumulator, (1, 1, 1), (64, columns)
        )
    operation = MmaTF32Op(element_a, accumulator, (64, columns), warpgroup.OperandSource.SMEM, a_major, b_major)
    return cute.make_tiled_mma(cute.make_mma_atom(operation), (1, 1, 1))
