"""Which strided arrays of few columns are streamed through shared memory with what lies between their elements."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...runtime.layout import Axis
from ...sizes import ceil_div, power_of_two, power_of_two_below
from ..hardware import LANES, SMS, VECTOR_BYTES, WORD_BYTES
from .column_groups import group_slots
from .layout import MAX_ROWS, STEPS, Layout
from .narrow_policy import (
    GROUP,
    MAX_COLUMNS,
    MAX_ROW_BYTES,
    MAX_RUNS,
    MAX_WIDE_RUNS,
    MAX_WORKERS,
    MIN_SLICE_BYTES,
    SMEM_BYTES,
    STAGES,
    TILE_BYTES,
    NarrowPolicy,
)
from .problem import Choice, Problem
from .slice_policy import slices

MIN_BYTES = 2 << 20  # of the rows and the results
MAX_SPREAD = 8  # of a row that is so many times as long as its elements, most is read for nothing
# The same bytes up to which all elements of more than one are streamed; larger arrays are if threads of strided tiles
# are left without columns, and no gaps are read (H200, exclusive uint8 (153, 41939, 5) every second column: 80.9 us, so
# 39.2 us; max int16 (5, 205601, 18), each column a row: 127 and 40.0 us; reverse float16 (1796523, 10) backwards: 49.9
# and 37.4 us; float64 (32, 2048, 8): 7.5 and 5.9 us; but uint16 (2097152, 8), each column a row: 29.1 and 37.5 us;
# float16 (2421753, 8) backwards: 34.6 and 42.8 us; float32 (2479407, 4) every second column: 38.1 and 43.4 us; float16
# (2079002, 6) of rows of 8: 35.2 and 44.0 us; float64 (700000, 3), each column a row: 17.7 and 21.3 us, but pairs
# of columns a row: int64 (10, 200000, 2) in the order of axes 1, 0, 2: 47.4 and 36.6 us).
MAX_OTHER_BYTES = 16 << 20
# Of rows of neighbours that are no words and lie apart, which are tiles of columns otherwise, the bytes and positions
# from which on they are streamed, by the bytes of an element (H200, max int8 (1070237, 35) of rows of 37: 78.7 us, so
# 48.4 us; bool (59485, 41) of 45: 11.0 and 8.0 us; int16 (1257220, 9) of 11: 45.2 and 25.8 us; but bool (22133, 49) of
# 64: 5.8 and 7.4 us; float16 (26924, 51) of 57: 7.0 and 8.0 us).
MIN_ODD_BYTES, MIN_ODD_LENGTH = {1: 4 << 20, 2: 6 << 20}, 1024
# Bytes of a row where results of a few neighbouring columns are a run (H200, lambda float64 (7, 8586, 6) in the order
# of axes 1, 2, 0: 12.5 us in strided tiles, so 8.4 us; max uint8 (20, 300000, 3) along its second axis: 62.3 and 27.3
# us; longer rows are not measured, nor are runs of more bytes; of powers of two of columns strided tiles turn fours).
MAX_NEAR_BYTES, MAX_NEAR_OF_BYTES = 336, 4
# The same of all columns in another order, from so many bytes of results on, of words (H200, sum float32 (1048576, 8,
# 8) in the order of axes 0, 2, 1: 262 us in strided tiles, so 234 us; (316366, 4, 16): 84.3 and 75.3 us; but int32
# (32768, 4, 8, 2): 10.5 and 11.5 us).
MAX_MIXED_BYTES, MIN_MIXED_BYTES = 256, 1 << 26
# Columns without gaps whose results are runs along the axis, by the bytes of an element; 64 of others (H200, sum int8
# (123, 48341) transposed: 19.8 us in strided tiles, so 16.1 us; int8 (38, 2, 59609): 18.6 and 11.7 us; uint16 (42, 2,
# 28707): 13.9 and 10.8 us; float16 (80, 13773): 8.7 and 8.6 us; but (46, 2, 15250): 8.0 and 9.8 us).
MAX_TURNED_COLUMNS = {1: 127, 2: 84}
HEIGHTS = 8  # of a run, that are looked at


@dataclass(frozen=True)
class NarrowApartPolicy(NarrowPolicy, kernel=".narrow_apart:NarrowApartScan"):
    """A narrow array of whose input ``row`` elements lie from a position to the next, or to the one before if it runs
    ``backward``. The columns of a row are those of the ``inside`` axes, given by extents and strides. ``turned``:
    results of a column, or of ``near`` neighbouring ones, are neighbours, and lie ``pitch`` elements from those of the
    next in shared memory."""

    row: int = 0
    inside: tuple[tuple[int, int], ...] = ()
    turned: bool = False
    backward: bool = False
    pitch: int = 0
    near: int = 1

    @property
    def results(self) -> int:
        """The elements of shared memory for a tile's results."""
        return self.inner // self.near * self.pitch if self.turned else self.inner * self.runs * self.height


