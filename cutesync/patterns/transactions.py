"""A phase that ends when bytes have arrived: transaction counts, with a copy and without one.

    thread 0       expect the tile's bytes, arrive ---------------------+
    the copy       bytes land ... ... ... ... ---(pending bytes = 0)----+--> phase over --> all threads read the tile

Without a copy a warp writes the tile, counts the bytes by ``complete_tx``, and arrives for itself. ``complete_tx``
publishes nothing; the warp's arrival publishes its stores.
"""

from __future__ import annotations

import cutlass
import numpy as np
from cutlass import Int32, Int64, cute
from cutlass.experimental import primitives

from cutesync.arguments import flag
from cutesync.errors import ArgumentValueError, explain
from cutesync.patterns.host import Step, Task, call
from cutesync.patterns.kernel import WARP, PatternKernel, part, shared
from cutesync.sync.barrier import Barrier

THREADS, TILE = 128, 512  # elements of 4 bytes: a tile is 2 KiB


class Transactions(PatternKernel):
    """``out`` is ``x`` with every tile of 512 elements reversed; one tile a block."""

    threads, smem = THREADS, 4 * TILE + 256

    def __init__(self, dtype, copy: bool) -> None:
        self.dtype, self.copy = dtype, copy
        self.name = "transactions_copy" if copy else "transactions"

    @cute.jit
    def body(self, x, out, state, n, m):
        thread, _, _ = cute.arch.thread_idx()
        start = Int64(cute.arch.block_idx()[0]) * TILE
        count = Int32(cutlass.min(n - start, Int64(TILE)))
        whole = count // 4 * 4  # copies move multiples of 16 bytes
        tile = shared(self.dtype.cutlass, TILE, align=128)
        source, target = part(x, start, TILE), part(out, start, TILE)
        bar = Barrier.make(1 if self.copy else 1 + WARP, name="tile")
        for j in cutlass.range(whole + thread, count, THREADS, unroll=1):  # threads copy the last elements
            tile[j] = source[j]
        cute.arch.sync_threads()
        if cutlass.const_expr(self.copy):
            if thread == 0:
                bar.arrive_tx(1, 4 * whole)
                if whole > 0:
                    primitives.cp_async_bulk_shared_cluster_global(
                        tile.iterator, source.iterator, bar.pointer, 4 * whole
                    )
        else:
            if thread == 0:
                bar.arrive_tx(1, 4 * whole)
            if thread < WARP:
                for j in cutlass.range(thread, whole, WARP, unroll=1):
                    tile[j] = source[j]
                    bar.complete_tx(4)
                bar.arrive()
        bar.wait_parity(0)
        for j in cutlass.range(thread, count, THREADS, unroll=1):
            target[j] = tile[count - 1 - j]


def run(x, *, copy: bool = True, out=None, stream=None):
    """Every 512 elements of the vector ``x`` (int32, float32) in reverse order; ``copy`` needs a 16-byte boundary."""
    copy = flag(copy, "copy")

    def task(x, _):
        if copy and x.ptr % 16:
            came = f"address {x.ptr:#x}"
            raise ArgumentValueError(explain("x", came, "a multiple of 16: bulk copies need that", "copy=False"))
        return Task(x, Step(lambda dtype: Transactions(dtype, copy), TILE))

    return call(task, x, out, stream, dtypes=("int32", "float32"))


def reference(x: np.ndarray) -> np.ndarray:
    """The same in NumPy."""
    return np.concatenate([x[start : start + TILE][::-1] for start in range(0, len(x), TILE)] or [x])
