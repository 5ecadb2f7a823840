"""Which kernel reduces an array, with which sizes: a pure function of lengths, types and alignment, not of the GPU.

The thresholds were measured on an H200. As they do not depend on the GPU, neither does any result.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ...runtime.workspace import GROUPS, SLOTS
from ...sizes import ceil_div, power_of_two, power_of_two_below
from ..hardware import SMS, VECTOR_BYTES
from .problem import Choice, ColumnPolicy, NarrowPolicy, Problem, SegmentPolicy, ShortRowPolicy, WholeRowPolicy

CHUNK_BYTES = 32 * 8 * VECTOR_BYTES  # a warp of SegmentReduce reduces this much in one step, with unroll 8
# Smaller chunks of states that are costly to combine, in arrays that are not large: words, bytes, vectors of a lane,
# chunks of a block
COSTLY_WORDS, MAX_COSTLY_BYTES, COSTLY_UNROLL, COSTLY_CHUNKS = 3, 1 << 23, 4, 4
SMALL_BYTES = 1 << 16  # up to 64 KiB, one block is faster than several that combine their partials
LARGE_BYTES = 1 << 27  # from 128 MiB on, 16 warps per block with 4 loads in flight read faster than 8 with 8
# A warp loads so much at once: shorter rows have a few lanes, or their runs, each; so have up to so long ones of whole
# vectors off a boundary, if they are many (H200, sum uint16 (8192, 2048) off by one: 12.8 us, so 10.5 us; argmax
# float64 (2655, 878): 8.1 and 6.7 us; but lambda uint8 (3860, 12048): 14.1 us by both).
MIN_WARP_ROW_BYTES, MAX_OFF_BYTES = 2048, 8192
# Rows of so many chunks have a block each (H200, lambda float64 (4096, 16384): 140 us by warps, so 120 us) but for many
# of costly states (argmax float32 (12442, 17932): 201 us, so 228 us).
MIN_BLOCK_CHUNKS, MIN_WARP_ROWS = 8, 16 * SMS
# Shorter ones of so many bytes have four warps each if the blocks of all run at once (H200, sum uint16 (512, 8192) off
# by one: 9.1 us, so 4.6 us; bfloat16 (265, 2048): 1.69 and 1.40 us; but argmax uint8 (2882, 4400): 6.1 and 7.0 us).
# Of twice as many rows of more bytes, too (argmax bfloat16 (4, 284, 14910): 19.4 us, so 12.1 us; sum bfloat16 (1352,
# 10225): 11.1 and 9.7 us; lambda uint16 (2079, 14254): 16.9 and 16.3 us).
MIN_FEW_ROW, MAX_FEW_ROWS, MIN_FEW_LONG, MAX_FEW_LONG = 3072, 8 * SMS, 1 << 14, 16 * SMS
# Short rows in order are read in chunks of 1 KiB by twice as many warps (H200, lambda uint16 (32768, 512): 13.8 us, so
# 9.3 us; int64 (2686, 20, 109): 24.3 and 17.9 us; but float32 (989, 359): 1.54 and 1.77 us).
MAX_SHORT_CHUNK = 1024
SHORT_ROW_BYTES = 512  # up to this, a row is reduced by at most one warp
MAX_CHUNK_WORDS = 96  # registers of a lane for vectors and their states, of 16 warps on a multiprocessor
# Bytes of odd columns are read in words, for sums if they are many; so are halves in even rows, or in few (H200, max
# uint8 (75, 238284): 31 us, so 8.2 us; sum bool (3990, 1220): 9.4 and 6.8 us; but (739, 4358): 6.3 and 7.5 us; squares
# uint16 (7554, 7964): 63 and 37 us; max bfloat16 (144, 28389): 9.1 and 6.3 us; but (66309, 683): 34 and 53 us).
MIN_SUM_BYTES, MAX_ODD_HALVES = 1 << 22, 256
# Slices of few columns: shorter ones leave most lanes without rows, but pairs are read in narrower vectors otherwise
# (H200, sum bool (1092, 26864, 2): 92 us, so 28 us; but of vectors max uint64 (4096, 1024, 2): 17 and 25 us; sum bool
# (2048, 4096, 8): 26 and 34 us).
NARROW_BYTES, SHARE_OF_PAIRS = 1 << 16, 4
# Bytes of wide elements in order that are read as two or more vectors of columns (H200, lambda float64 (135406, 4): 5.5
# us, so 4.7 us; float32 (305417, 12): 11.2 and 8.0 us; but int64 (4173491, 2): 22.2 and 25.6 us).
MIN_ORDERED_BYTES, MAX_ORDERED_BYTES = 1 << 22, 1 << 25
# Of small arrays, slices of up to eight times as many bytes are read by more blocks, as vectors or elements of columns
# (squares int16 (12144, 16): 5.3 us, so 2.5 us; max int16 (3, 23824, 2): 3.4 and 2.4 us; sum int8 (9, 27613, 3): 4.8
# and 3.3 us), and one slice of twice as many (argmax int16 (112768, 4): 5.4 and 3.6 us; but sum int8 (2, 121632, 8):
# 4.5 and 5.1 us). More slices than these are so of small states and elements alone (sum int16 (5, 7920, 8): 5.0 and 2.7
# us; but argmax float32 (5, 21600, 4): 5.2 and 5.9 us; sum float32 (5, 2880, 12): 3.2 and 3.3 us).
MORE_OF_SMALL, MAX_SMALL_BYTES, FEW_SLICES = 8, 1 << 21, 2
# One slice of whole vectors of small elements is read as vectors of columns in arrays of up to so many bytes, and of
# keys (H200, sum bfloat16 (119786, 16): 5.8 us, so 4.7 us; argmax uint16 (730901, 16): 17.8 and 13.1 us; but sum
# float16 (227224, 16): 6.4 and 7.3 us; max int8 (1244803, 16): 9.7 and 10.9 us).
MAX_VECTORS_BYTES = 1 << 22, 1 << 25
# Indexes beside values are read by vectors of columns in an array of so many bytes (H200, argmax float64 (125209, 8):
# 10.0 us, so 7.5 us; (500000, 2): 11.1 and 6.9 us; but uint32 (32768, 16): 5.0 and 5.6 us; float32 (30, 20000, 8) along
# its second axis: 10.6 and 14.1 us; int8 (2097152, 4), whose keys are one number: 9.5 and 14.6 us).
MIN_COSTLY_BYTES = 1 << 22
# Each lane keeps states of its own if a warp has so many steps (H200, argmax float32 (5, 1675370, 3, 2) along axis 1:
# 104.9 us, so 52.7 us; sum float32 (5, 800000, 6) along its second axis: 27.1 and 25.9 us; but of two steps, argmax
# int64 (8, 16384, 4): 6.1 and 6.5 us).
MIN_TURNS = 4
# Rows that begin anywhere: wider elements are read as fast one by one; registers of a lane for the states of all
# columns, where they keep their order and where not; and bytes of an array for each column (H200, max int8 (10, 2319,
# 44): 3.5 and 9.2 us; sum uint8 (500000, 20), with 40 states: 12.5 us, by words 10.2 us); more of them of indexes
# beside other values (argmax bfloat16 (80684, 12) off by one: 10.3 us, element by element 8.9 us).
MAX_ANYWHERE_BYTES, MAX_LANE_STATES, MIN_ANYWHERE_BYTES, SHARE_OF_INDEXES = 2, (32, 36), 1 << 17, 4
# Keys of few slices with fewer bytes are combined by more blocks (H200, argmax int16 (65536, 8) off by one: 8.1 us, so
# 3.1 us; bool (955530, 8): 10.3 and 9.1 us), of less than four columns with fewer again (H200, argmax int8 (841058, 3):
# 7.4 us, so 5.4 us; but bool (1556536, 3): 9.5 and 12.7 us; (4034271, 2): 13.6 and 19.9 us).
MIN_NARROW_KEYS, MIN_NARROWEST_KEYS = 1 << 23, 3 << 20
# A lane counts in 32 bits: the keys of rows shorter than a vector have so many registers in a large array (H200, argmax
# int8 (9318497, 15): 111 us, so 87 us; (3, 2710415, 14): 107 and 70 us; but bool (3, 82373, 14): 10.4 and 12.6 us;
# int8 (20, 76568, 18): 22.8 and 28.6 us; uint16 (164908, 15): 6.9 and 13.0 us).
WORDS_OF_KEYS, MIN_KEYS_BYTES = 2, 1 << 24
# Shorter slices of up to four columns, which are whole steps of a warp, have one each if there are so many of so many
# bytes, of indexes and of bytes, in an array of bytes of up to 16 MiB, of others of 8 MiB (H200, argmax bool (16384,
# 512, 2): 19.3 us, so 10.3 us; int16 (671, 1024, 2): 4.6 and 3.0 us; but float16 (11564, 128, 4): 6.4 and 8.7 us;
# (2417, 64, 16): 3.8 and 4.8 us; of 132 slices, int16 (128364, 32, 8): 22 and 74 us).
MIN_SLICES_OF_WARPS, MIN_SLICE_OF_WARP, MAX_BYTES_OF_WARPS, UNROLL_OF_WARPS = 4 * SMS, 1024, (1 << 24, 1 << 23), 8
# Rows of small elements that begin anywhere and have more bytes are read in vectors by a warp each (H200, max uint8
# (524288, 256) off by one: 92 us, so 63 us; sum bool (187740, 507): 57 and 34 us; but max bool (96390, 140): 10 and 12
# us; sum int16 (635819, 70): 31 and 54 us).
MIN_ODD_RUN_BYTES = 256
MAX_ODD_ROW_BYTES = 4096  # longer rows hardly feel their misaligned ends
SMALL_ROWS_BYTES = 1 << 19  # up to this, rows that are not whole vectors are read element by element
MAX_FEW_BYTES = 1 << 16  # up to so many rows of one byte have a thread each
COLUMN_LANES = 64  # neighbouring threads of a block, on neighbouring columns, unless there are very many of them
MIN_WHOLE_ROWS_BYTES = 1 << 20  # so that lanes that each reduce whole rows fill the GPU
MIN_SMALL_ROWS_BYTES = 1 << 21  # from so much on, a lane has sixteen small elements of an odd row, else eight
# Elements of 8 bytes of a row that begins anywhere, of which a lane reads a sector, of rows that are longer than a lane
# had, in any order, in arrays of up to so many bytes (H200, max float64 (262144, 16) off by one: 15.2 us, so 10.9 us,
# 12.9 of two; but int64 (900243, 10): 20.0 and 24.4 us; a callable on float64 (207411, 20): 10.3 and 13.3 us; sum
# float64 (205315, 5): 4.0 and 4.5 us).
LANE_OF_WIDE, MAX_WIDE_BYTES = 4, 1 << 25
# Rows of small integers that are no whole vectors, of which a lane has up to so many vectors with what else they hold:
# bytes of a row, and of an array (H200, any int8 (700000, 171): 66 us, so 30 us; max int8 (300000, 303): 48 and 29 us;
# sum float16 (37308, 125): 7.7 and 4.5 us; argmax bool (4209996, 47): 117 and 65 us); of indexes of two bytes, longer
# ones (argmax bfloat16 (29896, 51): 3.6 and 2.7 us; but (556972, 19): 9.0 and 11.9 us; float16 (50857, 43): 4.5, 4.8).
MIN_MASKED_ROW, MIN_MASKED_INDEXED, MIN_MASKED_BYTES, MAX_MASKED = 33, 96, 1 << 20, 5
# Of whole rows in vectors, a lane has as many as have so many bytes of results (sum uint16 (12000000, 3): 89 us, so 42
# us, with 32 bytes 66 us).
MAX_ROW_RESULTS = 16
# Of rows of vectors whose states are costly to combine, a lane has up to so many, in arrays of so many bytes (H200,
# argmax int8 (200000, 512): 69.5 us, so 26.5 us; argmax float32 (300000, 96): 55.1 and 29.6 us; argmax uint8 (4096,
# 512): 2.70 and 1.82 us).
MAX_SIDE, MIN_SIDE_BYTES = 4, 1 << 20
# Rows of elements that keep their order are no runs up to so many bytes; those of two bytes are slices from
# SHORT_ROW_BYTES on (H200, lambda bfloat16 (20000, 333): 10.8 us, so 8.5 us; but int16 (50000, 101): 5.2 and 7.1 us).
ORDERED_ROW_BYTES = 1024
# An array that is reduced along an axis of extent 1, and whose results are no wider than its elements, is read in
# vectors wherever it begins (any int8 (60000000, 1) off by one: 101 us, so 57 us; but sum int16: 108 and 182 us).
MIN_COPY_BYTES = 1 << 21
LANE_BYTES = 64  # a lane reads at most this much consecutive memory: more spreads a warp over too many cache lines


def choose(problem: Problem) -> Choice:
    """Return the policy and the launch of a problem."""
    if problem.inner > 1:
        return _columns(problem)
    if problem.length * problem.size <= SHORT_ROW_BYTES:
        return _short_rows(problem)
    return of_rows(problem)


def of_rows(problem: Problem) -> Choice:
    """Return the policy and the launch for long rows. They may be short, but others are then faster. The result of a
    row is stored by one thread of all."""
    choice = _segments(problem)
    return _fitted(choice, problem) if problem.several else choice


def _fitted(choice: Choice, problem: Problem) -> Choice:
    """Return the choice with as many vectors in flight as fit registers."""
    policy: Any = choice.policy
    registers = MAX_CHUNK_WORDS * 16 // (policy.warps * policy.blocks_per_sm)
    unroll = power_of_two_below(min(policy.unroll, registers // (4 * problem.inputs + problem.words)))
    return replace(choice, policy=replace(policy, unroll=unroll, aligned=problem.together))


def strided_is_faster(problem: Problem) -> bool:
    """Return whether the kernels of strided arrays are faster than those that ``choose`` selects."""
    row_bytes = problem.length * problem.inner * problem.size
    total = problem.outer * row_bytes
    small = problem.out_size <= problem.size <= 2 and not problem.several
    if problem.length == problem.inner == 1 and small and not problem.aligned and total >= MIN_COPY_BYTES:
        return True
    if problem.inner == 1:  # rows that are not whole vectors, or less than a warp loads; a row of one element is copied
        if row_bytes == 1 and total <= MAX_FEW_BYTES:
            return True  # a lane would have 32 results
        odd = row_bytes % VECTOR_BYTES != 0 and problem.length > 1 and row_bytes <= MAX_ODD_ROW_BYTES
        short = problem.in_turn and not problem.several and problem.outer >= 4 * SMS
        runs = short and SHORT_ROW_BYTES < row_bytes < MIN_WARP_ROW_BYTES
        if problem.aligned and problem.in_turn and not problem.several and not odd:
            return runs
        ordered = odd and not problem.in_turn and problem.size == 2 and total > SMALL_ROWS_BYTES
        if ordered and SHORT_ROW_BYTES < row_bytes <= ORDERED_ROW_BYTES:
            return True
        ragged = odd or (not problem.aligned and problem.length > 1 and row_bytes <= SHORT_ROW_BYTES)
        masked = _is_masked(problem)
        if short and problem.size <= 2 and not masked and MIN_ODD_RUN_BYTES <= row_bytes <= SHORT_ROW_BYTES:
            return True
        if ragged and total <= SMALL_ROWS_BYTES:
            return True
        off = short and problem.outer >= MIN_WARP_ROWS and row_bytes % VECTOR_BYTES == 0
        runs |= off and MIN_WARP_ROW_BYTES <= row_bytes < MAX_OFF_BYTES
        return runs or (odd and problem.size == 1 and row_bytes > SHORT_ROW_BYTES)
    if _are_of_warps(problem):
        return False
    two = problem.inner == 2 and 2 * problem.size < VECTOR_BYTES
    least = NARROW_BYTES * _more_of_small(problem) // (SHARE_OF_PAIRS if two else 1)
    few_keys = problem.keys and problem.outer <= FEW_SLICES
    few_keys &= total < (MIN_NARROW_KEYS if problem.inner > 3 else MIN_NARROWEST_KEYS)
    ordered = not problem.in_turn and problem.size >= 4 and problem.inner * problem.size >= 2 * VECTOR_BYTES
    ordered &= problem.outer == 1 and MIN_ORDERED_BYTES <= total <= MAX_ORDERED_BYTES
    if not few_keys and (row_bytes >= least if _is_narrow(problem) and not ordered else _is_narrow_anywhere(problem)):
        return False
    if problem.several:
        return problem.outer > 1 and problem.inner * problem.size < SHORT_ROW_BYTES
    odd = not problem.aligned or problem.inner * problem.size % VECTOR_BYTES != 0
    odd = odd and (problem.size <= 2 or not problem.in_turn)
    in_words = problem.size == 1 and problem.words <= (1 if total < MIN_SUM_BYTES else 2)
    pairs = problem.aligned and problem.inner % 2 == 0  # each word has two columns
    halves = problem.size == 2 and problem.in_turn and problem.words <= 2
    in_words |= problem.keys or (halves and (pairs or problem.length <= MAX_ODD_HALVES))
    odd &= not in_words
    return not (odd and problem.outer == 1 and problem.inner >= 256 and problem.length >= 64)  # long odd columns


def _segments(problem: Problem) -> Choice:
    row_bytes = problem.length * problem.size
    costly = problem.words >= COSTLY_WORDS and row_bytes * problem.outer < MAX_COSTLY_BYTES
    chunks = row_bytes // (CHUNK_BYTES * COSTLY_UNROLL // 8 if costly else CHUNK_BYTES)
    if row_bytes * problem.outer <= SMALL_BYTES:
        warps, unroll = 8 if row_bytes <= SMALL_BYTES // 4 else 16, 8 if row_bytes > SMALL_BYTES // 2 else 4
        return Choice(SegmentPolicy("block", warps, unroll, 2, _whole(problem, unroll)), 1, 1, problem.outer)
    large = row_bytes * problem.outer >= LARGE_BYTES
    most, warps, unroll = (2 * SMS, 16, 4) if large else (256, 8, 8)
    unroll = COSTLY_UNROLL if costly else unroll
    least = COSTLY_CHUNKS if costly else 4 if chunks <= 64 else 8  # chunks of a block
    wanted = chunks // least
    if least == warps:  # each warp of a block has one chunk at most, and others both ends
        wanted = ceil_div(chunks, warps) if _whole(problem, unroll) else chunks // (warps - 2) + 1
    splits = min(most // problem.outer, wanted, SLOTS // (problem.words * problem.outer))
    if splits > 1 and problem.outer <= GROUPS:
        scope = "grid" if problem.outer == 1 else "grid_rows"
        return Choice(
            SegmentPolicy(scope, warps, unroll, 2, _whole(problem, unroll), splits <= 32),
            splits,
            1,
            problem.outer * splits,
        )
    costly = problem.words >= COSTLY_WORDS and problem.outer >= MIN_WARP_ROWS
    if problem.outer < 2 * SMS or chunks > 32 or (chunks >= MIN_BLOCK_CHUNKS and not costly):
        return Choice(SegmentPolicy("block", warps, unroll, 2, _whole(problem, unroll)), 1, 1, problem.outer)
    most_rows = MAX_FEW_LONG if row_bytes >= MIN_FEW_LONG else MAX_FEW_ROWS
    if row_bytes >= MIN_FEW_ROW and problem.outer <= most_rows:
        return Choice(SegmentPolicy("block", 4, 4, 8, _whole(problem, 4)), 1, 1, problem.outer)
    unroll, blocks = (2, 8) if not problem.in_turn and row_bytes <= MAX_SHORT_CHUNK else (4, 4)
    return Choice(SegmentPolicy("warp", 8, unroll, blocks), 1, 1, ceil_div(problem.outer, 8))


def _whole(problem: Problem, unroll: int) -> bool:
    """Return whether every row consists of whole, aligned chunks of ``unroll`` vectors per lane."""
    return problem.aligned and problem.length * problem.size % (32 * unroll * VECTOR_BYTES) == 0


def _short_rows(problem: Problem) -> Choice:
    row_bytes = problem.length * problem.size
    vectors = problem.aligned and row_bytes % VECTOR_BYTES == 0 and problem.inputs == 1
    odd = problem.size <= 2 and row_bytes % VECTOR_BYTES != 0
    small = odd and problem.outer * row_bytes >= MIN_SMALL_ROWS_BYTES
    each = VECTOR_BYTES // problem.size if vectors else 16 if small else 8  # elements of a lane
    wide = problem.size == 8 and not vectors and problem.in_turn and problem.length > each
    each = LANE_OF_WIDE if wide and problem.outer * row_bytes <= MAX_WIDE_BYTES else each
    group = min(power_of_two(ceil_div(problem.length, each)), 16 if small else 32)
    unroll, warps, side = 4, 8, 1
    whole = math.lcm(row_bytes, VECTOR_BYTES)
    many = whole <= 2 * VECTOR_BYTES or problem.outer * row_bytes >= MIN_WHOLE_ROWS_BYTES or not vectors
    if problem.aligned and whole <= LANE_BYTES and problem.inputs == 1 and many:
        if VECTOR_BYTES % row_bytes == 0:  # few rows, so that a lane stores little consecutive memory
            whole = max(row_bytes, 2, VECTOR_BYTES * row_bytes // max(row_bytes, problem.out_size))
        else:
            while whole % 8 == 0 and whole // row_bytes * problem.out_size > MAX_ROW_RESULTS:
                whole //= 2
        lane_unroll = max(2, 2 * VECTOR_BYTES // whole)
        return Choice(
            WholeRowPolicy(problem.length, whole, lane_unroll, warps, problem.aligned_out),
            1,
            1,
            ceil_div(problem.outer, warps * 32 * (whole // row_bytes) * lane_unroll),
        )
    large = problem.outer * row_bytes >= MIN_SIDE_BYTES
    if vectors and large and problem.words >= COSTLY_WORDS and not problem.several:
        side = math.gcd(row_bytes // VECTOR_BYTES, MAX_SIDE)
        group, unroll = power_of_two(row_bytes // (VECTOR_BYTES * side)), max(2, unroll // side)
    masked = 0
    if _is_masked(problem) and not vectors:
        most = (row_bytes + VECTOR_BYTES - 2) // VECTOR_BYTES + 1  # vectors that hold a row
        group = power_of_two(ceil_div(most, MAX_MASKED))
        masked, unroll = ceil_div(most, group), 1
    rows = warps * (32 // group) * unroll
    return Choice(ShortRowPolicy(vectors, group, unroll, warps, masked, side), 1, 1, ceil_div(problem.outer, rows))


def _is_masked(problem: Problem) -> bool:
    """Return whether short rows that are no whole vectors are read as vectors that hold elements of other rows."""
    row_bytes = problem.length * problem.size
    least = MIN_MASKED_INDEXED if problem.size > 1 and problem.words >= COSTLY_WORDS else MIN_MASKED_ROW
    return problem.masked and row_bytes >= least and problem.outer * row_bytes >= MIN_MASKED_BYTES


def _is_narrow(problem: Problem) -> bool:
    """Return whether a lane can load whole rows of few columns, and vectors of columns are not faster."""
    outer_slice = problem.length * problem.inner * problem.size
    costly = problem.words >= COSTLY_WORDS and not problem.keys and max(problem.inner, problem.size) >= 8
    return (
        problem.aligned
        and not problem.several
        and not _are_few_vectors(problem)
        and not (costly and problem.outer == 1 and outer_slice >= MIN_COSTLY_BYTES)
        and problem.inner <= 16
        and math.lcm(problem.inner * problem.size, VECTOR_BYTES) <= LANE_BYTES
        and (problem.outer == 1 or outer_slice % VECTOR_BYTES == 0)
    )


def _are_few_vectors(problem: Problem) -> bool:
    """Return whether columns of small elements are whole vectors, of one slice that is not large."""
    whole = problem.size <= MAX_ANYWHERE_BYTES and problem.inner * problem.size % VECTOR_BYTES == 0
    most = MAX_VECTORS_BYTES[problem.keys] if problem.keys or problem.words < COSTLY_WORDS else 0
    return whole and problem.outer == 1 and problem.length * problem.inner * problem.size <= most


def _more_of_small(problem: Problem) -> int:
    """Return how many times as many bytes a slice of few columns has, at least, that lanes load as whole rows."""
    small = problem.outer * problem.length * problem.inner * problem.size <= MAX_SMALL_BYTES
    cheap = problem.words < COSTLY_WORDS and problem.size <= MAX_ANYWHERE_BYTES
    if not small or not (cheap or problem.outer <= FEW_SLICES):
        return 1
    return 2 * MORE_OF_SMALL if problem.outer == 1 else MORE_OF_SMALL


def _are_of_warps(problem: Problem) -> bool:
    """Return whether slices of few columns are short and many, so that each has a warp."""
    outer_slice = problem.length * problem.inner * problem.size
    step = 32 * math.lcm(problem.inner * problem.size, VECTOR_BYTES)
    costly = problem.size == 1 or problem.words >= COSTLY_WORDS
    return (
        problem.aligned
        and costly
        and not problem.several
        and problem.inner in (2, 4)
        and outer_slice % step == 0
        and MIN_SLICE_OF_WARP <= outer_slice < NARROW_BYTES
        and problem.outer >= MIN_SLICES_OF_WARPS
        and problem.outer * outer_slice <= MAX_BYTES_OF_WARPS[problem.size > 1]
    )


def _is_narrow_anywhere(problem: Problem) -> bool:
    """Return whether a lane can load whole rows of few columns that begin on any byte, faster than words of them."""
    row_bytes = problem.inner * problem.size
    shuffled = not problem.in_turn and problem.inner != power_of_two(problem.inner)  # a step combines each column
    vectors = problem.aligned and row_bytes % VECTOR_BYTES == 0  # are read as fast
    uneven = 2 * SMS < problem.outer < 8 * SMS  # slices, which have a block each
    share = problem.inner if problem.in_turn else 4
    more = problem.in_turn and problem.words < COSTLY_WORDS  # of other states, small arrays are as large ones
    least = NARROW_BYTES * (min(MORE_OF_SMALL, _more_of_small(problem)) if more else 1)
    share *= SHARE_OF_INDEXES if problem.words >= COSTLY_WORDS and not problem.keys else 1
    total = problem.outer * problem.length * row_bytes
    counted = problem.keys and row_bytes < VECTOR_BYTES and total >= MIN_KEYS_BYTES
    return (
        not (problem.several or shuffled or vectors or uneven)
        and problem.size <= MAX_ANYWHERE_BYTES
        and row_bytes <= LANE_BYTES
        and problem.inner * (WORDS_OF_KEYS if counted else problem.words) <= MAX_LANE_STATES[problem.in_turn]
        and problem.length * row_bytes >= least
        and total >= MIN_ANYWHERE_BYTES * share
    )


def _columns(problem: Problem) -> Choice:
    if _are_of_warps(problem):
        return _slices_of_warps(problem)
    if _is_narrow(problem):
        return _narrow_columns(problem, math.lcm(problem.inner * problem.size, VECTOR_BYTES))
    if _is_narrow_anywhere(problem):
        return _narrow_columns(problem, problem.inner * problem.size, True)
    vectors = problem.aligned and problem.inner * problem.size % VECTOR_BYTES == 0 and not problem.several
    width = VECTOR_BYTES // problem.size if vectors else 1
    units = problem.inner // width
    threads = 256
    lanes = min(power_of_two(units), COLUMN_LANES)
    if units * problem.outer >= 8 * SMS * threads or (problem.length < 4 * (threads // lanes) and units >= threads):
        lanes = threads
    groups = threads // lanes
    tiles = ceil_div(units, lanes)
    blocks = problem.outer * tiles
    rows = max(1, problem.length // (groups * 8))
    splits = min(ceil_div(4 * SMS, blocks), rows, SLOTS // (problem.words * problem.outer * problem.inner) or 1)
    if blocks > GROUPS:
        splits = 1
    return Choice(
        ColumnPolicy(vectors, lanes, groups, 8, splits > 1, vectors and problem.aligned_out),
        max(splits, 1),
        tiles,
        blocks * max(splits, 1),
    )


def _narrow_columns(problem: Problem, lane_bytes: int, anywhere: bool = False) -> Choice:
    lane_bytes *= max(1, LANE_BYTES // lane_bytes)
    warps = 8
    step_rows = 32 * lane_bytes // (problem.inner * problem.size)  # a warp reduces this many in one step
    blocks = max(1, problem.length // (step_rows * warps * 2))
    splits = min(max(1, 256 // problem.outer), blocks, SLOTS // (problem.words * problem.outer * problem.inner) or 1)
    if problem.outer > GROUPS:
        splits = 1
    unroll = 2 if lane_bytes >= (LANE_BYTES // 2 if anywhere else LANE_BYTES) else 4
    turns = problem.length // (step_rows * warps * splits)  # of a warp
    in_turn = problem.in_turn and (anywhere or (turns >= MIN_TURNS and not problem.keys))
    policy = NarrowPolicy(problem.inner, lane_bytes, unroll, warps, splits > 1, anywhere, in_turn)
    return Choice(policy, splits, 1, problem.outer * splits)


def _slices_of_warps(problem: Problem) -> Choice:
    lane_bytes, warps = math.lcm(problem.inner * problem.size, VECTOR_BYTES), 8
    steps = problem.length * problem.inner * problem.size // (32 * lane_bytes)
    unroll = min(power_of_two_below(steps), UNROLL_OF_WARPS * VECTOR_BYTES // lane_bytes)
    in_turn = problem.in_turn and steps >= MIN_TURNS and not problem.keys
    policy = NarrowPolicy(problem.inner, lane_bytes, max(1, unroll), warps, False, False, in_turn, True)
    return Choice(policy, 1, 1, ceil_div(problem.outer, warps))
