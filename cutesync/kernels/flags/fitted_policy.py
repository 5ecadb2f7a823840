"""Tiles of threads that fit a short flagged axis, or have columns a warp's lanes apart."""

from __future__ import annotations

import math
from dataclasses import replace

from ...sizes import ceil_div
from ..hardware import LANES, VECTOR_BYTES, WORD_BYTES
from ..policy import Policy
from .form import Form
from .order import pace_in, pace_out
from .policy import ONE_VECTOR_THREADS
from .strided_choice import Facts, FlatPolicy, StridedChoice, TilePolicy
from .tile_policy import MAX_ROWS, choose_tiles

# Columns of a thread, what they move, whole warps of them in a row, bytes of an element (H200, bits bool (210, 3,
# 391679), backwards, along its second axis: of one column 417 us, so 175 us; tails int8 (16, 948, 1621): 31.5 us, so
# 21.7 us; but wide elements, both int64 (3, 26, 46389): 11.9 and 12.8 us; up to 288 bytes, both uint16 (1, 46, 406591):
# 24.3 and 57 us)
SPACED, SPACED_BYTES, MIN_SPACED, MAX_SPACED_SIZE = (4, 2), 80, 4, 4
# But of two rows of wide elements whose results are bytes, in arrays of so many elements: what the start of the blocks
# of single ones takes is more (heads int64 (146, 2, 845, 803) along its second axis: 473 us, so 403 us; (7, 2, 114027):
# 5.1 and 5.5 us; difference float64 (2315, 2, 1431): 26.9 and 27.4 us)
FEW_SPACED_ROWS, MIN_SPACED_WIDE = 2, 1 << 21
# Odd long rows of words, so many for each output, in tiles of all rows (H200, both float32 (3, 1652035) along its first
# axis: 12.2 us, so 9.2 us; tails int32 (2, 4159987): 15.4 us, so 11.1 us; but both int32 (6, 347407): 5.8 and 6.9 us,
# difference float32 (3, 655171): 5.4 and 5.7 us); for two outputs from fewer elements of a row on, in single columns
# (both uint32 (4, 75317): 2.0 us, so 1.3 us)
ONCE_ROWS, MIN_ONCE, MIN_ONCE_OF_BOTH = 2, 1 << 18, 1 << 14
# Rows of four and eight bytes, of which both flags are found in tiles of all rows, also in vectors (both float32 (5,
# 6282144) along its first axis: 60.1 us, so 45.7 us; of six rows 0.83 to 0.89 of the time, of two bytes up to 1.12)
KNOWN_ROWS = 5, 6


def fit_tiles(form: Form, facts: Facts) -> StridedChoice:
    """Return the tiles of a problem. Those of single columns, or not loaded as vectors, that have all of the flagged
    axis are as high as that, load nothing beyond it, and know its ends when they are compiled (H200, tails bool (6,
    4581, 31), sliced, along its first axis: of eight rows 3.6 us, so 2.0 us; heads bool (2259, 5, 560) of rows of 567,
    four columns loaded one by one: 8.6 us, so 5.7 us; at worst, difference uint64 (19, 4, 12741): 5.3 us, so 5.7 us).
    Several columns loaded as vectors gain little, and some lose (both int16 (3000, 3, 400): 4.9 us, so 6.5 us;
    difference uint16 (2389, 6, 156): 4.3 us, so 4.8 us)."""
    tiles = choose_tiles(form, facts)
    policy = tiles.policy
    if type(policy) is not TilePolicy or not policy.row == policy.along > 0 or policy.equal:
        return tiles
    length = form.flagged.extent
    wide = facts.size >= WORD_BYTES and len(form.flagged.steps) > 2 and KNOWN_ROWS[0] <= length <= KNOWN_ROWS[1]
    known = policy.columns == 1 or policy.loads != "vector" or wide
    if known and not (policy.down or facts.counted or facts.periodic):
        rows = length if length <= min(policy.rows, MAX_ROWS) else policy.rows
        policy = replace(policy, rows=rows, full=rows == length)
    return _spaced(policy, replace(tiles, policy=policy), form, facts)


def _spaced(policy: TilePolicy, tiles: StridedChoice, form: Form, facts: Facts) -> StridedChoice:
    """Return tiles of several columns, a warp's lanes apart, in place of single ones that move few bytes."""
    columns = tiles.axes[0]
    singly = policy.columns == policy.words == 1 and policy.loads == "vector" and not policy.down
    apart = pace_in(columns) > 1 or pace_out(columns) > 1
    two = policy.full and policy.rows <= FEW_SPACED_ROWS and facts.result == 1
    two &= math.prod(axis.extent for axis in tiles.axes) >= MIN_SPACED_WIDE
    if not singly or apart or (facts.size > MAX_SPACED_SIZE and not two):
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


def loads_once(form: Form, facts: Facts, tile: Policy, flat: StridedChoice) -> bool:
    """Return whether tiles of few long rows of words, which begin anywhere, load each once, where a thread of a flat
    array would load the neighbours of a vector one by one."""
    both = len(form.flagged.steps) > 2
    loose = type(flat.policy) is FlatPolicy and flat.policy.near * facts.size < VECTOR_BYTES
    rows = ONCE_ROWS * (1 + both)
    if facts.size != WORD_BYTES or not loose or form.flagged.extent > rows or not isinstance(tile, TilePolicy):
        return False
    if tile.loads == "spaced":
        return tile.full and flat.axes[0].extent >= MIN_ONCE
    return both and tile.columns == 1 and flat.axes[0].extent >= MIN_ONCE_OF_BOTH
