"""Which arrays are scanned in whole outer slices, or element by element, and with which sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ...runtime.layout import Axis
from ...sizes import ceil_div, power_of_two, power_of_two_below
from ..hardware import LANES, LINE_BYTES, SMS, VECTOR_BYTES, WORD_BYTES
from ..policy import Policy
from . import column_policy, short_policy
from .layout import MAX_ROWS, STEPS, Layout
from .problem import MIN_RAGGED_ROW, MIN_VECTOR_BYTES, Choice, Problem

SLICE_THREADS, SINGLE_THREADS = 256, 256
# Bytes of a tile's elements and results in shared memory, and tiles per SM: large tiles where no slice fits a small
# one, the smallest of small elements scanned in place, which more blocks load while others scan (H200, max uint8
# (120019, 63, 2): 18.2 us, so 13.9 us; uint16 (19530, 721, 4): 123 and 101 us; but int32 (324693, 45): 33 and 38 us).
SMALLEST_TILES, SMALL_TILES, LARGE_TILES = (1 << 14, 6), (1 << 15, 4), (100 << 10, 2)
MIN_SEGMENT = 16  # positions of a piece: shorter ones cost more to exchange than they save
WIDE_STATE_WORDS, WIDEST_STATE_WORDS = 4, 8  # with larger states an SM holds fewer blocks
MIN_SLICES, LONG_SLICE_BYTES = 64, 1 << 13  # fewer slices that are longer leave too many SMs idle
# Longer rows leave most threads without a piece (H200, max int32 (2048, 16384) off by one: 146 us, as tiles 86 us)
MAX_ROW_BYTES = 1 << 15
# Strided arrays: small ones, longer rows, and shorter columns in vectors do as well where they lie (H200, max int8
# (276, 6324) backwards: 5.0 us, in outer slices 10.3 us; max int32 (8, 4096, 2, 8): 1.7 us, so 3.0 us; lambda int32
# (313, 96, 67, 4): 41.7 us, so 19.1 us; inclusive int32 (5, 6876, 785): 111 us, so 64 us).
MIN_STRIDED_BYTES, MAX_ROW, MAX_COLUMN_ROWS = 1 << 20, 1024, 32
FEW_COLUMNS = 4  # long slices of so many columns are streamed
# Inputs of slices that have gaps, which are copied, too, are at most so many times their elements. Rows are short, and
# positions of whole words that run backwards along columns few (H200, max bool (2, 32247987, 3), 5 apart: 558 us in
# strided tiles, 287 us so; int16 (9, 32116, 90, 3) backwards along its last axis: 250 and 134 us; but bfloat16 (11876,
# 6, 79), 237 apart: 14 and 21 us; int16 (1103758, 109), 167 apart: 175 and 214 us; int16 (4096, 128, 128) backwards
# along its last axis: 70 and 106 us; bfloat16 (16, 32, 8192, 2), 3 apart: 18 and 29 us).
MAX_SPREAD, MAX_ROW_APART, MAX_WORDS_APART, MAX_LENGTH_APART = 2, 72, 4, 4096
# So many times where rows lie no further apart than lines, which are read whole in any case (H200, max int8 (93216, 18,
# 13) of rows of 30: 57.0 us, so 30.6 us; uint8 (26391, 18, 21) of 60: 41.0 and 22.1 us).
MAX_SPREAD_IN_LINES = 4
MIN_RUN_BYTES = 1 << 10  # of slices that are one run of memory, in strided arrays
# Tiles begin anywhere in a vector if there would be fewer than so many of slices that are no shorter than this (H200,
# exclusive int8 (120, 190, 9): 3.9 us, so 2.3 us; max uint16 (511, 29, 9): 1.9 us, so 2.4 us).
FEW_TILES, MIN_ANYWHERE_BYTES = 17, 3 << 9
# From so many bytes on columns that no words hold whole are scanned in slices (H200, bool (2, 917, 26, 137): 22.6 us,
# so 9.0 us; float16 (77, 5, 129): 1.4 us, so 2.6 us).
MIN_ODD_BYTES = 1 << 20
SINGLE_BYTES, MAX_SINGLE_VECTORS = 64, 4  # of a thread
# Bytes of vectors that have whole slices, and of arrays of them whose elements have two bytes (H200, bool (1806447, 6):
# 18.0 us, so 8.4 us; float16 (543229, 6): 7.6 and 5.8 us; but int16 (21584350, 3): 70 and 87 us; of 80 bytes uint8
# (91402, 5): 1.7 and 2.2 us).
MAX_FEW_BYTES, MAX_BYTES_OF_PAIRS = 48, 8 << 20
# Of two bytes, where vectors are joined, in arrays of any size (H200, off by one: max float16 (8388608, 8, 2): 192 us,
# so 132 us; (1848759, 8, 2) along axis 1: 46.0 and 30.4 us; of one byte bool (47294822, 2): 118 and 47.5 us; uint8
# (200000, 2): 2.5 and 1.1 us).
MAX_JOINED_BYTES = 32
# Between rows of small elements that are copied with their gaps, but for those that ``short_policy`` has (H200, max
# int16 of 44 elements, 60 apart: 47.1 us, so 20.3 us; exclusive bool, 41 of 44: 1061 us, so 224 us; inclusive uint8, 71
# of 101: 295 us, so 176 us; but lambda float16, 128 of 195: 90 us, so 146 us; int32, 4 of 5: 13.5 us, so 15.8 us;
# uint8, 4 of 6: 11.8 us, so 24.7 us).
MAX_GAP_BYTES = 64
# Rows of columns that no words hold whole, in so many slices that lie apart (H200, lambda int16 (90000, 20, 15) of rows
# of 17: 143 us as ragged columns, so 36.2 us; max uint8 (74357, 3, 31) of 32, in slices of 320: 91 and 15 us; max
# int16 (4875, 20, 151) of 159: 27.6 and 21.3 us; but max uint8 (256, 256, 32) of 38: 3.1 and 5.3 us), of short columns
# from so many bytes on (int16 (1800, 6, 55) of 57: 2.9 and 3.4 us), or in the opposite order, if they are no longer
# than lines and columns are not short (lambda uint16 (5615, 224, 9): 35.2 and 23.5 us).
MAX_RAGGED_BYTES, MIN_RAGGED_SLICES, MIN_RAGGED_LENGTH, MIN_SHORT_BYTES = 512, 1 << 10, 8, 2 << 20
# Rows of words, whose columns are not short (exclusive float64 (52029, 52, 2) of rows of 4: 91 us, so 51 us; uint32
# (78705, 16, 5) of 7: 32.5 and 22.5 us; but int64 (21790, 30, 7) of 9: 28.0 and 30.4 us; uint32 (19603, 3, 5) of 6: 2.2
# and 2.7 us).
MAX_ROW_OF_WORDS = 40
# Rows of which each begins elsewhere in a vector have slower ends than others: shorter ones are slices.
MIN_UNLIKE_ROW = 512
# Rows of words of small arrays are loaded word by word (H200, inclusive float32 (256, 32) off by one: 2.9 us, so 0.8
# us; (5919, 59): 3.1 and 1.7 us; lambda int32 (2503, 125): 3.2 and 1.5 us; larger ones are not measured).
MAX_WORDS_BYTES = 3 << 19
# Rows of vectors of short slices that threads have alone: so few of them (H200, reverse bool (131072, 2, 64): 16.9
# us, so 9.5 us; max uint8 (50012, 3, 24): 5.3 and 3.7 us), or more that have so many bytes (max uint16 (5781, 8, 40):
# 4.8 and 3.7 us; exclusive float16 (30462, 16, 32): 18.5 and 17.9 us; but exclusive uint16 (47207, 8, 12): 9.0 and
# 12.8 us; float32 (65536, 8, 8): 12.1 and 13.0 us; reverse int8 (11051, 31, 80): 17.4 and 20.7 us), from nine on if
# they are not in small arrays, where these have more warps (lambda int32 (2, 17, 10): 1.3 and 2.3 us); up to eight of
# half as many bytes in arrays of up to 4 MiB (bfloat16 (14009, 5, 16): 4.3 and 2.7 us; int8 (7321, 6, 32): 2.5 and 2.2
# us).
MAX_ALONE_ROWS, MIN_ALONE_BYTES = 4, 16
MAX_MORE_ALONE_ROWS, MIN_MORE_ALONE_BYTES, MAX_SMALL_ALONE_ROWS, MIN_ALONE_ARRAY = 16, 64, 8, 1 << 20
MIN_SHORT_ALONE_BYTES, MAX_ALONE_ARRAY = 32, 4 << 20


@dataclass(frozen=True)
class SlicePolicy(Policy, kernel=".slices:SliceScan"):
    """Tiles of whole outer slices of at most ``capacity`` elements. Up to ``segments`` threads, a power of two, share a
    column: as many as there are for all columns of a tile. ``aligned``:
    every tile of the inputs begins on a boundary of 16 bytes; ``aligned_out``: every tile of the outputs does.
    ``mirrored``: the inputs run backwards along a slice's positions. ``apart``: the inputs have gaps between their
    slices or in them, or these run backwards. ``between``: their stride between columns."""

    segments: int
    capacity: int
    aligned: bool
    aligned_out: bool
    blocks_per_sm: int
    mirrored: bool = False
    apart: bool = False
    between: int = 1


@dataclass(frozen=True)
class SinglePolicy(Policy, kernel=".single:SingleScan"):
    """Outer slices of which a vector, or a few side by side, has one or several, of ``length`` positions and ``inner``
    columns: ``unroll`` times ``width`` elements a thread. ``joined``: vectors begin anywhere in the input, and are
    joined from two each."""

    width: int
    unroll: int
    aligned_out: bool
    length: int = 1
    inner: int = 1
    joined: bool = False


def single(problem: Problem) -> Choice | None:
    """Return the policy and the launch of a scan of outer slices that fit a vector, or of small elements a few vectors;
    None for others, and for rows that do as well by vectors of 8 bytes."""
    each = problem.length * problem.inner
    if each * problem.wide > MAX_FEW_BYTES:
        return None
    width = _unit_of_runs(problem, each)
    if width == 0:
        return None
    if each > 1 and (problem.indexed or problem.counted or (problem.inner == 1 and each == width)):
        return None
    joined = False
    if width % each:
        joined = problem.view is None and width < problem.items
        width = _few_vectors(problem, each, joined)
        if width == 0:
            return None
    count = problem.rows * each
    aligned = problem.view is not None or problem.aligned(math.gcd(width, problem.items)) == 0
    unroll = max(1, min(MAX_SINGLE_VECTORS, SINGLE_BYTES // (width * problem.position_bytes)))
    while unroll > 1 and ceil_div(count, width * unroll * SINGLE_THREADS) < SMS:
        unroll //= 2
    policy = SinglePolicy(width, unroll, aligned, problem.length, problem.inner, joined)
    return Choice(policy, 1, ceil_div(count, width * unroll * SINGLE_THREADS))


def _few_vectors(problem: Problem, each: int, joined: bool) -> int:
    """Return how many small elements the fewest vectors have that are whole slices of ``each``; 0 if these are too many
    for a thread, or do not begin on boundaries, or other kernels load rows in vectors."""
    items = problem.items
    if problem.inner == 1 and problem.vector(each)[0] * problem.wide >= MIN_VECTOR_BYTES:
        return 0
    aligned = problem.aligned(items) == 0
    if problem.view is not None:
        unit, items = _unit_of_runs(problem, each), MIN_VECTOR_BYTES // problem.wide
        aligned = math.lcm(each, items) % (2 * items) != 0 or unit > items  # they are copied as vectors of this
    whole = math.lcm(each, items)
    few = problem.size_of_results <= MAX_BYTES_OF_PAIRS or (joined and whole * problem.wide <= MAX_JOINED_BYTES)
    small = problem.wide == 1 or (problem.wide == 2 and few)
    small &= not problem.several and whole * problem.wide <= MAX_FEW_BYTES
    fits = not joined or (problem.apart and problem.sources == problem.results and not problem.skewed)
    return whole if small and aligned and fits else 0


def _unit_of_runs(problem: Problem, each: int) -> int:
    """Return the largest vector that is aligned in the inputs where slices of ``each`` elements that follow each other
    in memory begin; 0 if slices lie apart in strided arrays, or vectors of theirs are narrow."""
    if problem.view is None:
        return problem.vector(problem.items)[0]
    x, out = problem.pitches
    together = x[1:] == out[1:] == ((problem.inner, each) if problem.inner > 1 else (each,))
    plain = problem.sources == problem.results and not (problem.several or problem.counted or problem.firsts)
    if problem.view != "pitched" or not (together and plain):
        return 0
    steps = x[0], out[0], problem.far, problem.group * each
    places = *problem.xs, *problem.outs, *(n * problem.source for n in steps)
    unit = math.gcd(VECTOR_BYTES, *places) // problem.wide
    return unit if unit * problem.wide >= MIN_VECTOR_BYTES else 0


def slices(problem: Problem) -> Choice | None:
    """Return the policy and the launch of a scan in whole outer slices, None where another kernel is better."""
    return _slices(problem) if _suits(problem) and _dense(problem) else None


def ragged_slices(problem: Problem, layout: Layout) -> Choice | None:
    """Return the same for many slices of narrow rows, of small elements those that no words hold whole; None for
    others."""
    if problem.view != "pitched" or problem.inner == 1 or problem.rows < MIN_RAGGED_SLICES:
        return None
    if column_policy.is_joined(problem):
        return None
    row_bytes, gaps = problem.inner * problem.wide, problem.pitches[0][1] > problem.inner
    if problem.wide >= WORD_BYTES:
        fits = gaps and row_bytes < MAX_ROW_OF_WORDS and problem.length >= MIN_RAGGED_LENGTH
    elif problem.vector(problem.inner)[0] * problem.wide >= WORD_BYTES:
        fits = False
    else:
        long = problem.length >= MIN_RAGGED_LENGTH
        fits = gaps and row_bytes < MAX_RAGGED_BYTES and (long or problem.size_of_results >= MIN_SHORT_BYTES)
        fits = fits or (long and row_bytes < LINE_BYTES)
    found = slices_apart(problem, layout) if fits else None
    return found[0] if found else None


def slices_apart(problem: Problem, layout: Layout) -> tuple[Choice, tuple[int, int, int]] | None:
    """Return the same and the extents for slices with gaps between positions or columns of the inputs, each with the
    gap behind it; None for others."""
    if problem.several or problem.counted or layout.firsts or len(layout.scanned) != 1:
        return None
    length, (x_step, out_step) = layout.scanned[0]
    columns, inner, between = list(layout.columns), 1, 1
    if columns and out_step == columns[-1].extent and columns[-1].steps[1] == 1:
        inner, (between, _) = columns.pop()
    if out_step != inner or length > MAX_LENGTH_APART or not 1 <= len(columns) <= 2:
        return None
    if not _gains(problem, (length, x_step), (inner, between)):
        return None
    group, (x_next, out_next) = columns.pop()
    rows, (x_row, out_row) = columns.pop() if columns else Axis(1, (0, 0))
    each, span = length * inner, (length - 1) * abs(x_step) + (inner - 1) * abs(between) + 1
    lines = between == 1 < inner and abs(x_step) * problem.source <= LINE_BYTES
    near = out_next == each and span <= abs(x_next) <= (MAX_SPREAD_IN_LINES if lines else MAX_SPREAD) * each
    large = layout.count * length * problem.results[0] >= MIN_STRIDED_BYTES
    count = rows * group
    if not near or not large or not MIN_SLICES <= count < MAX_ROWS or group * each * problem.wide < MIN_RUN_BYTES:
        return None
    pitches = (x_row, x_step, x_next), (out_row, out_step, out_next)
    found = _slices(replace(problem, rows=count, inner=inner, view="pitched", pitches=pitches, group=group), between)
    if found is None:
        return None
    steps = x_row, x_step, out_row, out_step, group, x_next, out_next
    return replace(found, layout=dict(zip(STEPS, steps)), view="pitched"), (count, length, inner)


def _gains(problem: Problem, positions: tuple[int, int], columns: tuple[int, int]) -> bool:
    """Return whether slices are faster than strided tiles. Positions and columns are given as extents and strides."""
    (length, x_step), (inner, between) = positions, columns
    if inner == 1:
        return abs(x_step) == 1 and length <= MAX_ROW_APART
    if between == 0 or abs(x_step) <= abs(between):
        return False
    if between < 0 and inner * problem.wide >= VECTOR_BYTES and inner * problem.wide % WORD_BYTES == 0:
        return length <= MAX_WORDS_APART  # longer ones are read backwards by words
    return abs(between) == 1 or problem.wide == 1


def _slices(problem: Problem, between: int = 1) -> Choice | None:
    """Return the policy and the launch; None if tiles do not hold slices."""
    mirrored = _is_mirrored(problem)
    each = problem.length * problem.inner
    step = _step(problem)  # from slice to slice of the inputs
    row = abs(problem.pitches[0][1]) if len(problem.pitches[0]) > 2 else problem.inner  # from position to position
    apart = step != each or row != problem.inner or between != 1
    sizes = _buffers(problem, mirrored or apart)
    room = abs(step)  # elements
    if any(is_padded(n * size, problem.inner * size) for size in sizes for n in {room, each}):
        room += max(VECTOR_BYTES // size for size in sizes)
    # so many slices are a multiple of 16 bytes of every array
    slices_of = [*(step * size for size in problem.sources), *(each * size for size in problem.results)]
    unit = max(VECTOR_BYTES // math.gcd(VECTOR_BYTES, n) for n in slices_of)
    tile_bytes, blocks = SMALL_TILES if room * sum(sizes) <= SMALL_TILES[0] else LARGE_TILES
    if len(sizes) == 1 and problem.wide < WORD_BYTES and max(2, unit) * room * sum(sizes) <= SMALLEST_TILES[0]:
        tile_bytes, blocks = SMALLEST_TILES
    capacity = tile_bytes // sum(sizes)
    group = problem.rows if problem.view is None else problem.group  # slices that are one run of memory
    most = capacity // room
    aligned, aligned_out = _aligned(problem)
    aligned = aligned and not mirrored and min(step, between) > 0
    if unit > 1 and _anywhere(problem, most, unit, blocks, aligned or aligned_out):
        unit, aligned, aligned_out = 1, False, False
    if most < unit or (blocks == LARGE_TILES[1] and problem.rows < 2 * SMS):
        return None
    count = min(most // unit, max(1, ceil_div(problem.rows, unit * 2 * SMS))) * unit
    if problem.view is not None:
        count = ceil_div(ceil_div(group, ceil_div(group, count)), unit) * unit  # about as many in each tile of a group
    tiles = problem.rows // group * ceil_div(group, count)
    columns = count * problem.inner
    segments = min(power_of_two(SLICE_THREADS // columns), power_of_two_below(problem.length // MIN_SEGMENT))
    blocks -= (problem.words > WIDE_STATE_WORDS) + (problem.words > WIDEST_STATE_WORDS)
    policy = SlicePolicy(segments, capacity, aligned, aligned_out, max(1, blocks), mirrored, apart, between)
    return Choice(policy, count, tiles)


def _anywhere(problem: Problem, most: int, unit: int, blocks: int, aligned: bool) -> bool:
    """Return whether tiles begin anywhere in a vector: a tile does not hold the ``unit`` slices of a multiple of
    vectors and other kernels read parts of lines, or tiles of so many slices would leave SMs idle."""
    if problem.counted:
        return False
    if most < unit:
        rows = problem.inner == 1 and len(problem.pitches[0]) < 3
        narrow = not rows and problem.inner * problem.wide < LINE_BYTES and problem.rows >= 2 * SMS
        return narrow and (blocks > LARGE_TILES[1] or problem.inner > FEW_COLUMNS)
    if not aligned or (problem.view is not None and problem.group < unit):
        return True
    few = problem.rows < unit * FEW_TILES
    return few and problem.length * problem.inner * problem.source >= MIN_ANYWHERE_BYTES


def _is_mirrored(problem: Problem) -> bool:
    """Return whether the inputs run backwards along a slice's positions."""
    if len(problem.pitches[0]) > 2:
        return problem.pitches[0][1] < 0
    return problem.view == "mirrored"


