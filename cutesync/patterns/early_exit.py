"""Threads that leave a sequence of barrier phases early: ``arrive_and_drop``.

    round r    threads with x > r     arrive ----+--> phase r --> wait, go on
               threads with x == r    drop   ----+               (from phase r + 1 on, they are not counted)

Thread i takes part in ``x[i]`` rounds and adds up how many took part in each. A thread that returned without dropping
would leave the others waiting for ever. Within a warp the arrivals come first and the waits after them, so that no lane
waits for a lane that is held back by it.
"""

from __future__ import annotations

import numpy as np
from cutlass import Boolean, Int32, Int64, cute

from cutesync.errors import ArgumentValueError, explain
from cutesync.patterns.host import Step, Task, call
from cutesync.patterns.kernel import PatternKernel, part, shared
from cutesync.sync.barrier import Barrier

THREADS, MOST_ROUNDS = 256, 256


class EarlyExit(PatternKernel):
    """One thread an element; ``m`` rounds at most."""

    name, threads, smem = "early_exit", THREADS, 4 * MOST_ROUNDS + 64

    @cute.jit
    def body(self, x, out, state, n, m):
        thread, _, _ = cute.arch.thread_idx()
        start = Int64(cute.arch.block_idx()[0]) * THREADS
        present = shared(Int32, MOST_ROUNDS)
        bar = Barrier.make(THREADS, name="round")
        present[thread] = Int32(0)
        mine = Int32(0)
        if start + thread < n:
            mine = Int32(part(x, start, THREADS)[thread])
        cute.arch.sync_threads()
        stays, seen, r = Boolean(True), Int32(0), Int32(0)
        while cute.arch.vote_any_sync(stays):
            token = Int64(0)
            goes_on = stays & (r < mine)
            if goes_on:
                cute.arch.atomic_add(present.iterator + r, Int32(1), sem="relaxed", scope="cta")
                token = bar.arrive()
            elif stays:
                token = bar.arrive_and_drop()
            if goes_on:
                bar.wait(token)
                seen += Int32(present[r])
            stays = goes_on
            r += 1
        if start + thread < n:
            part(out, start, THREADS)[thread] = seen


def run(x, *, out=None, stream=None):
    """For each thread the sum, over its ``x[i]`` rounds (int32, 0 to 256), of how many of its block took part."""
    known = isinstance(x, np.ndarray) and x.dtype == np.int32 and x.size
    if known and not 0 <= int(np.min(x)) <= int(np.max(x)) <= MOST_ROUNDS:
        raise ArgumentValueError(explain("x", f"values from {np.min(x)} to {np.max(x)}", f"0 to {MOST_ROUNDS} rounds"))
    return call(lambda x, _: Task(x, Step(EarlyExit, THREADS)), x, out, stream, dtypes=("int32",))


def reference(x: np.ndarray) -> np.ndarray:
    """The same in NumPy."""
    found = np.zeros_like(x)
    for start in range(0, len(x), THREADS):
        rounds = x[start : start + THREADS]
        present = np.cumsum([0, *((rounds > r).sum() for r in range(MOST_ROUNDS))])
        found[start : start + THREADS] = present[rounds]
    return found
