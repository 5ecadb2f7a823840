"""Tiles of threads that fit a short flagged axis, or have columns a warp's lanes apart."""

from __future__ import annotations

import math
from dataclasses import replace

from ...sizes import ceil_div
from .form import Form
from .order import pace_in, pace_out
from .policy import LANES, ONE_VECTOR_THREADS
from .strided_choice import Facts, StridedChoice, TilePolicy
from .tile_policy import MAX_ROWS, SECTOR, WORD_BYTES, choose_tiles

SPACED, SPACED_BYTES, MIN_SPACED = (4, 2), 80, 4  # columns, what they move, whole warps of them in a row


def fit_tiles(form: Form, facts: Facts) -> StridedChoice:
    """Return the tiles of a problem. Those that have all of the flagged axis are as high as that."""
    tiles = choose_tiles(form, facts)
    policy = tiles.policy
    if type(policy) is not TilePolicy or not policy.row == policy.along > 0 or policy.equal:
        return tiles
    length = form.flagged.extent
    if not (policy.down or facts.counted or facts.periodic):
        rows = length if length <= min(policy.rows, MAX_ROWS) else policy.rows
        policy = replace(policy, rows=rows, full=rows == length)
    return _spaced(policy, replace(tiles, policy=policy), form, facts)


def _spaced(policy: TilePolicy, tiles: StridedChoice, form: Form, facts: Facts) -> StridedChoice:
    """Return tiles of several columns, a warp's lanes apart, in place of single ones that move few bytes."""
    columns = tiles.axes[0]
    singly = policy.columns == policy.words == 1 and policy.loads == "vector" and not policy.down
    if not singly or pace_in(columns) * facts.size >= SECTOR or pace_out(columns) > 1:
        return tiles
    moved = policy.rows * facts.size + (WORD_BYTES if form.bits else policy.rows * facts.result)
    threads = math.prod(axis.extent for axis in tiles.axes) // policy.rows
    most = min(SPACED_BYTES // moved, columns.extent // (MIN_SPACED * LANES), threads // ONE_VECTOR_THREADS)
    count = next((count for count in SPACED if count <= most), 1)
    if count == 1:
        return tiles
    warps = ceil_div(columns.extent, LANES * count)
    spaced = replace(policy, columns=count, loads="spaced")
    return replace(tiles, policy=spaced, counts=(warps * LANES, *tiles.counts[1:]))
