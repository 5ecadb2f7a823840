"""Which kernel flags strided arrays, and arrays along another axis than the last, with which sizes: a pure function of
extents, strides, types and alignment, not of the GPU."""

from __future__ import annotations

import math
from dataclasses import replace

from ...runtime.layout import Axis
from ...sizes import ceil_div
from ..hardware import LANES, LINE_BYTES, SECTOR_BYTES, VECTOR_BYTES, WORD_BYTES
from .ballots_policy import choose_ballots, choose_columns
from .boxes_policy import choose_boxes
from .fitted_policy import fit_tiles, loads_once
from .form import Form
from .order import FAR, pace_in
from .packed_policy import choose_packed
from .parts import in_parts
from .pitched_policy import choose_pitched
from .policy import ONE_VECTOR_THREADS, FlagPolicy, Problem, alignment, joins, vector_of
from .runs_policy import choose_runs
from .short_policy import choose_short
from .singles_policy import beats_tiles, in_singles
from .split_policy import choose_split
from .strided_choice import (
    LARGE,
    MAX_MOVED,
    MAX_NARROW,
    MIN_LARGE,
    WARPS,
    ColumnsPolicy,
    Facts,
    FlatPolicy,
    RowPolicy,
    ShortPolicy,
    StridedChoice,
    TilePolicy,
)
from .tile_policy import FEW_THREADS
from .turned_bits_policy import choose_turned_bits

MAX_EQUAL = 1 << 21  # elements of arrays whose items are equal: of more, threads with more results are faster
MAX_SINGLE = 8  # results of a thread that loads elements one by one, or of an array that is not large
# Up to so many elements, a short way counts, not the bytes of a load
FEW_ELEMENTS = ONE_VECTOR_THREADS * 3 // 2, ONE_VECTOR_THREADS * 4
# Of so few, a thread that loads less than a word has one (H200, tails int16 (448, 7, 58): 1.5 us, so 1.2 us; but of
# more, heads bool (61, 2, 2157): 1.4 and 1.6 us). Vectors are not cut to have more threads than are on the GPU at once
# (heads float32 (26, 11961): 2.0 us, so 1.6 us), but for two outputs (both int32 (8, 3, 14327): 2.2 and 2.8 us).
MAX_ONE, AT_ONCE = ONE_VECTOR_THREADS * 3 // 2, ONE_VECTOR_THREADS * 2
# More where neighbours along the axis lie in other lines (H200, tails int16 (83, 1593, 2) along its first axis: 1.8 us,
# so 1.3 us; but heads uint16 (60, 2, 5954) along its second, of two: 1.8 and 2.4 us)
FEW_APART = ONE_VECTOR_THREADS * 6, ONE_VECTOR_THREADS * 9
MIN_APART_BYTES, MIN_APART_BYTES_OF_WORDS = 8, 16  # of a vector, shorter than others, that lies in one slice
# Arrays without gaps of fewer elements of two bytes: a thread loads 16 bytes, not 32 (H200, both float16 (5, 500386)
# along its first axis: 6.7 us, so 5.0 us; but heads float16 (64, 12692, 93, 2) along its second: 120 and 128 us). So of
# four bytes, whose neighbours are joined from vectors, or loaded in pairs, where there are more (tails float32 (13,
# 227641), off by one: 6.1 us, joined 6.7 us; tails int32 (3268388, 7): 31.9 and 28.6 us; heads int32 (33554432, 2), in
# pairs: of four results 85.0 us, so 78.8 us, but both float32 (1490683, 18): 44.3 and 46.0 us).
MAX_HALF = 1 << 23
# Results of a thread, in long slices, whose two-byte keys are compared two at a time (H200, both int16 (243409, 187)
# along its first axis: one by one 64 us, so 55 us; of 8, or in short slices, 0.94 to 1.13 of that).
HALVES = 16
LONG_SLICE = 64  # vectors: most of them have no end of a row
MIN_FILLED = 0.6  # of the lanes' vectors, where a warp flags runs of a row
SHORT_OF_BITS, MIN_JOINED_ROW = 64, 1 << 12  # of shorter rows, a thread flags 32 of one; vectors are not joined
WIDE_BYTES = 128  # of a row of columns
MIN_INTERLEAVED_BYTES = 1 << 24  # more does not stay in the L2 cache until all rows that lie in a line are done
# Of rows of columns that are equal along the flagged axis (H200, tails bool (512, 65536, 4), repeated along its second
# axis: tiles 633 us, so 30 us), of an odd number of them up to so many, in long slices (both int64 (26243, 209, 11):
# 158 us, so 27 us; but both bfloat16 (215, 1090, 48): 6.3 and 11.3 us), of differences up to so many (int64 (15149,
# 624, 3): 126 us, so 52 us; but float16 (1, 39282, 51): 3.3 and 3.7 us)
MAX_COLUMNS_BYTES, MAX_ODD_BYTES, MAX_DIFFERENCES_BYTES = 16, 128, 32
# Elements so far apart, of which words hold several, are read as vectors of memory of so many bytes at least.
PACES, MIN_APART_WIDTH = (2, 4), 8
# Of so many bytes without gaps, or more, neighbours less than a word away are shifted words, and whole vectors share
# ends (H200, along their second axes, both int8 (67556, 143, 2): 22.0 us, so 16.9 us; both bool (131072, 2, 64):
# 16.9 us, so 13.9 us; but heads bool (850, 222, 2): 1.4 and 1.5 us; of more bytes, heads float16 (20759, 29, 16): 8.1
# and 8.3 us)
MIN_KNOWN = ONE_VECTOR_THREADS * 3
MIN_FAR_BYTES = 1 << 23  # of rows: neighbours are still in the L2 cache only if blocks take all rows in turn


