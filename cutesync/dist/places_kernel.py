"""The kernel that adds a number to the first elements of an array: no thread waits for another."""

from __future__ import annotations

from cutlass import Int64, cute

from ..kernels.plain import PlainKernel
from ..kernels.tiled import element
from ..sync.overlap import let_next_start


class ShiftKernel(PlainKernel):
    """``count`` is in memory; the array has ``capacity`` elements."""

    name = "shift"

    @cute.jit
    def main(self, indices: cute.Pointer, count: cute.Pointer, capacity: Int64, before: Int64):
        let_next_start()
        at = Int64(cute.arch.block_idx()[0]) * self.threads + cute.arch.thread_idx()[0]
        if at < capacity:
            if at < Int64(element(count)):
                own = Int64(element(indices + at))
                cute.make_tensor(indices + at, cute.make_layout((1,)))[0] = own + before
