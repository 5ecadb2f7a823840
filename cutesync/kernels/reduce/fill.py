"""The result of reducing nothing: every element of the result is the operator's identity, or ``init``."""

from __future__ import annotations

from cutlass import Int64, cute

from .base import Arguments, ReduceKernel
from .policy import FillPolicy


class FillReduce(ReduceKernel):
    """The kernel: ``init`` is stored in ``outer`` results, 256 a block."""

    def __init__(self, monoid, has_init: bool, policy: FillPolicy) -> None:
        super().__init__(monoid, False, 256, 0, 1)  # ``init`` is the result: it is not combined with another

    @cute.jit
    def body(self, a: Arguments):
        thread, block = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
        place = Int64(block) * 256 + thread
        if place < a.outer:
            self.store_result(a, place, (a.init,))