def choose_strided(form: Form, facts: Facts) -> StridedChoice:
    """Return the policy and the launch of a problem."""
    choice = choose_short(form, facts) or choose_packed(form, facts) or _choose(form, facts)
    split = choose_split(form, facts) if isinstance(choice.policy, TilePolicy) else None
    found = split or _enlarged(choice, form, facts)
    return found if form.bits else in_parts(found, facts)


def _enlarged(choice: StridedChoice, form: Form, facts: Facts) -> StridedChoice:
    """Return the choice with large blocks if others move little, as elements repeat or rows are single bytes."""
    policy, axes = choice.policy, (form.flagged, *form.others)
    repeated = any(axis.steps[0] == 0 and axis.extent > 1 for axis in axes)
    if not (isinstance(policy, ShortPolicy) or (repeated and type(policy) in (TilePolicy, FlatPolicy, ColumnsPolicy))):
        return choice
    read = math.prod(axis.extent for axis in axes if axis.steps[0]) * facts.size
    moved = read + form.rows * form.results * facts.result * (len(form.flagged.steps) - 1)
    larger = replace(choice, policy=replace(policy, threads=LARGE))
    return larger if moved < choice.grid * MAX_MOVED and larger.grid >= MIN_LARGE else choice


def _choose(form: Form, facts: Facts) -> StridedChoice:
    """Return the same, with columns of one axis."""
    flat, rows = choose_flat(form, facts), choose_rows(form, facts)
    if rows is not None and (flat is None or _loads_more(rows, flat, facts)):
        return rows
    if flat is None:
        votes = choose_ballots(form, facts)
        if votes is not None:
            return votes
        tiles = fit_tiles(form, facts)
        whole = choose_columns(form, facts, tiles.policy) or choose_boxes(form, facts, tiles)
        whole = whole or choose_turned_bits(form, facts, tiles) or choose_runs(form, facts, tiles)
        return whole or choose_pitched(form, facts, tiles) or tiles
    few = form.rows * form.flagged.extent <= MAX_EQUAL and isinstance(flat.policy, FlatPolicy) and flat.policy.adjacent
    if form.flagged.steps[0] == 0 and few:  # a tile of equal items loads none
        return fit_tiles(form, facts)
    # Wide columns: a thread that goes along them loads an element once, where the others load its neighbour, too.
    distance, pace, flat = flat.axes[0].extent, pace_in(flat.axes[0]), in_singles(flat, facts)
    vectors = isinstance(flat.policy, FlatPolicy) and flat.policy.pace > 1
    if vectors or beats_tiles(flat, facts) or distance * facts.size < WIDE_BYTES:
        return flat
    tiles = fit_tiles(form, facts)
    # Joined words of two outputs are faster than vectors of an array without gaps (H200, both bool (10748, 288), off by
    # one, along its first axis: 5.5 us, so 3.9 us; but heads bool (36292, 528): 13.1 and 13.5 us).
    slow = ("spaced",) if len(form.flagged.steps) > 2 else ("spaced", "joined")
    columns = tiles.policy.columns if isinstance(tiles.policy, TilePolicy) and tiles.policy.loads not in slow else 1
    wide = columns * max(facts.size, facts.result) >= 8 or SECTOR_BYTES <= pace * facts.size < FAR
    return tiles if wide or loads_once(form, facts, tiles.policy, flat) else flat


