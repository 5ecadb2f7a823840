"""Which tiles of a wave of blocks scan rows, and with which sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ..hardware import LANES, SMS, VECTOR_BYTES, WORD_BYTES
from ..policy import Policy
from .problem import Choice, Problem

# Of a wave that reads at most so many bytes, the warps of a block and the vectors per lane. A chunk in which a row
# begins or ends takes longer than others, and all wait for it: the more so, the more vectors it has (H200, with half as
# many: int16 (4114777,) 12.1 us, so 8.5 us; bfloat16 (38754,) 3.6 us, 3.0 us; but float32 (4194304,) 12.8 us, 15.2 us;
# and from 1 to 2 MiB they are slower: uint32 (358442,) 3.4 us, 3.9 us). Sixteen warps hide each other's latency better
# than eight with twice as many vectors each (bfloat16 (1490825,): 5.5 us, so 4.9 us; (3779734,): 9.6 us, so 8.5 us).
# From 2 MiB on tiles are as large as one wave of blocks needs, unless rows are not whole chunks (uint32 (4194304,) from
# its second element on: 16.2 us, with half as many vectors 14.3 us).
WAVES = ((1 << 19, 4, 4), (1 << 21, 8, 4), (5 << 20, 16, 4), (SMS << 16, 16, 8), (math.inf, 16, 16))
PARTIAL_WAVES = ((1 << 19, 4, 2), (1 << 20, 8, 2), *WAVES[1:3], (math.inf, 16, 8))
# Rows of whole chunks of words, of so many bytes at least and at most: eight warps with more vectors each where no SM
# has more than one tile of 32 KiB (H200, float32 in graphs and by events: 2 MiB 3.9 and 6.8 us, so 3.5 and 6.5 us; 3
# MiB 4.5 and 7.8 us, so 4.4 and 7.5 us; 4 MiB 5.1 and 8.4 us, so 5.0 and 8.2 us; but 5 MiB, two on some SMs: 5.7 and
# 9.1 us, so 6.3 and 9.1 us), and where nearly each has two of 64 KiB, without requests to the L2, as blocks hide each
# other's latency (16 MiB 12.7 and 16.1 us, so 12.8 and 14.1 us, with requests 12.8 and 15.4 us; but 14 MiB: 11.4 and
# 15.3 us, so 12.0 and 13.3 us; 8 MiB, one of 64 KiB on an SM, without requests: 7.1 and 10.6 us, so 8.2 and 10.7 us;
# float64 of 16 MiB: 13.6 and 17.2 us, so 16.0 and 19.1 us). The last is whether blocks ask for tiles.
WORD_WAVES = ((1 << 21, SMS << 15, 8, 8, True), (15 << 20, math.inf, 8, 16, False))
ALONE = (2, 3, 4, 6, 8, 12, 16)  # vectors per lane of a tile that has a whole row: few, so that all warps have some
MAX_SEVERAL_WARPS, MAX_SEVERAL_VECTORS = 8, 16  # of states of several values: more warps leave a thread few registers
# An SM has registers for a second block of large tiles of rows that are not whole chunks, so one of the next launch is
# there before its turn, and tiles that are a few more than SMs are one round (H200, float16 (2636142,) 6.5 us, so 5.9
# us; int32 (3689616,) off by one 13.0 us, so 12.4 us; but where nearly each SM has one tile, int16 (4114777,): 7.4 us,
# so 7.6 us; float32 (2097152,), of whole chunks: 7.1 us, so 7.4 us; smaller tiles, bfloat16 (1490825,): 5.1 us, so 5.3
# us). Other elements than those of 2 and 4 bytes spill registers.
PARTIAL_BLOCKS, MOST_WARPS, LARGE_ROWS, FITTING, MIN_FULL = 2, 16, 8, (2, 4), SMS * 3 // 4


@dataclass(frozen=True)
class WavePolicy(Policy, kernel=".wave:WaveScan"):
    """One tile per block: ``warps`` chunks with ``rows`` vectors per lane. ``alone``: a row is one tile. ``gap`` as in
    ``Problem``. ``asks``: a block asks the L2 for a tile before it waits for the launch before."""

    alone: bool
    warps: int
    rows: int
    shift: int | None
    aligned: bool = True
    gap: int = 1
    asks: bool = True
    blocks_per_sm: int = 1


@dataclass(frozen=True)
class Tiling:
    """How ``width`` columns are cut: vectors of ``items`` positions, ``total`` bytes read, the vectors that registers
    hold (``fitted``), and the tiles of so many warps and vectors that begin on a boundary (``tiles_of``)."""

    width: int
    items: int
    total: int
    fitted: Callable[[int], int]
    tiles_of: Callable[[int, int, int], int]


def wave(problem: Problem, tiling: Tiling) -> Choice:
    """Return the policy and the launch of rows."""
    warps, rows = sizes(problem, WAVES, tiling.total)
    plain, asks, blocks = tiling.width == 1 and not problem.several, True, 1
    if plain and tiling.tiles_of(warps, rows, VECTOR_BYTES) > 1:
        if not are_full(problem, tiling.fitted(rows) * LANES * tiling.items):
            warps, rows = sizes(problem, PARTIAL_WAVES, tiling.total)
            blocks = PARTIAL_BLOCKS if _fits_twice(problem, tiling, warps, rows) else 1
        else:
            warps, rows, asks = _words(problem, tiling) or (warps, rows, True)
    tiles, rows = tiling.tiles_of(warps, rows, VECTOR_BYTES), tiling.fitted(rows)
    if tiles == 1 and plain:
        rows = next(n for n in ALONE if n == rows or tiling.tiles_of(warps, n, VECTOR_BYTES) == 1)
    shift = problem.shift if tiling.width == 1 else 0
    grid = problem.rows * tiles
    policy = WavePolicy(tiles == 1, warps, rows, shift, problem.together, problem.gap, asks, blocks)
    return Choice(policy, tiles, grid, grid if tiles > 1 else 0, tiling.width)


def sizes(problem: Problem, table: tuple, total: int) -> tuple[int, int]:
    """Return the warps and the vectors per lane of a wave that reads ``total`` bytes."""
    warps, rows = next((warps, rows) for most, warps, rows in table if total <= most)
    if problem.several:
        each = min(warps, MAX_SEVERAL_WARPS)
        return each, min(rows * warps // each, MAX_SEVERAL_VECTORS)
    return warps, rows


def are_full(problem: Problem, chunk: int) -> bool:
    """Return whether rows are whole chunks."""
    return problem.whole and problem.length % chunk == 0


def _fits_twice(problem: Problem, tiling: Tiling, warps: int, rows: int) -> bool:
    """Return whether an SM has two blocks of rows that are not whole chunks."""
    large = (warps, rows) == (MOST_WARPS, LARGE_ROWS) and problem.wide in FITTING and problem.gap == 1
    return large and not MIN_FULL < problem.rows * tiling.tiles_of(warps, rows, VECTOR_BYTES) <= SMS


def _words(problem: Problem, tiling: Tiling) -> tuple[int, int, bool] | None:
    """Return the warps, the vectors per lane, and whether blocks ask, of rows of whole chunks of words; None if they
    are as others."""
    if problem.wide != WORD_BYTES or problem.gap > 1:
        return None
    for least, most, warps, rows, asks in WORD_WAVES:
        if least <= tiling.total <= most and are_full(problem, rows * LANES * tiling.items):
            return warps, rows, asks
    return None
