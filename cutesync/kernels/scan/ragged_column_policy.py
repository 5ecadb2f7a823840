"""Which tiles scan columns of elements of one or two bytes that no words hold whole, because rows begin anywhere."""

from __future__ import annotations

from dataclasses import dataclass

from ...sizes import ceil_div
from ..hardware import SMS
from .column_groups import MAX_TILE_GROUP, TILE_THREADS, group_of, group_slots, one_wave
from .column_policy import (
    MIN_TILE_HEIGHT,
    RESERVED_BYTES,
    SMEM_BYTES,
    WORD_BYTES,
    ColumnTilePolicy,
)
from .column_vectors import skew_of_tiles
from .problem import Choice, Problem

FILLED = 0.76  # of the rows of a tile with all rows, below which those that exist are counted
LANES = (32, 16, 8)  # words of a tile side by side
MIN_LANES = 32  # of tiles that depend on others
# Results of one byte from which on tiles of half as many lanes have all of 257 to 512 rows, and depend on none (H200,
# reverse uint8 (8, 256, 512, 256) in rows of 318: 259 us, so 186 us; lambda int8 (498, 316, 676): 135 and 91.3 us; bool
# (64, 282, 130, 9): 26.5 and 24.8 us; but reverse uint8 (287, 2, 33138) backwards: 24.0 and 24.6 us; int8 (32, 335,
# 1309): 18.0 and 18.6 us; of two bytes max int16 (204, 409, 124): 20.4 and 21.1 us).
MIN_NARROWED_BYTES = 20 << 20
FEWER_WORDS = 4  # as idle lanes: what a tile costs whose rows are shorter
MIN_ROW_BYTES = 24  # shorter rows leave half of the lanes idle
# Shorter columns, or fewer, are faster element by element (H200, lambda int8 (3, 81522006): 175 us, so 399 us; bool
# (58, 82): 1.7 us, so 2.6 us). So are tiles that depend on others where rows of results begin anywhere (uint8 (543504,
# 199): 166 us, so 218 us; reverse uint16 (291, 6261): 6.2 us, so 12.0 us; max uint8 (282, 552342): 192 us, so 304 us),
# unless several lie side by side in a large array of long columns (bool (95136, 861): 147 us, so 117 us; uint8 (21535,
# 11491): 381 us, so 297 us; max bfloat16 (3, 692, 61047): 399 us, so 313 us; int8 (700, 40001): 61 us, so 41 us; bool
# (8191, 2047): 34 us, so 27 us; but max uint8 (20001, 1999): 63 us, so 65 us).
MIN_LENGTH, MIN_BYTES = 8, 1 << 20
# Most lanes must have columns (bool (347045, 346): 193 us, so 130 us).
MIN_ACROSS, MIN_LONG, MIN_LARGE_BYTES, MIN_BUSY = 3, 256, 4 << 20, 0.75
MAX_HEIGHT, MAX_STATE_WORDS = 32, 2
# Of tiles that depend on others; of the highest ones an SM holds 3 (H200, max bool (4, 74736, 805): 277 us, with 32
# rows 343 us; reverse int8 (1068, 38070): 43 and 59 us). Lower ones where one wave of blocks has all tiles.
TILE_HEIGHTS = (MIN_TILE_HEIGHT, 16, 24)
HEIGHT_UNIT = 4  # a multiple of it are the rows of a thread
ENOUGH_THREADS = SMS * 512  # with fewer, more threads share a column
# Of a tile whose elements are combined one by one: more passes over them take longer than loads of single elements
# (H200, lambda uint8 (1605, 1571): 10.2 us, in tiles of columns 7.8 us; by two warps (2, 64, 240837): 54.6 and 64.6),
# unless rows are long and arrays large (lambda int8 (4067, 7093): 36.9 us, in tiles of columns 46.0 us; bfloat16 (5,
# 3373, 1071): 43.5 and 51.0 us; but lambda uint8 (21901, 1650): 57.4 and 49.8 us; bfloat16 (884, 6303): 15.6 and 14.0).
MAX_THREADS_OF_ELEMENTS, MIN_ACROSS_OF_ELEMENTS, MIN_BYTES_OF_ELEMENTS = 64, 16, 12 << 20
# Tiles of a warp move a few KB each: where they are many, and not low, blocks have several (H200, four of them: max
# bfloat16 (20, 4671207): 155 us, so 115 us; inclusive int16 (680, 24, 6281): 156 and 115 us; lambda float16 (118, 12,
# 21149): 38.8 and 37.4 us; but lambda int8 (11, 3468999): 36.2 and 36.9 us). Of two and of eight, fewer cases gain.
BESIDE, MIN_BESIDE, MIN_BESIDE_ROWS = 4, SMS * 64, 12
MAX_THREADS = 1024  # of an SM: 64 registers each
# Of words with arithmetic, up to which tiles of columns copy vectors of rows that begin behind boundaries (H200, max
# uint16 (9162, 544): 11.6 us, so 10.5 us; float16 (12181, 400): 13.4 and 11.5 us; but uint16 (21470, 560): 19.6 and
# 21.5 us).
MAX_SKEWED_BYTES = 12 << 20


