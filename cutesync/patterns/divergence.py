"""Work without communication, and what a branch within a warp costs.

    straight    all lanes   A B A B A B A B
    mixed       even lanes  A B A B          odd lanes  B A B A
    regrouped   even lanes  A | B A B |      odd lanes  | B A B | A

``mixed`` has one branch a round: the warp runs A and B in every round, with half of its lanes idle. ``regrouped`` runs
A with half of the warp, B A B with all lanes, and A with the other half. Both compute the same; mixed takes 8 passes of
the warp, regrouped 5. A is ``work`` rounds of v = 5 v + 1, B of v = 3 v xor 7: long enough that the compiler keeps the
branch.
"""

from __future__ import annotations

import cutlass
import numpy as np
from cutlass import Int32, Int64, cute

from cutesync.arguments import choice, integer
from cutesync.patterns.host import Step, Task, call
from cutesync.patterns.kernel import PatternKernel, part

FORMS = ("straight", "mixed", "regrouped")
ROUNDS = 4


class Divergence(PatternKernel):
    """One thread an element; ``m`` is the ``work`` of A and of B."""

    def __init__(self, form: str) -> None:
        self.form, self.name = form, f"divergence_{form}"

    @cute.jit
    def body(self, x, out, state, n, m):
        thread, _, _ = cute.arch.thread_idx()
        at = Int64(cute.arch.block_idx()[0]) * self.threads + thread
        work, even = Int32(m), thread % 2 == 0
        value = Int32(part(x, cutlass.min(at, n - 1), 1)[0])
        if cutlass.const_expr(self.form == "straight"):
            for _ in cutlass.range_constexpr(ROUNDS):
                value = b(a(value, work), work)
        elif cutlass.const_expr(self.form == "mixed"):
            for i in cutlass.range(ROUNDS, unroll=1):
                if (thread + i) % 2 == 0:
                    value = a(value, work)
                else:
                    value = b(value, work)
        else:
            if even:
                value = a(value, work)
            value = b(a(b(value, work), work), work)
            if cutlass.not_(even):
                value = a(value, work)
        if at < n:
            part(out, at, 1)[0] = value


@cute.jit
def a(value: Int32, work: Int32):
    for _ in cutlass.range(work, unroll=1):
        value = value * 5 + 1
    return value


@cute.jit
def b(value: Int32, work: Int32):
    for _ in cutlass.range(work, unroll=1):
        value = (value * 3) ^ 7
    return value


def run(x, form: str = "regrouped", *, work: int = 64, out=None, stream=None):
    """The vector ``x`` (int32) after A and B in the order of ``form``: "straight", "mixed" or "regrouped"."""
    choice(form, "form", FORMS)
    work = integer(work, "work", 0, (1 << 31) - 1)

    def task(x, _):
        return Task(x, Step(lambda _: Divergence(form), Divergence.threads, m=work))

    return call(task, x, out, stream, dtypes=("int32",))


def reference(x: np.ndarray, form: str = "regrouped", work: int = 64) -> np.ndarray:
    """The same in NumPy."""
    value, even = x.astype(np.uint32), np.arange(len(x)) % 2 == 0

    def both(value, first_is_a):
        of_a, of_b = value.copy(), value.copy()
        for _ in range(work):
            of_a, of_b = of_a * np.uint32(5) + np.uint32(1), (of_b * np.uint32(3)) ^ np.uint32(7)
        return np.where(first_is_a, of_a, of_b)

    for i in range(2 * ROUNDS if form == "straight" else ROUNDS):
        value = both(value, i % 2 == 0 if form == "straight" else even ^ (i % 2 == 1))
    return value.astype(np.int32)
