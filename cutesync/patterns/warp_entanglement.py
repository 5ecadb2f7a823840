"""What a diverged warp costs at a barrier: arrivals counted and timed.

    converged   32 lanes, one instruction      1 update of the barrier (the hardware merges them)
    warp        lane 0 for all, count 32       1 update, by construction
    diverged    32 lanes, one after the other  32 updates

All three are 32 arrivals: the count is the same, the time is not.
"""

from __future__ import annotations

import cutlass
from cutlass import Int32, Int64, cute

from cutesync.arguments import choice, integer
from cutesync.patterns.host import measured
from cutesync.patterns.kernel import WARP, PatternKernel, part
from cutesync.sync.barrier import Barrier

HOW = ("converged", "warp", "diverged")


class Entanglement(PatternKernel):
    """One warp; ``m`` phases. ``out``: phases that lane 0 saw end, and the cycles of all of them."""

    threads, smem = WARP, 64

    def __init__(self, how: str) -> None:
        self.how, self.name = how, f"warp_entanglement_{how}"

    @cute.jit
    def body(self, x, out, state, n, m):
        lane = cute.arch.lane_idx()
        bar = Barrier.make(WARP)
        cute.arch.sync_threads()
        seen, phase = Int64(0), Int64(0)
        started = Int64(cute.arch.clock64())
        while phase < m:
            token = Int64(0)
            if cutlass.const_expr(self.how == "converged"):
                token = bar.arrive()
            elif cutlass.const_expr(self.how == "warp"):
                token = bar.arrive_warp()
            else:
                for turn in cutlass.range(WARP, unroll=1):
                    if lane == Int32(turn):
                        token = bar.arrive()
                    cute.arch.sync_warp()
            bar.wait(token)
            seen += 1
            phase += 1
        if lane == 0:
            part(out, 0, 2)[0] = seen
            part(out, 0, 2)[1] = Int64(cute.arch.clock64()) - started


def run(phases: int, how: str = "converged", *, stream: int = 0) -> tuple[int, float]:
    """``(phases seen, cycles a phase)`` of one warp on the current device."""
    choice(how, "how", HOW)
    phases = integer(phases, "phases", 1, (1 << 31) - 1)
    seen, cycles = measured(lambda _: Entanglement(how), 2, phases, stream)
    return seen, cycles / phases


def reference(phases: int) -> int:
    """The phases that must be seen."""
    return phases
