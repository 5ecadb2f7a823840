"""Which kernel scans an array, with which sizes: a pure function of lengths, types and alignment, not of the GPU.

The thresholds were measured on an H200. As they do not depend on the GPU, neither does any result.

An array is (rows, length, inner). One of its rows, which has length * inner elements, is an outer slice; an array is
narrow if ``inner`` is small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ...sizes import ceil_div
from ..hardware import LANES, LINE_BYTES, SMS, VECTOR_BYTES, WORD_BYTES
from ..policy import Policy
from . import column_policy
from .cluster_policy import clusters
from .column_policy import columns
from .narrow_policy import dense, narrow, starts
from .problem import MIN_VECTOR_BYTES, Choice, Problem
from .ragged_column_policy import ragged_columns
from .row_policy import rows, rows_of_columns
from .slice_policy import FEW_COLUMNS, LARGE_TILES, SlicePolicy, single, slices
from .wave_policy import WAVES, Tiling, are_full, sizes, wave

GROUP = 128  # tiles per group of sync.lookback: a row of the pipeline has a multiple of this many slots
PIPELINE_BYTES = 24 << 20  # read, and as many written: from here on, the pipeline is faster than a wave of blocks
# From here on, too, unless most tiles are only begun, or one wave of the largest tiles fills the GPU (H200, int32
# (3699808,): pipeline 14.1 us, wave 12.7 us; uint16 (8388608,): 15.0 and 13.4 us; uint64 (2097152,): 16.1 and 14.1 us;
# but float16 (6295841,), of 97 tiles: 10.9 and 11.3 us). Many aligned bytes, which take longer to scan, in either case
# (max int8 (16777216,): 16.0 us and 18.1 us; but lambda uint8 (8508661,): 13.4 and 9.0 us; max int8 (16423939,)
# backwards: 23.7 and 20.0 us).
MIN_PIPELINE_BYTES, MIN_FILLED, MIN_SLOW_BYTES = 8 << 20, 0.75, 12 << 20
MIN_WAVE_TILES = SMS * 3 // 4
FEW_TILES = 5  # rows of fewer tiles of the pipeline begin anywhere if they have one tile less for it
MIN_SLICE_BYTES = 1 << 15  # outer slices of few columns that are shorter than 32 KiB go to columns.py
# Rows of small elements, each of which begins elsewhere in a vector: elements of 2 bytes that warps have in registers,
# and bytes of long rows of elements of one byte, and of two
MAX_UNLIKE_ROW, MIN_UNLIKE_BYTES = 1024, (1 << 18, 1 << 17)
MIN_SHORT_ROW = 16  # elements of rows that a warp reads one by one: of shorter ones a tile has more
# Up to 6 bytes a position, exchanging states for every row of vectors takes longer than the copy (H200, 2**27 positions
# of uint8 and float32, one output: 327 us, runs 311 us; a linear recurrence, of 8 bytes: 397 us, runs 404 us).
MAX_RUN_BYTES, RUN_VECTORS = 6, 9
RING_BYTES = 192 << 10  # states of several values: the tiles of the pipeline's ring
MAX_STAGES = 12  # an even number
# Bytes of the results of stepped rows that waves load element by element, if elements have as many bytes as they lie
# elements apart (H200, uint32 (262144,) every third one: 6.1 us by strided tiles, so 4.1 us; bfloat16 (4194304,) every
# second one: 14.1 us, so 11.3 us; but float16 (681646,) every fourth one: 6.9 us, so 8.0 us; int64 (645,): 2.0 us, so
# 2.4 us). Others by the bytes of an element and the elements from one to the next (max int16 (3320418,) every third
# one: 15.2 us, so 11.9 us; float16 (338636,): 5.0 and 4.0 us; but uint16 (5000000,): 17.6 and 19.0 us; exclusive uint8
# (1048576,) every second one: 6.1 us, so 5.0 us; bool (139553,): 4.1 and 3.5 us; but (68455,): 3.3 and 3.8 us).
MIN_GAPPED_BYTES, MAX_GAPPED_BYTES = 1 << 15, PIPELINE_BYTES
FARTHER_BYTES = {(2, 3): (1 << 15, 8 << 20), (1, 2): (1 << 17, 1 << 20)}
# Fewer longer rows of words with gaps are tiles of waves, too, in smaller arrays, if elements have more bytes than they
# lie elements apart (H200, lambda uint64 (8, 100000) every second one: 9.8 us, so 8.8 us; max float64 (16, 8192): 5.1
# and 3.5 us; but inclusive float32 (40, 60000): 12.4 and 15.5 us; max uint32 (30, 50000) every fourth one: 12.4 and
# 14.1 us; inclusive bfloat16 (50, 40000) every second one: 8.2 and 10.7 us).
MIN_ROWS_WITH_GAPS, MIN_LONG_ROW_BYTES, MAX_FEW_ROWS_BYTES = SMS // 2, 1 << 14, 1 << 23
# Others are in registers, of small elements and short ones in so many blocks (H200, every second element: inclusive
# uint8 (1000, 1024): 2.9 us, so 2.5 us; reverse int64 (60, 100): 1.8 and 1.2 us; but reverse int8 (3000, 128), in 47
# blocks: 2.0 and 2.4 us; max int32 (300, 64), in 5: 1.4 and 1.8 us).
MIN_ROW_BLOCKS = SMS * 3 // 4
# By the bytes of an element and the elements from one to the next, the bytes of results from which on the pipeline
# copies what lies between them, too (H200, inclusive uint8 (100000000,) every second one: 149 us by strided tiles, so
# 80 us; max bool (51228566,) every third one: 112 and 58 us; lambda float16 (46319557,) every second one: 98 and 75 us;
# float32 (6000000,) every third one: 36 and 31 us; but float32 (20000000,) every second one: 72 and 76 us; int8
# (40000000,) every fourth one: 70 and 89 us; max uint16 (2097152,) every second one: 6.8 and 8.4 us).
MIN_PIPELINED_GAPS = {(1, 2): 4 << 20, (1, 3): 4 << 20, (2, 2): 5 << 20, (4, 3): 16 << 20}


@dataclass(frozen=True)
class PipelinePolicy(Policy, kernel=".pipeline:PipelineScan"):
    """Resident blocks with a ring of ``stages`` tiles: some warps reduce each tile, and squads of warps scan and store
    it. ``look_aheads`` warps take tiles in turn to find their prefixes."""

    reduce_warps: int
    scan_squads: int
    warps_per_squad: int
    vectors_per_thread: int
    stages: int
    shift: int | None
    aligned: bool = True
    look_aheads: int = 1
    boundary: int = LINE_BYTES


# Tiles of 32 KiB.
PIPELINE = PipelinePolicy(reduce_warps=4, scan_squads=2, warps_per_squad=4, vectors_per_thread=16, stages=6, shift=0)
# Rows of a few tiles that are not whole: the end of a row in a chunk takes as long as several vectors of it (H200, 37,
# 58, 97 and 102 KB: float64 84.6 us, so 60.1 us; int16 26.6 us, so 20.8 us; int8 197 us, so 156 us; float64 82.6 us, so
# 58.1 us; but whole rows of 64 KiB float64 136 us, so 155 us; of 61 KB uint32 168 us, so 179 us). The smaller the
# elements, the longer the ends take, and the longer are the rows for which it counts (float16 (512, 100003) off by one
# 89.5 us, so 69.5 us; lambda bfloat16 (300, 90005): 51.2 us, so 38.0 us; but max bfloat16 (256, 163841): 47.6 us, so
# 50.3 us; max int8 (16, 2000003) off by one: 34.9 us, so 30.8 us; int64 (300, 65537): 84.6 us, so 92.9 us).
HALF_TILES = replace(PIPELINE, vectors_per_thread=8, stages=12, boundary=VECTOR_BYTES)
MAX_HALVED_TILES = {1: 96, 2: 8, 8: 4}  # whole tiles of a row, by the bytes of an element
# Of the shortest rows of bytes even quarters (int8 (700, 65536) off by one: 60.6 us, so 51.8 us; lambda uint8 (154,
# 109617): 25.7 us, so 21.1 us; but inclusive int8 (105, 180112): 17.4 us, so 19.4 us; exclusive int8 (1733, 41800):
# 59.6 us, so 68.4 us; reverse uint8 (2463, 101567): 171 us, so 189 us; but its maximum 240 us, so 202 us).
QUARTER_TILES, MAX_QUARTERED_TILES = replace(HALF_TILES, vectors_per_thread=4, stages=24), 4
# States of float64 or of several values: four warps reduce tiles more slowly than these are copied (H200, 2**26
# float64: 281 us, with eight 268 us; a linear recurrence of 2**27 float32: 433 us, with eight 421 us).
COSTLY_REDUCE_WARPS = 8
# In rows of more than a group of tiles, two look-ahead warps hide each other's trips to memory (H200: the recurrence
# 428 us, with two 397 us; 2**26 float64 272 us and 267 us; 2**28 float32 521 us and 523 us, so one there). In rows of
# eight tiles one is faster (397 us and 415 us).


@dataclass(frozen=True)
class GappedPolicy(PipelinePolicy, kernel=".gapped:GappedScan"):
    """The same for positions that lie ``gap`` elements apart, as in ``Problem``: tiles hold what lies between them."""

    gap: int = 1


@dataclass(frozen=True)
class RunPolicy(PipelinePolicy, kernel=".runs:RunScan"):
    """The same for states of several values: a lane scans a run of ``vectors_per_thread`` vectors, an odd number.
    Results of output k are put in the place of input ``places[k]``."""

    places: tuple[int, ...] = (0,)


def choose(problem: Problem) -> Choice:
    """Return the policy and the launch of a problem with at least one element."""
    found = _choice(problem)
    return found if problem.view is None else replace(found, view=problem.view)


def _choice(problem: Problem) -> Choice:
    if problem.gap > 1:
        if _suits_gaps(problem):
            return _with_gaps(problem)
        several = problem.rows > 1 and not _has_few_long_rows(problem)
        return (rows(problem) if several else None) or _long_rows(problem)
    few = problem.inner > 1 and _few_columns(problem)
    found = single(problem) or rows_of_columns(problem) or (None if few else slices(problem))
    if found is not None:
        return (narrow(problem) if _is_large_slice(problem, found) else None) or found
    if problem.inner > 1:
        shared = clusters(problem)
        if shared is not None:
            return shared
        narrow_array = narrow(problem, few)
        if narrow_array is not None:
            return narrow_array
        ragged_words = None if column_policy.is_joined(problem) else ragged_columns(problem)
        if ragged_words is not None:
            return ragged_words
        return _long_rows(problem, problem.inner) if few else columns(problem)
    return rows(problem) or _long_rows(problem)


def _is_large_slice(problem: Problem, found: Choice) -> bool:
    """Return whether a tile has one or a few slices of small elements that no words hold whole: few threads share a
    block's columns, and few blocks an SM (H200, max uint16 (406, 6108, 4) off by one: 33.5 us, so 22.6 us; uint8 (1463,
    6038, 7): 60.1 and 53.2 us; lambda int8 (936, 2710, 13): 37.2 and 34.8 us)."""
    policy = found.policy
    large = isinstance(policy, SlicePolicy) and policy.blocks_per_sm <= LARGE_TILES[1] and policy.segments > 1
    return large and problem.inner > 1 and problem.wide < WORD_BYTES and problem.view is None


def suits(problem: Problem) -> bool:
    """Return whether ``choose`` has a kernel that accesses arrays that are not contiguous in words at least."""
    if problem.gap > 1:
        most = MAX_GAPPED_BYTES if problem.rows == 1 else MAX_FEW_ROWS_BYTES
        bounds = MIN_GAPPED_BYTES, most
        if problem.gap > problem.source:
            bounds = FARTHER_BYTES.get((problem.source, problem.gap), (1, 0))
        near = bounds[0] <= problem.size_of_results <= bounds[1]
        near &= problem.rows == 1 or (_has_few_long_rows(problem) and problem.gap < problem.source)
        return near or _suits_gaps(problem) or _suits_rows_with_gaps(problem)
    if slices(problem) is not None or rows_of_columns(problem) is not None:
        return True
    if problem.inner > 1:
        return column_policy.suits(problem) or narrow(problem) is not None or _few_columns(problem)
    items, _ = problem.vector(problem.length)
    if problem.skewed:
        return True
    if problem.wide >= 4 or items * problem.source >= MIN_VECTOR_BYTES:
        return True
    if problem.ragged:
        return problem.shift is not None and (problem.alike or _suits_unlike(problem))
    return items * problem.source >= 4 or MIN_SHORT_ROW < problem.length <= 2 * LANES


def _suits_gaps(problem: Problem) -> bool:
    """Return whether tiles of the pipeline that hold the gaps of a row, too, are faster than others: of several rows,
    if no block holds one in registers."""
    fits = problem.whole_vectors and problem.sources == problem.results and not problem.several
    fits &= problem.rows == 1 or rows(problem) is None
    return fits and problem.size_of_results >= MIN_PIPELINED_GAPS.get((problem.wide, problem.gap), math.inf)


def _has_few_long_rows(problem: Problem) -> bool:
    """Return whether rows of words with gaps are tiles of waves."""
    few = problem.rows < MIN_ROWS_WITH_GAPS and problem.source >= WORD_BYTES
    return few and problem.length * problem.wide >= MIN_LONG_ROW_BYTES


def _suits_rows_with_gaps(problem: Problem) -> bool:
    """Return whether blocks or warps that have rows with gaps in registers are faster than strided tiles: of words; of
    small elements as vectors of memory if a lane has one or two of a row, two of 2 bytes, or more of bytes that are two
    apart, and a warp has the row (H200, every second element: max int16 (100000, 264): 54.5 us, so 47.7 us; reverse
    uint8 (9000, 3008): 42.2 and 34.9 us; but inclusive int16 (500000, 32): 25.4 and 27.3 us; reverse int16 (30000,
    1400): 78 and 100 us; max uint8 (700, 6000): 8.6 and 10.3 us; every third one: max uint8 (2000, 2048): 7.6 and 8.1
    us)."""
    if problem.rows == 1 or problem.several or _has_few_long_rows(problem):
        return False
    found = rows(problem)
    if found is None or problem.size_of_results < MIN_GAPPED_BYTES:
        return False
    policy: Any = found.policy
    team, enough = getattr(policy, "team", 0), found.grid >= MIN_ROW_BLOCKS
    if not policy.whole:
        wide = problem.source >= WORD_BYTES and policy.items * problem.source >= MIN_VECTOR_BYTES
        return wide and not problem.ragged and (enough or team > 0)
    if team == 0:
        return enough and problem.wide == 1
    return enough and team == 1 and (policy.rows == 2 or (problem.wide == 1 and problem.gap == 2))


def _suits_unlike(problem: Problem) -> bool:
    """Return the same of rows of small elements whose results are shifted by other numbers of elements in each row:
    such chunks take long, those of single bytes most (H200, lambda uint8 (28, 518284): 20.3 us, so 26.5 us; bfloat16
    (256, 65536): 28.5 us, so 49.5 us; uint16 (4096, 2048): 13.9 us, so 19.5 us; but bfloat16 (474, 177137): 154 us, so
    109 us; int16 (124395, 566): 143 us, so 110 us; bool (22707, 2211): 140 us, so 59 us; (64, 1397807): 170 us, so 56
    us; reverse int8 (290, 529790): 230 us, so 145 us; max int16 (54, 121199): 56 us, so
    50 us; but max int8 (128, 262144): 49 us, so 61 us)."""
    if rows(problem) is not None:
        return problem.wide == 1 or problem.length <= MAX_UNLIKE_ROW
    return (problem.wide > 1 or problem.packs) and problem.length * problem.wide > MIN_UNLIKE_BYTES[problem.wide > 1]


def _few_columns(problem: Problem) -> bool:
    """Return whether a row of all columns fits a state in registers, and every outer slice is long and begins on a
    vector boundary, or as far behind one in the input as in the output."""
    boundary = VECTOR_BYTES
    if problem.sources == problem.results and problem.shift == 0:
        boundary = problem.source * (1 if problem.inner == 3 else problem.inner)
    return (
        problem.inner <= FEW_COLUMNS
        and problem.inner * problem.wide <= VECTOR_BYTES
        and problem.length * problem.inner * problem.wide >= MIN_SLICE_BYTES
        and not problem.several
        and dense(problem)
        and not any(at % boundary for at in starts(problem))
    )


def _long_rows(problem: Problem, width: int = 1) -> Choice:
    items = VECTOR_BYTES // math.gcd(VECTOR_BYTES, width * problem.wide)
    vector = items * width * problem.wide  # bytes
    total = problem.rows * problem.length * width * (problem.position_bytes if problem.several else problem.wide)
    shift = problem.shift if width == 1 else 0
    if problem.several and total > PIPELINE_BYTES and problem.position_bytes <= MAX_RUN_BYTES and shift == 0:
        if problem.places is not None:
            return _runs(problem, problem.places)

    def fitted(rows: int) -> int:
        """Return the largest power of two of vectors whose values need no more registers than ``rows`` vectors of 16
        bytes, and with their prefixes no more than twice as many. Elements that are not 4 bytes wide allow half of
        that: with more, the pipeline spills registers."""
        if width == 1:
            return problem.fitted(rows)
        most = min(rows * VECTOR_BYTES // vector, rows * 8 // (vector // 4 + width * max(1, problem.wide // 4)))
        return 1 << max(most if problem.wide == 4 else most // 2, 1).bit_length() - 1

    def tiles_of(warps: int, rows: int, boundary: int) -> int:
        # The first tile may begin this many elements before the row, on a boundary.
        slack = boundary // problem.source - 1 if width == 1 else items - 1
        if width == 1 and (problem.gap > 1 or (boundary == VECTOR_BYTES and problem.whole)):
            slack = 0
        return ceil_div(problem.length + slack, warps * fitted(rows) * LANES * items)

    tiles, boundary = tiles_of(PIPELINE.warps_per_squad, PIPELINE.vectors_per_thread, LINE_BYTES), LINE_BYTES
    fewer = tiles_of(PIPELINE.warps_per_squad, PIPELINE.vectors_per_thread, VECTOR_BYTES)
    if fewer < min(tiles, FEW_TILES):
        tiles, boundary = fewer, VECTOR_BYTES
    pipelined = total > PIPELINE_BYTES and problem.gap == 1
    if problem.gap == 1 and MIN_PIPELINE_BYTES < total <= PIPELINE_BYTES and width == 1 and not problem.several:
        tile = PIPELINE.warps_per_squad * fitted(PIPELINE.vectors_per_thread) * LANES * items
        filled = problem.length / (tiles * tile)
        blocks = problem.rows * tiles_of(*sizes(problem, WAVES, total), VECTOR_BYTES)
        slow = problem.wide == 1 and total >= MIN_SLOW_BYTES and shift == 0 and problem.view is None
        pipelined = filled >= MIN_FILLED and (slow or not MIN_WAVE_TILES <= blocks <= SMS)
    if pipelined:
        base = replace(PIPELINE, boundary=boundary)
        if width == 1 and 1 < tiles <= MAX_HALVED_TILES.get(problem.wide, 0) and _has_slow_ends(problem, items):
            base = QUARTER_TILES if problem.wide == 1 and _has_slowest_ends(problem, tiles) else HALF_TILES
            tiles = tiles_of(base.warps_per_squad, base.vectors_per_thread, base.boundary)
        rows = fitted(base.vectors_per_thread)
        policy = replace(base, vectors_per_thread=rows, shift=shift, aligned=problem.together)
        return _pipeline(problem, policy, tiles, items, width)
    return wave(problem, Tiling(width, items, total, fitted, tiles_of))


def _pipeline(problem: Problem, policy: PipelinePolicy, tiles: int, items: int, width: int) -> Choice:
    slots = problem.rows * ceil_div(tiles, GROUP) * GROUP
    if problem.double or problem.several:
        policy = replace(policy, reduce_warps=COSTLY_REDUCE_WARPS)
    if problem.several:
        tile = policy.warps_per_squad * policy.vectors_per_thread * LANES * items * sum(problem.sources)
        policy = replace(policy, stages=_stages(tile))
    if (problem.double or problem.several) and tiles > GROUP:
        policy = replace(policy, look_aheads=2)
    return Choice(policy, tiles, min(SMS, problem.rows * tiles), slots, width)


def _with_gaps(problem: Problem) -> Choice:
    """Return the policy and the launch of tiles with gaps: as many as fit where half tiles without gaps do."""
    vectors = HALF_TILES.vectors_per_thread
    stages = HALF_TILES.stages // problem.gap // 2 * 2
    policy = GappedPolicy(
        HALF_TILES.reduce_warps,
        HALF_TILES.scan_squads,
        HALF_TILES.warps_per_squad,
        vectors,
        stages,
        problem.shift,
        gap=problem.gap,
    )
    tiles = ceil_div(problem.length, policy.warps_per_squad * vectors * LANES * problem.items)
    return _pipeline(problem, policy, tiles, problem.items, 1)


def _has_slow_ends(problem: Problem, items: int) -> bool:
    """Return whether rows of tiles of the pipeline have ends that take long."""
    chunk = PIPELINE.vectors_per_thread * LANES * items
    return not (problem.several or are_full(problem, chunk))


def _has_slowest_ends(problem: Problem, tiles: int) -> bool:
    """Return whether rows of so few tiles have ends that take even longer: all but sums whose results are not joined to
    aligned vectors."""
    return tiles <= MAX_QUARTERED_TILES and not (problem.sums and problem.shift == 0)


def _runs(problem: Problem, places: tuple[int, ...]) -> Choice:
    warps = PIPELINE.warps_per_squad
    tile = warps * RUN_VECTORS * LANES * problem.items
    stages = _stages(tile * sum(problem.sources) + warps * LANES * 4 * (problem.words + 1))
    tiles = ceil_div(problem.length + LINE_BYTES // problem.source - 1, tile)
    policy = RunPolicy(
        PIPELINE.reduce_warps,
        PIPELINE.scan_squads,
        warps,
        RUN_VECTORS,
        stages,
        shift=0,
        look_aheads=2 if tiles > GROUP else 1,
        places=places,
    )
    return Choice(policy, tiles, min(SMS, problem.rows * tiles), problem.rows * ceil_div(tiles, GROUP) * GROUP)


def _stages(tile_bytes: int) -> int:
    """Return the number of stages of a ring: even, as roles of two warps or squads take tiles in turn."""
    return max(2, min(MAX_STAGES, RING_BYTES // tile_bytes) // 2 * 2)
