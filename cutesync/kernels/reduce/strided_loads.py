"""What a thread of the kernels of strided arrays loads at once, and how it stores: a pure function of the normal form,
types and alignment."""

from __future__ import annotations

from ...runtime.layout import Axis
from ...sizes import ceil_div
from ..hardware import SMS, VECTOR_BYTES, WORD_BYTES
from .normal import Normal
from .strided_problem import THREADS, StridedProblem

# Registers of the states of a thread, and columns of elements that a callable maps (squares uint8 (8, 4096, 4096): with
# 16 columns 50 us, so 35 us).
MAX_STATE_WORDS, MAX_MAPPED = 16, 8
# But of sums of bytes: of so many results of one slice, with so many positions, in arrays of up to so many bytes, as
# the first of two launches has (sum uint8 (40963, 59): 5.2 us, so 3.9 us; int8 (38218, 77): 4.6 and 4.1 us; but (14193,
# 5408): 31 and 42 us).
SUMS_STATE_WORDS, SUMS_RESULTS, MIN_SUMS_LENGTH, MAX_SUMS_BYTES = 32, (1 << 13, 1 << 14), 64, 1 << 22
# Runs of which a result has several: of so many bytes, each whole units by the size of an element, many results of them
# are read by one launch (H200, sum float32 (512, 64, 64, 2) along axes 0 and 3: 8.0 us, so 6.0 us; sum uint8 (40,
# 20000, 20) along 0 and 2: 9.9 and 7.8 us; but any bfloat16 (32, 1048576, 2): 34.7 and 40.1 us; sum int16 (600, 2000,
# 10): 10.7 and 12.2 us; sum float32 (2000, 600, 16): 20.5 and 21.5 us); and in vectors, if arrays are not small (max
# float32 (2, 15, 426, 2) along 1 and 3: 1.4 and 1.8 us).
MIN_RUN, MAX_RUN, RUN_UNITS = 8, 512, {1: 4, 2: 8, 4: 8, 8: 16}
MIN_RUN_RESULTS, MIN_RUN_ARRAY = 6 * SMS, 1 << 18
# So many elements, whose indexes are not in the order of memory, are read in vectors of short runs (H200, argmax of
# float16 (8, 1646666), transposed: 41.3 us, so 12.9 us; but bfloat16 (4, 16, 2331): 3.3 and 3.8 us).
MIN_INDEXED = 1 << 18
# So many results have a thread each that loads vectors; fewer, of an array of so many bytes, share their runs (H200,
# max uint8 (32768, 128, 2, 32) along axes 0 and 3, with gaps: 301 us by elements, so 66 us).
MIN_ROWS, MIN_FEW_RESULTS = 4 * SMS, 1 << 21
# Columns that begin anywhere are read as vectors if there are many of these, or a callable maps many bytes, and they
# are stored as such, or have many positions (H200, any uint16 (4, 361, 52403) along axis 0: 155 us by words, 43 us by
# vectors; squares int16 (259281, 101): 35 and 24 us; but (8, 512, 256) along axis 1: 3.6 and 5.3 us).
MIN_WIDE_UNITS, MIN_WIDE_LENGTH, MIN_MAPPED_BYTES = SMS * THREADS, 32, 1 << 23
# Bytes that a callable maps are read in pairs of words in an array of so many (H200, squares uint8 (676030, 194): 73
# us, so 65 us; but int8 (100000, 301): 18.4 and 20.0 us).
MIN_PAIRS_BYTES = 1 << 25
# So are others whose states are a word, of a slice with so many positions, up to fewer than the last, in an array of so
# many bytes (H200, any bool (28, 499213): 16.5 us, so 8.2 us; int8 (61, 221470): 11.0 and 6.8 us; but of two words, sum
# uint8 (40, 662750): 11.6 and 14.4 us).
FEW_PAIRS, MIN_FEW_PAIRS_BYTES = (24, 128), 1 << 23
MIN_WORDS_BYTES = 1 << 21  # an array with less is read element by element, in fewer instructions
# But for so many columns of bytes, with so many positions, of an array of so many bytes, or of so many if results are
# indexes (H200, sum bool (13328120, 5) of rows of 9: 82 us, so 56 us; argmax bool (754978, 13): 28.2 and 15.4 us; but
# sum bool (1001229, 6) of rows of 17: 11.5 and 12.5 us; argmax int16 (295314, 13): 9.7 and 10.3 us).
MIN_FEW_COLUMNS, MIN_FEW_LENGTH, MIN_FEW_BYTES, MIN_FEW_INDEXED = 5, 256, 1 << 23, 1 << 21
SHORT_LENGTH, MAX_STORE_BYTES = 8, 32  # with so few positions, a thread stores at most so much consecutive memory
# Elements so far apart, of which words hold several, are read as vectors of memory; of columns if rows of them have
# some (H200, max int8 (1048576, 32), 2 apart: 54 us, so 22 us; lambda float16 (67108864,): 87 and 68 us; but of 4
# bytes, max uint32 (19, 231982): 11.4 and 12.7 us; max bfloat16 (1048576, 4): 7.8 and 10.2 us; argmax bfloat16 (32,
# 2048) along its second axis: 1.5 and 2.6 us).
PACES, MIN_APART_VECTORS, MIN_APART_BYTES = (2, 4), 4, 1 << 20
# The same of a row that is no whole vectors, 2 apart, but of indexes (H200, lambda float16 (265794061,): 323 us, so 248
# us; any uint16 (573693,): 3.6 and 3.1 us; but argmax uint16 (1090377,): 5.1 and 5.6 us; squares int8 (20105955,), 4
# apart: 23.7 and 25.0 us).
MIN_ODD_VECTORS = 16
FULL_RUNS = 16  # of a multiprocessor, each reduced by a warp or less, that fill it
# Blocks of which the registers of a multiprocessor are to hold so many, where there are more than the second number,
# which it holds anyway: of words that begin anywhere (H200, any uint8 (13, 92, 4075) along axis 1, 414 blocks: 6.9 us,
# so 4.9 us; but (21, 309, 4649), 382 blocks: 13.4 and 14.8 us), of vectors of bytes in order (a callable on int8 (1024,
# 65536): 30.4 us, so 22.3 us), and of runs in order (float16 (8930, 1364) apart: 11.6 us, so 10.0 us).
RESIDENT_WORDS, RESIDENT_IN_ORDER, RESIDENT_RUNS = (4, 3), (2, 1), (4, 2)
WAVE_OF_WORDS = 5 * SMS  # blocks that run at once if one more fits (argmax uint16 (95, 79009): 11.9 us, so 9.6 us)


