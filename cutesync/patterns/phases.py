"""Many phases of one barrier, waited for by token and by parity.

    phase p    cell[p % 2][t] = value --arrive--> phase over --wait--> value += cell[p % 2][t + 1]

Two sets of cells are used in turn. A thread that is one phase ahead writes the other set. No thread can be two ahead,
because that takes the next arrival of every thread. A token names its phase; a parity names every second one, so each
thread must count its phases.
"""

from __future__ import annotations

import cutlass
import numpy as np
from cutlass import Int32, Int64, cute

from cutesync.arguments import choice, integer
from cutesync.patterns.host import Step, Task, call, whole_warps
from cutesync.patterns.kernel import PatternKernel, part, shared
from cutesync.sync.barrier import Barrier

HOW = ("token", "parity", "sync_threads")
MOST_PHASES = 1 << 40


class Phases(PatternKernel):
    """``m`` phases over tiles of ``threads`` elements, one tile a block. "sync_threads": to compare the time."""

    def __init__(self, how: str, threads: int) -> None:
        self.how, self.threads = how, threads
        self.name, self.smem = f"phases_{how}", 8 * threads + 64

    @cute.jit
    def body(self, x, out, state, n, m):
        thread, _, _ = cute.arch.thread_idx()
        start = Int64(cute.arch.block_idx()[0]) * self.threads
        count = Int32(cutlass.min(n - start, Int64(self.threads)))
        cells = shared(Int32, self.threads, 2)
        source, target = part(x, start, self.threads), part(out, start, self.threads)
        bar = Barrier.make(self.threads, name="phase")
        value, neighbour = Int32(0), Int32(0)
        if thread < count:
            value = Int32(source[thread])
            neighbour = (thread + 1) % count
        half = Int32(0)
        cute.arch.sync_threads()
        phase = Int64(0)
        while phase < m:
            cells[thread, half] = value
            if cutlass.const_expr(self.how == "token"):
                bar.arrive_and_wait()
            elif cutlass.const_expr(self.how == "parity"):
                bar.arrive()
                bar.wait_parity(half)
            else:
                cute.arch.sync_threads()
            value += Int32(cells[neighbour, half])
            half = half ^ 1
            phase += 1
        if thread < count:
            target[thread] = value


def run(x, phases: int, *, how: str = "token", threads: int = 256, out=None, stream=None):
    """``phases`` times: each element of ``x`` (int32) plus its right neighbour, cyclic within tiles of ``threads``."""
    choice(how, "how", HOW)
    phases, threads = integer(phases, "phases", 0, MOST_PHASES), whole_warps(threads)

    def task(x, _):
        return Task(x, Step(lambda _: Phases(how, threads), threads, m=phases))

    return call(task, x, out, stream, dtypes=("int32",))


def reference(x: np.ndarray, phases: int, threads: int = 256) -> np.ndarray:
    """The same in NumPy."""
    tiles = [x[start : start + threads].copy() for start in range(0, len(x), threads)]
    for tile in tiles:
        for _ in range(phases):
            tile += np.roll(tile, -1)
    return np.concatenate(tiles or [x])
