"""How the two consumer warpgroups share the tiles of a block (``MatmulPolicy.schedule``).

A schedule has ``readers``, the consumer warps that read each stage, and the same five methods: ``half``, ``first``,
``begin``, ``end`` and ``next``. ``begin`` and ``end`` enclose the multiplications of a tile.
"""

from __future__ import annotations

from enum import IntEnum

import cutlass.cute as cute

from ...sync.named_barrier import NamedBarrier
from .policy import CONSUMERS, WARPGROUP


class Named(IntEnum):
    """The named barriers of a block: each consumer warpgroup has two, a producer that loads by itself one."""

    STORED_0, STORED_1, TURN_0, TURN_1, LOADED = range(1, 6)


# The 128 threads of a warpgroup meet in the epilogue and in the split-K turnstile.
STORED = NamedBarrier(Named.STORED_0, WARPGROUP, CONSUMERS)
# Turns at the tensor cores ("pingpong"): the other warpgroup's 128 threads arrive, the own ones wait.
TURN = NamedBarrier(Named.TURN_0, 2 * WARPGROUP, CONSUMERS)


class Cooperative:
    """Both warpgroups multiply one tile, each one half of its rows or columns. Nobody takes turns."""

    readers = 4 * CONSUMERS

    def half(self, group):
        """Which half of the tile this warpgroup multiplies."""
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
            TURN.sync(group)

    @cute.jit
    def end(self, more, group):
        if more:
            TURN.arrive(1 - group)

    def next(self, unit, step, stage, k_tiles, turn):
        stage.advance(k_tiles)  # those are the other warpgroup's
        other = unit + step
        turn += 1
        return other + step, stage, turn
