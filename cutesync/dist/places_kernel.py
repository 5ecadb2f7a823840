"""The kernel that adds a number to the first elements of an array: no thread waits for another."""

from __future__ import annotations

from cutlass import Int32, Int64, cute

from ..kernels.tiled import element
from ..sync.overlap import await_launches, let_next_start


class ShiftKernel:
    """``count`` is in memory; the array has ``capacity`` elements."""

    threads = 256

    @cute.jit
    def __call__(self, indices: cute.Pointer, count: cute.Pointer, capacity: Int64, before: Int64, grid: Int32, stream):
        self.kernel.set_name_prefix("cutesync_shift", remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(indices, count, capacity, before).launch(
            grid=(grid, 1, 1), block=(self.threads, 1, 1), stream=stream
        )

    @cute.kernel
    def kernel(self, indices: cute.Pointer, count: cute.Pointer, capacity: Int64, before: Int64):
        await_launches()
        let_next_start()
        at = Int64(cute.arch.block_idx()[0]) * self.threads + cute.arch.thread_idx()[0]
        if at < capacity:
            if at < Int64(element(count)):
                own = Int64(element(indices + at))
                cute.make_tensor(indices + at, cute.make_layout((1,)))[0] = own + before
