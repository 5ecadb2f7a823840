"""Stores 0 in one word: where the blocks of a matmul then look for the largest magnitude (``amax``). One thread."""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Int32

from ...sync.overlap import await_launches


class Zero:
    """The kernel, one warp. Its first lane stores."""

    threads = 32

    @cute.jit
    def __call__(self, word: cute.Pointer, grid: Int32, stream):
        self.kernel.set_name_prefix("cutesync_matmul_zero", remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(word).launch(grid=(grid, 1, 1), block=(self.threads, 1, 1), stream=stream)

    @cute.kernel
    def kernel(self, word: cute.Pointer):
        await_launches()
        if cute.arch.thread_idx()[0] == 0:
            cute.make_tensor(word, cute.make_layout((1,)))[0] = Int32(0)
