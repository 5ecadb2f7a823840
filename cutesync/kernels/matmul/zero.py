"""Stores 0 in one word: where the blocks of a matmul then look for the largest magnitude (``amax``). One thread."""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Int32

from ..plain import PlainKernel


class Zero(PlainKernel):
    """The kernel, one warp. Its first lane stores."""

    name = "matmul_zero"

    @cute.jit
    def main(self, word: cute.Pointer):
        if cute.arch.thread_idx()[0] == 0:
            cute.make_tensor(word, cute.make_layout((1,)))[0] = Int32(0)
