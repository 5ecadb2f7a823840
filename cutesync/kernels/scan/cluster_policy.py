"""Which scans along an axis that is not the last stay in registers, and how blocks share their columns."""

from __future__ import annotations

from dataclasses import dataclass

from ...sizes import ceil_div, power_of_two
from ..hardware import LANES, LINE_BYTES, SMS, WORD_BYTES
from ..policy import Policy
from . import column_policy
from .problem import Choice, Problem
from .ragged_column_policy import ragged_columns

MAX_CLUSTER = 8  # blocks
THREADS, MAX_THREADS = 256, 512  # of a block; more where columns are too long for them
MAX_GROUPS = 32  # whose partials neighbouring lanes scan
MAX_HEIGHT, MIN_HEIGHT = 32, 4  # rows of a thread
HELD_BYTES, MAX_ELEMENTS = 128, 64  # of a thread; twice as many bytes in small arrays
LINES = (64, 32)  # bytes of a tile's rows: narrower ones where they give more blocks
LONG_BYTES = 8  # of a thread, in rows of whole lines, where blocks are many anyhow
# Up to so many bytes of results, columns may be shared by so many blocks: these load, then wait for each other, then
# store, which takes longer than tiles where one wave of blocks does not hold everything (H200, int32 (8192, 64): 5.8 us
# by tiles, 4.4 us so; float64 (2048, 1024): 13.5 and 14 us; int16 (256, 32768): 12.9 and 10.3 us).
SMALL_BYTES, MIDDLE_BYTES = 9 << 20, 20 << 20
ENOUGH_BLOCKS = SMS * 3 // 2
# Clusters of more than two blocks leave some SMs of the GPU's parts without any; a second wave of them takes longer
# than tiles (H200, max int8 (3, 3400, 393): 10.3 us, in tiles 9.0 us; uint32 (6091, 382): 13.2 and 9.3 us; lambda
# bfloat16 (3714, 1129): 13.1 and 12.0 us).
PARTS, PAIR = 8, 2
# Of small arrays: short columns are one tile, and few blocks leave the GPU idle for longer than a look-back takes
# (H200, int32 (256, 16): 1.7 us in a tile, 1.9 us so; float16 (7838, 19): 4.2 and 4.4 us).
TINY_BYTES, SHORT, FEW_BLOCKS, FEW_HEIGHT = 1 << 20, 256, 64, 16
# Threads that lie side by side in shorter rows load parts of sectors: only few rows of few bytes (H200, int16 (26,
# 1352, 7): 5.0 us in a tile, 2.6 us so; but uint32 (19, 6110, 2): 3.8 us by rows, 5.2 us so).
MIN_ROW_BYTES, MAX_ROWS_BYTES = 32, 2 << 20
SM_THREADS, SM_REGISTERS, OTHER_REGISTERS = 2048, 1 << 16, 40  # the last of a thread, besides its elements
# Where columns fill the GPU with threads of their own: from so many rows on (H200, max float32 (512, 32768): 52 us by
# threads, 37 us so; uint32 (128, 65536) of a larger array: 29 and 20 us; but int32 (64, 524288): 71 and 75 us). Small
# arrays from 33 rows on: those threads load 32 at once (float16 (64, 64, 1024): 8.8 us, so 6.0 us; uint16 (47, 54376):
# 11.6 and 4.6 us; float32 (60, 43689): 9.6 and 7.4 us; larger ones are not measured).
MANY_ROWS, MAX_FEW_ROWS_BYTES = 96, 21 << 19
# Elements that no words hold whole are loaded one by one: in large arrays words are faster (H200, uint8 (263, 17797):
# 9.0 us, as words 14.8 us; (73, 150155): 15.7 us, as words 13.9 us). So are tiles of bytes that are combined one by one
# (lambda uint8 (310, 6696): 7.1 us in tiles, 4.3 us so; but (256, 262144): 44 and 128 us).
MAX_ODD_BYTES = 8 << 20
# The same of operators that combine whole words, where tiles of these suit, by the bytes of an element (H200, exclusive
# bool (335, 22926): 10.6 us, in tiles 9.2 us; int8 (2, 4096, 512) off by one: 9.2 and 7.0 us; but reverse int8 (8193,
# 173): 5.8 and 6.6 us; exclusive uint16 (176, 14639): 5.2 and 8.8 us; (675, 4631): 8.1 and 8.5 us).
MAX_PACKED_BYTES = {1: 7 << 19, 2: 6 << 20}
# Of results: in larger arrays tiles are faster (H200, float32 (1024, 512, 32) along axis 1: 54 us by tiles, 36 us so;
# but uint16 (621, 7386, 13) along axis 0: 118 and 137 us; uint64 (410, 103969): 224 and 306 us).
MAX_BYTES = 1 << 26