def _loads_more(rows: StridedChoice, flat: StridedChoice, facts: Facts) -> bool:
    """Return whether vectors of rows are whole, and those of a flat array would be loaded in pieces. Of rows that are
    cut into periods, a thread of a flat array has fewer divisions for a result."""
    if not isinstance(rows.policy, RowPolicy) or not isinstance(flat.policy, FlatPolicy) or flat.policy.whole:
        return False
    if facts.periodic and flat.policy.piece * facts.size >= VECTOR_BYTES:
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
    vector, piece = vector_of(problem, 0, 0, length >= MIN_JOINED_ROW)
    narrow = VECTOR_BYTES // (vector * max(facts.size, flag))
    unroll = (1 if form.rows * length // vector <= ONE_VECTOR_THREADS else 2) * min(narrow, 8)
    while unroll > 1 and 2 * LANES * unroll * vector > length:
        unroll //= 2
    elements = LANES * unroll * vector
    runs = ceil_div(length, elements)
    if (length < SHORT_OF_BITS if form.bits else piece * facts.size < 4) or length < MIN_FILLED * runs * elements:
        return None
    count = runs * form.rows
    joined = length >= MIN_JOINED_ROW and joins(problem, vector, piece, 0)
    run = FlagPolicy(True, facts.periodic, vector, piece, unroll, WARPS, not facts.periodic, joined=joined)
    policy = RowPolicy(1 + len(others), run, facts.counted, count > MAX_NARROW, WARPS * LANES)
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
    following = inner.extent == 1 or flagged.steps[0] == inner.steps[0] * inner.extent
    columns = _are_few_columns(flagged, inner, facts)
    following |= columns
    one = flagged.extent == 1 and inner.extent * facts.size >= LINE_BYTES  # whose neighbours are those beside it
    if not one and (set(results) != {inner.extent} or not following):
        return None
    slices = flagged.extent * inner.extent
    pace = slices
    for axis in reversed(others):
        if set(axis.steps[1:]) != {pace}:
            return None
        pace *= axis.extent
    step, paces = abs(inner.steps[0]), [abs(axis.steps[0]) for axis in others if axis.steps[0]]
    large = form.rows * flagged.extent * facts.size >= MIN_INTERLEAVED_BYTES
    if step > min(paces, default=step) and (large or step * facts.size >= SECTOR_BYTES):
        return None  # neighbours lie in other lines, or rows in the same lines
    if columns:
        return _columns(facts, inner, slices, others[::-1])
    whole = inner.steps[0] == 1 and (not others or [axis.steps[0] for axis in others] == [slices])
    return _whole_rows(facts, inner, slices, others) or _flat(facts, inner, slices, others[::-1], whole)


def _are_few_columns(flagged: Axis, inner: Axis, facts: Facts) -> bool:
    """Return whether rows are a few columns that are equal along the flagged axis."""
    count, length = inner.extent, flagged.extent
    if count == 1 or length == 1 or flagged.steps[0] or facts.periodic or facts.counted:
        return False
    most, width = MAX_COLUMNS_BYTES, count * max(facts.size, facts.result)
    if count % 2 and facts.result > 1:
        most = MAX_DIFFERENCES_BYTES
    elif count % 2 and count * length >= LONG_SLICE * VECTOR_BYTES:
        most = MAX_ODD_BYTES
    return width < most


def _columns(facts: Facts, inner: Axis, slices: int, others: list[Axis]) -> StridedChoice:
    """Return the launch for rows of a few columns that are equal along the flagged axis. A thread has results side by
    side."""
    vector = VECTOR_BYTES // facts.result
    while vector > slices or facts.result_aligned % min(vector * facts.result, VECTOR_BYTES):
        vector //= 2
    total = slices * math.prod(axis.extent for axis in others)
    while vector > 1 and total < FEW_THREADS * vector:
        vector //= 2
    loads = False, False, slices >= LONG_SLICE * vector, False, 1, 1, False
    digits, wide = 1 + max(1, len(others)), total > MAX_NARROW
    policy = ColumnsPolicy(digits, vector, *loads, False, False, wide, equal=True)
    axes = (inner, *(others or [Axis(1, (0,) * len(inner.steps))]))
    return StridedChoice(policy, axes, (slices, *(axis.extent for axis in axes[1:])))


def _stepped(facts: Facts, step: int, most: int) -> int:
    """Return a thread's results if elements lie ``step`` apart: few lines a load, or one in sectors of their own (H200,
    heads int8, 32 apart: in fours 520 us, so 424 us; difference float32, 2 apart: singly 1268 us, in fours 736 us); as
    many as a vector has if a slice repeats one element."""
    if step == 0:
        return VECTOR_BYTES // facts.result
    if step * facts.size >= SECTOR_BYTES:
        return 1
    return most if (facts.result, step) == (WORD_BYTES, 2) else min(most, WORD_BYTES // min(facts.result, WORD_BYTES))


def _most(facts: Facts, slices: int, total: int, apart: list[Axis]) -> int:
    """Return the most results of a thread; fewer, but for few in all, if those lie in one of the slices that are
    ``apart`` (H200, both int16 (538, 4, 99, 24) reversed, along its third axis: 14.7 us, so 8.3 us)."""
    vector = min(SECTOR_BYTES // facts.size, VECTOR_BYTES // facts.result)
    if not apart or slices % vector == 0 or total <= ONE_VECTOR_THREADS * vector:
        return vector
    starts = math.gcd(slices, *(axis.steps[0] for axis in apart))
    least = (MIN_APART_BYTES if facts.size < WORD_BYTES else MIN_APART_BYTES_OF_WORDS) // facts.size
    return next((count for count in (vector // 2, vector // 4) if count >= least and starts % count == 0), vector)


def _piece(facts: Facts, starts: int, apart: bool) -> int:
    """Return the elements of a load, if slices begin at multiples of ``starts`` (0: anywhere), and lie ``apart``."""
    piece = VECTOR_BYTES // facts.size
    while facts.aligned % (piece * facts.size) or starts % piece:
        piece //= 2
    return 1 if apart and piece * facts.size < WORD_BYTES else piece


def _of_few(facts: Facts, total: int, vector: int, loaded: int, distant: bool, several: bool) -> int:
    """Return the results of a thread of an array of few, which loads so many bytes at once. A short way counts there,
    not the bytes of a load. ``several``: there are two outputs."""
    if total <= MAX_ONE and loaded < WORD_BYTES:
        return 1
    narrow = VECTOR_BYTES // max(facts.size, facts.result)
    vector = min(vector, narrow, MAX_SINGLE)
    few = (FEW_APART if distant else FEW_ELEMENTS)[facts.size == 1]
    if facts.size < WORD_BYTES >= loaded and not distant:
        few = few * 3 // 2
    pieces = narrow > 4 or loaded < VECTOR_BYTES
    while pieces and 1 < vector > WORD_BYTES // facts.size and total <= few:
        if 2 * total > vector * AT_ONCE and not several:
            break
        vector //= 2  # (H200, fewer than 2**17 elements: vectors of 8 and 16 1.6 to 2.7 us, of 1 and 4 1.0 to 1.4)
    return vector


def _whole_rows(facts: Facts, inner: Axis, slices: int, others: list[Axis]) -> StridedChoice | None:
    """Return the launch for rows of so few elements that a thread has whole ones, so that it knows where they end: of
    memory without gaps, each backwards, or of equal elements (H200, tails int32 (8, 13222787, 2) reversed: 501 us, so
    242 us; int64 (3000000, 2), repeated along its second axis: 15.2 and 2.7 us)."""
    if inner.extent > 1 or len(others) != 1 or facts.periodic or facts.counted:
        return None
    (rows,), equal = others, inner.steps[0] == 0
    if not equal and (inner.steps[0], rows.steps[0]) != (-1, slices):
        return None
    vector = min(VECTOR_BYTES // facts.result, VECTOR_BYTES if equal else SECTOR_BYTES // facts.size)
    while vector >= slices and facts.result_aligned % min(vector * facts.result, VECTOR_BYTES):
        vector //= 2
    if not 1 < slices <= vector // (1 + equal) or vector % slices:
        return None
    most, begin = (vector // slices, facts.begin) if equal else (vector, facts.begin - (slices - 1) * facts.size)
    piece = min(most, VECTOR_BYTES // facts.size)
    while begin % (piece * facts.size):
        piece //= 2
    piece = 1 if equal and rows.steps[0] != 1 else piece
    wide = slices * rows.extent > MAX_NARROW
    loads = False, False, False, True, piece, 1, False
    policy = FlatPolicy(2, vector, *loads, False, False, wide, equal=equal, row=slices)
    return StridedChoice(policy, (inner, rows), (slices, rows.extent))


def _piece_backwards(facts: Facts, starts: int) -> int:
    """Return the elements of a load that are taken backwards, if slices begin at multiples of ``starts``."""
    piece = VECTOR_BYTES // facts.size
    while (facts.begin - (piece - 1) * facts.size) % (piece * facts.size) or starts % piece:
        piece //= 2
    return 1 if piece * facts.size < WORD_BYTES else piece


def _apart(facts: Facts, inner: Axis, slices: int, others: list[Axis]) -> tuple[int, int]:
    """Return the results of a thread, and the elements of a load, where these lie a few apart and are read as vectors
    of memory that have what lies between; 1 and 1 if they are not."""
    pace = inner.steps[0]
    if pace not in PACES or pace * facts.size > WORD_BYTES or facts.counted:
        return 1, 1
    vector = min(VECTOR_BYTES // facts.result, SECTOR_BYTES // (pace * facts.size))
    while vector > 1 and ((others and slices % vector) or slices < vector):
        vector //= 2
    piece = min(vector, VECTOR_BYTES // (pace * facts.size))
    starts = math.gcd(*(axis.steps[0] for axis in others)) * facts.size
    width = piece * pace * facts.size
    if width < MIN_APART_WIDTH or facts.aligned % width or starts % width:
        return 1, 1
    if inner.extent > 1 and math.gcd(piece, inner.extent) == 1:  # neighbours would be loaded one by one
        return 1, 1
    return vector, piece


def _ends(facts: Facts, inner: Axis, slices: int, total: int, vector: int, packed: bool) -> dict:
    """Return what is known of the neighbours and the ends of a vector of bytes without gaps, compared by words."""
    if not packed or facts.size > 1 or inner.extent == 1 or facts.counted or total < MIN_KNOWN:
        return {}
    whole = vector > 1 and slices % vector == 0 == inner.extent % vector
    close = inner.extent < WORD_BYTES and total % WORD_BYTES == 0
    return {"close": close, "uniform": whole and slices < LONG_SLICE * vector}


def _flat(facts: Facts, inner: Axis, slices: int, others: list[Axis], whole: bool) -> StridedChoice:
    """Return the launch for slices of so many elements. ``others`` are the axes of slices, the fastest first."""
    total = slices * math.prod(axis.extent for axis in others)
    adjacent = inner.extent == 1
    unit = inner.steps[0] == 1 and not whole
    vector = _most(facts, slices, total, others if unit else [])
    if whole and facts.size == 2 and total < MAX_HALF:
        vector = min(vector, VECTOR_BYTES // facts.size)
    apart = unit and slices % vector == 0  # each vector lies in one slice
    starts = math.gcd(*(axis.steps[0] for axis in others))
    piece = _piece(facts, starts if apart else 0, apart) if whole or apart else 1
    if inner.steps[0] == -1 and not facts.counted and (slices % vector == 0 or not others):
        piece = _piece_backwards(facts, starts)
    back = inner.steps[0] == -1 and piece > 1
    spread, loaded = _apart(facts, inner, slices, others)
    piece = max(piece, loaded)
    near = math.gcd(piece, inner.extent)
    packed = apart and adjacent and not facts.counted and piece >= WORD_BYTES and facts.size == 1
    by_words = facts.by_words and (whole or packed) and not facts.periodic
    if abs(inner.steps[0]) != 1:
        vector = spread if spread > 1 else _stepped(facts, abs(inner.steps[0]), vector)
    elif facts.size >= 4 and min(piece, near) * facts.size < VECTOR_BYTES:
        many = whole and not adjacent and (near * facts.size < 2 * WORD_BYTES or len(inner.steps) == 2)
        many |= adjacent and piece * facts.size == VECTOR_BYTES
        vector = vector if many and total >= MAX_HALF else min(vector, 4)  # loads of single elements, far apart
    far = whole and inner.extent * facts.size >= MIN_FAR_BYTES and slices > inner.extent
    single = inner.steps[0] and piece * facts.size < WORD_BYTES  # elements are loaded one by one
    crossing = slices % vector != 0 and slices < LONG_SLICE * vector  # many vectors have elements of two slices
    if single and not far and (facts.size > 1 or crossing or slices <= LONG_SLICE):
        vector = min(vector, MAX_SINGLE)
    if total <= ONE_VECTOR_THREADS * vector:
        distant = whole and inner.extent * facts.size >= LINE_BYTES and (slices > 2 * inner.extent or not others)
        vector = _of_few(facts, total, vector, min(piece, near) * facts.size, distant, len(inner.steps) > 2)
    while vector > slices or facts.result_aligned % min(vector * facts.result, VECTOR_BYTES):
        vector //= 2
    long = slices >= LONG_SLICE * vector and not facts.periodic
    by_words = by_words and (vector % 4 == 0 if facts.size == 1 else long and not adjacent and vector == HALVES)
    equal = adjacent and inner.steps[0] == 0 and not (facts.periodic or facts.counted)
    policy = FlatPolicy(
        1 + max(1, len(others)),
        vector,
        whole,
        inner.steps[0] == 1,
        long,
        adjacent,
        min(piece, vector),
        min(near, vector),
        by_words,
        facts.periodic,
        facts.counted,
        total > MAX_NARROW,
        far,
        equal,
        back=back,
        pace=inner.steps[0] if min(loaded, vector) > 1 else 1,
        even=facts.periodic and facts.even and not facts.counted,
        **(_ends(facts, inner, slices, total, vector, by_words and piece >= WORD_BYTES) if whole else {}),
    )
    axes = (inner, *(others or [Axis(1, (0,) * len(inner.steps))]))
    return StridedChoice(policy, axes, (slices, *(axis.extent for axis in axes[1:])))
