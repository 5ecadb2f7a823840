"""In which order threads take rows that lie far apart in memory, so that caches have neighbours."""

from __future__ import annotations

from dataclasses import replace

from ...runtime.layout import Axis
from .policy import LANES
from .strided_choice import ALL_ROWS, Facts, StridedChoice, TilePolicy

# Arrays of so many elements and more, whose rows have so many runs of a warp: all rows of up to so many, else so many.
MIN_TURNS, MIN_RUNS, FEW_ROWS, TURN = 1 << 22, 8, 64, 8
# Of the rows of a tile, in the input, that the L2 cache does not keep; and the tiles of a part of the columns.
MIN_TILE_BYTES, MIN_PART, MAX_PART = 1 << 24, 256, 4096


def rows_in_turn(row: int, slices: int, total: int, vector: int, far: bool) -> int:
    """Return how many rows of ``row`` elements warps of ``vector`` elements a thread take in turn, of an array of
    ``total``; 0 if they go along the rows. ``far``: rows are too long for the L2 cache."""
    if not far and (slices <= row or row < MIN_RUNS * LANES * vector or total < MIN_TURNS):
        return 0
    return ALL_ROWS if far or total <= FEW_ROWS * row else TURN


def in_parts(choice: StridedChoice, facts: Facts) -> StridedChoice:
    """Return tiles of long rows with the columns as two axes, the second behind the rows: so tiles of the same columns
    follow each other, where the last row of a tile would leave the L2 cache before the next tile wants it."""
    policy, (columns, *others) = choice.policy, choice.axes
    if type(policy) is not TilePolicy or not policy.row == policy.along == 1 or policy.words > 1:
        return choice
    tiles, rows = choice.counts[0], policy.rows
    far = columns.extent * rows * facts.size >= MIN_TILE_BYTES and others[0].extent > rows
    if not far or policy.loads == "run" or columns.extent % policy.columns:
        return choice
    part = next((n for n in range(min(MAX_PART, tiles - 1), MIN_PART - 1, -1) if tiles % n == 0), 0)
    if part == 0:
        return choice
    inner = part * policy.columns
    outer = Axis(tiles // part, tuple(inner * step for step in columns.steps))
    axes = Axis(inner, columns.steps), others[0], outer, *others[1:]
    counts = part, choice.counts[1], tiles // part, *choice.counts[2:]
    return StridedChoice(replace(policy, digits=policy.digits + 1), axes, counts)