def _dense(problem: Problem) -> bool:
    """Return whether several slices are one run of memory in the inputs, and one in the outputs."""
    if problem.view is None:
        return True
    x, out = problem.pitches
    each = problem.length * problem.inner
    width = problem.vector(problem.inner if problem.inner > 1 else each)[0] * problem.wide
    if problem.inner == 1 and (width == each * problem.wide or problem.length > MAX_ROW):
        return False  # a thread scans a row as one vector, or several blocks a row
    if problem.inner > 1 and problem.length <= MAX_COLUMN_ROWS and width >= MIN_VECTOR_BYTES:
        return False  # a thread scans vectors of columns alone
    steps = problem.inner == 1 or (abs(x[1]) == problem.inner and out[1] == problem.inner)
    near = x[-1] == each or (problem.inner == 1 and _near(problem, x[-1]))
    several = problem.group > 1 and near and out[-1] == each and problem.group * each * problem.wide >= MIN_RUN_BYTES
    large = problem.size_of_results >= MIN_STRIDED_BYTES
    return steps and several and large and not (problem.counted or problem.several)


def _near(problem: Problem, step: int) -> bool:
    """Return whether rows ``step`` elements apart are copied with the gaps between them: these are short, and no other
    kernel accesses words of the rows, or has them in a thread's registers."""
    gap, row_bytes = (abs(step) - problem.length) * problem.source, problem.length * problem.wide
    if gap == 0:
        return not problem.ragged or problem.source < WORD_BYTES
    held = step > 0 and problem.length <= short_policy.MAX_LENGTH and row_bytes <= short_policy.MAX_BYTES
    return 0 < gap <= MAX_GAP_BYTES and problem.source < WORD_BYTES and not held