def narrow_apart(problem: Problem, layout: Layout) -> tuple[Choice, tuple[int, int, int]] | None:
    """Return the policy and the launch, and the extents; None for other arrays, and where others are faster."""
    alike = problem.sources == problem.results and not (problem.several or problem.counted)
    if not (alike and problem.apart) or layout.firsts or len(layout.scanned) != 1:
        return None
    length, (x_step, out_step) = layout.scanned[0]
    row = abs(x_step)
    inside = [axis for axis in layout.columns if 0 < abs(axis.steps[0]) < row]
    outer = [axis for axis in layout.columns if not 0 < abs(axis.steps[0]) < row]
    inner, size = math.prod(axis.extent for axis in inside), problem.source
    near, beside = _neighbours(inside, out_step, inner)
    turned, runs = near < inner, 1 < near < inner
    large = size == WORD_BYTES and problem.size_of_results >= MIN_MIXED_BYTES and not turned
    most = MAX_NEAR_BYTES if runs else MAX_MIXED_BYTES if large else MAX_ROW_BYTES
    columns = MAX_TURNED_COLUMNS.get(size, MAX_COLUMNS) if turned and not runs and row == inner else MAX_COLUMNS
    fits = near > 0 and len(outer) <= 2 and 1 < inner <= row <= _widest_row(inner, size, most, columns)
    fits &= not (size == 1 and runs and near + (inner == power_of_two(inner)) > MAX_NEAR_OF_BYTES)
    if not fits or sum((n - 1) * abs(steps[0]) for n, steps in inside) >= row:
        return None
    rows = math.prod(axis.extent for axis in outer)
    bytes_of = rows * length * (row + inner) * size
    if rows >= MAX_ROWS or length * row * size < MIN_SLICE_BYTES or bytes_of <= MIN_BYTES:
        return None
    first = NarrowApartPolicy(inner, 1, 1, STAGES, GROUP, False, row, _pairs(inside), turned, x_step < 0, near=near)
    policy = _tiles(problem, length, rows, first)
    if policy is None or (size > 1 and bytes_of > MAX_OTHER_BYTES and not _leaves_threads(first, size)):
        return None
    tiles = ceil_div(length, policy.runs * policy.height)
    none = Axis(1, (0, 0))
    group, (x_next, out_next) = outer.pop() if outer else none
    _, (x_row, out_row) = outer.pop() if outer else none
    steps = x_row, x_step, out_row, beside, group, x_next, out_next
    slots = rows * group_slots(tiles, GROUP) * inner
    given = dict(zip(STEPS, steps))
    choice = Choice(policy, tiles, min(SMS, rows * tiles), slots, layout=given, view="pitched")
    return choice, (rows, length, inner)


def has_odd_rows(problem: Problem) -> bool:
    """Return whether rows of neighbours that lie apart are no words, and narrow enough."""
    if problem.view != "pitched" or problem.inner * problem.source % WORD_BYTES == 0:
        return False
    (_, row, *_), (_, out_row, *_) = problem.pitches
    alike = problem.sources == problem.results and not (problem.several or problem.counted) and problem.apart
    widest = _widest_row(problem.inner, problem.source, MAX_ROW_BYTES)
    near = 1 < problem.inner < row <= widest and out_row == problem.inner
    outer_slice = problem.length * row * problem.source
    large = problem.rows * (outer_slice + problem.length * problem.inner * problem.source)
    near &= large > MIN_ODD_BYTES[problem.source] and outer_slice >= MIN_SLICE_BYTES
    return alike and near and problem.length > MIN_ODD_LENGTH and slices(problem) is None


