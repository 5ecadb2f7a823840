"""Which kernel reduces strided arrays, with which sizes: a pure function of the normal form, types and alignment."""

from __future__ import annotations

import math

from ...runtime.layout import Axis
from ...sizes import ceil_div, power_of_two
from ..axes import NUMBER_BITS
from ..hardware import LANES, SMS, VECTOR_BYTES, WORD_BYTES
from . import masked_policy, slice_policy, turned_policy
from .along_policy import LINE_BYTES, MIN_ALONE, MIN_GROUPS, along, in_flight, splits_of, takes_neighbours
from .copies import SECTOR_BYTES, copied, copies, without_copies
from .lone_policy import lone_block
from .order_of_results import blocked, smallest_step
from .short_policy import FULL_UNITS, LEFT_UNITS, results_of, with_results
from .strided_loads import (
    FULL_RUNS,
    RESIDENT_RUNS,
    are_joined,
    are_on_boundaries,
    axes_of_units,
    load_of,
    positions_of,
    resident,
    resident_of,
    store_of,
    words_of_few,
)
from .strided_problem import (
    THREADS,
    JoinedPolicy,
    OrderedPolicy,
    RunPolicy,
    StridedChoice,
    StridedPolicy,
    StridedProblem,
)

FLIGHT_BYTES = 1 << 16  # of a multiprocessor: enough loads in flight for the full rate
MAX_FEW_BYTES = 1 << 26  # up to this, fewer blocks that combine their partials are worth more than loads in flight
# The same of elements that are read one by one along several axes, or in order: a thread of two blocks would wait for
# each eight of them (H200, argmax uint8 (2859991, 21) of every third row: 112 us, so 84 us; lambda int32 (8388608,), 3
# apart: 31 and 26 us; but of fewer, lambda int16 (104750, 19): 7.4 and 9.5 us; along one axis, squares int8 (6891898,),
# 7 apart: 14.7 and 18.4 us).
MAX_FEW_SINGLES = 1 << 22
# Neighbouring threads read a line: more makes more blocks share the positions of a tile. Of large arrays of wider
# elements they read twice as much (H200, any uint32 (8758, 11037) off by one: 125 us, so 107 us; but squares bfloat16
# (1992833, 43): 108 and 192 us).
# They read more where a thread would have few positions of a large array, or rows of wider elements are no whole lines
# (H200, max uint64 (128, 64, 128, 4) along its first axis: 25.5 us, so 10.5 us; max int64 (316224, 14, 23): 229 and 194
# us; but any int16 (64, 256, 512): 7.5 and 10.4 us; lambda int16 (19523, 62, 60): 44 and 52 us).
FAR_LINE_BYTES, MAX_FAR_LENGTH, MIN_FAR_BYTES, MIN_ODD_FAR_BYTES, WHOLE_LINE_BYTES = 512, 128, 1 << 25, 1 << 27, 128
# The same of single elements of 8 bytes in rows that are no whole lines, but long (H200, max uint64 (233207, 417): 240
# us, so 212 us; but squares float64 (761113, 33): 68 and 87 us).
ODD_LINE_BYTES, MIN_ODD_NEAR = 256, 128
ALONE_LENGTHS = 1024, 2048  # of few units of neighbours, which have one block each
# Of so many units of words with fewer positions, a thread has more of these (H200, any uint8 (251, 115686): 26.9 us, so
# 19.0 us; argmax int16 (31, 73, 2025) along axis 1: 15.5 and 7.7 us; but sum bool (67, 212, 876): 7.2 and 10.8 us).
MANY_WORDS, LONG_COLUMN = 144 * SMS, 384
# Threads of several columns are half as many where each would have fewer positions than it has in flight, unless there
# are few (H200, sum bool (2, 2, 85, 8458) along axis 2: 6.1 us, so 3.6 us; max int16 (16, 200, 4096) along axis 1: 9.4
# and 8.4 us).
MIN_COLUMNS_LENGTH = 8
# Of small arrays, fewer columns of a block make fewer blocks share positions; so do more groups (H200, squares int8
# (5385, 39): 4.9 us, so 2.8 us; sum bool (16384, 64): 6.0 and 4.3 us; but any int8 (128, 16384): 1.9 and 3.2 us).
MAX_SECTORS_BYTES, MAX_SMALL_BYTES = 1 << 20, 1 << 21
# Positions whose neighbours in other slices would be read by parts of sectors (H200, max int8 (2048, 32768, 2) along
# axis 1: 145 us, so 58 us; but argmax uint8 (2048, 128, 8): 3.3 and 4.0 us).
MIN_NEAR_LENGTH = 256
# Words of partials of a thread from which on blocks have twice as many threads and are half as many, with more words of
# columns in flight (H200, sum uint8 (262144, 64): 16.6 us, so 11.8 us; but of fewer, max uint64 (16384, 2, 8): 3.5 and
# 3.7 us; of elements in order, lambda float16 (404003, 139): 55 and 73; of words, sum bool (751403, 259): 108 and 141).
MIN_COLLECTED, JOINED_UNROLL, MAX_JOINED_BYTES = 12, 16, {"words": MAX_FEW_BYTES, "element": 2 * MAX_FEW_BYTES}
# Bytes up to which vectors of words do without for indexes (H200, argmax int32 (10364, 76): 6.6 us, so 5.8 us).
MAX_SHARED_INDEXES = 1 << 22
# In large arrays they do so, too, where bytes are combined in order (lambda int8 (32000, 8000): 100 us, so 88 us; with
# 512 bytes 99 us; but of 2 bytes, lambda int16 (4, 262144, 32) along axis 1: 25 and 31 us).
ORDERED_LINE_BYTES = 256
# So many threads share one of the runs of a result; of shorter runs, neighbouring threads have neighbouring results. So
# they have of few results, whose runs are no whole lines (H200, sum int32 (447, 1068, 20) along axes 0 and 2: 14.0 us,
# so 12.3 us; but max int8 (300, 2000, 128): 25.5 and 30.2 us; squares float32 (64, 30000, 24): 43 and 46 us).
MIN_RUN_VECTORS = 4
# Vectors in flight of large arrays of long columns of bytes that are summed (H200, sum bool (1470129, 80): 56.6 us, so
# 47.2 us; uint8 (729835, 112): 35.4 and 30.1 us; (125112, 560): 29.8 us with both).
SUMS_UNROLL, SUMS_BYTES, MIN_SUMS_LENGTH = 16, (1 << 26, 1 << 27), 1 << 13
MAX_TRIP_WORDS = 8  # of states that a collector reads at once: of larger ones, fewer blocks share positions
THIN_BYTES, MIN_THIN, MAX_THIN = 4, 64, 1024  # that a thread loads of an array of few vectors side by side; positions
# Vectors that begin anywhere, which a thread has in flight (more are four and four); and bytes of a row of integers,
# of which it has as many aligned vectors of 4 bytes (H200, any uint16 (6, 8386770): 48 us, so 33 us; argmax int16 (7,
# 951422): 7.9 and 6.7 us; but sum bfloat16 (7, 6253134): 26.7 and 28.4 us).
MAX_AT_ONCE, MIN_AT_ONCE = 7, 1 << 23
MIN_RUN_BYTES, MIN_SLOW_RUN_BYTES = 128, 257  # shorter runs are read element by element
MIN_WHOLE_RUN = 513  # the same, of whole vectors (max float32 (4096, 256, 32) with gaps: 70 us, so 39 us)
MIN_RUNS_BYTES = 512  # the same, where a result has several runs
MIN_INDEXED_BYTES = 1 << 20  # the same of an array whose indexes are not in the order of its memory
# Of such an array, whose runs are whole vectors (H200, argmax float32 (256, 65536), transposed: 39.5 us, by vectors
# 20.8 us; but of longer runs, int16 (4096, 7, 380): 12.2 and 14.3 us).
MIN_INDEXED_RUN = 4096
# Eight lanes reduce such a run, a warp a longer one, and some shorter ones of a few (H200, argmax bool (2494, 1433):
# 5.6 us, so 3.8 us; squares uint8 (19, 103): 4.1 and 2.4 us; but sum int16 of 64 elements: 1.4 and 1.6 us).
SHORT_RUN_BYTES, MAX_FEW_RUNS, MIN_WARP_RUN = 2048, 32 * SMS, 768
PIECE_BYTES = (2048, 8192)  # pieces of runs: small ones where there are few