@dataclass(frozen=True)
class RaggedColumnPolicy(ColumnTilePolicy, kernel=".ragged_columns:RaggedColumnScan"):
    """As ``ColumnTilePolicy``; ``width`` columns are a word. ``aligned_out``: rows of results begin on words; else
    neighbouring tiles share the columns of a lane. ``beside``: so many warps of a block have a tile each."""

    beside: int = 1


def ragged_columns(problem: Problem) -> Choice | None:
    """Return the policy and the launch, None if words hold whole columns of a row, or where another kernel is
    better."""
    width = WORD_BYTES // problem.source
    if not _suits(problem, width):
        return None
    whole = problem.aligned(width) == 0 and (problem.view is not None or problem.inner % width == 0)
    lanes = min(LANES, key=lambda lanes: (lanes + FEWER_WORDS) * across(problem, width, lanes, whole))
    large = problem.wide == 1 and problem.size_of_results >= MIN_NARROWED_BYTES
    if large and lanes == LANES[0] and _alone(problem, 1, lanes)[1] > MAX_HEIGHT >= _alone(problem, 1, lanes // 2)[1]:
        lanes //= 2  # no tile depends on another
    chains = problem.rows * across(problem, width, lanes, whole)
    words = ceil_div(problem.inner, width)
    groups, height = _alone(problem, chains, lanes)
    alone = height <= MAX_HEIGHT
    few = alone and groups * lanes <= MAX_THREADS_OF_ELEMENTS
    if not (problem.packs or few or _is_large(problem, chains)):
        return None
    wide = chains >= MIN_ACROSS * problem.rows and problem.length >= MIN_LONG
    wide &= problem.size_of_results >= MIN_LARGE_BYTES and words >= MIN_BUSY * (lanes - 1) * chains / problem.rows
    if not alone and not (lanes >= MIN_LANES and (whole or wide)):
        return None
    many = chains >= MIN_BESIDE and problem.length >= MIN_BESIDE_ROWS
    beside = BESIDE if alone and groups == 1 and many else 1
    threads = groups * lanes * beside

    def resident(height: int, stages: int) -> int:
        """Return how many blocks with ``stages`` tiles an SM holds."""
        held = stages * height * beside * groups * (lanes + 1) + (1 if alone else 2) * threads * width * problem.words
        return max(1, min(MAX_THREADS // threads, SMEM_BYTES // (held * WORD_BYTES + RESERVED_BYTES)))

    wave = None if alone else one_wave(problem, chains, (groups, threads), TILE_HEIGHTS, resident)
    if wave is not None:
        height, tiles = wave
    else:
        height = height if alone else TILE_HEIGHTS[-1]
        tiles = ceil_div(problem.length, groups * height)
    blocks = resident(height, 1 if alone else 2)
    group = MAX_TILE_GROUP if alone or wave is not None else group_of(chains, threads * height * WORD_BYTES)
    fixed = problem.counted or (alone and problem.length > groups * height * FILLED)
    policy = RaggedColumnPolicy(
        width, lanes, groups, height, group, blocks, alone, whole, prefetch=not alone, fixed=fixed, beside=beside
    )
    if alone:
        return Choice(policy, 1, ceil_div(chains, beside))
    slots = problem.rows * group_slots(tiles, group) * ceil_div(problem.inner, width) * width
    return Choice(policy, tiles, min(SMS * blocks, chains * tiles), slots)


def _suits(problem: Problem, width: int) -> bool:
    """Return whether the kernel scans such arrays, and faster than others."""
    alike = problem.sources == problem.results and not problem.several and problem.words <= MAX_STATE_WORDS
    if not (problem.apart and alike and width > 1 and problem.inner * problem.source >= MIN_ROW_BYTES):
        return False
    words = problem.packs and (problem.wide == 1 or problem.size_of_results > MAX_SKEWED_BYTES)
    if not words and skew_of_tiles(problem) > 0:
        return False
    large = problem.length >= MIN_LENGTH and problem.size_of_results >= MIN_BYTES
    return large and (problem.vector(problem.inner)[0] < width or problem.aligned(width) is None)


def _is_large(problem: Problem, chains: int) -> bool:
    """Return whether words are faster even where elements are combined one by one."""
    return chains >= MIN_ACROSS_OF_ELEMENTS * problem.rows and problem.size_of_results >= MIN_BYTES_OF_ELEMENTS


def across(problem: Problem, width: int, lanes: int, whole: bool) -> int:
    """Return how many tiles cover the columns."""
    if whole:
        return ceil_div(ceil_div(problem.inner, width), lanes)
    return ceil_div(ceil_div(problem.inner + width - 1, width), lanes - 1)  # the row's last word may begin behind it


def _alone(problem: Problem, chains: int, lanes: int) -> tuple[int, int]:
    """Return how many threads share a column, at least those of a warp, and how many rows each has if a tile has all of
    them."""
    groups = max(1, LANES[0] // lanes)

    def height(groups: int) -> int:
        return ceil_div(ceil_div(problem.length, groups), HEIGHT_UNIT) * HEIGHT_UNIT

    while groups * lanes < TILE_THREADS and height(groups) > MIN_TILE_HEIGHT:
        if height(groups) <= MAX_HEIGHT and chains * groups * lanes >= ENOUGH_THREADS:
            break
        groups *= 2
    return groups, height(groups)
