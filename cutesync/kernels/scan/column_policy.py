"""Which kernel scans along an axis that is not the last, unless the array is narrow, and with which sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...sizes import ceil_div, power_of_two, power_of_two_below
from ..axes import NUMBER_BITS
from ..hardware import LINE_BYTES, SMS, VECTOR_BYTES, WORD_BYTES
from ..policy import Policy
from .column_groups import MAX_TILE_GROUP, MAX_UNIT, TILE_BLOCKS, TILE_THREADS, group_of, group_slots, one_wave
from .column_skew import MAX_SHORT_ROWS, MAX_SMALL_ROWS, MIN_EIGHT_BYTES, SMALL_BYTES, parts, skewed
from .column_vectors import in_vectors, skew_of_tiles
from .problem import ANYWHERE, MAX_CHUNK_WORDS, Choice, Problem

# Tiles of columns: 256 threads with 128 bytes of elements each, twice, in shared memory. An SM holds 3 such blocks.
TILE_LANES, MAX_TILE_GROUPS = 32, 32
THREAD_BYTES, MAX_TILE_WIDTH, MAX_TILE_HEIGHT = 128, 8, 64
WIDE_STATE_WORDS = 4  # of a thread's columns: with larger states an SM holds fewer blocks
# Blocks of states of several values have half as many, of twice the bytes, and load up to 16 bytes of two columns
# (H200, recurrence down (2**15, 2**12): as others 537 us, so 485 us).
# A thread loads up to 8 bytes of a row at once, but 4 where fewer than 16 tiles would lie side by side, and of small
# elements that are combined one by one (H200, exclusive bfloat16 (65536, 2048): 197 us, with 4 bytes 172 us).
MAX_ROW_BYTES, MIN_ROW_BYTES = 8, 4
MAX_PAIR_BYTES = 16
MIN_CHAINS = 16
# Strips: without a look-back, a recurrence down (2**15, 2**12) takes 441 us (H200; in tiles 485 us). Sums do not gain:
# (32768, 8192) int16 370 us, in tiles 344 us. Where two strips share each line, as in (50000, 3500), it takes twice as
# long.
STRIP_THREADS, STRIP_HEIGHT, STRIP_BLOCKS = 512, 8, 3
MIN_STRIPS, MIN_STRIP_TILES, MIN_STRIP_STAGES, MAX_STRIP_STAGES = SMS * 3 // 4, 8, 3, 4
MIN_TILE_BYTES = 16  # of columns of strided arrays: tiles of fewer touch as many lines as they have rows
# The same in large arrays if other rows lie between their positions, which tiles of any strides have side by side
MIN_TILE_BYTES_BETWEEN, MIN_BYTES_BETWEEN = 64, 1 << 20
# Shorter rows of columns of slices that lie apart are no threads' own: these would read short runs (H200, reverse int32
# (262144, 16, 2), 4096 bytes apart: 79 us, so 27 us; exclusive bool (9, 25, 5) reversed: 1.5 and 0.8 us).
MIN_FLAT_BYTES = 32
SMEM_BYTES, RESERVED_BYTES = 224 << 10, 4 << 10  # of an SM; of a block, besides its tiles and states
SKEWED_RESERVED_BYTES = 2 << 10  # with vectors that hold what lies beside a row: no fewer than a block needs
# Of large arrays with elements that are loaded one by one and combined so, tiles are lower and an SM holds more blocks
# (H200, lambda uint8 (21901, 1650): 49.8 us, so 44.2 us; bfloat16 (11475, 1304): 34.1 us, so 29.3 us; but bfloat16 (2,
# 19821, 151): 15.0 us, so 17.3 us; max uint8 (2719394, 25) of rows of 75: 138 us, so 169 us).
MIN_SINGLY_BYTES, SINGLY_HEIGHT, SINGLY_BLOCKS = 20 << 20, 32, 5
MIN_TILE_HEIGHT = 8  # rows of a thread, where a lower tile would only give more blocks something to do
# Where few tiles have all rows, they are narrower (H200, threads of 8, 16, 32, 64 rows: 1.5, 2.3, 4.5 to 6, 7 us).
FEW_CHAINS, MIN_FEW_LANES = SMS // 2, 8
# Tiles are made lower for more of them, up to one for each SM (H200, float32 (131072, 8): 7.5 us; up to two for each,
# 9.6 us).
# Of the rows of the tiles of small arrays: it saves nothing to count those that exist. Nor does it where a tile has all
# rows (H200, exclusive int16 (49, 9417): 2.7 us, else 2.3 us; reverse float16 (20, 357, 823): 45 us, else 13 us).
FILLED, SMALL_ARRAY_BYTES = 0.95, 1 << 22
# Below so many bytes, and in chains of so few tiles, a block of one wave takes one tile and no second number (H200,
# lambda uint8 (5466, 42): 4.2 us, so 3.7 us; max uint8 (7334, 10): 3.8 and 3.2 us; exclusive float32 (2, 4619, 7): 3.2
# and 2.9 us; but exclusive float32 (16384, 16), of 1 MiB, in chains of 128 tiles: 3.9 and 4.2 us; lambda uint64
# (7970, 24) off by one, in 100: 4.8 and 5.8 us).
MAX_ONCE_BYTES, MAX_ONCE_TILES = 1 << 20, 96
ENOUGH_COLUMNS = SMS * 240  # threads: from here on, and for up to 32 rows, a thread scans its columns alone
MAX_UNROLLED_ROWS = 32
# Threads side by side. Where a quarter of them or more would have no column, they are numbered through all slices.
COLUMN_LANES, WARP_LANES = 128, 32
# The GPU starts 0.81 blocks a ns: many blocks that would move less than 5 KiB have threads for 8 KiB (H200, max uint16
# (2193, 43, 2, 236): 116 us, so 46 us; lambda float64 (48906, 3, 64): 60.4 and 37.1 us; exclusive float16 (7661, 4,
# 394), of 4 KiB: 19.4 us, so 15.0 us; but reverse float32 (5, 3, 61, 26205), of 5 KiB: 61.6 us, so 63.0 us).
# Those of odd slices of words that have columns apart, too, which is slower of two positions of 4 bytes, whose threads
# have too little on their way, if a block moves 3.4 KB or more (float64 (40841, 2, 53): 50.6 us, so 17.7 us; uint32
# (49504, 3, 101): 61.6 and 37.5 us; float32 (60000, 2, 119): 74.1 and 43.5 us; but (18703, 2, 311): 25.5 and 35.7 us).
FEW_MOVED_BYTES, MOVED_BYTES, MAX_COLUMN_LANES, MIN_LARGE_BLOCKS = 5 << 10, 8 << 10, 512, SMS * 4
FEW_APART_BYTES, FEW_FLIGHT_BYTES, APART_ROWS = 3 << 10, 8, (2, 3)  # other lengths are not measured
# The same of odd slices of small elements (reverse uint8 (2, 45780, 49): 89.3 us, so 16.7 us; uint8 (60000, 6, 51) of
# rows of 60: 75.7 and 35.6 us; int8 (40000, 3, 201): 86.5 and 63.7 us; but bool (12155, 3, 331): 30.4 us, so 35.1 us),
# in blocks of 256 threads, of five rows and more of 128 (uint16 (44063, 7, 45) by 256: 25.9 us, so 26.4 us).
MAX_NEAR_ROWS, MAX_NEAR_COLUMNS = 4, 256
# Elements that are loaded one by one: if an SM is full of threads, each needs so many bytes of them in flight.
FLIGHT_BYTES, FULL_THREADS = 32, SMS * 2048
# Threads with columns of their own have too few bytes of small elements on their way (H200, uint8 (512, 65536): 46 us,
# in tiles 28 us; (48, 1000000): 29 us, in tiles 33 us), and of others in many rows (float32 (1000, 40000): 109 us, in
# tiles 92 us).
MAX_ROWS = 512
# Of words behind boundaries of vectors, which threads load one by one, tiles copy vectors (H200, uint32 (32, 256, 4096)
# off by one: 86.5 us, so 73.4 us; float32 (32, 48, 8192): 38.0 and 26.0 us; max float64 (16, 64, 2048), of 16 MiB: 12.3
# and 10.2 us).
MIN_SKEWED_BYTES = 16 << 20


@dataclass(frozen=True)
class ColumnPolicy(Policy, kernel=".columns:ColumnScan"):
    """An axis that is not the last, with many columns. A block has ``lanes`` threads side by side, with ``width``
    columns each, and ``unroll`` rows of them at once. ``flat``: threads are numbered through the columns of all outer
    slices, not of one. ``apart``: a thread's columns lie ``lanes`` apart, as words do not hold whole columns. ``skew``:
    so many elements before those of a thread lies a boundary of a vector, in each row; ``ANYWHERE``: rows differ, and
    vectors of 4 to 16 bytes are joined from two. A thread has such a vector in each of ``strips`` parts of a row."""

    width: int
    lanes: int
    unroll: int
    aligned_out: bool
    flat: bool = False
    apart: bool = False
    skew: int = 0
    strips: int = 1


@dataclass(frozen=True)
class ColumnTilePolicy(Policy, kernel=".column_tiles:ColumnTileScan"):
    """An axis that is not the last, in tiles: ``lanes`` threads with ``width`` columns side by side, times ``groups``
    of up to ``height`` rows. ``group`` tiles are a group of the look-back; ``alone``: a tile has all rows.
    ``prefetch``: each block asks for a tile before it has a number. ``vectors``: warps copy vectors of 16 bytes.
    ``fixed``: all groups have ``height`` rows. ``skew``: rows begin so many elements behind boundaries of vectors.
    ``once``: each block has one tile."""

    width: int
    lanes: int
    groups: int
    height: int
    group: int
    blocks_per_sm: int
    alone: bool
    aligned_out: bool
    prefetch: bool = False
    vectors: bool = False
    fixed: bool = False
    skew: int = 0
    once: bool = False

    @property
    def stages(self) -> int:
        """How many tiles a block has in shared memory."""
        return 1 if self.alone or self.once else 2

    @property
    def unit(self) -> int:
        return unit_of(self.height)


@dataclass(frozen=True)
class ColumnStripPolicy(Policy, kernel=".column_strips:ColumnStripScan"):
    """The same, with a block for each strip of ``lanes`` threads with ``width`` columns. It walks down its strip, with
    ``stages`` tiles in shared memory."""

    width: int
    lanes: int
    groups: int
    height: int
    stages: int
    blocks_per_sm: int
    aligned_out: bool
    group: ClassVar[int] = 1  # nobody looks back
    alone: ClassVar[bool] = False
    prefetch: ClassVar[bool] = False
    vectors: ClassVar[bool] = False
    fixed: ClassVar[bool] = True
    skew: ClassVar[int] = 0
    once: ClassVar[bool] = False

    @property
    def unit(self) -> int:
        return unit_of(self.height)


def unit_of(height: int) -> int:
    """Return what the rows of a group of up to ``height`` are a multiple of."""
    return min(MAX_UNIT, height & -height)


def columns(problem: Problem) -> Choice:
    """Return the policy and the launch of a scan of several columns."""
    items, skew = _of_thread(problem)
    if not _alone(problem, items):
        return (_strips(problem) if problem.several else None) or _tiles(problem, skew_of_tiles(problem))
    units = problem.inner // items
    lanes = min(power_of_two(units), COLUMN_LANES)
    tiles = ceil_div(units, lanes)
    unroll = min(MAX_UNROLLED_ROWS if items * problem.source <= 8 else 16, power_of_two(problem.length))
    if problem.several:
        unroll = max(2, min(unroll, power_of_two_below(MAX_CHUNK_WORDS // (items * ceil_div(sum(problem.sources), 4)))))
    aligned_out = problem.aligned(items) == 0
    strips = parts(problem, items, ENOUGH_COLUMNS) if skew == ANYWHERE else 1
    if strips > 1 and problem.rows * units < 1 << NUMBER_BITS:
        units = ceil_div(units, strips)
        policy = ColumnPolicy(items, COLUMN_LANES, unroll, aligned_out, True, skew=skew, strips=strips)
        return Choice(policy, units, ceil_div(problem.rows * units, COLUMN_LANES))
    threads = problem.rows * units
    single = items == 1 or items * problem.wide < WORD_BYTES
    width = _columns_apart(problem) if single and not problem.several else 1
    near = problem.length in APART_ROWS if items * problem.wide >= WORD_BYTES else units <= MAX_NEAR_COLUMNS
    most = _flat_lanes(problem, items, width, threads) if width == 1 or near else 0
    idle = 4 * units <= 3 * tiles * max(lanes, WARP_LANES)
    if (idle or most > lanes) and threads + most < 1 << NUMBER_BITS:
        lanes = max(most, COLUMN_LANES)
        return Choice(ColumnPolicy(items, lanes, unroll, aligned_out, True, skew=skew), units, ceil_div(threads, lanes))
    if width > 1:
        tiles = ceil_div(problem.inner, COLUMN_LANES * width)
        policy = ColumnPolicy(width, COLUMN_LANES, power_of_two(problem.length), aligned_out, apart=True)
        return Choice(policy, tiles, problem.rows * tiles)
    return Choice(ColumnPolicy(items, lanes, unroll, aligned_out, skew=skew), tiles, problem.rows * tiles)


def _flat_lanes(problem: Problem, items: int, width: int, threads: int) -> int:
    """Return how many threads that are numbered through all slices a block has for enough bytes; 0 if it has enough
    with a slice's, of which threads have ``width`` vectors of ``items`` columns, or there are few blocks."""
    moved = problem.length * items * (sum(problem.sources) + sum(problem.results))  # of a vector
    units = problem.inner // items
    few = width > 1 and problem.length * problem.source <= FEW_FLIGHT_BYTES
    least = FEW_APART_BYTES if few else FEW_MOVED_BYTES
    if min(units if width > 1 else power_of_two(units), COLUMN_LANES * width) * moved >= least:
        return 0
    odd = width > 1 and items * problem.wide < WORD_BYTES
    most = COLUMN_LANES * (1 + (problem.length <= MAX_NEAR_ROWS)) if odd else MAX_COLUMN_LANES
    lanes = min(most, max(COLUMN_LANES, power_of_two(ceil_div(MOVED_BYTES, moved))))
    while odd and lanes > COLUMN_LANES and threads < lanes * MIN_LARGE_BLOCKS:
        lanes //= 2
    return lanes if threads >= lanes * MIN_LARGE_BLOCKS else 0