def choose(problem: StridedProblem) -> StridedChoice:
    """Return the policy and the launch of a problem."""
    inputs, kept = problem.inputs, problem.form.kept
    repeated = [i for i, axis in enumerate(kept) if not any(axis.steps[:inputs])]
    repeated.sort(key=lambda i: set(kept[i].steps[inputs:]) != {1})
    found = copies(problem, repeated[0]) if repeated else None
    if found is None:
        return _choose(problem)
    return copied(_choose(without_copies(problem, repeated[0], *found)), problem, repeated[0], *found)


def _choose(problem: StridedProblem) -> StridedChoice:
    turned = turned_policy.choose(problem)
    if turned is not None:
        return turned
    problem = blocked(problem)
    form = problem.form
    if form.reduced and all(step == 1 for step in form.reduced[-1].steps):
        found = masked_policy.choose(problem) or _of_runs(problem)
        if found is not None:
            return found
    columns = smallest_step(form.kept) < smallest_step(form.reduced)
    load, load_bytes, pace = load_of(problem, columns)
    if load == "element":
        slices = slice_policy.choose(problem)
        if slices is not None:
            return slices
        load, load_bytes = ("words", WORD_BYTES) if columns and words_of_few(problem) else (load, load_bytes)
    return _of_loads(problem, columns, load, load_bytes, pace)


