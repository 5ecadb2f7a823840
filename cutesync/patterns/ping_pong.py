"""Two warpgroups that take turns by named barriers, as the consumers of a ping-pong matmul do.

    warpgroup 0   prepare tile 0 | TURN 0 | prepare tile 2          | TURN 2 | ...
    warpgroup 1   prepare tile 1          | TURN 1 | prepare tile 3          | TURN 3
                                 sync(FIRST)  arrive(SECOND)
                                          sync(SECOND)  arrive(FIRST)

Preparing (here: the sum of a tile) overlaps with the turn of the other warpgroup. Turns are exclusive and in order
(here: h = 31 * h + sum, which any other order would change). Every phase of a barrier has 256 arrivals: 128 threads
arrive, 128 sync. Warpgroup 1 gives the permission for the first turn at the start. Nobody arrives for a turn that will
not come.
"""

from __future__ import annotations

from enum import IntEnum

import cutlass
import numpy as np
from cutlass import Int32, Int64, cute

from cutesync.patterns.host import Step, Task, call
from cutesync.patterns.kernel import WARP, PatternKernel, part, shared
from cutesync.sync.named_barrier import NamedBarrier
from cutesync.sync.roles import Role, Roles
from cutesync.warp import reduce

TILE = 128  # elements, and threads of a warpgroup


class Turn(IntEnum):
    FIRST = 1  # warpgroup 0 may take its turn
    SECOND = 2
    READ_FIRST = 3  # the sums of warpgroup 0 have been read: its warps may write the next
    READ_SECOND = 4


TURNS, READS = (Turn.FIRST, Turn.SECOND), (Turn.READ_FIRST, Turn.READ_SECOND)


class PingPong(PatternKernel):
    """One block; ``out[j]`` is ``h`` after tile ``j``."""

    name, threads, smem = "ping_pong", 2 * TILE, 256

    @cute.jit
    def body(self, x, out, state, n, m):
        # 4 sums a warpgroup, and h
        sums = shared(Int32, 9)
        thread, _, _ = cute.arch.thread_idx()
        if thread == 0:
            sums[8] = Int32(0)  # seen by the others from the first turn on
        Roles(Role("first", 4), Role("second", 4)).run(
            first=lambda warp: self.play(x, out, n, sums, 0, warp),
            second=lambda warp: self.play(x, out, n, sums, 1, warp),
        )

    @cute.jit
    def play(self, x, out, n: Int64, sums, number: cutlass.Constexpr, warp: Int32):
        """The turns of warpgroup ``number``: tiles number, number + 2, ..."""
        my_turn, other_turn = (NamedBarrier(turn, 2 * TILE) for turn in (TURNS if number == 0 else TURNS[::-1]))
        read = NamedBarrier(READS[number], TILE)
        lane = cute.arch.lane_idx()
        if cutlass.const_expr(number == 1):
            other_turn.arrive()
        tile = Int64(number)
        while tile * TILE < n:
            at = tile * TILE + warp * WARP + lane
            value = Int32(0)
            if at < n:
                value = Int32(part(x, at, 1)[0])
            value = reduce(value, "add")
            if lane == 0:
                sums[4 * number + warp] = value
            my_turn.sync()  # also orders the sums of the warpgroup's own warps
            if warp == 0:
                if lane == 0:
                    h = Int32(sums[8]) * 31
                    for w in cutlass.range_constexpr(4):
                        h += Int32(sums[4 * number + w])
                    sums[8] = h
                    part(out, tile, 1)[0] = h
            if (tile + 1) * TILE < n:
                other_turn.arrive()
            read.sync()
            tile += 2


def run(x, *, out=None, stream=None):
    """``h`` after each tile of 128 elements of ``x`` (int32): ``h = 31 * h + sum of the tile`` modulo 2**32."""
    return call(lambda x, _: Task(x, Step(PingPong), shape=(-(-x.size // TILE),)), x, out, stream, dtypes=("int32",))


def reference(x: np.ndarray) -> np.ndarray:
    """The same in NumPy."""
    h, found = 0, []
    for start in range(0, len(x), TILE):
        h = (31 * h + int(x[start : start + TILE].sum(dtype=np.int64))) % (1 << 32)
        found.append(h)
    return np.array(found, np.uint32).view(np.int32)
