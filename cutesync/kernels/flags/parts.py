"""In which order threads take tiles of rows that lie far apart in memory, so that the L2 cache has neighbours."""

from __future__ import annotations

from dataclasses import replace

from ...runtime.layout import Axis
from .strided_choice import Facts, StridedChoice, TilePolicy

# Of the rows of a tile, in the input, that the L2 cache does not keep (H200, both int64 (16, 131072, 16) along its
# first axis: 105 us, so 82 us; float32 (8, 2097152), tails: 22.4 and 21.5 us; rows of 17 to 28 MB: the same within 1 %
# or 3 % slower); and the tiles of a part of the columns.
MIN_TILE_BYTES, MIN_PART, MAX_PART = 1 << 25, 256, 4096


def in_parts(choice: StridedChoice, facts: Facts) -> StridedChoice:
    """Return tiles of long rows with the columns as two axes, the second behind the rows: so tiles of the same columns
    follow each other, where the last row of a tile would leave the L2 cache before the next tile wants it."""
    policy, (columns, *others) = choice.policy, choice.axes
    if type(policy) is not TilePolicy or not policy.row == policy.along == 1 or policy.words > 1:
        return choice
    tiles, rows = choice.counts[0], policy.rows
    apart = columns.steps[0] != 0 != others[0].steps[0]  # rows that repeat are the same lines
    far = apart and columns.extent * rows * facts.size >= MIN_TILE_BYTES and others[0].extent > rows
    if not far or policy.loads in ("run", "spaced") or columns.extent % policy.columns:
        return choice
    part = next((n for n in range(min(MAX_PART, tiles - 1), MIN_PART - 1, -1) if tiles % n == 0), 0)
    if part == 0:
        return choice
    inner = part * policy.columns
    outer = Axis(tiles // part, tuple(inner * step for step in columns.steps))
    axes = Axis(inner, columns.steps), others[0], outer, *others[1:]
    counts = part, choice.counts[1], tiles // part, *choice.counts[2:]
    return StridedChoice(replace(policy, digits=policy.digits + 1), axes, counts)
