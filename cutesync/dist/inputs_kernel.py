"""The kernel that finds how many elements of a part count: one thread."""

from __future__ import annotations

import cutlass
from cutlass import Int32, Int64, cute

from ..kernels.tiled import element
from ..sync.overlap import await_launches, let_next_start


class LocalCount:
    """``n`` elements count in all, ``before`` of them at most before the part, which has ``length``. With ``ragged``
    both are in memory."""

    threads = 32

    def __init__(self, ragged: bool) -> None:
        self.ragged = ragged

    @cute.jit
    def __call__(self, n: cute.Pointer, before, length, out: cute.Pointer, grid: Int32, stream):
        self.kernel.set_name_prefix("cutesync_local_count", remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(n, before, length, out).launch(grid=(grid, 1, 1), block=(self.threads, 1, 1), stream=stream)

    @cute.kernel
    def kernel(self, n: cute.Pointer, before, length, out: cute.Pointer):
        await_launches()
        let_next_start()
        if cute.arch.thread_idx()[0] == 0:
            bounds = (element(before), element(length)) if cutlass.const_expr(self.ragged) else (before, length)
            first, most = (Int64(bound) for bound in bounds)
            found = cutlass.min(cutlass.max(Int64(element(n)) - first, Int64(0)), most)
            cute.make_tensor(out, cute.make_layout((1,)))[0] = found
