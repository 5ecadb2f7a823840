"""What a barrier costs: cycles of one round trip, each way of meeting timed in the same kernel.

    every thread of the block    arrive --> (phase over) --> wait returns     m times, between two clock readings

"one look" is a wait for a phase that is over already. On an H200 that alone takes twice as long as a ``sync_threads``
of 256 threads (the table in README.md), and the arrivals of the warps follow one another: an mbarrier cannot be as fast
as the hardware barrier. Use mbarriers where one side must not wait, or where copies arrive; for a plain meeting use
``sync_threads`` or a ``NamedBarrier``.
"""

from __future__ import annotations

from enum import IntEnum

import cutlass
from cutlass import Int32, Int64, cute

from cutesync.arguments import integer
from cutesync.patterns.host import measured, whole_warps
from cutesync.patterns.kernel import PatternKernel, part
from cutesync.sync.barrier import Barriers
from cutesync.sync.named_barrier import NamedBarrier
from cutesync.sync.wait import of_barrier, until

WAYS = (
    "sync_threads",
    "named barrier",
    "arrive_and_wait",
    "arrive_warp, wait",
    "arrive, wait_parity",
    "arrive, spin on test_wait",
    "one look",
)


class Ids(IntEnum):
    MEET = 1


class RoundTrip(PatternKernel):
    """One block; ``out[w]`` is the cycles that way ``w`` took for ``m`` rounds, as thread 0 saw them."""

    name, smem = "round_trip", 128

    def __init__(self, threads: int) -> None:
        self.threads = threads

    @cute.jit
    def body(self, x, out, state, n, m):
        bars = Barriers.make(len(WAYS), self.threads)  # one a way, so that round i is its phase i
        cute.arch.sync_threads()
        for way in cutlass.range_constexpr(len(WAYS)):
            self.meet(bars[way], WAYS[way], Int64(0))  # a round to warm up
            cute.arch.sync_threads()
            started, i = Int64(cute.arch.clock64()), Int64(0)
            while i < m:
                self.meet(bars[way], WAYS[way], i + 1)
                i += 1
            cycles = Int64(cute.arch.clock64()) - started
            if cute.arch.thread_idx()[0] == 0:
                part(out, way, 1)[0] = cycles

    @cute.jit
    def meet(self, bar: cutlass.Constexpr, way: cutlass.Constexpr, i: Int64):
        if cutlass.const_expr(way == "sync_threads"):
            cute.arch.sync_threads()
        elif cutlass.const_expr(way == "named barrier"):
            NamedBarrier(Ids.MEET, self.threads).sync()
        elif cutlass.const_expr(way == "arrive_and_wait"):
            bar.arrive_and_wait()
        elif cutlass.const_expr(way == "arrive_warp, wait"):
            bar.wait(bar.arrive_warp())
        elif cutlass.const_expr(way == "arrive, wait_parity"):
            bar.arrive()
            bar.wait_parity(Int32(i) & 1)
        elif cutlass.const_expr(way == "one look"):
            bar.wait_parity(1)  # on a barrier at which nobody arrives, the phase before the first
        else:
            token = bar.arrive()
            until(lambda: bar.test_wait(token), of_barrier(bar.name), bar.stage, 0)


def run(rounds: int = 1000, *, threads: int = 256, stream: int = 0) -> dict[str, float]:
    """Cycles a round trip of ``threads`` threads takes, each way, on the current device."""
    rounds, threads = integer(rounds, "rounds", 1, (1 << 31) - 1), whole_warps(threads)
    cycles = measured(lambda _: RoundTrip(threads), len(WAYS), rounds, stream)
    return {way: found / rounds for way, found in zip(WAYS, cycles, strict=True)}