def _leaves_threads(policy: NarrowApartPolicy, size: int) -> bool:
    """Return whether strided tiles of elements of ``size`` bytes, more than one, are slow in large arrays, too: columns
    do not fill the threads of a row, unless results of 8 bytes lie in rows of a column each, or rows of neighbours are
    no words."""
    inner, odd = policy.inner, policy.inner * size % WORD_BYTES != 0
    if policy.row > inner:
        return odd and policy.inside == ((inner, 1),)
    alone = policy.turned and policy.near == 1
    return (inner >= LANES or inner != power_of_two(inner)) and not (alone and size > WORD_BYTES)


def _widest_row(inner: int, size: int, most: int, columns: int = MAX_COLUMNS) -> int:
    """Return the elements from a row to the next, at most, in ``most`` bytes; 0 of more than so many ``columns``."""
    return min(MAX_SPREAD * inner, most // size) if inner <= columns else 0


def _neighbours(inside: Sequence[Axis], out_step: int, inner: int) -> tuple[int, int]:
    """Return ``(near, beside)``: how many columns of a position have neighbouring results, which are followed by those
    of the next position, and how far the others lie from one another; ``(0, 0)`` for others."""
    axes = list(inside)
    near = 1
    while axes and out_step != near and axes[-1].steps[1] == near:
        near *= axes.pop().extent
    beside = axes[-1].steps[1] if axes else inner
    pairs = zip(axes, axes[1:])
    even = all(axis.steps[1] == following.steps[1] * following.extent for axis, following in pairs)
    return (near, beside) if even and out_step == near else (0, 0)


def _pairs(inside: Sequence[Axis]) -> tuple[tuple[int, int], ...]:
    return tuple((axis.extent, axis.steps[0]) for axis in inside)


def _tiles(problem: Problem, length: int, rows: int, policy: NarrowApartPolicy) -> NarrowApartPolicy | None:
    """Return the policy with the runs and the height of tiles: as many tiles as blocks, or a multiple of it; None if
    shared memory has no room."""
    inner, row, size = policy.inner, policy.row, problem.source
    most = MAX_RUNS if size <= WORD_BYTES else MAX_WIDE_RUNS
    runs = max(1, min(most, power_of_two_below(MAX_WORKERS // inner)))
    partials = (STAGES + 1) * (runs + 1) * inner * 4 * (problem.words + 1)
    columns = inner * (LANES // size + 1) * size if policy.turned else 0  # between those of a tile's results
    room = SMEM_BYTES - partials - columns - STAGES * 2 * VECTOR_BYTES
    highest = room // (runs * (STAGES * row + inner) * size)
    if highest < 1:
        return None
    tiles = ceil_div(ceil_div(rows * length * row * size, TILE_BYTES), SMS) * SMS
    asked = max(1, ceil_div(length, runs * max(1, tiles // rows)))
    if asked > highest:  # tiles of a row are as high as each other
        asked = ceil_div(length, runs * ceil_div(length, runs * highest))
    made = (_of_height(policy, runs, height, size) for height in range(asked, min(highest, asked + HEIGHTS) + 1))
    return min(made, key=lambda policy: _conflicts(policy, size))


def _of_height(policy: NarrowApartPolicy, runs: int, height: int, size: int) -> NarrowApartPolicy:
    words = ceil_div(runs * height * policy.near * size, WORD_BYTES) | 1
    return replace(policy, runs=runs, height=height, pitch=max(1, words * WORD_BYTES // size) if policy.turned else 0)


def places(inside: Sequence[tuple[int, int]]) -> list[int]:
    """Return where each column lies in a row."""
    found = [0]
    for extent, step in inside:
        found = [place + i * step for place in found for i in range(extent)]
    return found


def _conflicts(policy: NarrowApartPolicy, size: int) -> int:
    """Return how many words a bank of shared memory has of those that a warp accesses at once, at most: of elements,
    and of results."""
    far = places(policy.inside)

    def of_results(run: int, column: int) -> int:
        position = run * policy.height
        if policy.turned:
            return column // policy.near * policy.pitch + position * policy.near + column % policy.near
        return position * policy.inner + column

    def most(words: Iterator[int]) -> int:
        banks = [word % LANES for word in set(words)]
        return max(map(banks.count, banks))

    workers = [divmod(worker, policy.inner) for worker in range(LANES)]
    elements = ((run * policy.height * policy.row + far[column]) * size // WORD_BYTES for run, column in workers)
    return most(elements) + most(of_results(*worker) * size // WORD_BYTES for worker in workers)