def runs_are_vectors(run: int, results: int, total: int, size: int, begin: int) -> bool:
    """Return whether short runs of elements, of which a result has several, in an array of ``total`` bytes, are read in
    vectors by threads that have all of a result's, or share them: one launch is enough then."""
    many = results >= MIN_RUN_RESULTS and total >= MIN_RUN_ARRAY
    return many and MIN_RUN <= run * size < MAX_RUN and not (run * size | begin) % RUN_UNITS[size]


def load_of(problem: StridedProblem, columns: bool) -> tuple[str, int, int]:
    """Return what a thread loads of neighbouring results (``columns``) or of one, its bytes, and how far apart are the
    elements in it that count."""
    load, load_bytes = _load_of_columns(problem) if columns else _load_of_rows(problem)
    return _load_apart(problem, columns) if load == "element" else (load, load_bytes, 1)


def _load_apart(problem: StridedProblem, columns: bool) -> tuple[str, int, int]:
    """Return the same of elements that are a few apart."""
    form, size = problem.form, problem.size
    single = "element", size, 1
    if not columns and (len(form.reduced) != 1 or problem.counted or form.weights):
        return single
    *others, last = [*form.reduced, *form.kept] if columns else [*form.kept, *form.reduced]
    pace = last.steps[0]
    small = form.results * form.length * size < MIN_APART_BYTES or form.length <= SHORT_LENGTH
    if small or pace not in PACES or pace * size > WORD_BYTES:
        return single
    if problem.inputs > 1 or any(axis.steps[0] <= 0 for axis in others):
        return single
    for wide in (16, 8):
        width = wide // size // pace
        starts = problem.begin % wide == 0 and all(axis.steps[0] * size % wide == 0 for axis in others)
        odd = last.extent % width != 0
        least = MIN_APART_VECTORS * width if columns else MIN_ODD_VECTORS * width if odd else width
        if starts and last.extent >= least and not (odd and (columns or problem.places or pace > 2)):
            return "vector" if columns else "row", wide, pace
    return single


