"""How the two consumer warpgroups share the tiles of a block (``MatmulPolicy.schedule``).

A schedule has ``readers``, the consumer warps that read each stage, and the same five methods: ``half``, ``first``,
``begin``, ``end`` and ``next``. ``begin`` and ``end`` enclose the multiplications of a tile.
"""

from __future__ import annotations

import cutlass.cute as cute

from .policy import CONSUMERS, WARPGROUP

# Named barriers: 0 is the block's; 1 and 2 are those of the epilogue and of the split-K turnstile, 128 threads each;
# 3 and 4 are warpgroup 0's and 1's turn at the tensor cores ("pingpong"), where 128 arrive and 128 wait.
TURN = 3


class Cooperative:
    """Both warpgroups multiply one tile, each one half of its rows. Nobody takes turns."""

    readers = 4 * CONSUMERS

    def half(self, group):
        """Which half of the tile's rows this warpgroup multiplies."""
        return group

    def first(self, unit, step, stage, k_tiles, group):
        """The first unit of this warpgroup, and the stage of its first k-tile."""
        return unit, stage

    def begin(self, turn, group) -> None:
        """Wait for the tensor cores."""

    def end(self, more, group) -> None:
        """Hand the tensor cores over, if there are ``more`` units."""

    def next(self, unit, step, stage, k_tiles, turn):
        """``(unit, stage, turn)`` of this warpgroup's next tile."""
        return unit + step, stage, turn


class PingPong(Cooperative):
    """Each warpgroup multiplies a tile of its own, all rows of it. They take turns: while one stores its tile, the
    other has the tensor cores. ``turn`` counts the tiles of the block before the one at hand. The first turn needs no
    wait."""

    readers = 4

    def half(self, group):
        return 0

    @cute.jit
    def first(self, unit, step, stage, k_tiles, group):
        if group == 1:
            stage.advance(k_tiles)
        return unit + group * step, stage

    @cute.jit
    def begin(self, turn, group):
        if turn > 0:
            cute.arch.barrier(barrier_id=TURN + group, number_of_threads=2 * WARPGROUP)

    @cute.jit
    def end(self, more, group):
        if more:
            cute.arch.barrier_arrive(barrier_id=TURN + 1 - group, number_of_threads=2 * WARPGROUP)

    def next(self, unit, step, stage, k_tiles, turn):
        stage.advance(k_tiles)  # those are the other warpgroup's
        other = unit + step
        turn += 1
        return other + step, stage, turn
