"""Which narrow arrays are streamed through shared memory, and with which tiles."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...sizes import ceil_div, power_of_two_below
from ..hardware import LANES, LINE_BYTES, SMS, VECTOR_BYTES, WORD_BYTES
from ..policy import Policy
from .column_groups import group_slots
from .problem import Choice, Problem

# Columns, more if words hold no whole rows, and bytes of a row: wider rows are lines of memory of their own (H200, max
# float32 (131072, 64): 29.7 us, in tiles of columns 26.2 us; but bool (87, 5768, 146): 68 us, in tiles 150 us).
MAX_COLUMNS, MAX_ROW_BYTES = 64, 255
# Of words in larger arrays: rows that are not whole lines have some more bytes (H200, float32 (7, 12, 2700, 108): 76 us
# in tiles of columns, 60 us so; int64 (459784, 40): 127 and 109 us; but uint64 (46585, 58): 20 and 29 us; packed words
# of int8 (44399, 324): 19 and 22 us).
MAX_WIDE_ROW_BYTES, MIN_WIDE_BYTES = 448, 64 << 20
MIN_SLICE_BYTES = 1 << 15  # of an outer slice
# Three tiles fit the shared memory of an SM, with the partials of their runs. More that are smaller are slower (H200,
# reverse bfloat16 (1048576, 32): 49.5 us, 4 of 48 KiB 55.5 us, 6 of 31 KiB 66.4 us).
TILE_BYTES, STAGES = 1 << 16, 3
SMEM_BYTES = 226 << 10
# Bytes read and written up to which others are faster: those of few columns in few blocks, or those of more (H200,
# int32 (16384, 4): 2.5 us by rows; uint16 (524288, 4): 8.6 us by rows, so 8.2 us; max int8 (4, 16384, 32): 6.1 us in
# tiles of columns, so 6.6 us; int64 (139302, 6): 13.8 and 10.9 us).
FEW, MIN_FEW_BYTES, MIN_BYTES = 4, 2 << 20, 4 << 20
# The same of more columns in short rows that are no states (H200, lambda uint8 (131072, 8): 10.3 us in tiles of
# columns, so 4.9 us; max uint8 (88440, 10): 10.0 and 5.8 us; lambda int16 (86837, 5): 6.4 and 4.9 us)
# and of parts of words (reverse float16 (71692, 13): 10.1 us, so 7.6 us; lambda int16 (3, 12865, 18): 6.3 and 5.0 us;
# but uint32 (32768, 16): 5.2 and 5.7 us; bfloat16 (16384, 32): 4.5 and 5.4 us).
SHORT_ROW_BYTES, SHORT_ROW_BYTES_OF_PARTS, MIN_SHORT_BYTES = 16, 48, 3 << 19
# Threads that reduce, and as many that scan: 256, more if this would leave fewer than 8 runs of a column, up to some
# that leave registers. Of few columns more runs are faster, but for 8 bytes (H200, lambda int8 (16777216,
# 2): 32.5 us, so 30.1 us; exclusive uint8 (4194304, 2): 13.2 and 12.3 us; but uint64 (5138112, 2): 53.4 and 56.7 us).
WORKERS, MAX_RUNS, MAX_WIDE_RUNS, MIN_RUNS, MAX_WORKERS = 256, 128, 64, 8, 480
# Twice as many runs if these are at most so many threads, but of words so many runs, and not of 8 bytes (H200, sum bool
# (7, 369553, 9): 34.3 us, so 28.6 us; reverse uint8 (2589119, 18): 50.9 and 42.5 us; exclusive int32 (389564, 13): 17.8
# and 15.9 us; but max uint8 (7, 65286, 27), with 432 threads: 15.1 and 15.7 us; exclusive int32 (7, 135451, 7), with 64
# runs: 22.5 and 23.1 us; reverse int64 (326217, 15): 33.0 and 35.2 us).
MANY_WORKERS, FEW_RUNS = 416, 32
GROUP = 128  # tiles per group of the look-back
HEIGHTS = 8  # that are looked at


@dataclass(frozen=True)
class NarrowPolicy(Policy, kernel=".narrow:NarrowScan"):
    """A narrow array of ``inner`` columns, streamed through shared memory in tiles of ``runs`` times ``height``
    rows. ``aligned``: tiles begin on boundaries of 16 bytes."""

    inner: int
    runs: int
    height: int
    stages: int
    group: int
    aligned: bool = True


def narrow(problem: Problem, by_rows: bool = False) -> Choice | None:
    """Return the policy and the launch; None if tiles cannot be copied and scanned in place, or others are faster.
    ``by_rows``: another kernel takes whole rows as states."""
    inner, size = problem.inner, problem.source
    outer_slice = problem.length * inner * size
    total = 2 * problem.rows * outer_slice
    odd = inner * size % WORD_BYTES != 0  # words hold no whole rows
    fits = (inner <= MAX_COLUMNS or odd) and inner * size <= MAX_ROW_BYTES
    if size >= WORD_BYTES and inner * size % LINE_BYTES and total >= MIN_WIDE_BYTES:
        fits |= inner * size <= MAX_WIDE_ROW_BYTES
    fits &= problem.sources == problem.results and not problem.several and dense(problem)
    aligned = not any(at % VECTOR_BYTES for at in starts(problem))
    if not aligned:  # what lies beside a tile is read, too
        fits &= problem.apart and not problem.counted and all(step >= 0 for step in problem.pitches[0])
    least = MIN_FEW_BYTES if inner <= FEW else MIN_BYTES
    short = SHORT_ROW_BYTES if size >= WORD_BYTES else SHORT_ROW_BYTES_OF_PARTS
    if inner > FEW and inner * size <= short and not by_rows:
        least = min(least, MIN_SHORT_BYTES)
    if not fits or outer_slice < MIN_SLICE_BYTES or total <= least:
        return None
    most = MAX_RUNS if size <= WORD_BYTES else MAX_WIDE_RUNS
    runs = min(most, max(MIN_RUNS, power_of_two_below(max(1, WORKERS // inner))))
    while runs * inner > MAX_WORKERS:
        runs //= 2
    few = most if size < WORD_BYTES else FEW_RUNS if size == WORD_BYTES else 0
    if runs * inner * 2 <= MANY_WORKERS and runs * 2 <= few:
        runs *= 2
    # As many tiles as blocks, or a multiple of it
    tiles = ceil_div(ceil_div(problem.rows * outer_slice, TILE_BYTES), SMS) * SMS
    height = _height(problem, runs, max(1, ceil_div(problem.length, runs * max(1, tiles // problem.rows))), aligned)
    if height is None:
        return None
    tiles = ceil_div(problem.length, runs * height)
    slots = problem.rows * group_slots(tiles, GROUP) * inner
    policy = NarrowPolicy(inner, runs, height, STAGES, GROUP, aligned)
    return Choice(policy, tiles, min(SMS, problem.rows * tiles), slots)


def _height(problem: Problem, runs: int, least: int, aligned: bool) -> int | None:
    """Return the rows of a run: as many as asked for or some more, fewer if shared memory does not hold them. Tiles are
    whole vectors if they are ``aligned``; runs begin in different banks of shared memory, as far as possible."""
    row = problem.inner * problem.source
    partials = (STAGES + 1) * (runs + 1) * problem.inner * 4 * (problem.words + 1)
    most = ((SMEM_BYTES - partials) // STAGES - 2 * VECTOR_BYTES) // (row * runs)
    if least > most:  # tiles of a row are as high as each other
        least = ceil_div(problem.length, runs * ceil_div(problem.length, runs * most)) if most > 0 else least
    first = min(least, most)
    for heights in (
        range(first, min(most, first + 2 * HEIGHTS) + 1),
        range(first - 1, max(0, first - 2 * HEIGHTS), -1),
    ):
        found = [height for height in heights if not (aligned and runs * height * row % VECTOR_BYTES)][:HEIGHTS]
        if found:
            return min(found, key=lambda height: _conflicts(problem, height))
    return None


def _conflicts(problem: Problem, height: int) -> int:
    """Return how many words a bank of shared memory has of those that a warp reads at once, at most; the sum of several
    positions if these begin in different places of a word."""
    inner, size = problem.inner, problem.source
    places = [worker // inner * height * inner + worker % inner for worker in range(LANES)]

    def most(row: int) -> int:
        banks = [word % LANES for word in {(place + row * inner) * size // WORD_BYTES for place in places}]
        return max(map(banks.count, banks))

    return sum(map(most, range(WORD_BYTES // math.gcd(WORD_BYTES, inner * size))))


def dense(problem: Problem) -> bool:
    """Return whether each outer slice is one run of memory, forwards, in the inputs and in the outputs."""
    return problem.view is None or all(steps[1] == problem.inner for steps in problem.pitches)


def starts(problem: Problem) -> list[int]:
    """Return the places of outer slices that are dense, in bytes: those of the first, and the strides."""
    found = [*problem.xs, *problem.outs, problem.far * problem.source]
    for size, steps in zip((problem.source, problem.results[0]), problem.pitches):
        each = problem.length * problem.inner if problem.rows > 1 else 0
        found += [step * size for step in ([each] if problem.view is None else [steps[0], steps[-1]])]
    return found
