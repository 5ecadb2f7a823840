"""One thread writes the order of tiles as ``TileOrder`` computes it."""

from __future__ import annotations

import cuda.bindings.driver as driver
import cutlass
import cutlass.cute as cute
import numpy as np
from cutlass import Int32

from cutesync import emulator
from cutesync.kernels.matmul.scheduler import TileOrder


class WriteOrder:
    def __init__(self, cluster) -> None:
        self.order = TileOrder(cluster)

    @cute.jit
    def __call__(
        self,
        out: cute.Pointer,
        tiles_m: Int32,
        tiles_n: Int32,
        batch: Int32,
        along_n: Int32,
        group: Int32,
        stream: driver.CUstream,
    ):
        self.kernel(out, tiles_m, tiles_n, batch, along_n, group).launch(
            grid=(1, 1, 1), block=(32, 1, 1), stream=stream
        )

    @cute.kernel
    def kernel(self, out: cute.Pointer, tiles_m: Int32, tiles_n: Int32, batch: Int32, along_n: Int32, group: Int32):
        if cute.arch.thread_idx()[0] == 0:
            table = cute.make_tensor(out, cute.make_layout((1 << 20, 3), stride=(3, 1)))
            for unit in cutlass.range(self.order.units(tiles_m, tiles_n, batch), unroll=1):
                m, n, item = self.order.tile(unit, tiles_m, tiles_n, along_n, group, Int32(0))
                table[unit, 0] = m
                table[unit, 1] = n
                table[unit, 2] = item


def tiles_in_order(tiles_m: int, tiles_n: int, batch: int, cluster, along_n: bool, group: int) -> np.ndarray:
    count = -(-tiles_m // cluster[0]) * -(-tiles_n // cluster[1]) * batch
    out = np.full((count, 3), -1, np.int32)
    host = WriteOrder(cluster).__call__
    arguments = (out, Int32(tiles_m), Int32(tiles_n), Int32(batch), Int32(int(along_n)), Int32(group))
    emulator.call(emulator.compile_for_emulator(host, *arguments), host, *arguments)
    return out
