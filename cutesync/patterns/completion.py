"""A running sum by a completion function: the last thread to arrive adds up the cells before any thread leaves.

    every thread   cell[t] = x[i] --arrive--+                               +--> wait --> next 128 elements
                                            +--> the last: acc += sum(cell) +
                                                 out[tile] = acc

The completion function is the only reader of the cells and runs before the phase ends, so one set of cells is enough.
"""

from __future__ import annotations

import cutlass
import numpy as np
from cutlass import Int32, Int64, cute

from cutesync.patterns.host import Step, Task, call
from cutesync.patterns.kernel import PatternKernel, part, shared
from cutesync.sync.completion import CompletionBarrier

THREADS = 128


class Completion(PatternKernel):
    """One block; ``out[j]`` is the sum of the first ``128 * (j + 1)`` elements, or of all."""

    name, threads, smem = "completion", THREADS, 8 * THREADS + 64

    @cute.jit
    def body(self, x, out, state, n, m):
        thread, _, _ = cute.arch.thread_idx()
        kind = self.dtype.cutlass
        cells = shared(kind, THREADS)
        total = shared(kind, 1)
        bar = CompletionBarrier.make(THREADS, lambda: self.add_up(cells, total), name="tile")
        if thread == 0:
            total[0] = kind(0)
        cute.arch.sync_threads()
        start = Int64(0)
        while start < n:
            value = kind(0)
            if start + thread < n:
                value = kind(part(x, start, THREADS)[thread])
            cells[thread] = value
            token = bar.arrive()
            # work that needs neither cells nor total could stand here
            bar.wait(token)
            if thread == 0:
                part(out, start // THREADS, 1)[0] = kind(total[0])
            start += THREADS

    @cute.jit
    def add_up(self, cells, total):
        together = self.dtype.cutlass(total[0])
        for j in cutlass.range(THREADS, unroll=8):
            together += self.dtype.cutlass(cells[Int32(j)])
        total[0] = together


def run(x, *, out=None, stream=None):
    """The running sums of ``x`` (int32, int64, float32, float64) after every 128 elements, in index order."""
    types = ("int32", "int64", "float32", "float64")
    return call(lambda x, _: Task(x, Step(Completion), shape=(-(-x.size // THREADS),)), x, out, stream, dtypes=types)


def reference(x: np.ndarray) -> np.ndarray:
    """The same in NumPy."""
    return (
        np.add.accumulate(np.add.reduceat(x, np.arange(0, len(x), THREADS), dtype=x.dtype), dtype=x.dtype)
        if len(x)
        else x[:0]
    )
