"""Which rows a block or a warp scans in registers, and with which sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ...sizes import ceil_div, power_of_two
from ..hardware import LANES, SMS, VECTOR_BYTES, WORD_BYTES
from ..policy import Policy
from .narrow_policy import dense, starts
from .problem import Choice, Problem

ROW_WARPS = 8  # per block, unless a row has more
# One block scans rows of up to 16 KiB in registers: faster than several blocks with look-ahead. Longer rows are tiles
# of a wave or of the pipeline (H200: (9000, 12288) float16 112 us, as rows 174 us; (8192, 4096) float64 138 us, as rows
# 210 us; (16, 8192) uint64 2.9 us, as rows 6.0 us). Ragged rows of small elements are not: each end of a row in a chunk
# takes longer than a chunk ((1000, 40001) int8 61 us, as rows 39 us).
MAX_WARPS_PER_ROW, MAX_ROW_VECTORS = 16, 4
# Rows of up to 32 KiB that do not fill a tile of the pipeline so far are scanned by one block, too (H200, 23, 26 and 28
# KB: lambda int16 (16461, 11728) 285 us, so 205 us; max float64 (785, 3219) 32.8 us, so 16.3 us; inclusive uint64
# (1524, 3579) 42.8 us, so 33.0 us; but max uint32 (3179, 6575) 53.3 us, so 58.0 us).
TILE_BYTES, FILLED, FILLED_WITH_WORDS = 1 << 15, 0.97, 0.8
MIN_BYTES = 6 << 20  # of arrays with such rows: smaller ones are tiles of waves
# Longer rows of 8-byte elements, too, if results lie elsewhere in a vector than elements, or if whole vectors fill
# little of two tiles of the pipeline (H200, off by one, uint64 (1024, 8192): 58.7 us, so 52.7 us; (292, 5611): 19.9 us,
# so 14.4 us; float64 (253, 9035): 22.1 us, so 16.2 us; max uint64 (1720, 4940), which is not: 59.5 us, so 48.3 us; but
# exclusive int64 (320, 7573): 18.2 us, so 23.3 us; max int64 (597, 6348): 23.2 us, so 25.3 us; int64 (900, 4097): 29.5
# us, so 34.2 us).
MAX_LONG_ROW_VECTORS, FILLED_TWO = 9, 0.625
# Warps of a row and vectors of a lane, so that few lanes idle; the most vectors for many rows whose vectors are not two
# elements of 8 bytes (H200, exclusive int64 (804000, 129): by two warps 887 us, by one 471 us; max float64 (100, 37,
# 317): by four 11.7 us, by two 9.3 us; exclusive bfloat16 (9721, 4656): by eight 64.9 us, by four 54.9 us; but max
# float64 (321, 1446): 4.7 us, by half as many 6.0 us; max uint64 (1936, 1232): 15.7 and 16.5 us).
MANY_ROWS = 8 * SMS
TEAMS = ((1, 2), *((team, rows) for team in (1, 2, 4, ROW_WARPS) for rows in (4, 6)))
# Results of at least so many bytes are stored one by one where rows begin at different places of a vector (H200,
# inclusive int32 (16384, 512), 717 apart: 24.0 us, joined to aligned vectors 37.7 us).
ELEMENT_BYTES = 4
# So few rows of so many vectors are tiles of waves (H200, reverse int8 (4, 32768): 5.2 us, so 3.7 us; max int16 (8,
# 16384): 4.5 and 2.8 us; but lambda int16 (14, 12810): 2.6 and 3.1 us).
FEW_ROWS, FEW_ROWS_VECTORS = 16, 2048
# Ragged rows that are not many more than SMs have more warps each (H200, exclusive bool (97, 7223): 3.5 us, so 2.3 us;
# max int16 (208, 3926): 5.8 and 3.1 us; but max float16 (270, 14078): 7.1 and 8.4 us).
MOST_VECTORS, FEW_VECTORS = 10, 4
# Rows of a few columns, of whole vectors (H200, max uint32 (1024, 512, 4): 10.7 us in slices, so 5.7 us; lambda
# bfloat16 (3208, 1896, 2): 20.2 and 14.2 us; uint8 (944, 2848, 3): 12.1 and 8.7 us; but reverse float16 (965, 2152,
# 4), of 17 KB: 15.6 us, so 17.1 us; lambda uint8 (532, 4604, 4): 11.4 and 14.7 us). Those of states of 32 bytes are
# contiguous (reverse uint64 (2, 256, 256, 4): 5.4 us, so 5.1 us; but max int64 (1846, 88, 4), the last first: 4.4 and
# 6.5 us). Those of words of four numbers take more instructions: they are contiguous, and up to three words in large
# arrays (exclusive uint8 (1508, 780, 12): 13.7 us, so 11.5 us; max int8 (793, 728, 8): 6.4 and 4.8 us; (40826, 44, 12):
# 12.6 us in either case; but (3242, 436, 16): 16.2 and 33.2 us; exclusive int8 (32, 256, 2, 8): 2.1 and 2.7 us).
MAX_COLUMNS, MAX_COLUMNS_BYTES, MAX_POSITION_BYTES = 4, 1 << 14, 32
MAX_WORDS_OF_NUMBERS, MIN_BYTES_OF_NUMBERS = 3, 4 << 20
MIN_LONG_ROWS, LONG_ROW_BYTES = SMS, 1 << 13  # fewer rows that are longer are not measured
# Warps of such a row and vectors of a lane: fewer if vectors are longer than 16 bytes (exclusive uint64 (334, 512, 4):
# 6.4 us, of four a lane 7.8 us), and of short rows (max float64 (23227, 16, 2): 4.6 us, of four a lane 5.7 us; max
# uint32 (9809, 32, 4): 4.0 and 4.5 us).
COLUMN_TEAMS = tuple((team, rows) for team in (1, 2, 4, ROW_WARPS) for rows in (1, 2, 3, 4))
FEW_COLUMN_VECTORS = 2


@dataclass(frozen=True)
class ShortRowPolicy(Policy, kernel=".rows:ShortRowScan"):
    """Several rows per warp: ``group`` lanes scan a row, each one vector of ``items`` elements. ``skewed``: vectors of
    the input are joined from aligned ones. ``gap`` as in ``Problem``; ``whole``: what lies between is loaded, too."""

    items: int
    group: int
    unroll: int
    shift: int | None
    aligned: bool = True
    skewed: bool = False
    gap: int = 1
    whole: bool = False


@dataclass(frozen=True)
class RowPolicy(Policy, kernel=".rows:RowScan"):
    """``team`` warps of one block scan a row, with ``rows`` vectors per lane. ``ragged``: rows begin at any element of
    a vector. ``skewed`` as above."""

    items: int
    team: int
    rows: int
    shift: int | None
    ragged: bool
    aligned: bool = True
    skewed: bool = False
    gap: int = 1
    whole: bool = False


def rows(problem: Problem) -> Choice | None:
    """Return the policy and the launch of a scan of rows; None if they are too long."""
    found = _rows(problem)
    if found is None or problem.gap == 1:
        return found
    policy: Any = found.policy  # of rows
    small = problem.sources == problem.results and problem.source < WORD_BYTES
    whole = small and problem.whole_vectors and policy.items == problem.items and not getattr(policy, "ragged", False)
    return replace(found, policy=replace(policy, gap=problem.gap, whole=whole))


def rows_of_columns(problem: Problem) -> Choice | None:
    """Return the same for outer slices of a few columns, which are rows whose positions have several states; None for
    others, and for long ones."""
    columns, each = problem.inner, problem.inner * problem.wide
    size = problem.length * each
    plain = problem.sources == problem.results and not (problem.several or problem.counted)
    if problem.words_of_numbers:
        large = problem.size_of_results >= MIN_BYTES_OF_NUMBERS
        plain = plain and large and columns <= MAX_WORDS_OF_NUMBERS and problem.view is None
    most = MAX_POSITION_BYTES if problem.view is None else VECTOR_BYTES
    if not plain or not 1 < columns <= MAX_COLUMNS or each > most or size > MAX_COLUMNS_BYTES or not dense(problem):
        return None
    items = VECTOR_BYTES // math.gcd(VECTOR_BYTES, each)  # positions of the fewest whole vectors
    if problem.length % items or any(at % VECTOR_BYTES for at in starts(problem)):
        return None
    if problem.rows < (MIN_LONG_ROWS if size > LONG_ROW_BYTES else 2):
        return None
    vectors = problem.length // items
    if vectors <= LANES:
        group = power_of_two(vectors)
        policy = ShortRowPolicy(items, group, FEW_COLUMN_VECTORS, 0)
        return Choice(policy, 1, ceil_div(problem.rows, ROW_WARPS * (LANES // group) * policy.unroll), 0, columns)
    per_lane = FEW_COLUMN_VECTORS if items * each > VECTOR_BYTES else MAX_ROW_VECTORS
    fitting = [(team, rows) for team, rows in COLUMN_TEAMS if rows <= per_lane and team * rows * LANES >= vectors]
    team, per_lane = min(fitting, key=lambda sizes: (math.prod(sizes), sizes[0]))
    return Choice(RowPolicy(items, team, per_lane, 0, False), 1, ceil_div(problem.rows, ROW_WARPS // team), 0, columns)


def _rows(problem: Problem) -> Choice | None:
    items, shift = (problem.items, 0) if problem.skewed else problem.vector(problem.length)
    vectors = problem.length // items
    if problem.rows > 1 and vectors <= LANES and not (problem.counted or problem.ragged):
        group = power_of_two(vectors)
        return Choice(
            ShortRowPolicy(items, group, 4, shift, skewed=problem.skewed),
            1,
            ceil_div(problem.rows, ROW_WARPS * (LANES // group) * 4),
        )
    ragged = problem.ragged or problem.counted  # rows end anywhere
    slow_ends = problem.several or (ragged and problem.wide < 4)
    most_rows = problem.fitted(16) if slow_ends else MAX_ROW_VECTORS
    room = LANES * most_rows * ROW_WARPS  # vectors that a block has
    if problem.rows > 1 and vectors > room and items < problem.items and not problem.several:
        ragged = True  # the fewer vectors of 16 bytes
    if ragged:
        items, shift = problem.items, problem.shift
        if problem.wide >= ELEMENT_BYTES and not problem.alike:
            shift = None
        vectors = ceil_div(problem.length + VECTOR_BYTES // problem.source - 1, items)
    aligned = problem.together or not ragged
    if problem.rows == 1:
        if vectors > LANES * 2 * MAX_WARPS_PER_ROW:
            return None
        return Choice(RowPolicy(items, MAX_WARPS_PER_ROW, 2, shift, ragged, aligned, problem.skewed), 1, 1)
    if problem.rows <= FEW_ROWS and vectors >= FEW_ROWS_VECTORS:
        return None
    if vectors <= room:
        team, per_lane = _ragged_team(vectors, most_rows, problem.rows) if ragged else _team(problem, items)
    elif _has_block(problem, vectors):
        team, per_lane = MAX_WARPS_PER_ROW, ceil_div(vectors, LANES * MAX_WARPS_PER_ROW)
    else:
        return None
    policy = RowPolicy(items, team, per_lane, shift, ragged, aligned, problem.skewed)
    return Choice(policy, 1, ceil_div(problem.rows, max(1, ROW_WARPS // team)))


def _has_block(problem: Problem, vectors: int) -> bool:
    """Return whether a block of the most warps has a row of so many vectors in registers."""
    if vectors <= LANES * MAX_ROW_VECTORS * MAX_WARPS_PER_ROW and not _fill_tiles(problem):
        return True
    return vectors <= LANES * MAX_LONG_ROW_VECTORS * MAX_WARPS_PER_ROW and _are_slow_tiles(problem)


def _fill_tiles(problem: Problem) -> bool:
    """Return whether tiles of a wave or of the pipeline are better for rows of up to 32 KiB."""
    row_bytes = problem.length * problem.wide
    filled = row_bytes / TILE_BYTES
    small = problem.rows * row_bytes <= MIN_BYTES
    return problem.several or problem.counted or small or filled >= (FILLED_WITH_WORDS if problem.wide == 4 else FILLED)


def _are_slow_tiles(problem: Problem) -> bool:
    """Return whether rows of 8-byte elements of more than 32 KiB are better in registers of a block than in tiles."""
    row_bytes = problem.length * problem.wide
    plain = problem.wide == 8 and problem.sources == problem.results and problem.alike and not problem.counted
    plain &= problem.gap == 1 and problem.view is None and not problem.several
    plain &= row_bytes > TILE_BYTES and problem.rows * row_bytes > MIN_BYTES
    return plain and (problem.shift != 0 or (problem.whole and row_bytes <= 2 * TILE_BYTES * FILLED_TWO))


def _ragged_team(vectors: int, most_rows: int, rows: int) -> tuple[int, int]:
    """Return the same as ``_team``. Few warps have many vectors each, because each of a row's two ends takes a warp as
    long as many whole vectors."""
    most_warps, each = (MAX_WARPS_PER_ROW, FEW_VECTORS) if rows <= 2 * SMS else (ROW_WARPS, MOST_VECTORS)
    team = min(power_of_two(ceil_div(vectors, min(most_rows, each) * LANES)), most_warps)
    return team, ceil_div(vectors, team * LANES)


def _team(problem: Problem, items: int) -> tuple[int, int]:
    """Return the warps per row, and the vectors of ``items`` elements per lane: few that hold the row."""
    vectors = problem.length // items
    pairs = items > 1 and problem.wide == 8
    most = MAX_ROW_VECTORS if problem.several or pairs or problem.rows < MANY_ROWS else math.inf
    fitting = [(team, rows) for team, rows in TEAMS if rows <= most and team * rows * LANES >= vectors]
    if fitting:
        return min(fitting, key=math.prod)
    rows = MAX_ROW_VECTORS
    while ROW_WARPS * rows * LANES < vectors:
        rows *= 2
    return ROW_WARPS, rows