def _columns_apart(problem: Problem) -> int:
    """Return how many columns of small elements a thread needs for enough bytes in flight, at most as many as leave
    threads enough."""
    width = power_of_two_below(FLIGHT_BYTES // (problem.length * problem.source))
    while width > 1 and problem.rows * ceil_div(problem.inner, COLUMN_LANES * width) * COLUMN_LANES < FULL_THREADS:
        width //= 2
    return width


def suits(problem: Problem) -> bool:
    """Return whether the threads of a tile that lie side by side access half a sector at least, or no tile is
    needed."""
    between = problem.interleaved and problem.size_of_results >= MIN_BYTES_BETWEEN
    least = MIN_TILE_BYTES_BETWEEN if between else MIN_TILE_BYTES
    repeated = problem.view is not None and 0 in problem.pitches[0][: 1 if problem.group == 1 else None]
    gaps = problem.view is not None and problem.inner * problem.wide < MIN_FLAT_BYTES and not repeated
    return problem.inner * problem.wide >= least or (_alone(problem, _vector(problem)) and not gaps)


def alone(problem: Problem) -> bool:
    """Return whether threads scan columns alone."""
    return _alone(problem, _of_thread(problem)[0])


def is_skewed(problem: Problem) -> bool:
    """Return whether a thread has columns of its own that begin behind a boundary of a vector."""
    return alone(problem) and _of_thread(problem)[1] != 0


def is_joined(problem: Problem) -> bool:
    """Return the same of short columns of small elements, which are faster so than in slices."""
    wide = problem.length < MAX_SHORT_ROWS or problem.inner * problem.wide >= MIN_EIGHT_BYTES
    return wide and problem.length <= MAX_SHORT_ROWS and problem.wide <= SMALL_BYTES and is_skewed(problem)


def _of_thread(problem: Problem) -> tuple[int, int]:
    """Return how many columns a thread has if it scans them alone, and their skew."""
    items, skew = skewed(problem, ENOUGH_COLUMNS)
    return (items, skew) if skew else (_vector(problem), 0)


def _vector(problem: Problem) -> int:
    """Return the same where rows begin on boundaries of vectors, or anywhere."""
    items, _ = problem.vector(problem.inner)
    while items > 1 and problem.rows * (problem.inner // items) < ENOUGH_COLUMNS:
        items //= 2
    return items


def _alone(problem: Problem, items: int) -> bool:
    """Return whether a thread scans ``items`` columns alone."""
    long = problem.length > MAX_UNROLLED_ROWS
    few = long and problem.rows * (problem.inner // items) < ENOUGH_COLUMNS
    if long and problem.wide >= WORD_BYTES and problem.size_of_results >= MIN_SKEWED_BYTES and skew_of_tiles(problem):
        return False
    return not few and problem.length <= (MAX_SMALL_ROWS if problem.wide <= SMALL_BYTES else MAX_ROWS)


def _strips(problem: Problem) -> Choice | None:
    """Return the same for strips of a line of memory of the smallest elements, if these fill the GPU and are long, and
    no line belongs to two strips."""
    most, _ = problem.vector(problem.inner)
    width = max(1, WORD_BYTES // problem.source)
    strips = problem.rows * ceil_div(problem.inner, TILE_LANES * width)
    blocks = min(STRIP_BLOCKS, ceil_div(strips, SMS))
    groups = STRIP_THREADS // TILE_LANES // blocks
    tile = groups * STRIP_HEIGHT
    row = TILE_LANES * width * sum(problem.sources)
    states = 2 * TILE_LANES * groups * width * 4 * problem.words
    stages = min(MAX_STRIP_STAGES, (SMEM_BYTES // blocks - RESERVED_BYTES - states) // (row * tile))
    short = strips < MIN_STRIPS or problem.length < MIN_STRIP_TILES * tile or stages < MIN_STRIP_STAGES
    if width > most or short or any(problem.inner * size % LINE_BYTES for size in problem.sources):
        return None
    aligned_out = problem.aligned(width) == 0
    policy = ColumnStripPolicy(width, TILE_LANES, groups, STRIP_HEIGHT, stages, blocks, aligned_out)
    return Choice(policy, ceil_div(problem.length, tile), strips)


def _tiles(problem: Problem, skew: int) -> Choice:
    width, each = _width_of_tiles(problem, skew), sum(problem.sources)
    across = ceil_div(problem.inner // width, TILE_LANES)
    chains = problem.rows * across
    lanes = ceil_div(problem.inner // width, across)
    lanes = power_of_two(lanes) if lanes <= 4 else ceil_div(lanes, 4) * 4
    threads = TILE_THREADS // 2 if problem.several else TILE_THREADS
    groups = min(MAX_TILE_GROUPS, threads // lanes)
    state = problem.words * width
    singly = width * each < WORD_BYTES and not problem.packs and problem.size_of_results >= MIN_SINGLY_BYTES
    most_blocks, most_rows = (SINGLY_BLOCKS, SINGLY_HEIGHT) if singly else (TILE_BLOCKS, MAX_TILE_HEIGHT)
    blocks = most_blocks - (state > WIDE_STATE_WORDS) - (state > 2 * WIDE_STATE_WORDS)
    thread_bytes = THREAD_BYTES * (1 + problem.several)
    height = power_of_two_below(min(most_rows, thread_bytes * most_blocks // blocks // (width * each)))

    def tiles_of(height: int) -> int:
        return ceil_div(problem.length, groups * height)

    alone = tiles_of(height) == 1
    while alone and chains < FEW_CHAINS and lanes > MIN_FEW_LANES and lanes % 8 == 0:
        if groups * 2 > MAX_TILE_GROUPS or problem.length <= groups * MIN_TILE_HEIGHT:
            break
        lanes, groups = lanes // 2, groups * 2  # more blocks, and fewer rows of a thread
        chains = problem.rows * ceil_div(problem.inner // width, lanes)
    while alone and height > 1 and tiles_of(height // 2) == 1:
        height //= 2
    most_blocks = blocks * max(1, TILE_THREADS // (lanes * groups))

    def resident(height: int, stages: int) -> int:
        """Return how many blocks with ``stages`` tiles an SM holds."""
        held = lanes * groups * width * (stages * height * each + 8 * problem.words)
        held += stages * height * groups * VECTOR_BYTES + SKEWED_RESERVED_BYTES if skew else RESERVED_BYTES
        return max(1, min(most_blocks, SMEM_BYTES // held))

    if skew and not alone and resident(height, 2) < blocks:  # vectors hold what lies beside rows, too
        height = height * 3 // 4
    heights = [h for h in (height >> k for k in range(height.bit_length())) if h >= MIN_TILE_HEIGHT][::-1]
    wave = None if alone else one_wave(problem, chains, (groups, lanes * groups), heights, resident)
    if wave is not None:
        height, tiles = wave
    else:
        tiles = tiles_of(height)
    alone = tiles == 1
    once = wave is not None and problem.size_of_results < MAX_ONCE_BYTES and tiles <= MAX_ONCE_TILES
    blocks = resident(height, 1 if alone or once else 2)
    size = lanes * groups * height * width * each
    group = MAX_TILE_GROUP if alone or wave is not None else group_of(chains, 0 if problem.several else size)
    aligned_out = problem.aligned(width) == 0
    vectors = in_vectors(problem, width, lanes, groups, height, skew)
    if skew and not (vectors and lanes * width * problem.source >= LINE_BYTES):
        return _tiles(problem, 0)
    full = problem.length > tiles * groups * height * FILLED and problem.size_of_results <= SMALL_ARRAY_BYTES
    fixed = problem.counted or alone or full
    policy = ColumnTilePolicy(
        width, lanes, groups, height, group, blocks, alone, aligned_out, not alone, vectors, fixed, skew, once
    )
    if alone:
        return Choice(policy, 1, chains)
    slots = problem.rows * group_slots(tiles, group) * problem.inner
    return Choice(policy, tiles, min(SMS * blocks, chains * tiles), slots)


def _width_of_tiles(problem: Problem, skew: int) -> int:
    """Return how many columns a thread of a tile has."""
    width = problem.items if skew else problem.vector(problem.inner)[0]
    each = sum(problem.sources)
    most_width, most_bytes = (2, MAX_PAIR_BYTES) if problem.several else (MAX_TILE_WIDTH, MAX_ROW_BYTES)
    if each <= SMALL_BYTES:
        most_bytes = MIN_ROW_BYTES

    def are_few(width: int) -> bool:
        """Return whether few tiles lie side by side."""
        return problem.rows * ceil_div(problem.inner // width, TILE_LANES) < MIN_CHAINS

    while width > 1 and (
        width > most_width or width * each > most_bytes or (width * each > MIN_ROW_BYTES and are_few(width))
    ):
        width //= 2
    return width
