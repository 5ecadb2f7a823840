"""Which kernel flags strided arrays, and arrays along another axis than the last, with which sizes: a pure function of
extents, strides, types and alignment, not of the GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...runtime.layout import Axis
from ...sizes import ceil_div, power_of_two
from ..axes import NUMBER_BITS
from .boxes_policy import choose_boxes
from .form import Form
from .order import FAR, pace_in, pace_out, roles_of
from .policy import (
    LANES,
    ONE_VECTOR_THREADS,
    SMS,
    VECTOR_BYTES,
    FlagPolicy,
    Problem,
    alignment,
    vector_of,
)
from .strided_choice import (
    THREADS,
    BallotPolicy,
    Facts,
    FlatPolicy,
    RowPolicy,
    StridedChoice,
    TilePolicy,
    TransposedPolicy,
)

ROWS_OF_BITS = 32  # flags in a word
MAX_NARROW = (1 << NUMBER_BITS) - 1  # threads whose numbers are split in 32 bits
TILE_BYTES = 64  # of input that a thread has in flight
MAX_ROWS = 8
DOWN_BYTES = 32  # of results that a thread stores along the rows: what memory takes at once
MIN_EQUAL_BYTES = 16  # beside a flagged axis along which the array is repeated, if threads are in the order of results
MIN_DOWN_ROWS = 4
MAX_EQUAL = 1 << 21  # elements of arrays whose items are equal: of more, threads with more results are faster
MAX_SINGLE = 8  # results of a thread that loads elements one by one, or of an array that is not large
DOWN_ELEMENTS = 64  # the largest tile of which that is done; twice as many by words
# Below, tiles are smaller: a multiprocessor has room for 2048 threads, and a quarter of that hides its latency.
FEW_THREADS = SMS * 512
# Up to so many elements, a short way counts, not the bytes of a load
FEW_ELEMENTS, FEW_ELEMENTS_OF_BYTES = ONE_VECTOR_THREADS * 3 // 2, ONE_VECTOR_THREADS * 4
FEWEST_THREADS, FEW_IN_BLOCK = 1 << 15, 128  # up to so many threads have one row each, in smaller blocks
WARPS = 4  # of a block that flags runs of rows
LONG_SLICE = 64  # vectors: most of them have no end of a row
MIN_FILLED = 0.6  # of the lanes' vectors, where a warp flags runs of a row
SHORT_OF_BITS = 64  # rows with fewer elements: a thread flags 32 of one row
MAX_BALLOTS, MIN_BALLOTS = 8, 4  # words of a warp: a sector at most; shorter rows have no warps of their own
# The same of arrays with few elements, where a warp that loads a row side by side takes less time than a thread
MIN_BALLOT_BITS, MAX_FEW_BITS = 16, 1 << 18
SECTOR = 32  # bytes that memory delivers at once
MIN_ANY_RUN_BYTES, MAX_RUN_BYTES = 64, 256  # of a tile: one that begins anywhere, and what registers hold
WIDE_BYTES = 128  # of a row of columns
WORD_BYTES = 4
MIN_INTERLEAVED_BYTES = 1 << 24  # more does not stay in the L2 cache until all rows that lie in a line are done
MIN_FAR_BYTES = 1 << 23  # of rows: neighbours are still in the L2 cache only if blocks take all rows in turn
LINE_BYTES, MAX_LANES = 128, 64  # of a block that transposes: what its threads read and store side by side
MIN_TRANSPOSED = 1 << 18  # elements; with fewer, threads store what they have


def choose_strided(form: Form, facts: Facts) -> StridedChoice:
    """Return the policy and the launch of a problem."""
    tiles, flat, rows = choose_tiles(form, facts), choose_flat(form, facts), choose_rows(form, facts)
    if rows is not None and (flat is None or _loads_more(rows, flat, facts)):
        return rows
    if flat is None:
        return choose_ballots(form, facts) or choose_boxes(form, facts) or tiles
    if form.flagged.steps[0] == 0 and form.rows * form.flagged.extent <= MAX_EQUAL:  # a tile of equal items loads none
        return tiles
    # Wide columns: a thread that goes along them loads an element once, where the others load its neighbour, too.
    distance, pace = flat.axes[0].extent, pace_in(flat.axes[0])
    columns = tiles.policy.columns if isinstance(tiles.policy, TilePolicy) else 1
    wide = columns * max(facts.size, facts.result) >= 8 or SECTOR <= pace * facts.size < FAR
    return tiles if wide and distance * facts.size >= WIDE_BYTES else flat


def _loads_more(rows: StridedChoice, flat: StridedChoice, facts: Facts) -> bool:
    """Return whether vectors of rows are whole, and those of a flat array would be loaded in pieces."""
    if not isinstance(rows.policy, RowPolicy) or not isinstance(flat.policy, FlatPolicy) or flat.policy.whole:
        return False
    run = rows.policy.run
    return run.piece * max(facts.size, facts.result) >= VECTOR_BYTES


def choose_rows(form: Form, facts: Facts) -> StridedChoice | None:
    """Return the launch with runs of rows, or None if rows have gaps inside, or are short or badly aligned."""
    length, others = form.flagged.extent, form.others
    if set(form.flagged.steps) != {1}:
        return None
    flag = 0 if form.bits else facts.result
    steps = [math.gcd(*(axis.steps[i] for axis in others)) for i in range(len(form.flagged.steps))]
    aligned = alignment(facts.aligned | steps[0] * facts.size)
    flag_aligned = alignment(math.gcd(facts.result_aligned, *(step * facts.result for step in steps[1:])))
    problem = Problem(form.rows, length, length, facts.size, flag, aligned, flag_aligned)
    vector, piece = vector_of(problem, 0, 0)
    narrow = VECTOR_BYTES // (vector * max(facts.size, flag))
    unroll = (1 if form.rows * length // vector <= ONE_VECTOR_THREADS else 2) * min(narrow, 8)
    while unroll > 1 and 2 * LANES * unroll * vector > length:
        unroll //= 2
    elements = LANES * unroll * vector
    runs = ceil_div(length, elements)
    if (length < SHORT_OF_BITS if form.bits else piece * facts.size < 4) or length < MIN_FILLED * runs * elements:
        return None
    count = runs * form.rows
    run = FlagPolicy(True, facts.periodic, vector, piece, unroll, WARPS, not facts.periodic)
    policy = RowPolicy(1 + len(others), run, facts.counted, count > MAX_NARROW, WARPS * LANES)
    axes = (form.flagged, *others[::-1])
    return StridedChoice(policy, axes, (runs, *(axis.extent for axis in axes[1:])))


def choose_ballots(form: Form, facts: Facts) -> StridedChoice | None:
    """Return the launch with a lane an item, or None if these are no neighbours, or have few words."""
    length, others = form.flagged.extent, form.others
    words = ceil_div(length, ROWS_OF_BITS)
    pace = abs(form.flagged.steps[0])
    near = pace > 0 and pace * facts.size < LINE_BYTES and all(pace <= pace_in(axis) for axis in others)
    few = words < MIN_BALLOTS and (length < MIN_BALLOT_BITS or form.rows * length > MAX_FEW_BITS)
    if not form.bits or not near or few:
        return None
    unroll = MAX_BALLOTS
    while unroll > 1 and (unroll > words or form.rows * ceil_div(words, unroll) * LANES < FEW_THREADS):
        unroll //= 2
    runs = ceil_div(words, unroll)
    wide = runs * form.rows * LANES > MAX_NARROW
    policy = BallotPolicy(1 + len(others), unroll, facts.periodic, facts.counted, wide)
    axes = (form.flagged, *others[::-1])
    return StridedChoice(policy, axes, (runs, *(axis.extent for axis in axes[1:])))


def choose_flat(form: Form, facts: Facts) -> StridedChoice | None:
    """Return the launch with vectors of results along the memory, or None if results have gaps or another order than
    elements."""
    flagged, others = form.flagged, list(form.others)
    if form.bits:
        return None
    inner = Axis(1, (flagged.steps[0], *(1,) * (len(flagged.steps) - 1)))
    if others and set(others[-1].steps[1:]) == {1} and others[-1].extent > 1:
        inner = others.pop()
    results = flagged.steps[1:]
    if set(results) != {inner.extent} or (inner.extent > 1 and flagged.steps[0] != inner.steps[0] * inner.extent):
        return None
    slices = flagged.extent * inner.extent
    pace = slices
    for axis in reversed(others):
        if set(axis.steps[1:]) != {pace}:
            return None
        pace *= axis.extent
    step, paces = abs(inner.steps[0]), [abs(axis.steps[0]) for axis in others if axis.steps[0]]
    large = form.rows * flagged.extent * facts.size >= MIN_INTERLEAVED_BYTES
    if step > min(paces, default=step) and (large or step * facts.size >= SECTOR):
        return None  # neighbours lie in other lines, or rows in the same lines
    whole = inner.steps[0] == 1 and (not others or [axis.steps[0] for axis in others] == [slices])
    return _flat(facts, inner, slices, others[::-1], whole)


def _stepped(facts: Facts, step: int, most: int) -> int:
    """Return a thread's results if elements lie ``step`` apart: few lines a load, or one in sectors of their own (H200,
    heads int8, 32 apart: in fours 520 us, so 424 us; difference float32, 2 apart: singly 1268 us, in fours 736 us)."""
    if step * facts.size >= SECTOR:
        return 1
    return most if (facts.result, step) == (WORD_BYTES, 2) else min(most, WORD_BYTES // min(facts.result, WORD_BYTES))


def _flat(facts: Facts, inner: Axis, slices: int, others: list[Axis], whole: bool) -> StridedChoice:
    """Return the launch for slices of so many elements. ``others`` are the axes of slices, the fastest first."""
    total = slices * math.prod(axis.extent for axis in others)
    adjacent = inner.extent == 1
    piece = near = VECTOR_BYTES // facts.size if whole else 1
    while facts.aligned % (piece * facts.size):
        piece = near = piece // 2
    while inner.extent % near:
        near //= 2
    by_words = facts.by_words and whole and not facts.periodic
    narrow = VECTOR_BYTES // max(facts.size, facts.result)
    vector = min(SECTOR // facts.size, VECTOR_BYTES // facts.result)
    if inner.steps[0] == 0:  # a slice repeats one element
        vector = VECTOR_BYTES // facts.result
    elif abs(inner.steps[0]) > 1:
        vector = _stepped(facts, abs(inner.steps[0]), vector)
    elif facts.size >= 4 and min(piece, near) * facts.size < VECTOR_BYTES:  # loads of single elements, far apart
        vector = min(vector, 4)
    far = whole and inner.extent * facts.size >= MIN_FAR_BYTES and slices > inner.extent
    single = inner.steps[0] and piece * facts.size < WORD_BYTES  # elements are loaded one by one
    crossing = slices % vector != 0 and slices < LONG_SLICE * vector  # many vectors have elements of two slices
    if single and not far and (facts.size > 1 or crossing or slices <= LONG_SLICE):
        vector = min(vector, MAX_SINGLE)
    if total <= ONE_VECTOR_THREADS and min(piece, near) * facts.size < 4:  # a short way counts, not the bytes of a load
        vector = 1
    elif total <= ONE_VECTOR_THREADS * vector:
        vector = min(vector, narrow, MAX_SINGLE)
        few = FEW_ELEMENTS_OF_BYTES if facts.size == 1 else FEW_ELEMENTS
        pieces = narrow > 4 or min(piece, near) * facts.size < VECTOR_BYTES
        while pieces and 1 < vector > WORD_BYTES // facts.size and total <= few:
            vector //= 2  # (H200, fewer than 2**17 elements: vectors of 8 and 16 1.6 to 2.7 us, of 1 and 4 1.0 to 1.4)
    while vector > slices or facts.result_aligned % min(vector * facts.result, VECTOR_BYTES):
        vector //= 2
    by_words = by_words and vector % 4 == 0
    digits = 1 + max(1, len(others))
    policy = FlatPolicy(
        digits,
        vector,
        whole,
        inner.steps[0] == 1,
        slices >= LONG_SLICE * vector and not facts.periodic,
        adjacent,
        min(piece, vector),
        min(near, vector),
        by_words,
        facts.periodic,
        facts.counted,
        total > MAX_NARROW,
        far,
    )
    first = Axis(inner.extent, inner.steps)
    blank = Axis(1, (0,) * len(inner.steps))
    axes = (first, *(others or [blank]))
    return StridedChoice(policy, axes, (slices, *(axis.extent for axis in axes[1:])))


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
    first = equal and not form.bits and MIN_EQUAL_BYTES <= columns.extent * facts.size < LINE_BYTES
    axes = (columns, *sorted((rows, *third, *others), key=pace_out if first else pace_in))
    row, along = (next(i for i, axis in enumerate(axes) if axis is wanted) for wanted in (rows, form.flagged))
    down = not form.bits and columns is not blank and rows.steps[1:] != (0,) and pace_out(rows) < pace_out(columns)
    wide, across, loads = _width(axes, facts, form, down)
    most = DOWN_ELEMENTS * (1 + _by_words(facts, along, wide)) if down else 0
    tall = _height(axes, row, facts, form.bits, most, wide)
    short = loads == "repeated" and columns.extent <= wide
    short |= first and rows is form.flagged
    if short and row == 1 and not form.bits and rows.extent >= LANES:
        tall = 1  # neighbouring threads have neighbouring rows
    stored_down = down and _fits(1, rows, axes, tall, facts.result, facts.result_aligned, slice(1, None))
    run = _run(axes, row, facts, wide) if form.bits else None
    piece = 0
    if run is not None:
        wide, piece = run
        loads, tall = "run", min(ROWS_OF_BITS, rows.extent)
        across = wide > 1 and _fits(1, columns, axes, wide, facts.result, facts.result_aligned, slice(1, None))
    block = None if form.bits or not down else _block(axes, row, facts, wide)
    if block is not None:
        lanes, tall = block
        each = 4 // facts.result
        in_words = each > 1 and _fits(1, rows, axes, each, facts.result, facts.result_aligned, slice(1, None))
    by_words = (
        (loads == "vector" or piece >= WORD_BYTES)
        and _by_words(facts, along, wide)
        and (form.bits or across or ((stored_down or block is not None) and tall % 4 == 0))
    )
    side, height = (wide, tall) if block is None else (lanes * wide, THREADS // lanes * tall)
    counts = tuple(ceil_div(axis.extent, side if k == 0 else height if k == row else 1) for k, axis in enumerate(axes))
    geometry = len(axes), along, row, wide, tall
    few = block is None and tall == 1 and not form.bits and math.prod(counts) <= FEWEST_THREADS
    policy = TilePolicy(
        *geometry,
        across,
        stored_down and block is None,
        by_words,
        facts.periodic,
        facts.counted,
        math.prod(counts) > MAX_NARROW,
        loads,
        equal,
        FEW_IN_BLOCK if few else THREADS,
        piece,
    )
    if block is not None:
        policy = TransposedPolicy(**vars(policy), lanes=lanes, in_words=in_words)
    return StridedChoice(policy, axes, counts)


def _run(axes: Sequence[Axis], row: int, facts: Facts, wide: int) -> tuple[int, int] | None:
    """Return the columns of a tile of bits that is a run of memory, and how many bytes a thread loads of it at once, 1
    if it begins anywhere; None if such a tile, ``wide`` columns or all of a few, is no run or too large."""
    columns, rows = axes[0], axes[row]
    inner = 1 < columns.extent == rows.steps[0] <= WORD_BYTES and columns.steps[0] == 1
    if inner and math.prod(axis.extent for axis in axes) >= MIN_TRANSPOSED:
        wide = columns.extent
    within = [rows, columns] if inner and wide == columns.extent else [rows]
    tile = min(ROWS_OF_BITS, rows.extent) * wide * facts.size
    if rows.steps[0] != wide or rows.extent == 1 or not WORD_BYTES <= tile <= MAX_RUN_BYTES or wide == 3:
        return None
    apart = [axis.steps[0] for axis in axes if axis.extent > 1 and all(axis is not each for each in within)]
    starts = math.gcd(tile, rows.extent * wide * facts.size, *(step * facts.size for step in apart))
    piece = 1 if facts.counted else min(facts.aligned, alignment(starts))
    if piece >= max(WORD_BYTES, 2 * facts.size):
        return wide, piece
    return (wide, 1) if piece < WORD_BYTES and tile >= MIN_ANY_RUN_BYTES else None


def _block(axes: Sequence[Axis], row: int, facts: Facts, wide: int) -> tuple[int, int] | None:
    """Return the lanes of a block whose results are stored in another order than its elements are read, and the rows of
    a thread's tile, ``wide`` columns across; None if lines would not be whole, or the array is small."""
    columns, rows = axes[0], axes[row]
    short = min(columns.extent * facts.size, rows.extent * facts.result) < SECTOR
    if short or math.prod(axis.extent for axis in axes) < MIN_TRANSPOSED:
        return None
    lanes = min(MAX_LANES, LINE_BYTES // (facts.size * wide), power_of_two(ceil_div(columns.extent, wide)))
    groups = THREADS // lanes
    tall = max(1, LINE_BYTES // (facts.result * groups))
    return lanes, min(tall, power_of_two(ceil_div(rows.extent, groups)))


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
    count = most // max(facts.size, 1 if stored_apart else facts.result)
    if facts.counted and columns is form.flagged:  # elements that do not count are not read
        return 1, False, "vector"
    if columns.steps[0] == 0 and not stored_apart:
        count = VECTOR_BYTES // facts.result
    while count > 1:
        loads = _fits(1, columns, axes, count, facts.size, facts.aligned, slice(0, 1)) and columns.extent % count == 0
        stores = _fits(1, columns, axes, count, facts.result, facts.result_aligned, slice(1, None))
        if (loads or columns.steps[0] == 0) and (stores or stored_apart):
            return count, stores and not down, "repeated" if columns.steps[0] == 0 else "vector"
        count //= 2
    count = WORD_BYTES // facts.result
    if (
        count > 1
        and not stored_apart
        and columns.extent % count == 0
        and abs(columns.steps[0]) * facts.size < LINE_BYTES
    ):
        if _fits(1, columns, axes, count, facts.result, facts.result_aligned, slice(1, None)):
            return count, True, "each"  # whole lines of results are written
    return 1, False, "vector"


def _height(axes: tuple[Axis, ...], row: int, facts: Facts, bits: bool, down: int, columns: int) -> int:
    """Return the rows of a tile. ``down`` is the largest tile whose results are stored down the rows, 0 if they are
    not."""
    extent = axes[row].extent
    if bits:
        return min(ROWS_OF_BITS, 1 << (extent - 1).bit_length())
    rows = min(MAX_ROWS, max(1, TILE_BYTES // (columns * facts.size)))
    if down:
        rows = min(max(1, DOWN_BYTES // facts.result), down // columns)
    while rows > 1 and rows // 2 >= extent:
        rows //= 2
    if rows < extent <= rows + rows // 2 and rows < MAX_ROWS and not down:
        rows *= 2  # not a second tile of few rows
    threads = math.prod(axis.extent for axis in axes) // columns
    while rows > (MIN_DOWN_ROWS if down else 2) and threads // rows < FEW_THREADS:
        rows //= 2
    return 1 if threads <= FEWEST_THREADS and not down else rows
