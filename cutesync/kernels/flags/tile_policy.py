"""The tiles of threads that flag strided arrays, and their sizes: a pure function of extents, strides, types and
alignment, not of the GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...runtime.layout import Axis
from ...sizes import ceil_div, power_of_two
from ..hardware import LANES, LINE_BYTES, SECTOR_BYTES, SMS, VECTOR_BYTES, WORD_BYTES
from .form import Form
from .gathered_policy import FEW_IN_BLOCK, FEWEST_THREADS, SINGLY, are_apart, gathered, is_gathered
from .order import pace_in, pace_out, roles_of
from .policy import alignment
from .strided_choice import MAX_NARROW, THREADS, Facts, StridedChoice, TilePolicy, TransposedPolicy

ROWS_OF_BITS = 32  # flags in a word
# Fewer rows are loaded in such steps (H200, bits float32 (8570, 17, 56) along its second axis: of 32 rows 11.7 us, of
# 24 9.9 us, of 20 9.6 us).
ROWS_STEP = 4
TILE_BYTES = 64  # of input that a thread has in flight
MAX_ROWS = 8
DOWN_BYTES = 32  # of results that a thread stores along the rows: what memory takes at once
MIN_EQUAL_BYTES = 16  # beside a flagged axis along which the array is repeated, if threads are in the order of results
MIN_DOWN_ROWS = 4
# Of a tile that is a run of memory: its lines are those of the threads beside, too (H200, along their second axes,
# of arrays turned, both int32 (2, 6793651): 256 bytes a thread 291 us, 128: 142 us, 64: 60 us, 32: 35 us;
# tails float32 (2, 4194304): 20.3, 20.3, 12.7 and 11.2 us).
DOWN_RUN_BYTES = 32
DOWN_ELEMENTS = 64  # the largest tile of which that is done; twice as many by words
# Below, tiles are smaller: a multiprocessor has room for 2048 threads, and a quarter of that hides its latency.
FEW_THREADS = SMS * 512
# Arrays of fewer bytes have smaller tiles, if results are stored across the columns (H200, difference uint64 (6,
# 153666) along its first axis: 6.0 us, so 5.1 us; but both uint64 (256, 2, 4, 16384): 85 and 96 us).
SMALL_BYTES, SMALL_TILE_BYTES = 1 << 25, 32
# Elements that are equal along the rows are loaded once: bytes of those of a row, and rows (H200, both float64 (65536,
# 32, 64), repeated along its second axis: 147 us, so 117 us); rows of threads in the order of results. That is done in
# large arrays whose rows are near each other (both float32 (1024, 32768): 26 and 33 us).
EQUAL_BYTES, EQUAL_ROWS, FIRST_ROWS, MIN_EQUAL, MAX_EQUAL_ROW = 64, 8, 4, 1 << 20, 4096
# Bytes of results: threads that store as many have one row, so that a warp stores whole lines (H200, difference uint64
# (2, 1, 16460926, 6), repeated along its third axis: 672 us, so 339 us; int32 (2, 73387, 10): 5.2 us, so 3.9 us).
MIN_WIDE = 8
# Of bits of a column, which a thread stores at once, and threads that have as many (H200, bits bool (32768, 4096)
# transposed: of one word 90.8 us, of 4 56.6 us, of 8 47.3 us; but int8 (10432, 8192), 83456 threads: 52.5, 33.8 and
# 37.1 us; both uint16 (32768, 4096): 260, 166 and 146 us). Floats of two bytes lose (bfloat16 (16384, 8192): 103 us, of
# 8 203 us).
WORDS = (8, 1 << 17), (4, FEW_THREADS)
# Columns of bytes in rows that begin anywhere, of which threads join words: of a row, and threads, of which 512 are on
# a multiprocessor (H200, bits int8 (3, 8934, 6247) along its second axis: 94.9 us, so 59.7 us; bool (54, 1286, 153) 8.5
# us, so 7.1 us; but int8 (7, 19930, 39), of 320 threads a multiprocessor: 4.7 and 5.9 us); of a thread, of flags or
# differences (heads bool (65536, 4, 256, 2) in rows of 710: pairs 105 us, of four 119 us, of eight 76.5 us, of sixteen
# 81.6 us).
MIN_JOINED_COLUMNS, MIN_JOINED_THREADS, JOINED = 32, SMS * 512, (8, 4)
HALF = 2  # bytes
MIN_ANY_RUN_BYTES, MAX_RUN_BYTES = 64, 256  # of a tile: one that begins anywhere, and what registers hold
MAX_LANES = 64  # of a block that transposes, side by side
# Blocks that transpose are lower if there are few: of so many, or of so many elements each (H200, heads uint8 (512,
# 256) transposed: 2.1 us, so 1.5 us; tails uint8 (1638, 1488): 5.4 and 3.9 us; but with more blocks, tails uint32
# (1024, 4, 64), read in the order of 1, 2, 0: 1.6 and 2.4 us).
FEW_BLOCKS, BLOCK_ELEMENTS = 4 * SMS, 2048
# Elements of arrays that blocks transpose, with fewer, threads store what they have: fewer of those whose rows are
# flagged, more of those whose columns are less than a sector. Columns and rows that are have so many elements at least,
# and more bytes (H200, both int8 (2048, 32) transposed: 3.0 us, so 1.4 us; tails uint16 (59, 9, 24, 590), whose columns
# are 18 bytes: 127 us, so 19 us; but tails bfloat16 (3, 1014, 136, 3): 5.4 and 8.5 us; heads uint8 (128, 512)
# transposed, along its first axis: 2.1 and 2.5 us; heads uint8 (65536, 128, 16), read in the order of 0, 2, 1: 96 and
# 190 us; difference uint64 (256, 64, 8, 2), in pairs: 2.6 and 11 us).
MIN_TRANSPOSED, MIN_TRANSPOSED_ROWS, MIN_TRANSPOSED_THIN, MIN_SIDE, MIN_SIDE_BYTES = 1 << 15, 1 << 15, 1 << 22, 8, 16
# Of blocks that transpose and store words: steps of lanes that fit the columns, where so much less lanes than those of
# whole lines do (H200, both uint16 (1782, 37, 78), read in the order of 0, 2, 1: 42.9 us, so 17.7 us; but results of
# four bytes, difference float32 (14960, 19, 65): 109 and 122 us; and of two, where three quarters do, difference
# bfloat16 (198, 47, 122): 3.7 and 4.3 us).
FIT_LANES, MAX_FIT, MAX_FIT_OF_HALVES = 8, 0.75, 0.625
# Columns of results that begin anywhere, whose words blocks join: bytes of one in a block, and the rows of a thread, at
# least and at most, unless lanes fit (H200, tails bfloat16 (16722, 2354) transposed, of 16 rows: 60.7 us, so 51.0 us;
# but of single columns of 32 rows, heads float16 (371779, 273): 214 and 246 us).
MIN_ANYWHERE_BYTES, ANYWHERE_ROWS = 32, (8, 16)
# Short columns of results of which blocks have whole ones that are one run of memory: results of each, and their bytes,
# lanes and elements of an array, groups of threads that share columns (H200, heads uint16 (543, 714, 13) along its
# first axis: 45.8 us, so 9.7 us with four groups, 8.0 us with two; but of 12 bytes, which threads store in words,
# difference uint8 (572, 119, 12): 2.3 and 2.9 us; of three int32, heads (3163137, 3): 17.1 and 22.1 us).
MIN_RUN_ROWS, MIN_ROW_BYTES, MAX_ROW_BYTES, MIN_RUN_LANES, MIN_RUN, RUN_GROUPS = 6, 8, 28, 48, 1 << 17, 2
# Rows of so few bytes of results are stored in tiles that are this high at most, so that neighbours fill sectors (H200,
# heads int32 (16777216, 8) reversed: 205 us, so 164 us; tails float16 (3403938, 27), which is wider: 118 and 219 us),
# but not few rows of single columns, and of bytes in small arrays not less than many (heads uint16 (262144, 32, 4, 2)
# sliced along its third axis: 132 and 162 us; difference int64 (94520, 24, 2) in rows of five: 51.9 us, so 30.5 us;
# tails bool (42347, 19, 3): of eight rows 5.7 us, of two 7.2 us). Single columns of less than a word have twice as many
# rows: others take what the start of their blocks does (heads uint16 (8422613, 3) backwards: 61 us, so 34 us; but in
# pairs, uint16 (1531668, 6): of two 12.2 us, of four 13.6 us), bytes in arrays of so many (difference int8 (22705, 195,
# 2): of eight 22.5 us, of four 13.9 us; but both uint8 (104476, 15): of two 5.1 us, of eight 5.5 us).
MAX_NARROW_BYTES, NARROW_ROWS, MIN_NARROW_ROWS, MIN_NARROW = 16, 2, (7, 64), 1 << 22


def choose_tiles(form: Form, facts: Facts) -> StridedChoice:
    """Return the tiles of a problem."""
    columns, rows = roles_of(form)
    roles = [axis for axis in (columns, rows) if axis is not None]
    third = [form.flagged] if all(axis is not form.flagged for axis in roles) else []
    others = [axis for axis in form.others if all(axis is not role for role in roles)]
    blank = Axis(1, (0,) * len(form.flagged.steps))
    columns, rows = columns or blank, rows or blank
    equal = form.flagged.steps[0] == 0
    # what is loaded does not differ along that axis, and is less than a line beside it: results come first
    first = equal and (0 if form.bits else MIN_EQUAL_BYTES) <= columns.extent * facts.size < LINE_BYTES
    axes = (columns, *sorted((rows, *third, *others), key=pace_out if first else pace_in))
    row, along = (next(i for i, axis in enumerate(axes) if axis is wanted) for wanted in (rows, form.flagged))
    down = not form.bits and columns is not blank and rows.steps[1:] != (0,) and pace_out(rows) < pace_out(columns)
    wide, across, loads = _width(axes, facts, form, down)
    most = DOWN_ELEMENTS * (1 + (facts.size == 1 and _by_words(facts, along, wide))) if down else 0
    tall = _height(axes, row, facts, form.bits, most, wide)
    short = (loads == "repeated" and columns.extent <= wide) or (first and rows is form.flagged)
    if short and row == 1 and not form.bits and rows.extent >= LANES:
        lone = (across and wide * facts.result >= MIN_WIDE) or not _loads_once(axes, row, facts)
        tall = 1 if lone else FIRST_ROWS  # neighbouring threads have neighbouring rows
    if not (form.bits or down or equal):
        tall = min(tall, _narrow_height(columns, rows, form, facts, wide))
    tall = _aligned(rows, axes, tall, facts) if down else tall
    stored_down = down and _fits(1, rows, axes, tall, facts.result, facts.result_aligned, slice(1, None))
    special, piece = _loads_of_bits(axes, row, facts, wide, tall) if form.bits else None, 0
    if special is not None:
        wide, piece, loads, tall = special
        across = wide > 1 and _fits(1, columns, axes, wide, facts.result, facts.result_aligned, slice(1, None))
    block = None if form.bits or not down else _block(axes, row, facts, wide, rows is form.flagged)
    lanes, tall, stores = block or (1, tall, "")
    if down and not stored_down and stores != "words":
        if is_gathered(axes, facts, _is_run(axes, row, wide), block is not None):
            return gathered(axes, form, facts)
        tall = min(tall, max(1, SINGLY // wide)) if block is None and are_apart(columns) else tall
    by_words = (
        (loads in ("vector", "joined") or piece >= WORD_BYTES)
        and _by_words(facts, along, wide)
        and (form.bits or across or ((stored_down or (block is not None and stores != "run")) and tall % 4 == 0))
    )
    words = _words(axes, row, facts, wide) if form.bits and loads == "vector" else 1
    side, height = (wide, tall * words) if block is None else (lanes * wide, THREADS // lanes * tall)
    counts = tuple(ceil_div(axis.extent, side if k == 0 else height if k == row else 1) for k, axis in enumerate(axes))
    geometry, given = (len(axes), along, row, wide, tall), (facts.periodic, facts.counted)
    stored = across, stored_down and block is None, by_words
    few = block is None and tall == 1 and not form.bits and math.prod(counts) <= FEWEST_THREADS
    policy = TilePolicy(
        *geometry,
        *stored,
        *given,
        math.prod(counts) > MAX_NARROW,
        loads,
        equal,
        FEW_IN_BLOCK if few else THREADS,
        piece,
        words,
    )
    if block is not None:
        policy = TransposedPolicy(**vars(policy), lanes=lanes, stores=stores)
    return StridedChoice(policy, axes, counts)


def _loads_of_bits(axes: Sequence[Axis], row: int, facts: Facts, wide: int, tall: int) -> tuple | None:
    """Return the columns of a tile of bits, bytes of a piece, how it is loaded, and its rows, up to ``tall``, if it is
    a run of memory, or of columns that are joined; None for others."""
    run = _run(axes, row, facts, wide)
    if run is not None:
        return *run, "run", min(ROWS_OF_BITS, axes[row].extent)
    joined = wide < WORD_BYTES and _joins(axes, row, facts, ROWS_OF_BITS)
    return (WORD_BYTES, 0, "joined", tall) if joined else None


def _joins(axes: Sequence[Axis], along: int, facts: Facts, rows: int) -> bool:
    """Return whether words of columns of bytes, so many rows of a thread, are joined from two, as they begin anywhere:
    of wide rows, if many threads are left."""
    columns, threads = axes[0], math.prod(axis.extent for axis in axes) // (WORD_BYTES * rows)
    whole = facts.size == 1 and columns.steps[0] == 1 and not facts.counted
    forwards = all(axis.steps[0] > 0 for axis in axes if axis.extent > 1)
    many = columns.extent >= MIN_JOINED_COLUMNS and threads >= MIN_JOINED_THREADS
    return whole and forwards and many and _by_words(facts, along, WORD_BYTES)


def _words(axes: Sequence[Axis], row: int, facts: Facts, wide: int) -> int:
    """Return the words of a column of bits that a thread stores at once: several if they are neighbours."""
    rows, words = axes[row], ceil_div(axes[row].extent, ROWS_OF_BITS)
    columns = math.prod(axis.extent for axis in axes if axis is not rows) // wide
    if facts.counted or facts.periodic or row == 0 or (facts.floats and facts.size == HALF):
        return 1
    for count, threads in WORDS:
        fits = _fits(1, rows, axes, count, facts.result, facts.result_aligned, slice(1, None))
        if fits and words >= count and columns * ceil_div(words, count) >= threads:
            return count
    return 1


def _narrow_height(columns: Axis, rows: Axis, form: Form, facts: Facts, wide: int) -> int:
    """Return the most rows of a tile, ``wide`` columns of a thread, whose rows of results are a few bytes each and lie
    behind each other; of others, any."""
    small = facts.size == 1 and form.rows * form.flagged.extent < MIN_NARROW
    few = 1 < columns.extent * facts.result <= MAX_NARROW_BYTES and columns.steps[0] != 0
    few &= abs(rows.steps[0]) * facts.size < LINE_BYTES  # rows share lines
    few &= set(rows.steps[1:]) == {columns.extent} and (wide > 1 or rows.extent >= MIN_NARROW_ROWS[small])
    higher = wide == 1 and facts.size < WORD_BYTES and not small
    return MAX_ROWS if not few else 2 * NARROW_ROWS if higher else NARROW_ROWS


def _run(axes: Sequence[Axis], row: int, facts: Facts, wide: int) -> tuple[int, int] | None:
    """Return the columns of a tile of bits that is a run of memory, and how many bytes a thread loads of it at once, 1
    if it begins anywhere; None if such a tile, ``wide`` columns or all of a few, is no run or too large."""
    columns, rows = axes[0], axes[row]
    inner = 1 < columns.extent == rows.steps[0] <= WORD_BYTES and columns.steps[0] == 1
    if inner and math.prod(axis.extent for axis in axes) >= MIN_TRANSPOSED:
        wide = columns.extent
    within = [rows, columns] if inner and wide == columns.extent else [rows]
    tile = min(ROWS_OF_BITS, rows.extent) * wide * facts.size
    if wide > 1 and columns.steps[0] != 1:
        return None  # columns that run backwards, or repeat
    if rows.steps[0] != wide or rows.extent == 1 or not WORD_BYTES <= tile <= MAX_RUN_BYTES or wide == 3:
        return None
    apart = [axis.steps[0] for axis in axes if axis.extent > 1 and all(axis is not each for each in within)]
    starts = math.gcd(tile, rows.extent * wide * facts.size, *(step * facts.size for step in apart))
    piece = 1 if facts.counted else min(facts.aligned, alignment(starts))
    if piece >= max(WORD_BYTES, 2 * facts.size):
        return wide, piece
    return (wide, 1) if piece < WORD_BYTES and tile >= MIN_ANY_RUN_BYTES else None


def _block(axes: Sequence[Axis], row: int, facts: Facts, wide: int, along: bool) -> tuple | None:
    """Return the lanes of a block whose results are stored in another order than its elements are read, the rows of a
    thread's tile, ``wide`` columns across, and how results are stored; None if lines would not be whole, or the array
    is small. ``along``: rows are the flagged axis."""
    columns, rows = axes[0], axes[row]
    sides = (columns.extent, facts.size), (rows.extent, facts.result)
    short = any(
        extent * size < SECTOR_BYTES and (extent < MIN_SIDE or extent * size <= MIN_SIDE_BYTES)
        for extent, size in sides
    )
    thin = columns.extent * facts.size < SECTOR_BYTES
    least = MIN_TRANSPOSED_THIN if thin else MIN_TRANSPOSED_ROWS if along else MIN_TRANSPOSED
    if short or math.prod(axis.extent for axis in axes) < least:
        return _run_of_block(axes, row, facts, wide)
    threads = ceil_div(columns.extent, wide)
    most = min(MAX_LANES, LINE_BYTES // (facts.size * wide), power_of_two(threads))
    lanes = _fitted(threads, most, MAX_FIT_OF_HALVES if facts.result == HALF else MAX_FIT)
    tall, stores = _turned(axes, row, facts, wide, lanes)
    if lanes < most and not stores:
        lanes, (tall, stores) = most, _turned(axes, row, facts, wide, most)
    return lanes, tall, stores


def _turned(axes: Sequence[Axis], row: int, facts: Facts, wide: int, lanes: int) -> tuple[int, str]:
    """Return the rows of a thread's tile in a block with so many ``lanes``, and how results are stored."""
    columns, rows = axes[0], axes[row]
    groups, fitted = THREADS // lanes, lanes & (lanes - 1) > 0
    tall = max(1, LINE_BYTES // (facts.result * groups))
    if fitted:
        tall = ceil_div(ceil_div(rows.extent, ceil_div(rows.extent, groups * tall)), groups)
    tall = min(tall, power_of_two(ceil_div(rows.extent, groups)))
    apart = math.prod(axis.extent for axis in axes if axis is not columns and axis is not rows)
    apart *= ceil_div(columns.extent, lanes * wide)
    wanted = min(FEW_BLOCKS, math.prod(axis.extent for axis in axes) // BLOCK_ELEMENTS)
    while tall > 1 and apart * ceil_div(rows.extent, groups * tall) < wanted:
        tall //= 2
    each = WORD_BYTES // facts.result
    if fitted and each > 1:
        tall = ceil_div(tall, each) * each
    whole = each > 1 and tall % each == 0  # a thread has words of its own, so that there are as many as threads
    if whole and _fits(1, rows, axes, each, facts.result, facts.result_aligned, slice(1, None)):
        return tall, "words"
    anywhere = whole and set(rows.steps[1:]) == {1} and groups * tall * facts.result >= MIN_ANYWHERE_BYTES
    anywhere &= fitted or (wide > 1 and ANYWHERE_ROWS[0] <= tall <= ANYWHERE_ROWS[1])
    return tall, "anywhere" if anywhere else ""


def _fitted(threads: int, lanes: int, most: float = MAX_FIT) -> int:
    """Return how many of so many lanes have columns, if these are about as many in all blocks, in steps of
    FIT_LANES; all if more than ``most`` of them would."""
    blocks = ceil_div(threads, lanes)
    fitted = ceil_div(ceil_div(threads, blocks), FIT_LANES) * FIT_LANES
    return fitted if fitted <= most * lanes else lanes


def _run_of_block(axes: Sequence[Axis], row: int, facts: Facts, wide: int) -> tuple | None:
    """Return the same of blocks that have all of some short rows, whose results follow each other without gaps."""
    columns, rows = axes[0], axes[row]
    height, threads = rows.extent, ceil_div(columns.extent, wide)
    together = set(rows.steps[1:]) == {1} and set(columns.steps[1:]) == {height}
    short = height >= MIN_RUN_ROWS and MIN_ROW_BYTES <= height * facts.result <= MAX_ROW_BYTES
    few = threads < MIN_RUN_LANES or math.prod(axis.extent for axis in axes) < MIN_RUN
    if not (together and short) or few or facts.counted or facts.periodic or columns.steps[0] != 1:
        return None
    if height * facts.result % WORD_BYTES == 0 and facts.result < WORD_BYTES:  # threads store words
        return None
    return _fitted(threads, THREADS // RUN_GROUPS), ceil_div(height, RUN_GROUPS), "run"


def _by_words(facts: Facts, along: int, columns: int) -> bool:
    """Return whether a tile's keys are compared four at a time."""
    return facts.by_words and not facts.periodic and along != 0 and columns % 4 == 0


def _fits(unit: int, axis: Axis, axes: Sequence[Axis], count: int, size: int, aligned: int, arrays: slice) -> bool:
    """Return whether ``count`` elements along ``axis`` are one aligned vector of each of the ``arrays``, wherever they
    begin; ``unit`` is the stride that they need."""
    if any(step != unit for step in axis.steps[arrays]) or aligned % min(count * size, VECTOR_BYTES):
        return False
    others = [other for other in axes if other is not axis and other.extent > 1]
    return all(step % count == 0 for other in others for step in other.steps[arrays])


def _loads_once(axes: Sequence[Axis], row: int, facts: Facts) -> bool:
    """Return whether elements of a large array are equal along the rows of a tile, and these lie close together."""
    large = math.prod(axis.extent for axis in axes) >= MIN_EQUAL
    near = axes[0].extent * facts.result <= MAX_EQUAL_ROW
    return axes[row].steps[0] == 0 and axes[row].extent > 1 and large and near


def _aligned(rows: Axis, axes: Sequence[Axis], tall: int, facts: Facts) -> int:
    """Return the most rows of a tile, up to ``tall``, of which a column's results are one aligned vector; all if they
    are no words (H200, both int8 (2, 2, 21, 25996) along its third axis, read in the order of 3, 0, 2, 1: 79 us, so 18
    us)."""
    heights = [tall >> k for k in range(tall.bit_length()) if (tall >> k) * facts.result >= WORD_BYTES]
    fits = (n for n in heights if _fits(1, rows, axes, n, facts.result, facts.result_aligned, slice(1, None)))
    return next(fits, tall)


def _width(axes: tuple[Axis, ...], facts: Facts, form: Form, down: bool) -> tuple[int, bool, str]:
    """Return the columns of a tile, whether their results are stored as a vector, and how they are loaded."""
    columns = axes[0]
    stored_apart = form.bits or down
    short = form.bits and form.flagged.extent <= MAX_ROWS
    narrow = down and form.flagged.steps[:2] == (columns.extent, 1)  # a tile is a run of memory
    most = (
        VECTOR_BYTES
        if short or (narrow and columns.extent * facts.size <= VECTOR_BYTES) or not stored_apart
        else WORD_BYTES
    )
    # Of short columns of bits, neighbouring threads store neighbouring vectors (H200, bits bool (2, 134217728) along
    # its first axis: of 16 columns a thread 362 us, of 4 205 us; uint8 (7, 131072): 2.1 and 1.2 us; float16 (8,
    # 179264): of 8 columns 2.1 us, of 4 1.9 us).
    count = most // max(facts.size, 1 if stored_apart and not short else facts.result)
    if facts.counted and columns is form.flagged:  # elements that do not count are not read
        return 1, False, "vector"
    if columns.steps[0] == 0 and not stored_apart:
        count = VECTOR_BYTES // facts.result
    elif not stored_apart and _loads_once(axes, axes.index(form.flagged), facts):
        count = min(EQUAL_BYTES // max(facts.size, facts.result), VECTOR_BYTES // facts.result) or 1
    unit, found = -1 if columns.steps[0] == -1 else 1, (1, False, "vector")
    while count > 1:
        aligned = facts.aligned if unit > 0 else alignment(facts.begin - (count - 1) * facts.size)
        loads = _fits(unit, columns, axes, count, facts.size, aligned, slice(0, 1)) and columns.extent % count == 0
        stores = _fits(1, columns, axes, count, facts.result, facts.result_aligned, slice(1, None))
        apart = stored_apart and (loads or not form.bits)
        if (loads or columns.steps[0] == 0) and (stores or apart):
            found = count, stores and not down, {0: "repeated", -1: "back"}.get(columns.steps[0], "vector")
            break
        count //= 2
    vectors = found[0] > 1 and found[0] * facts.size >= WORD_BYTES
    if stored_apart or vectors or abs(columns.steps[0]) * facts.size >= LINE_BYTES:
        return found
    joins = _joins(axes, axes.index(form.flagged), facts, MAX_ROWS)
    for count in JOINED if joins else (WORD_BYTES // facts.result,) if found[0] == 1 else ():
        fits = count > 1 and columns.extent % count == 0
        if fits and _fits(1, columns, axes, count, facts.result, facts.result_aligned, slice(1, None)):
            return count, True, "joined" if joins else "each"  # whole lines of results are written
    return found


def _is_run(axes: Sequence[Axis], row: int, columns: int) -> bool:
    """Return whether tiles of so many columns are runs of memory."""
    return columns * abs(axes[0].steps[0]) == abs(axes[row].steps[0])


def _height(axes: tuple[Axis, ...], row: int, facts: Facts, bits: bool, down: int, columns: int) -> int:
    """Return the rows of a tile. ``down`` is the largest tile whose results are stored down the rows, 0 if they are
    not."""
    extent = axes[row].extent
    if bits:
        return min(ROWS_OF_BITS, 1 << (extent - 1).bit_length(), ceil_div(extent, ROWS_STEP) * ROWS_STEP)
    small = math.prod(axis.extent for axis in axes) * facts.size < SMALL_BYTES and abs(axes[0].steps[0]) == 1
    rows = min(MAX_ROWS, max(1, (SMALL_TILE_BYTES if small and not down else TILE_BYTES) // (columns * facts.size)))
    if _loads_once(axes, row, facts):
        rows = EQUAL_ROWS
    if down:
        rows = min(max(1, DOWN_BYTES // facts.result), down // columns)
        if _is_run(axes, row, columns):
            rows = min(rows, max(MIN_DOWN_ROWS, DOWN_RUN_BYTES // (columns * facts.size)))
    while rows > 1 and rows // 2 >= extent:
        rows //= 2
    if rows < extent <= rows + rows // 2 and rows < MAX_ROWS and not down:
        rows *= 2  # not a second tile of few rows
    threads = math.prod(axis.extent for axis in axes) // columns
    while rows > (MIN_DOWN_ROWS if down else 2) and threads // rows < FEW_THREADS:
        rows //= 2
    return 1 if threads <= FEWEST_THREADS and not down else rows