def _load_of_rows(problem: StridedProblem) -> tuple[str, int]:
    """Return what a thread loads of a result whose elements are neighbours, and its bytes."""
    form, size = problem.form, problem.size
    rows = bool(form.reduced) and form.reduced[-1].steps == (1,) and not problem.counted
    several = len(form.reduced) > 1  # runs of a result
    total = form.results * form.length * size
    many = form.results >= MIN_ROWS or (several and (bool(form.weights) or total >= MIN_FEW_RESULTS))
    least = MIN_INDEXED * size if form.weights else MIN_RUN_ARRAY
    if rows and many and not (several and total < least):
        *others, run = [*form.kept, *form.reduced]
        for wide in (16, 8, 4):
            starts = all(axis.steps[0] * size % wide == 0 for axis in others)
            if wide > size and run.extent * size % wide == 0 and starts and problem.begin % wide == 0:
                return "row", wide
    return "element", size


def _load_of_columns(problem: StridedProblem) -> tuple[str, int]:
    """Return what a thread loads of neighbouring results, and its bytes."""
    form, size = problem.form, problem.size
    if problem.inputs > 1 or form.kept[-1].steps[0] != 1:
        return "element", size
    *others, last = [*form.reduced, *form.kept]
    most, short = _state_words(problem) // problem.words, form.length <= SHORT_LENGTH  # columns whose states fit
    if short:
        stored = problem.beside * max(output.size for output in problem.outputs)
        most = min(most, max(1, MAX_STORE_BYTES // stored))
    mapped = min(most, MAX_MAPPED) if problem.mapped else most
    for wide in (16, 8, 4):
        width = wide // size
        if 1 < width <= max(mapped, 4 // size):
            whole = last.extent % width == 0 and all(axis.steps[0] % width == 0 for axis in others)
            if whole and problem.begin % wide == 0:
                return "vector", wide
    least = min((axis.steps[0] * size for axis in others), default=VECTOR_BYTES)
    total = form.results * form.length * size
    reaches = least < WORD_BYTES  # words of other rows than the last would reach beyond the array
    if size > 2 or last.extent < 16 or total < MIN_WORDS_BYTES or reaches:
        return "element", size
    width = VECTOR_BYTES // size
    whole = form.length >= MIN_WIDE_LENGTH or store_of(problem, width) != "element" or are_joined(problem, width)
    wide = (
        whole
        and width <= (most if short else mapped)
        and (form.results >= MIN_WIDE_UNITS * width or (problem.mapped and total >= MIN_MAPPED_BYTES))
        and least >= VECTOR_BYTES
    )
    pairs = problem.mapped and size == 1 and mapped >= 8 and least >= 8 and not short
    if (pairs and total >= MIN_PAIRS_BYTES) or (not wide and _are_few_pairs(problem, least)):
        return "words", 8
    return "words", VECTOR_BYTES if wide else 4


def _state_words(problem: StridedProblem) -> int:
    """Return how many registers the states of a thread may have."""
    results, length = problem.form.results, problem.form.length
    sums = problem.size == 1 and problem.words == 2 and problem.in_turn and not (problem.mapped or problem.places)
    small = len(problem.form.kept) == 1 and SUMS_RESULTS[0] <= results <= SUMS_RESULTS[1]
    small = small and length >= MIN_SUMS_LENGTH and results * length <= MAX_SUMS_BYTES
    return SUMS_STATE_WORDS if sums and small else MAX_STATE_WORDS


def _are_few_pairs(problem: StridedProblem, least: int) -> bool:
    """Return whether bytes of a slice with few positions, at least ``least`` apart, are read in pairs of words."""
    form = problem.form
    cheap = problem.size == problem.words == 1 and problem.in_turn and not (problem.mapped or problem.places)
    few = len(form.kept) == 1 and FEW_PAIRS[0] <= form.length < FEW_PAIRS[1] and least >= 8
    return cheap and few and form.results * form.length >= MIN_FEW_PAIRS_BYTES


def are_on_boundaries(problem: StridedProblem, load_bytes: int) -> bool:
    """Return whether all rows of columns begin on boundaries of ``load_bytes``."""
    *others, _ = [*problem.form.reduced, *problem.form.kept]
    starts = all(axis.steps[0] * problem.size % load_bytes == 0 for axis in others)
    return starts and problem.begin % load_bytes == 0


def resident_of(blocks: int, load: tuple[str, int], problem: StridedProblem) -> int:
    """Return how many of so many blocks are to fit the registers of a multiprocessor."""
    kind, load_bytes = load
    if load == ("words", WORD_BYTES):
        return RESIDENT_WORDS[0] + 1 if blocks <= WAVE_OF_WORDS < blocks + SMS else resident(blocks, RESIDENT_WORDS)
    wide = kind in ("vector", "words") and load_bytes == VECTOR_BYTES and problem.size == 1
    return resident(blocks, RESIDENT_IN_ORDER) if wide and not problem.in_turn else 1


def resident(blocks: int, wanted: tuple[int, int]) -> int:
    """Return the first of two numbers of blocks of a multiprocessor, if there are more blocks than the second."""
    return wanted[0] if blocks > wanted[1] * SMS else 1


def words_of_few(problem: StridedProblem) -> bool:
    """Return whether a few columns of bytes with many positions, which others read element by element, are read in
    words."""
    form, size = problem.form, problem.size
    if problem.inputs > 1 or size > 1 or not form.kept or form.kept[-1].steps[0] != 1:
        return False
    *others, last = [*form.reduced, *form.kept]
    apart = all(axis.steps[0] >= WORD_BYTES for axis in others)  # words do not reach beyond the next row
    large = form.results * form.length >= (MIN_FEW_INDEXED if problem.places else MIN_FEW_BYTES)
    return apart and large and last.extent >= MIN_FEW_COLUMNS and form.length >= MIN_FEW_LENGTH


def are_joined(problem: StridedProblem, width: int) -> bool:
    """Return whether neighbouring threads, each of which has ``width`` results, store these in common vectors."""
    last = problem.form.kept[-1]
    near = all(step == 1 for step in last.steps[problem.inputs :])
    sizes = [output.size for output in problem.outputs]
    return near and all(size < WORD_BYTES and width * size in (8, VECTOR_BYTES) for size in sizes)


def axes_of_units(form: Normal, width: int, load: str, each: int) -> tuple[tuple[Axis, ...], int]:
    """Return the kept axes of units of ``width`` neighbouring results, with the steps of their numbers if they are
    words, and the extent of the last axis; of single results, how many elements of rows lie behind vectors of which
    ``each`` count."""
    if width == 1:
        return form.kept, form.reduced[-1].extent % each if load == "row" else 0
    *others, (extent, steps) = form.kept
    last = Axis(ceil_div(extent, width), tuple(step * width for step in steps))
    if load == "words":
        others = [Axis(axis.extent, (*axis.steps, 0)) for axis in others]
        last = Axis(last.extent, (*last.steps, width))
    return (*others, last), extent


def positions_of(form: Normal, each: int, load: str) -> tuple[Axis, ...]:
    """Return the axes of positions, of which each has so many elements of a row, with the steps of indexes if these are
    not in their order."""
    axes = form.reduced
    if form.weights:
        axes = tuple(Axis(axis.extent, (*axis.steps, weight)) for axis, weight in zip(axes, form.weights))
    if load == "row":
        *others, (extent, steps) = axes
        return (*others, Axis(extent // each, tuple(step * each for step in steps)))
    return axes


def store_of(problem: StridedProblem, width: int) -> str:
    """Return how ``width`` neighbouring results are stored: all outputs run the same way."""
    *others, last = problem.form.kept
    for store, step, back in (("forward", 1, 0), ("backward", -1, width - 1)):
        if all(
            last.steps[problem.inputs + k] == step
            and all(axis.steps[problem.inputs + k] % width == 0 for axis in others)
            and (begin - back * size) % min(VECTOR_BYTES, width * size) == 0
            for k, (size, begin) in enumerate(problem.outputs)
        ):
            return store
    return "element"