def _step(problem: Problem) -> int:
    """Return how many elements of the inputs lie from the beginning of a slice to that of the next of its group."""
    return problem.length * problem.inner if problem.view is None else problem.pitches[0][-1]


def _aligned(problem: Problem) -> tuple[bool, bool]:
    """Return whether all groups begin on boundaries of 16 bytes, those of the inputs and those of the outputs."""
    groups = [pitches[0] if pitches else 0 for pitches in problem.pitches]
    places = (problem.xs, problem.sources, groups[0]), (problem.outs, problem.results, groups[1])
    x, out = ([*at, *(pitch * size for size in sizes)] for at, sizes, pitch in places)
    x += [problem.far * size for size in problem.sources]
    return not any(n % VECTOR_BYTES for n in x), not any(n % VECTOR_BYTES for n in out)


def _has_vectors(problem: Problem) -> bool:
    """Return whether threads scan vectors of a few columns of contiguous slices alone."""
    size = problem.size_of_results
    most = MAX_MORE_ALONE_ROWS if size >= MIN_ALONE_ARRAY else MAX_SMALL_ALONE_ROWS
    short = problem.length <= MAX_SMALL_ALONE_ROWS and size <= MAX_ALONE_ARRAY
    least = MIN_SHORT_ALONE_BYTES if short else MIN_MORE_ALONE_BYTES
    least = MIN_ALONE_BYTES if problem.length <= MAX_ALONE_ROWS else least
    if problem.view is not None or problem.length > most or problem.inner * problem.wide < least:
        return False
    return problem.vector(problem.inner)[0] * problem.source >= MIN_VECTOR_BYTES and column_policy.alone(problem)


