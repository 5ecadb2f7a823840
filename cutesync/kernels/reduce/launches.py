"""Whether a reduction takes several launches: a pure function of lengths, types and alignment.

The thresholds were measured on an H200, as those of ``policy``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..hardware import VECTOR_BYTES
from .policy import SHORT_ROW_BYTES, strided_is_faster
from .problem import Problem

# Of arrays whose few results a second launch brings into another order, which costs some 2 us (H200): bytes for one of
# results, bytes, those of arrays of two columns of up to 2 bytes, and columns.
MIN_SHARE_IN_ORDER, MIN_BYTES_IN_ORDER, MIN_PAIRS_IN_ORDER, MAX_INNER_IN_ORDER = 32, 1 << 25, 1 << 22, 16
MIN_BYTES_OF_PASSES = 1 << 21  # of axes that are not neighbours; of less, one launch is faster than two
# Of axes that are not neighbours and are reduced in two launches: bytes of the array, twice as many of wide elements,
# bytes that become one, and of runs that are short, those of elements of 8 bytes too (H200, any bfloat16 (32, 1048576,
# 2) along axes 0 and 2: 99.6 us, so 36.3 us; squares float64 (65536, 64, 2): 37.9 and 20.9 us; but int64 (25, 395, 27,
# 14) along axes 1 and 3: 11.3 and 12.4 us; any uint32 (2, 21627, 3, 20) along axes 0, 2, 3: 5.5 and 7.4 us). Few
# positions take one launch of any operator (a callable on uint32 (2, 1048576, 2) along axes 0 and 2: 11.3 us, so 6.5).
MIN_BYTES_OF_TWO, MIN_SHARE, MAX_RUN_OF_PASSES, MAX_RUN_OF_WIDE = 1 << 23, 4, 512, 64
# The same of bytes, where a result's neighbours are few (H200, max uint8 (14591, 19, 4, 3) along axes 0 and 2: 11.1 us,
# so 5.9 us; squares uint8 (922, 37, 12, 5): 6.3 and 5.4 us; but sum int8 (6874, 43, 2, 3), 1.8 MB: 8.8 and 10.0 us; max
# int32 (273, 161, 12, 2): 3.5 and 4.8 us).
MIN_BYTES_OF_SMALL = 7 << 18
# Of runs with gaps: bytes of an array of which several reduced axes lie before them; or twice as many, of long runs
# (H200, sum int8 (157, 46, 6, 47) along axes 0, 2 and 3: 10.4 us, so 5.8 us; max int32 (2342, 47, 121) along axes 0 and
# 2: 28.7 and 21.5 us; but any bfloat16 (1008, 5, 173): 4.3 and 4.6 us; sum float16 (1384, 18, 29): 4.3 and 9.0 us).
MIN_BYTES_OF_APART, MIN_RUN_APART = 1 << 20, 256
# Of runs of elements in order: bytes of an array, and of runs (H200, a callable on uint32 (13802, 25, 145) along axes 0
# and 2: 196 us, so 78 us; int32 (38, 34, 278), 1.4 MB: 4.2 and 2.9 us; but uint32 (1329, 13, 6, 39): 15.9 and 18.2 us).
MIN_BYTES_OF_ORDERED, MIN_ORDERED_RUN, MAX_ORDERED_RUN = 1 << 20, 512, 4096
# Runs of so many small elements, which one launch would read one by one, are shorter (H200, bfloat16 (104342, 3, 111)
# along axes 1, 0 and 2: 102 us, so 25 us; uint8 (3093, 36, 206): 68 and 20 us; but int32 (1258, 20, 58): 7.5 and 9.6).
MIN_MANY_IN_ORDER, MIN_RUN_OF_MANY = 1 << 24, 192
MAX_FEW_POSITIONS = 16
# Elements in all, of a result, and how many of them are one in memory, that a callable combines one by one otherwise
# (H200, lambda float16 (32, 32, 4096) repeated along its last axis: 9.8 us, so 3.6 us; uint64 (300, 1588, 86) along its
# second one: 213 and 3.0 us; but int32 (88, 16, 107) along axes 1 and 2, repeated along the last: 1.4 and 2.4 us).
MIN_REPEATED, MIN_LENGTH_REPEATED, MIN_REPEATS = 1 << 18, 1 << 12, 8
# Indexes of elements backwards: bytes of an array from which on it is read forwards, along one axis and several (H200,
# argmax bool (3057433,): 8.2 us, so 3.4 us; float16 (109014572,): 95 and 61 us; int16 (13, 11, 7714) whose last axis is
# backwards: 5.3 and 4.2 us; but bool (314, 202): 1.3 and 1.7 us, and float32 (2, 49, 445): 3.0 and 4.5 us).
MIN_FORWARDS, MIN_FORWARDS_APART = 1 << 18, 1 << 21
# Long columns of elements of up to so many bytes, whose rows lie on boundaries of no more: bytes of an array and of
# rows that are reduced at once, columns and positions (H200, sum uint8 (3080603, 53): 115 us, so 56 us; max bool
# (1777542, 43): 59 and 30 us; sum bfloat16 (87020, 65): 12.8 and 7.4 us, 8.6 us with 1 KiB of rows; any int8 (1136,
# 1024) off by one: 3.2 and 3.0 us; but of fewer columns, squares float16 (908340, 15): 11.9 and 12.9 us, and of fewer
# positions, squares int8 (137, 17769): 3.0 and 4.2 us; of wider ones sum float32 (1282, 422) off by one: 2.9 and 4.8).
MAX_SIZE_OF_FOLDED, MIN_BYTES_OF_FOLDED, BYTES_OF_FOLDED = 2, 1 << 20, 1 << 14
MIN_COLUMNS_OF_FOLDED, MIN_LENGTH_OF_FOLDED = 26, 257
MIN_POSITIONS_OF_FOLDED = 8  # of the first launch, so that every thread has whole ones
MIN_SHARE_OF_FOLDED = 4  # of an array's bytes that are no more between the launches (sum uint8 (520, 3285): 5.4, 3.7)
# Of a callable, too, where elements between the launches would be many: neighbouring columns of so many bytes, and
# positions that become one in the first of two launches (lambda float32 (336, 162, 2, 884) along axes 0 and 2: 227 us,
# so 100 us; bfloat16 (25, 32, 12, 1759): 26 and 24 us).
MIN_COLUMNS_AT_ONCE, MAX_SHARE_AT_ONCE = 128, 16


def repeats_first_is_faster(elements: int, length: int, repeats: int) -> bool:
    """Return whether elements, ``length`` of a result, that are repeated so many times, behind others that a callable
    combines before them, are reduced by a launch of their own."""
    return repeats >= MIN_REPEATS and length >= MIN_LENGTH_REPEATED and elements >= MIN_REPEATED


def forwards_is_faster(total: int, axes: int) -> bool:
    """Return whether indexes of elements backwards, of so many bytes and reduced axes, are found from the last on."""
    return total >= (MIN_FORWARDS if axes == 1 else MIN_FORWARDS_APART)


def is_small_in_order(total: int) -> bool:
    """Return whether ``memory_order_is_faster`` is false of every array of so many bytes."""
    return total < min(MIN_PAIRS_IN_ORDER, MIN_BYTES_IN_ORDER)


def memory_order_is_faster(problem: Problem, run: int) -> bool:
    """Return whether it is faster to reduce in the order of memory, and to bring the results into another order, than
    to have a kernel of strided arrays store them there, which have ``run`` neighbours in both."""
    row_bytes, results = problem.length * problem.size, problem.outer * problem.inner
    pairs = problem.inner > 1 and problem.inner * problem.size <= 4  # which those kernels read element by element
    least = max(MIN_PAIRS_IN_ORDER if pairs else MIN_BYTES_IN_ORDER, results * problem.out_size * MIN_SHARE_IN_ORDER)
    odd = problem.inner == 1 and row_bytes <= SHORT_ROW_BYTES and row_bytes % VECTOR_BYTES != 0
    fits = results * row_bytes >= least and not odd
    fits &= problem.inner <= MAX_INNER_IN_ORDER or _is_short(problem, run)
    return fits and (_is_short(problem, run) or not strided_is_faster(problem))


def axes_of_first_launch(groups: Sequence[tuple[int, bool]], size: int, between: int) -> int | None:
    """Return which group of a reduction along axes that are not neighbours a launch of its own reduces, to elements of
    ``between`` bytes, before another one reduces the others; None if one launch takes less time, as it does not read
    short runs, or elements between are many. ``groups`` are the extents of neighbouring axes that are all reduced, or
    all kept."""
    sizes = [extent for extent, _ in groups]
    last, inner = (sizes[-1], 1) if groups[-1][1] else (sizes[-2], sizes[-1])
    short = last * inner * size < (MAX_RUN_OF_WIDE if size == 8 else MAX_RUN_OF_PASSES) and inner * size < VECTOR_BYTES
    least = MIN_BYTES_OF_SMALL if size == 1 and inner > 1 else MIN_BYTES_OF_TWO * (2 if size >= 4 else 1)
    if not short or math.prod(sizes) * size < least:
        return None
    reduced = [i for i, (extent, reduced) in enumerate(groups) if reduced and extent * size >= MIN_SHARE * between]
    return next((i for i in reduced if i < 2 or i >= len(groups) - 2), None)


def columns_at_once(groups: Sequence[tuple[int, bool]], size: int) -> bool:
    """Return whether one launch reduces neighbouring columns along all groups of axes, of which two launches would
    leave many elements in between."""
    *_, (first, _), (inner, reduced) = groups
    return not reduced and inner * size >= MIN_COLUMNS_AT_ONCE and first <= MAX_SHARE_AT_ONCE


def runs_first_is_faster(run: int, count: int, size: int, between: int) -> bool:
    """Return whether ``count`` short runs of an array, of which a result has several, are reduced by a launch of their
    own, to elements of ``between`` bytes."""
    large = run * count * size >= MIN_BYTES_OF_TWO * (2 if size >= 4 else 1)
    return large and MIN_SHARE * between <= run * size < (MAX_RUN_OF_WIDE if size == 8 else MAX_RUN_OF_PASSES)


def runs_apart_first_is_faster(run: int, count: int, size: int, between: int, several: bool) -> bool:
    """Return the same of runs between which other elements lie, ``several`` axes of a result, where one launch would
    read their elements one by one."""
    least = MIN_SHARE * between if several else max(MIN_SHARE * between, MIN_RUN_APART)
    large = run * count * size >= MIN_BYTES_OF_APART * (1 if several else 2)
    return large and least <= run * size < MAX_RUN_OF_PASSES


def ordered_runs_first_is_faster(run: int, count: int, size: int, between: int) -> bool:
    """Return the same of runs that a callable combines in order."""
    large = run * count * size >= MIN_BYTES_OF_ORDERED
    least = MIN_RUN_OF_MANY if size <= 2 and run * count >= MIN_MANY_IN_ORDER else MIN_ORDERED_RUN
    return large and max(MIN_SHARE * between, least) <= run * size < MAX_ORDERED_RUN


def rows_at_once(problem: Problem, between: int) -> int:
    """Return how many neighbouring rows of columns are reduced as one, which ends on a boundary, to elements of
    ``between`` bytes, by a launch of its own; 0 if one launch is as fast."""
    row_bytes = problem.inner * problem.size
    boundary = math.gcd(VECTOR_BYTES, row_bytes)
    rows = VECTOR_BYTES // boundary
    if problem.outer == 1:
        most = problem.length * problem.size // (MIN_SHARE_OF_FOLDED * between)
        most = min(most, problem.length // MIN_POSITIONS_OF_FOLDED)
        rows *= max(1, min(BYTES_OF_FOLDED // row_bytes, most) // rows)
    odd = boundary <= MAX_SIZE_OF_FOLDED or not problem.aligned
    small = odd and problem.size <= MAX_SIZE_OF_FOLDED and not problem.several
    whole = problem.outer == 1 or (problem.aligned and problem.length % rows == 0)
    large = problem.outer * problem.length * row_bytes >= MIN_BYTES_OF_FOLDED
    few = problem.length * problem.size >= MIN_SHARE_OF_FOLDED * rows * between
    fits = problem.inner >= MIN_COLUMNS_OF_FOLDED and problem.length >= MIN_LENGTH_OF_FOLDED
    fits &= problem.length >= MIN_POSITIONS_OF_FOLDED * rows
    return rows if small and whole and large and few and fits else 0


def _is_short(problem: Problem, run: int) -> bool:
    """Return whether ``run`` neighbours are few and no whole words."""
    return run < MAX_INNER_IN_ORDER and run * problem.size % 4 != 0
