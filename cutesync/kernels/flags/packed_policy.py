"""Which arrays are flagged as bits by blocks that join the words of rows from the flags of a run of memory."""

from __future__ import annotations

from ...runtime.layout import Axis
from ...sizes import ceil_div
from ..hardware import LANES, LINE_BYTES, VECTOR_BYTES
from .form import Form
from .strided_choice import THREADS, Facts, PackedPolicy, StridedChoice

# Elements of a row, or else its bytes (H200, bits uint8 (176500, 17): tiles 4.4 us, so 2.5 us; float64 (34490, 27): 4.0
# us by votes, so 3.6 us)
MIN_LENGTH, MIN_ROW_BYTES = 17, 96
# Elements of an array, by those of a row: of fewer, votes take less time (bits int8 (517, 8, 33): 1.6 us, so 1.1 us;
# but (444, 51): 1.0 and 1.2 us); bytes of long rows, and of arrays of these (bits float32 (102, 4213): 1.8 us, so 2.1
# us; float64 (132, 2530): 3.3 us, so 2.1 us)
MIN_ELEMENTS, LONG_BYTES, MIN_LONG_BYTES = ((64, 1 << 13), (33, 1 << 15), (0, 1 << 17)), 1 << 13, 1 << 21
# The same of arrays backwards, by bytes of an element (uint8 (1368593,): votes 1.8 us, so 1.5 us; int16 (2097152,): 3.4
# and 3.1 us; but float32 (948986,): 2.3 and 2.8 us; float64 (7611208,): 16.3 and 19.2 us)
MIN_BACK = {1: 1 << 20, 2: 1 << 21, 4: 7 << 20}
# Of rows apart: elements of the array, of a row, bytes of an element (uint8 (13737, 36), 56 apart: 1.4 us, so 1.5 us;
# int64 (45106, 343), 477 apart: 35.1 and 43 us); distances in rows, unless what lies between is less than a line; those
# of rows that vectors load where they lie (int32 (6375, 1938), 2408 apart: 14.8 and 17.9 us; (14642, 83), 96 apart: 4.3
# and 3.1 us; but of odd rows, uint8 (55957, 415), 593 apart: 35.0 and 11.6 us)
MIN_APART, MIN_APART_ROW, MAX_APART_SIZE, MAX_APART, MAX_VECTORS_APART = 1 << 19, 33, 4, 1.5, 1.17
MIN_FILLED = 0.4  # of elements that are loaded for those between rows: of what rows have
MAX_LENGTH, MAX_WORDS = 1 << 29, (1 << 31) - 1  # places and words are counted in 32 bits
# Bytes of arrays of which a thread has four vectors, two, and two of single bytes (bits float32 (262144, 32, 32): of
# one 436 us, of two 303 us, of four 258 us; float64 (29, 143, 76): of one 2.1 us, of two 1.6 us; but int8 (11958, 394):
# of two 3.4 us, of four 4.2 us; uint8 (2987, 849): of one 2.2 us, of two 2.4 us)
MIN_FOUR, MIN_TWO, MIN_TWO_OF_BYTES = 1 << 24, 1 << 21, 1 << 22
WORDS = 8  # of a sector: those of a block are a multiple


def is_packed(form: Form, size: int, periodic: bool) -> bool:
    """Return whether an array of elements of so many bytes is flagged so: of rows side by side, which have a word or do
    not end where words do, or a little apart, or backwards."""
    length, rows, step = form.flagged.extent, form.others, form.flagged.steps[0]
    if not form.bits or periodic or len(rows) > 1 or abs(step) != 1 or set(form.flagged.steps[1:]) != {1}:
        return False
    if rows and set(rows[0].steps[1:]) != {form.results}:
        return False
    pitch = rows[0].steps[0] * step if rows else length
    small = length <= pitch < MAX_LENGTH and form.rows * form.results <= MAX_WORDS
    if step < 0 or pitch > length:
        least = _least_apart(length, pitch, size, step < 0)
        return small and least is not None and form.rows * length >= least
    wide = length >= MIN_LENGTH or length * size >= MIN_ROW_BYTES
    few = length * size >= LONG_BYTES and form.rows * length * size < MIN_LONG_BYTES
    least = next(count for row, count in MIN_ELEMENTS if length >= row)
    odd = len(rows) > 0 and (length % LANES != 0 or length == LANES)
    return small and wide and odd and not few and form.rows * length >= least


def _least_apart(length: int, pitch: int, size: int, back: bool) -> int | None:
    """Return the elements that an array has at least whose rows lie apart, or run backwards; None if they never do."""
    in_vectors = pitch * size % VECTOR_BYTES == 0
    most = MAX_VECTORS_APART * length if in_vectors else max(MAX_APART * length, length + LINE_BYTES // size)
    if length < MIN_APART_ROW or pitch > most or size > MAX_APART_SIZE:
        return None
    return MIN_BACK[size] if back else MIN_APART


def choose_packed(form: Form, facts: Facts) -> StridedChoice | None:
    """Return the launch, whose first axis has the words of a block as its extent; None for others."""
    if facts.counted or not is_packed(form, facts.size, facts.periodic):
        return None
    length, each = form.flagged.extent, form.results
    vector = VECTOR_BYTES // facts.size
    loaded, two = form.rows * length * facts.size, MIN_TWO_OF_BYTES if facts.size == 1 else MIN_TWO
    unroll = 4 if loaded >= MIN_FOUR else 2 if loaded >= two else 1
    pitch = abs(form.others[0].steps[0]) if form.others else length
    most = THREADS * unroll * vector - (vector - 1)
    words = _words(pitch, each, most)
    if words * LANES < MIN_FILLED * most:
        return None
    policy = PackedPolicy(2, unroll, form.flagged.steps[0] < 0, False)
    (rows,) = form.others or (Axis(1, (0,) * len(form.flagged.steps)),)
    return StridedChoice(policy, (Axis(words, form.flagged.steps), rows), (each, pitch))


def _words(pitch: int, each: int, most: int) -> int:
    """Return how many words, ``each`` of a row, never have more than ``most`` elements, with what lies between rows,
    which begin ``pitch`` elements apart."""
    less = LANES * each - pitch  # of a row than words have bits
    words = most // (LANES - min(less, 0))
    while LANES * (words + 1) - ((words + 1) // each if less > 0 else ceil_div(words, each)) * less <= most:
        words += 1
    return words // WORDS * WORDS
