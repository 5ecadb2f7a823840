"""The kernel that finds how many elements of a part count: one thread."""

from __future__ import annotations

import cutlass
from cutlass import Int64, cute

from ..kernels.plain import PlainKernel
from ..kernels.tiled import element
from ..sync.overlap import let_next_start


class LocalCount(PlainKernel):
    """``n`` elements count in all, ``before`` of them at most before the part, which has ``length``. With ``ragged``
    both are in memory."""

    name, threads = "local_count", 32

    def __init__(self, ragged: bool) -> None:
        self.ragged = ragged

    @cute.jit
    def main(self, n: cute.Pointer, before, length, out: cute.Pointer):
        let_next_start()
        if cute.arch.thread_idx()[0] == 0:
            bounds = (element(before), element(length)) if cutlass.const_expr(self.ragged) else (before, length)
            first, most = (Int64(bound) for bound in bounds)
            found = cutlass.min(cutlass.max(Int64(element(n)) - first, Int64(0)), most)
            cute.make_tensor(out, cute.make_layout((1,)))[0] = found
