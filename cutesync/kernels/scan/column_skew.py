"""Which threads that scan columns alone have vectors that begin behind boundaries."""

from __future__ import annotations

from ...sizes import ceil_div
from ..hardware import VECTOR_BYTES, WORD_BYTES
from .problem import ANYWHERE, MIN_VECTOR_BYTES, Problem

SMALL_BYTES, MAX_SMALL_ROWS = 2, 64  # of elements, and their rows
# Rows whose vectors are joined from two each: of small elements, and of words (H200, max uint32 (2, 32768, 32): 41 us,
# so 6.8 us; lambda float32 (4, 16, 128, 512) along axis 0: 11.4 and 10.0 us; but uint32 (16, 131072): 6.8 and 11.1 us).
MAX_JOINED_ROWS, MAX_JOINED_ROWS_OF_WORDS = 8, 4
# Rows of small elements up to which they, and those that begin equally far behind boundaries, are faster than slices
# (H200, reverse bool (19, 15107, 2, 72) in rows of 75: 72.5 us in slices, so 26.5 us; (140883, 3, 96) of 103: 60.3 and
# 21.8 us; int16 (100000, 4, 50) off by one: 27.7 and 24.7 us; reverse int8 (12852, 7, 64) of 69: 9.5 and 5.6 us). Eight
# rows have so many bytes (reverse int8 (40000, 8, 72) of 75: 23.8 and 16.9 us; float16 (40000, 8, 36) of 41: 19.5 and
# 17.1 us; bool (60958, 8, 160) off by one in ragged columns: 114 us, so 44.6 us; but max int8 (65941, 8, 20) of 25:
# 13.4 and 15.0 us; reverse float16 (4, 16384, 8, 4) off by one: 7.9 and 8.3 us).
MAX_SHORT_ROWS, MIN_EIGHT_BYTES = 8, 32
# Two rows are in up to so many parts, in each of which a thread has a vector, but no more than so many bytes of it: the
# fewer bytes a thread loads, the longer memory waits for others. Of shorter parts a warp loads pieces of several rows,
# and more rows give a thread bytes enough (H200, in one part and in several: bool (189472, 2, 212) in rows of 215: 86.2
# and 56.7 us; exclusive uint8 (54339, 2, 572) off by one: 39.9 and 34.7 us; but bool (19, 15107, 2, 72) in rows of 75:
# 26.5 us, in parts of 24 bytes 42.8 us, of 40 bytes 29.6 us; int16 (100000, 4, 50): 24.7 and 42.7 us; lambda int8
# (42250, 6, 260) in rows of 311: 44.5 and 53.3 us).
PARTED_ROWS, JOINED_BYTES, MAX_PARTS, MIN_PART_BYTES, PART_FILLED = 2, 64, 4, 56, 0.88
MAX_SKEW = 3  # elements of a vector that are loaded one by one, behind the others


def skewed(problem: Problem, enough: int) -> tuple[int, int]:
    """Return how many columns a thread has, and how many elements before them lies a boundary of a vector, where
    results begin on boundaries and ``enough`` threads have columns; ``(1, 0)`` for other arrays."""
    backward = problem.view == "backward"
    if problem.sources != problem.results or not problem.apart or problem.several or problem.counted or backward:
        return 1, 0
    return _skewed_alike(problem, enough) or _skewed_anywhere(problem, enough) or (1, 0)


def _skewed_alike(problem: Problem, enough: int) -> tuple[int, int] | None:
    """Return the same of small elements, if it is the same in all rows."""
    if problem.wide > SMALL_BYTES:
        return None
    items = VECTOR_BYTES // problem.source
    steps = (problem.inner, *problem.pitches[0], *problem.pitches[1], problem.outs[0] // problem.source)
    while items > 1 and (any(step % items for step in steps) or problem.rows * (problem.inner // items) < enough):
        items //= 2
    skew = problem.first % items
    fits = items * problem.source > WORD_BYTES and 0 < skew <= MAX_SKEW and problem.length <= MAX_SMALL_ROWS
    return (items, skew) if fits else None


def _skewed_anywhere(problem: Problem, enough: int) -> tuple[int, int] | None:
    """Return the columns of a vector that begins anywhere and is joined from two, where words or parts of them are what
    else a thread would load, and threads are enough: one of 16 bytes, or of small elements a shorter one of which
    results are multiples."""
    items, small = problem.items, problem.wide <= SMALL_BYTES
    most = MAX_JOINED_ROWS if small else MAX_JOINED_ROWS_OF_WORDS
    while small and items * problem.wide > WORD_BYTES and (problem.inner % items or problem.aligned(items) is None):
        items //= 2
    whole = problem.inner % items == 0 and problem.aligned(items) == 0 and problem.length <= most
    narrow = problem.vector(problem.inner)[0] * problem.wide < min(MIN_VECTOR_BYTES, items * problem.wide)
    many = problem.rows * (problem.inner // items) >= enough
    return (items, ANYWHERE) if whole and narrow and many else None


def parts(problem: Problem, items: int, enough: int) -> int:
    """Return in how many parts of a row a thread has a vector of ``items`` columns: as many as give it bytes enough,
    most of which are full."""
    units, each = problem.inner // items, items * problem.wide
    if problem.length > PARTED_ROWS:
        return 1
    most = min(MAX_PARTS, JOINED_BYTES // (PARTED_ROWS * each), problem.rows * units // enough)
    lengths = {n: ceil_div(units, n) for n in range(2, most + 1)}  # vectors of a part
    fits = (n for n, part in lengths.items() if part * each >= MIN_PART_BYTES and part * n * PART_FILLED <= units)
    return max(fits, default=1)