@dataclass(frozen=True)
class ColumnClusterPolicy(Policy, kernel=".column_clusters:ColumnClusterScan"):
    """An axis that is not the last: the ``cluster`` blocks of a cluster have all rows of ``lanes`` threads with
    ``width`` columns, in ``groups`` of ``height`` rows a block. ``aligned_out`` as in ``ColumnPolicy``."""

    width: int
    lanes: int
    groups: int
    height: int
    blocks_per_sm: int
    aligned_out: bool
    cluster: int = 1


def clusters(problem: Problem) -> Choice | None:
    """Return the policy and the launch; None where others are better."""
    results = problem.size_of_results
    least = MANY_ROWS if results > MAX_FEW_ROWS_BYTES and column_policy.alone(problem) else LANES
    if problem.several or problem.counted or problem.length <= least:
        return None
    if problem.length <= SHORT and results < TINY_BYTES:
        return None
    odd = problem.vector(problem.inner)[0] * problem.wide < WORD_BYTES or problem.wide == 1
    if results > (MAX_ODD_BYTES if odd else MAX_BYTES):
        return None
    packed = problem.packs and results > MAX_PACKED_BYTES.get(problem.wide, 0)
    if packed and ragged_columns(problem) is not None:
        return None
    most = MAX_CLUSTER if results <= SMALL_BYTES else 2 if results <= MIDDLE_BYTES and problem.wide >= WORD_BYTES else 1
    found = _shared(problem, LINE_BYTES, LONG_BYTES, 1) if results > TINY_BYTES and problem.wide > 1 else None
    if found is None or found[1] < 2 * ENOUGH_BLOCKS:
        for line in LINES:
            if found is not None and found[1] >= SMS:
                break
            other = _shared(problem, line, WORD_BYTES, most)
            found = other if found is None or (other is not None and other[1] > found[1]) else found
    if found is None:
        return None
    policy, grid = found
    at_once = PARTS * (SMS // PARTS * policy.blocks_per_sm // policy.cluster)
    if policy.cluster > PAIR and grid > at_once * policy.cluster:
        return None
    return None if grid < FEW_BLOCKS and policy.height > FEW_HEIGHT else Choice(policy, 1, grid)


def _shared(problem: Problem, line: int, row: int, most: int) -> tuple[ColumnClusterPolicy, int] | None:
    """Return the policy and the number of blocks for rows of ``line`` bytes of a tile and at most ``row`` bytes of a
    thread, in clusters of up to ``most`` blocks."""
    size = problem.wide
    width, _ = problem.vector(problem.inner)
    while width > 1 and width * size > row:
        width //= 2
    each, units = width * size, problem.inner // width
    lanes = min(LANES, max(1, line // each), power_of_two(units))
    highest = min(MAX_HEIGHT, MAX_ELEMENTS // width)
    if lanes * each < MIN_ROW_BYTES:
        if lanes < units or problem.size_of_results > MAX_ROWS_BYTES:
            return None
        highest = min(highest, FEW_HEIGHT)
    for held in (HELD_BYTES, 2 * HELD_BYTES) if problem.size_of_results <= SMALL_BYTES else (HELD_BYTES,):
        height = max(1, min(highest, held // each))
        for threads in (THREADS, MAX_THREADS):
            groups = min(MAX_GROUPS, threads // lanes)
            blocks = ceil_div(problem.length, groups * height)
            if blocks <= min(most, groups):
                return _policy(problem, (width, lanes, groups), blocks, most)
    return None


def _policy(problem: Problem, shape: tuple[int, int, int], blocks: int, most: int) -> tuple[ColumnClusterPolicy, int]:
    """Return the same with at least so many ``blocks`` in a cluster; more if the GPU would not be full."""
    width, lanes, groups = shape
    chains = problem.rows * ceil_div(problem.inner // width, lanes)

    def height(blocks: int) -> int:
        return ceil_div(problem.length, blocks * groups)

    while blocks < most and chains * blocks < ENOUGH_BLOCKS and height(blocks) > MIN_HEIGHT:
        blocks += 1
    rows = height(blocks)
    blocks = ceil_div(problem.length, rows * groups)
    words = ceil_div(rows * width * problem.wide, WORD_BYTES)
    resident = max(1, min(SM_THREADS, SM_REGISTERS // (words * 5 // 4 + OTHER_REGISTERS)) // (groups * lanes))
    policy = ColumnClusterPolicy(width, lanes, groups, rows, resident, problem.aligned(width) == 0, blocks)
    return policy, chains * blocks
