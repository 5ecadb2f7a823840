"""Which tiles scan short axes where elements are neighbours along one axis of columns, and results along another one or
along the scanned axis and another one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...runtime.kernel import Scalar
from ...runtime.layout import Axis
from ...sizes import ceil_div, power_of_two
from ..axes import NUMBER_BITS, numbers, parameters
from ..hardware import LINE_BYTES, SECTOR_BYTES, SMS, WORD_BYTES
from ..policy import Policy
from .layout import Layout
from .problem import Choice, Problem
from .short_policy import MAX_BYTES

THREADS = 256
TILE_BYTES = 1 << 14  # of a tile's results, at most
MIN_ACROSS, LEAST_LANES = 8, 32  # columns along the axis of neighbouring elements, and threads along it
MAX_LENGTH, MAX_BYTES_LENGTH = 32, 16  # positions, the last of elements of one byte
# Where each position has a run of results of its own, these are lines, or all columns of a tile are one run, or else
# bytes of few positions, which strided tiles move one by one (H200, float16 (4, 201567, 168) along its first axis:
# 363 us in strided tiles, in runs of 64 bytes 614 us; int8 (7, 4, 4025, 607) along its second one: 442 us, in runs of
# 32 bytes 98 us; uint8 (32, 256, 8192): 144 us, in runs of 4 bytes 282 us).
MIN_RUN_BYTES, FEW_POSITIONS = 128, 8
# Tiles are up to so large that each position has such a run, of elements of up to 4 bytes (H200, in strided tiles of 16
# times 16 columns and so: max int16 (128, 4, 65536) along its second axis: 85.9 and 36.3 us; max uint8 (256, 4, 65536):
# 159 and 39.1 us; inclusive float32 (64, 8, 65536): 82.6 and 71.3 us; but float64 (1800, 5, 1806): 85.0 and 101 us).
# With 32 KiB, which bytes need two tiles of half a line for: 39.1 us, so 40.7 us. Bytes that strided tiles do not move
# in words only where runs are shorter than sectors (int8 (4, 7, 4025, 607) in runs of 18 bytes: 173 us, so 103 us; but
# bool (4, 33, 138017) in runs of 64 bytes: 28.9 us, so 44.3 us).
MAX_TILE_BYTES = 1 << 16
# Elements of so many bytes with more positions have such runs, too, of any length (H200, in strided tiles and so: sum
# int8 (8, 64, 16384) along its second axis: 18.6 and 9.7 us; max bool (33, 27, 20032) along its first: 249 and 22.1 us;
# sum uint16 (5, 25, 400, 76) along its second: 19.0 and 8.3 us; max int16 (1, 26, 41, 3332): 12.0 and 9.5 us). Storing
# takes most of the time: tiles are of those sizes, up to so many bytes and with runs of at least so many columns, of
# which the fullest SM stores the least; of such the smallest across, so that an SM has many (max uint8 (13, 6366, 159)
# along its first axis: 84.8 us, in 300, 398, 250 and 995 tiles 47.4, 37.3, 24.6 and 27.7 us; sum int8 (3, 21, 752,
# 185): 61.2 us, in 180, 216, 162 and 252 tiles 32.1, 22.3, 40.5 and 22.5 us; sum uint8 (1, 18, 25907, 27): 45.7 us, in
# 405, 203 and 1620 tiles 44.8, 54.3 and 23.1 us).
TALL_BYTES, TALL_TILE_BYTES, TALL_LANES, TALL_RUN = 2, 1 << 16, (32, 64, 128, 256), 16
# Smaller tiles than so many elements leave threads idle, and blocks fewer than so many with larger ones an SM (H200,
# int32 (3, 159726, 16, 3) along its first axis: 79 us in strided tiles, in tiles of 144 elements 242 us; max int8 (669,
# 90, 2) with equal elements along its second one: 1.5 us, in 12 blocks 2.6 us).
MIN_TILE, MAX_OF_FEW, FEW_TILES = 1024, 4096, SMS * 3 // 8
# Bytes of a thread's elements in tall tiles (H200, sum bool (108, 36, 26, 148) along its second axis: 19.3 us, with 64
# bytes 25.4 us; but lambda int8 (11, 28, 52, 1660): 39.9 and 35.6 us).
TALL_HELD_BYTES = 256
# Longer columns have tall tiles, too, up to so many bytes, where two tiles of the least breadth have columns, and
# results of two bytes are stored as words; registers allow four blocks an SM, two of more than so many positions (H200,
# in strided tiles and so: sum uint8 (4, 752, 79, 54) along its third axis: 53.9 and 26.1 us; max bool (5, 103, 2152,
# 40) along its second: 93.5 and 52.2 us; reverse float16 (2, 3616, 35, 186) along its third: 208 and 149 us; but of 40
# columns: int16 (4, 40, 40, 3378) along its third: 66.7 and 70.4 us; of odd rows, whose words were joined: uint16 (2,
# 62, 1096, 95) along its second: 37.0 and 67.0 us).
MAX_TALL_BYTES, MIN_LONG_ACROSS, MAX_BLOCKS, FOUR_BLOCKS_LENGTH = 128, 64, 4, 64
# Bytes that are loaded one by one, of so many positions at least, are held by batches, so that an SM has four blocks,
# not one, where it has that many and results are stored as words (H200, max int8 (2, 7, 1377, 2016) along its second
# axis: 44.9 us, so 34.1 us; max bool (7, 1355, 2272) along its first: 23.3 and 18.6 us; sum uint8 (3001, 8, 1000) along
# its second: 28.8 and 29.5 us; but of a block an SM: int8 (3967, 4, 488): 9.2 and 14.3 us; of two bytes, of words, or
# of four bytes at once: 1.0 to 1.28 times the time).
MIN_LOOPED_LENGTH = 5
# Results of a thread that are put in shared memory as words; of longer columns in tall tiles, which are few.
MAX_HELD, MAX_LONG_HELD = 64, 128
SHORT = 16  # positions; results of longer columns are stored as words (uint16 (5236568, 23): 176 us, one by one 307 us)
NEAR_BYTES = 16  # positions of a column that are neighbours: neighbouring threads load parts of the same sectors
STEPS = ("x_step", "x_next", "out_next", "second_extent", "first_extent", "out_step", "x_first")


@dataclass(frozen=True)
class ShortTurnPolicy(Policy, kernel=".short_turn:ShortTurnScan"):
    """Tiles of ``across`` columns along the axis of neighbouring elements, ``width`` of which a thread loads at once,
    times ``inner`` along the next. Results of a column along the first axis lie ``pitch`` bytes apart in shared memory;
    ``store`` are stored at once, from words of ``word`` bytes. ``rank`` axes of tiles. ``runs``: the results of a
    column of the first axis are so many runs in the output: 1 or, where each position has its own, ``length``.
    ``outside``: results of a position are neighbours along the second axis, not those of positions. A thread puts the
    results of ``unit`` neighbours along the second axis in shared memory at once. Where registers allow several
    ``blocks_per_sm``, they hold the elements of one batch."""

    rank: int
    length: int
    across: int
    inner: int
    width: int
    store: int
    pitch: int
    word: int
    runs: int = 1
    outside: bool = False
    unit: int = 1
    blocks_per_sm: int = 1


def short_turn(problem: Problem, layout: Layout) -> Choice | None:
    """Return the policy and the launch; None for other arrays."""
    if problem.several or problem.counted or layout.firsts or len(layout.scanned) != 1:
        return None
    (length, (x_step, out_step)), columns = layout.scanned[0], list(layout.columns)
    outside, long = out_step != 1, length * problem.wide > MAX_BYTES
    if length * problem.wide > MAX_TALL_BYTES or not columns:
        return None
    second = Axis(1, (0, 0))
    if columns[-1].steps[1] == (1 if outside else length) and columns[-1].steps[0] != 1:
        second = columns.pop()
    near = length if x_step == 1 and length * problem.source <= NEAR_BYTES else 1
    places = [i for i, axis in enumerate(columns) if axis.steps[0] in (1, near)]
    if not places or (outside and second.extent == 1):
        return None
    first = columns.pop(places[0])
    if first.extent < MIN_ACROSS:
        return None
    size = problem.results[0]
    tall = problem.wide <= TALL_BYTES and outside and length > FEW_POSITIONS
    most = MAX_BYTES_LENGTH if problem.wide == 1 else MAX_LENGTH
    if (length > most and not tall) or (long and not (tall and first.extent >= MIN_LONG_ACROSS)):
        return None
    extents = (first.extent, second.extent, length)
    across, inner = _tall_tile(size, layout.count, *extents) if tall else _tile(problem, layout.count, extents, outside)
    width = _width(problem, first, (*columns, layout.scanned[0], second), length if tall else 1)
    runs = length if outside and not inner == second.extent == out_step else 1
    run, word = inner * length // runs, max(WORD_BYTES, size)
    if runs > 1 and not (inner == second.extent == first.steps[1] or run * size >= MIN_RUN_BYTES):
        few = size == 1 and length <= FEW_POSITIONS and _are_no_words(first.extent, second.extent)
        if not (few or tall) or first.steps[0] != 1 or second.steps[0] == 0:
            return None
    tiles = [steps[1] for steps in (*(axis.steps for axis in columns), first.steps)]
    store = math.gcd(word // size, problem.outs[0] // size, run, second.extent * length // runs, *tiles)
    if runs > 1:
        store = math.gcd(store, out_step)
    pitch = (ceil_div(inner * length * size, word) | 1) * word
    axes = [Axis(axis.extent, (*axis.steps, 0, 0)) for axis in columns]
    axes += _axes_of_tiles(first, second, (across, inner), runs > 1)
    grid, tile = math.prod(axis.extent for axis in axes), min(across, first.extent) * inner * length
    added = outside or length > SHORT or first.steps[0] != 1
    odd = store * size < WORD_BYTES
    if grid >= 1 << NUMBER_BITS or (odd and (long and size > 1 if tall else length > SHORT)):
        return None
    if added and (tile < min(MIN_TILE, layout.count * length) or (tile > MAX_OF_FEW and grid < FEW_TILES)):
        return None
    rank, each = power_of_two(len(axes)), size if outside else size * length
    held = length * width if not long else length * width * MAX_HELD // MAX_LONG_HELD
    unit = _unit(word // math.gcd(word, each), inner, THREADS * width // across, held)
    policy = ShortTurnPolicy(rank, length, across, inner, width, store, pitch, word, runs, outside, unit)
    policy = replace(policy, blocks_per_sm=_blocks(problem, policy, grid))
    names = [*(Scalar(name, "Int64") for name in STEPS), *parameters("axis", rank, 4, False)]
    given = x_step, second.steps[0], first.steps[1], second.extent, first.extent, out_step, first.steps[0]
    values = [*given, *numbers(axes, rank, 4, False)]
    return Choice(policy, 1, grid, layout=dict(zip(names, values, strict=True)))


def _width(problem: Problem, first: Axis, others: Sequence[Axis], held: int) -> int:
    """Return how many neighbours along the first axis a thread loads at once, ``held`` times."""
    size, steps = problem.source, [axis.steps[0] for axis in others]
    width = math.gcd(max(1, WORD_BYTES // size), first.extent, problem.xs[0] // size, *steps)
    while held > 1 and held * width * size > TALL_HELD_BYTES:
        width //= 2
    return width if first.steps[0] == 1 else 1


def _axes_of_tiles(first: Axis, second: Axis, tile: tuple[int, int], apart: bool) -> list[Axis]:
    """Return the axes of tiles of columns along both axes. If runs of positions lie ``apart``, tiles that share lines
    of results, or of elements, are as near each other as possible: the axis of fewer tiles is the last (H200, with
    elements held by batches: sum int16 (100783, 4, 168) along its second axis: 181 us in the other order, 112 us so;
    float64 (2832, 3, 432): 23.7 and 21.0 us; others 0.92 to 1.02 times the time)."""
    across, inner = tile
    of_second = Axis(ceil_div(second.extent, inner), (inner * second.steps[0], inner * second.steps[1], inner, 0))
    of_first = Axis(ceil_div(first.extent, across), (across * first.steps[0], across * first.steps[1], 0, across))
    swapped = apart and of_first.extent > of_second.extent
    return [of_first, of_second] if swapped else [of_second, of_first]


def _are_no_words(first: int, second: int) -> bool:
    """Return whether strided tiles do not move bytes of so many columns in words."""
    return first % WORD_BYTES != 0 or second % WORD_BYTES != 0


def _tile(problem: Problem, count: int, extents: tuple[int, int, int], outside: bool) -> tuple[int, int]:
    """Return the columns of a tile along the two axes, whose extents are the first of ``extents``; the last is the
    number of positions. There are ``count`` columns."""
    first, second, length = extents
    across = min(power_of_two(first), max(LEAST_LANES, LINE_BYTES // problem.source))
    size = problem.results[0]
    column = length * size
    inner = min(second, max(1, TILE_BYTES // (across * column)))
    inner = ceil_div(second, ceil_div(second, inner))
    line = MIN_RUN_BYTES // size
    least = SECTOR_BYTES if size == 1 and _are_no_words(first, second) else line
    if outside and size <= WORD_BYTES and inner < min(least, second):
        line = second if second < 2 * line else line
        while across > LEAST_LANES and across * line * column > MAX_TILE_BYTES:
            across //= 2
        return across, line if across * line * column <= MAX_TILE_BYTES else inner
    while across < min(first, THREADS) and across * 2 * inner * column <= TILE_BYTES:
        if outside and count < across * 2 * inner * SMS:
            break
        across *= 2
    return across, inner


def _tall_tile(size: int, count: int, first: int, second: int, length: int) -> tuple[int, int]:
    """Return the same for results of ``size`` bytes of some positions: the tile of which the fullest SM stores the
    fewest rounds of threads."""
    store = math.gcd(WORD_BYTES // size, second)
    columns = {min(across, power_of_two(first)) for across in TALL_LANES}
    units, parts = ceil_div(second, store), range(1, ceil_div(second, TALL_RUN) + 1)
    tiles = {(across, store * ceil_div(units, n)) for across in columns for n in parts}

    def cost(tile: tuple[int, int]) -> tuple[int, int, int]:
        across, inner = tile
        blocks = ceil_div(first, across) * ceil_div(second, inner) * (count // (first * second))
        return ceil_div(blocks, SMS) * ceil_div(across * inner // store, THREADS), -inner, across

    fitting = [(across, inner) for across, inner in tiles if across * inner * length * size <= TALL_TILE_BYTES]
    return min(fitting, key=cost)


def _blocks(problem: Problem, policy: ShortTurnPolicy, grid: int) -> int:
    """Return how many blocks an SM has at least as far as registers are concerned; 1 leaves them to the compiler."""
    length, long = policy.length, policy.length * problem.wide > MAX_BYTES
    one_by_one = problem.source == problem.results[0] == policy.width == 1 and policy.runs > 1
    one_by_one &= MIN_LOOPED_LENGTH <= length <= FEW_POSITIONS and policy.store == WORD_BYTES and grid > SMS
    if not (long or one_by_one):
        return 1
    return MAX_BLOCKS if length <= FOUR_BLOCKS_LENGTH else MAX_BLOCKS // 2


def _unit(words: int, inner: int, groups: int, held: int) -> int:
    """Return how many of ``inner`` neighbours a thread puts in shared memory at once: so many as make words, if each of
    ``groups`` threads has as many, and registers hold the results, ``held`` of each; else 1."""
    return words if inner % (groups * words) == 0 and words * held <= MAX_HELD else 1