def _of_loads(problem: StridedProblem, columns: bool, load: str, load_bytes: int, pace: int) -> StridedChoice:
    """Return the choice of threads that load so much at once of neighbouring results (``columns``), or of one."""
    form = problem.form
    alone = load == "vector" and pace == 1 and _is_alone(problem, load_bytes // problem.size)
    thin = load == "vector" and pace == 1 and columns and not alone and _is_small(problem, load_bytes)
    load_bytes = THIN_BYTES if thin else load_bytes
    boundary = load == "words" and are_on_boundaries(problem, load_bytes)
    kind, each = "vector" if boundary else load, load_bytes // problem.size // pace
    width = each if columns else 1
    kept, extent = axes_of_units(form, width, load, each)
    reduced = positions_of(form, each, load)
    units, length = (math.prod(axis.extent for axis in axes) for axes in (kept, reduced))
    runs = load == "row" and len(reduced) > 1  # of which a result has several
    apart = runs and not form.weights and _are_apart(units, reduced[-1].extent, load_bytes)
    across = (columns and not alone) or apart
    near = _near(kept, reduced, load_bytes) if across else 0
    loads = "element" if pace > 1 else "vector" if runs else load, load_bytes, problem
    groups = _groups(units, near, length, load_bytes, problem) if near else along(units, length, *loads)
    total = units * width * length * problem.size
    whole = columns and len(kept) == 1 and problem.size <= 2 and not problem.floats and total >= MIN_AT_ONCE
    unroll = _unroll(problem, width, (kind, load_bytes), length, whole)
    ordered = not columns and not across and (not problem.in_turn or pace > 1) and takes_neighbours(problem, groups)
    unroll = in_flight(unroll, length, groups) if ordered or (load == "row" and groups > 1 and not runs) else unroll
    tiles = ceil_div(units, THREADS // groups)
    blocks = _blocks(problem, total, 0 if columns or load != "element" else units * length, unroll * load_bytes)
    most = math.isqrt(length // unroll) if width * problem.words > MAX_TRIP_WORDS else length
    splits = splits_of(problem, tiles, units * width, min(most, length // (groups * unroll * (1 + thin))), blocks)
    shared, threads, least = columns and problem.in_turn and splits > 1, THREADS, MIN_COLLECTED * groups
    beside = shared and smallest_step(form.kept) * problem.size <= load_bytes
    lone = lone_block(kind, load_bytes, units, near, length, total, groups, splits) if beside else None
    if lone is not None:
        splits, (threads, groups), tiles = 1, lone, ceil_div(units, lone[0] // lone[1])
    elif shared and not alone and width * problem.words * splits >= least and _are_joined(problem, kind, total):
        splits, threads, groups = ceil_div(splits, 2), 2 * THREADS, 2 * groups
    if threads > THREADS and (kind, load_bytes) == ("vector", WORD_BYTES):
        unroll = JOINED_UNROLL
    splits = _even(splits, tiles) if columns else splits
    store = store_of(problem, width) if load in ("vector", "words") else "element"
    joins = load == "words" and groups == splits == 1 and store == "element" and are_joined(problem, width)
    policy = (JoinedPolicy if joins else OrderedPolicy if ordered else StridedPolicy)(
        power_of_two(len(kept)),  # few ranks, so that there are few kernels
        power_of_two(len(form.reduced)),
        across,
        load,
        load_bytes,
        threads // groups,
        groups,
        unroll,
        problem.in_turn and (load != "row" or (groups > 1 and pace == 1) or bool(form.weights)),  # else alone
        splits > 1,
        max(units, length) >= 1 << NUMBER_BITS,
        store=store,
        repeated=form.repeats > 1,
        indexed=bool(form.weights),
        pace=pace,
        boundary=boundary,
        resident=1 if threads > THREADS else resident_of(splits * tiles, (load, load_bytes), problem),
    )
    choice = StridedChoice(policy, splits, tiles, kept, reduced, extent=extent, repeats=form.repeats)
    return with_results(choice, results_of(problem, policy, units, length), units, length)


def _are_joined(problem: StridedProblem, kind: str, total: int) -> bool:
    """Return whether blocks whose threads would combine many partials are half as many of twice as many threads."""
    indexes = kind == "vector" and problem.places and problem.size == WORD_BYTES
    return total <= MAX_JOINED_BYTES.get(kind, total) and not (indexes and total <= MAX_SHARED_INDEXES)


def _of_runs(problem: StridedProblem) -> StridedChoice | None:
    """Return the choice for axes of which the last is contiguous; None if elements are read one by one."""
    form = problem.form
    run_bytes = form.reduced[-1].extent * problem.size
    count = form.results * form.length
    few = form.weights and count * problem.size < MIN_INDEXED_BYTES
    short = MIN_RUN_BYTES <= run_bytes <= slice_policy.most_of_row(problem)
    slices = slice_policy.choose(problem) if short else None
    if slices is None and run_bytes >= _least_run(problem) and not few:
        return _runs(problem)
    return slices


def _least_run(problem: StridedProblem) -> int:
    """Return how many bytes a run has, at least, that is not read element by element."""
    load, load_bytes, _ = load_of(problem, False)
    if load == "row" and problem.form.weights:
        return MIN_INDEXED_RUN
    if load == "row" and load_bytes == VECTOR_BYTES and problem.in_turn and len(problem.form.reduced) == 1:
        return MIN_WHOLE_RUN
    if len(problem.form.reduced) > 1:
        return MIN_RUNS_BYTES
    if not problem.in_turn:
        return slice_policy.ORDERED_ROW_BYTES + 1
    return MIN_SLOW_RUN_BYTES if problem.size == 8 else MIN_RUN_BYTES


def _is_alone(problem: StridedProblem, width: int) -> bool:
    """Return whether a vector is all neighbouring results, and the next positions lie closer to it than others."""
    form = problem.form
    last = form.kept[-1].extent == width and problem.in_turn and all(axis.steps[0] for axis in form.kept)
    near = bool(form.reduced) and 0 < form.reduced[-1].steps[0] * problem.size <= LINE_BYTES
    least, most = (4 * MIN_GROUPS, form.length) if form.results >= MIN_ALONE * width else ALONE_LENGTHS
    return last and near and least <= form.length <= most


def _is_small(problem: StridedProblem, load_bytes: int) -> bool:
    """Return whether threads have few neighbouring columns of small elements: those of an array that is not large, with
    few vectors of columns, are combined by fewer threads then (H200, sum uint16 (512, 1024) along axis 0: with vectors
    of 16 bytes 5.1 us, of 4 bytes 2.6 us; max float16 (64, 1024, 512): 17.7 and 19.8 us; any uint16 (256, 32768): 6.3
    and 8.7 us)."""
    form, size = problem.form, problem.size
    vectors = form.results * size // load_bytes
    small = form.results * form.length * size * size < MAX_FEW_BYTES and vectors <= MAX_THIN
    return load_bytes > THIN_BYTES > size and form.length >= MIN_THIN and small


def _unroll(problem: StridedProblem, width: int, load: tuple[str, int], length: int, whole: bool) -> int:
    """Return how many positions a thread, which has ``width`` results, has in flight: of fewer than 8 words 4, as those
    at the end are read one by one (H200, sum float16 (4, 28536675) along axis 0: with 8 in flight 184 us, with 4 118
    us; but of 14 words, max int16 (14, 8846053): 131 and 194 us), of vectors that begin anywhere, too, but all of up to
    7 of these, and of those of 4 bytes if ``whole``."""
    sums = whole and (load[0], width, problem.words) == ("vector", 8, 2) and not (problem.mapped or problem.places)
    total = problem.form.results * problem.form.length * problem.size
    if sums and SUMS_BYTES[0] <= total <= SUMS_BYTES[1] and length >= MIN_SUMS_LENGTH:
        return SUMS_UNROLL
    words, anywhere, wide = problem.words * width, load[0] == "words", load[1] > WORD_BYTES
    if words <= 16 and 4 < length <= MAX_AT_ONCE and (wide if anywhere else whole and load == ("vector", WORD_BYTES)):
        return length
    return 4 if words > 16 or (anywhere and (4 <= length < 8 or wide)) else 8


def _blocks(problem: StridedProblem, total: int, singles: int, flight: int) -> int:
    """Return how many blocks of a multiprocessor share an array of ``total`` bytes, of which so many elements are read
    one by one, and of whose threads each has so many bytes in flight."""
    slow = singles > MAX_FEW_SINGLES and (len(problem.form.reduced) > 1 or not problem.in_turn)
    few = total <= MAX_FEW_BYTES and not slow
    return 2 if few else max(2, min(8, FLIGHT_BYTES // (THREADS * flight)))


def _groups(units: int, near: int, length: int, load_bytes: int, problem: StridedProblem) -> int:
    """Return the groups of a block whose threads are neighbours on results: few numbers, so that there are few
    kernels. Of ``units``, so many are ``near`` each other."""
    total, size = units * length * load_bytes, problem.size
    line = SECTOR_BYTES if total <= MAX_SECTORS_BYTES and 4 * length >= units else LINE_BYTES
    line = 2 * LINE_BYTES if total > MAX_FEW_BYTES and size >= WORD_BYTES else line
    odd = size >= WORD_BYTES and total > MIN_ODD_FAR_BYTES and units * load_bytes % WHOLE_LINE_BYTES != 0
    far = odd or (length <= MAX_FAR_LENGTH and total >= MIN_FAR_BYTES)
    line = FAR_LINE_BYTES if far and load_bytes == VECTOR_BYTES else line
    line = ODD_LINE_BYTES if odd and load_bytes == size == 8 and near >= MIN_ODD_NEAR else line
    if not problem.in_turn and size == 1 and load_bytes == VECTOR_BYTES and total >= MIN_FAR_BYTES:
        line = max(line, ORDERED_LINE_BYTES)
    lanes = min(power_of_two(near), max(8, line // load_bytes))
    most = max(1, FULL_UNITS // units)
    many = load_bytes == WORD_BYTES and units >= MANY_WORDS and length < LONG_COLUMN
    small = total <= MAX_SMALL_BYTES
    counts = (16, 8, 4) if small else (4,) if many else (16, 4)
    fits = (g for g in (128, 64, 32, *counts) if 4 * g <= length and g * lanes <= THREADS and g <= 2 * most)
    found = next(fits, 1)
    short = not small and load_bytes > size and length < MIN_COLUMNS_LENGTH * found
    return found // 2 if short and found > 4 and found * units >= LEFT_UNITS else found


def _are_apart(results: int, vectors: int, load_bytes: int) -> bool:
    """Return whether neighbouring threads have neighbouring results, each of runs of so many vectors."""
    few = MIN_GROUPS * results < FULL_UNITS // 4
    return results > 1 and (vectors < MIN_RUN_VECTORS or (few and vectors * load_bytes < WHOLE_LINE_BYTES))


def _near(kept: tuple[Axis, ...], reduced: tuple[Axis, ...], load_bytes: int) -> int:
    """Return how many units lie beside each other before the next position, if they are no sector; else of all."""
    length, position = (reduced[-1].extent, reduced[-1].steps[0]) if reduced else (0, 0)
    few = all(axis.steps[0] > position > 0 for axis in kept[:-1]) and kept[-1].extent * load_bytes < SECTOR_BYTES
    few &= length >= MIN_NEAR_LENGTH
    return kept[-1].extent if few else math.prod(axis.extent for axis in kept)


def _even(splits: int, tiles: int) -> int:
    """Return how many blocks share a tile so that multiprocessors have equally many, at most ``splits`` and hardly
    fewer (H200, sum uint8 (12101, 574): with 15 blocks 11.2 us, with 14 9.4 us; but argmax bfloat16 (2, 56, 5474, 18)
    along axis 2: with 5 blocks 11.8 us, with 4 12.9 us)."""
    counts = range(splits, splits * 9 // 10, -1)
    return min(counts, key=lambda count: ceil_div(count * tiles, SMS) / (count * tiles))


def _runs(problem: StridedProblem) -> StridedChoice:
    """Return the choice for axes of which the last is contiguous."""
    form = problem.form
    *outer, (run, (*_, step)) = form.reduced
    row_bytes = form.length * problem.size
    full = form.results >= FULL_RUNS * SMS or row_bytes <= PIECE_BYTES[0]  # enough warps with a result each
    eight = row_bytes <= (MIN_WARP_RUN if form.results <= MAX_FEW_RUNS else SHORT_RUN_BYTES) and problem.in_turn
    groups = (8 if eight else LANES) if full else THREADS
    piece_bytes = next((size for size in PIECE_BYTES if form.results * row_bytes <= size * 32 * SMS), PIECE_BYTES[-1])
    if row_bytes < piece_bytes * (THREADS // LANES):  # a piece for each warp of a block
        piece_bytes = PIECE_BYTES[0]
    piece = run if full and len(outer) == 0 and row_bytes <= PIECE_BYTES[-1] else piece_bytes // problem.size
    pieces = ceil_div(run, piece)
    positions = pieces * form.length // run
    tiles = ceil_div(form.results, THREADS // groups)
    blocks = 2 if form.results * row_bytes <= MAX_FEW_BYTES else 4
    splits = 1 if full else splits_of(problem, tiles, form.results, positions // (THREADS // LANES), blocks)
    weights = form.weights or [math.prod(axis.extent for axis in form.reduced[i + 1 :]) for i in range(len(outer) + 1)]
    axes = [Axis(axis.extent, (*axis.steps, 0, weight)) for axis, weight in zip(outer, weights)]
    axes.append(Axis(pieces, (*(piece * step,) * problem.inputs, piece, piece * weights[-1])))
    policy = RunPolicy(
        power_of_two(len(form.kept)),
        power_of_two(len(axes)),
        False,
        "vector",
        problem.size,
        THREADS // groups,
        groups,
        4,
        problem.in_turn,
        splits > 1,
        max(form.results, positions) >= 1 << NUMBER_BITS,
        repeated=form.repeats > 1,
        indexed=bool(form.weights),
        resident=1 if problem.in_turn else resident(splits * tiles, RESIDENT_RUNS),
    )
    return StridedChoice(policy, splits, tiles, form.kept, tuple(axes), run, repeats=form.repeats)