def is_padded(slice_bytes: Any, row_bytes: Any) -> Any:
    """Return whether slices lie further apart in shared memory than in global memory. Also for the device's numbers."""
    return (slice_bytes % (2 * VECTOR_BYTES) == 0) & (row_bytes < LINE_BYTES)


def _buffers(problem: Problem, apart: bool) -> list[int]:
    """Return the size of an element of each buffer: results of the size of their input, in the same order, need none
    unless ``apart``."""
    shared = list(problem.sources)
    for k, size in enumerate(problem.results):
        if apart or k >= len(problem.sources) or problem.sources[k] != size:
            shared.append(size)
    return shared


def _suits(problem: Problem) -> bool:
    """Return whether no other kernel reads whole lines: rows that are no multiple of vectors, and columns that are
    narrower than a line or, in longer slices, too few for a thread each."""
    if problem.rows < (MIN_SLICES if problem.length * problem.inner * problem.wide > LONG_SLICE_BYTES else 2):
        return False
    if problem.inner == 1:
        if problem.skewed or problem.length * problem.wide > MAX_ROW_BYTES:
            return False
        items, _ = problem.vector(problem.length)
        small = problem.wide <= 2 and not (problem.counted or problem.several)
        least = MIN_RAGGED_ROW if problem.alike else MIN_UNLIKE_ROW
        if small and problem.ragged and problem.length > least and problem.shift is not None:
            return False
        words = problem.wide == WORD_BYTES and not (problem.counted or problem.several)
        if words and problem.size_of_results <= MAX_WORDS_BYTES:
            return False
        short = problem.length <= LANES * items  # other kernels take a warp for a row of which not all elements count
        return items * problem.wide < MIN_VECTOR_BYTES or (problem.counted and short)
    if column_policy.is_joined(problem):
        return False
    if problem.inner * problem.wide < LINE_BYTES or problem.length > 32:
        return not _has_vectors(problem)
    words = problem.vector(problem.inner)[0] * problem.wide >= WORD_BYTES  # that hold whole columns
    return not words and problem.size_of_results >= MIN_ODD_BYTES and not column_policy.is_skewed(problem)
