"""Which rows of small elements are read as vectors that hold other elements, too, and how lanes share them: a pure
function of the normal form, types and alignment."""

from __future__ import annotations

import math

from ...runtime.layout import Axis
from ...sizes import ceil_div, power_of_two
from ..axes import NUMBER_BITS
from ..hardware import LANES, SMS, VECTOR_BYTES, WORD_BYTES
from .along_policy import splits_of
from .policy import COSTLY_WORDS, MIN_MASKED_INDEXED, MIN_MASKED_ROW, SHORT_ROW_BYTES
from .short_policy import FULL_UNITS
from .strided_loads import load_of
from .strided_problem import THREADS, MaskedPolicy, StridedChoice, StridedProblem

# Bytes of a short row, unless indexes of two bytes need more, and of an array (H200, any int8 (13002, 39, 27) in groups
# with gaps: 42 us, so 8 us; sum bool (14977, 42) of rows of 85: 2.9 and 1.7 us). Rows of whole words are read as these
# if they are shorter than contiguous ones (max int16 (28573, 63, 14): 19.2 and 21.4 us), and those of whole pairs of
# words (argmax bool (22184, 496) of rows of 888, as a whole: 8.0 and 8.8 us). Rows without gaps are left to the kernel
# of contiguous ones (any bool (308468, 35): 4.1 and 4.7 us).
MIN_ROW, MIN_BYTES = 24, 1 << 19
# Vectors of a lane, of a row up to SHORT_ROW_BYTES, and of a longer one (with 3: 1.14 times the time).
MAX_VECTORS, LONG_VECTORS = 5, 4
# Positions of a thread of those that share several rows, at least; and such blocks of a multiprocessor (with two, which
# have two rows in flight, 1.1 times the time).
MIN_POSITIONS, BLOCKS = 4, 4
# Blocks, at least, whose results are their own, unless each has one of a long row (H200, argmax float16 (242, 2926) by
# 31: 3.1 and 3.8 us).
MIN_BLOCKS = SMS // 2
RESIDENT = 4, 3  # blocks that are to fit the registers of a multiprocessor, of a row for each result, and of several
MAX_ROW_LANES = LANES  # that the compiler knows
# Arrays of longer rows: of results that have a block at most (H200, max bool (535, 2786) of rows of 5573: 3.1 us, so
# 2.0 us; any bfloat16 (1004, 878): 2.2 and 1.7 us; but sum bool (55449, 595): 13.2 and 16.5 us), and of those that
# several share (argmax uint16 (13, 346081) with gaps: 9.1 and 8.0 us; but sum bool (1048576,): 2.8 and 3.6 us; argmax
# bool (221, 201150) with gaps, as a whole, 44 MB: 17.7 and 18.8 us).
LONG_BYTES, SHARED_LONG_BYTES = (1 << 20, 1 << 22), (3 << 19, 1 << 24)


def choose(problem: StridedProblem) -> StridedChoice | None:
    """Return the choice of rows that begin anywhere; None if other kernels are faster."""
    form = problem.form
    *outer, run = form.reduced
    row_bytes = run.extent * problem.size
    long = row_bytes > SHORT_ROW_BYTES
    if problem.inputs > 1 or not problem.masked or not (_may_be_long(problem) if long else _may_be_short(problem)):
        return None
    most = (row_bytes + VECTOR_BYTES - 2) // VECTOR_BYTES + 1  # vectors that hold a row
    lanes = ceil_div(most, LONG_VECTORS) if long else power_of_two(ceil_div(most, MAX_VECTORS))
    positions = form.length // run.extent * lanes
    groups = _groups(form.results, positions, lanes) if long or outer else lanes
    tiles = ceil_div(form.results, THREADS // groups)
    splits = splits_of(problem, tiles, form.results, positions // groups if groups == THREADS else 1, BLOCKS)
    few = (long or outer) and splits == 1 and tiles < MIN_BLOCKS and not (long and groups == THREADS)
    if few or (long and not _is_long(problem, splits > 1)):
        return None
    return _choice(problem, (lanes, groups, ceil_div(most, lanes)), tiles, splits)


def _are_side_by_side(problem: StridedProblem) -> bool:
    """Return whether rows, one of a result, have no gaps."""
    form, run = problem.form, problem.form.reduced[-1].extent
    return len(form.reduced) == 1 and len(form.kept) <= 1 and all(axis.steps[0] == run for axis in form.kept)


def _total(problem: StridedProblem) -> int:
    return problem.form.results * problem.form.length * problem.size


def _may_be_short(problem: StridedProblem) -> bool:
    """Return whether short rows are read so."""
    row_bytes = problem.form.reduced[-1].extent * problem.size
    indexed = problem.size > 1 and problem.words >= COSTLY_WORDS
    if row_bytes < (MIN_MASKED_INDEXED if indexed else MIN_ROW) or _total(problem) < MIN_BYTES:
        return False
    load, load_bytes, _ = load_of(problem, False)
    if load == "row" and (load_bytes > WORD_BYTES or row_bytes < MIN_MASKED_ROW):
        return False
    return not _are_side_by_side(problem)


def _may_be_long(problem: StridedProblem) -> bool:
    """Return whether long rows may be read so: they begin anywhere, and no callable maps elements."""
    form, size = problem.form, problem.size
    starts = math.gcd(problem.begin, *(axis.steps[0] * size for axis in (*form.kept, *form.reduced[:-1])))
    return starts % VECTOR_BYTES != 0 and not problem.mapped


def _is_long(problem: StridedProblem, shared: bool) -> bool:
    """Return whether long rows are read so by a block, or several that have ``shared`` results."""
    least, most = SHARED_LONG_BYTES if shared else LONG_BYTES
    return least <= _total(problem) <= most and not (shared and _are_side_by_side(problem))


def _groups(results: int, positions: int, lanes: int) -> int:
    """Return the groups of a block that share so many positions of a result."""
    counts = [n for n in (power_of_two(lanes), 8, 32) if lanes <= n <= LANES] or [LANES]
    return next((n for n in counts if n * results >= FULL_UNITS // 4 or MIN_POSITIONS * n > positions), THREADS)


def _choice(problem: StridedProblem, sizes: tuple[int, int, int], tiles: int, splits: int) -> StridedChoice:
    form = problem.form
    *outer, (extent, _) = form.reduced
    lanes, groups, vectors = sizes
    behind = [math.prod(axis.extent for axis in form.reduced[i + 1 :]) for i in range(len(form.reduced))]
    weights = form.weights or behind
    axes = [Axis(n, (*steps, 0, weight)) for (n, steps), weight in zip(outer, weights)]
    axes.append(Axis(lanes, (0, 1, weights[-1] if form.weights else 0)))
    policy = MaskedPolicy(
        power_of_two(len(form.kept)),
        power_of_two(len(axes)),
        False,
        "row",
        VECTOR_BYTES,
        THREADS // groups,
        groups,
        1,
        True,
        splits > 1,
        max(form.results, form.length) >= 1 << NUMBER_BITS,
        repeated=form.repeats > 1,
        indexed=bool(form.weights),
        vectors=vectors,
        resident=RESIDENT[groups != lanes or bool(outer)],
        row_lanes=lanes if lanes <= MAX_ROW_LANES else 0,
    )
    return StridedChoice(policy, splits, tiles, form.kept, tuple(axes), extent=extent, repeats=form.repeats)
