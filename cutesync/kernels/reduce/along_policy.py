"""How threads that are neighbours on positions share those of a result: a pure function of the problem."""

from __future__ import annotations

from ...runtime.workspace import GROUPS, SLOTS
from ...sizes import ceil_div, power_of_two_below
from ..hardware import LANES, SMS, VECTOR_BYTES, WORD_BYTES
from .copies import SECTOR_BYTES
from .policy import COSTLY_WORDS
from .short_policy import FULL_UNITS
from .strided_problem import THREADS, StridedProblem

LINE_BYTES = 64  # that neighbouring threads read, at least
MIN_ALONE = 32  # units; those of fewer have one block each
# Rows of fewer elements in order have eight lanes each, not a warp, if they are many (H200, lambda bfloat16 (41852,
# 173), 3 apart: 20.6 us, so 14.4 us; but of fewer rows, float16 (4300, 441), 5 apart: 6.6 and 8.0 us; (16356, 419):
# 12.3 and 15.4 us).
ORDERED_LENGTH, MIN_ORDERED = 513, 128 * SMS
# Threads that share the positions of a vector and are neighbours; half as many of small vectors with few positions, so
# that each has enough in flight, in arrays of so many bytes, of indexes of words alone (H200, sum bool (65536, 32, 4)
# along axis 1: 8.6 us, so 5.1 us; max int16 (2, 36265, 44) along axes 0 and 2: 5.2 and 3.6 us; squares uint16 (524288,
# 32, 8): 94 and 67 us; max float32 (99219, 32, 4): 14.9 and 14.1 us; but of fewer bytes, sum float16 (6783, 37, 2): 1.4
# and 1.5 us; argmax float32 (9579, 51, 2): 3.1 and 3.8 us).
MIN_GROUPS, MIN_FEWER_BYTES = 8, 5 << 18
# More of them do where each would have so many positions at least, half as many in small arrays, so that fewer blocks
# share these (H200, sum bool (47, 142, 8) along axis 1: 5.1 us, so 2.4 us; sum int64 (106, 141, 2): 2.5 and 1.4 us).
MIN_SHARED, MAX_SHORT_BYTES = 8, 1 << 21
# Lanes that share a row in order take neighbours in turn where each would have a run of so many bytes of memory: else
# each load of a warp takes a line for each lane (H200, lambda float16 (32768, 512), 3 apart: 70 us, so 30 us; shorter
# rows gain little: uint8 (4300, 82), 5 apart: 2.3 and 2.5 us).
MIN_OWN_BYTES, MIN_IN_TURN = SECTOR_BYTES, 64
# Vectors of a row from which on threads share it, and of a thread (H200, sum int8 (220048, 128) with gaps: 18.3 us,
# with four of a thread 10.6 us, with two 8.7 us; any float32 (442726, 56): 31.5, 38.4 and 33.1 us).
MIN_ROW_VECTORS, ROW_UNROLL = 8, 2


def along(units: int, length: int, load: str, load_bytes: int, problem: StridedProblem) -> int:
    """Return the groups of a block whose threads are neighbours on positions, or each have all of a result's."""
    if load == "vector":
        few = length < MIN_SHARED * MIN_GROUPS and units >= MIN_ALONE
        few &= units * length * load_bytes >= MIN_FEWER_BYTES
        few &= load_bytes < VECTOR_BYTES or len(problem.form.reduced) == 1
        few &= problem.words < COSTLY_WORDS or load_bytes <= WORD_BYTES
        return _along_rows(units, length, load_bytes, MIN_GROUPS // 2 if few else MIN_GROUPS)
    if load == "row":
        return _along_row(length, load_bytes)
    groups = _along_reduced(units, length)
    short = not problem.in_turn and groups >= LANES and length < ORDERED_LENGTH and units >= MIN_ORDERED
    return MIN_GROUPS if short else groups


def takes_neighbours(problem: StridedProblem, groups: int) -> bool:
    """Return whether the groups, which share elements in order, take neighbours in turn."""
    if groups < MIN_GROUPS:
        return False
    span = abs(problem.form.reduced[-1].steps[0]) * problem.size * problem.form.length
    far = span >= MIN_OWN_BYTES * groups and problem.form.length >= MIN_IN_TURN
    return groups >= LANES or far


def in_flight(unroll: int, length: int, groups: int) -> int:
    """Return how many positions a thread has in flight, at most ``unroll``, where its groups have ``length``: no more
    than it has."""
    return min(unroll, power_of_two_below(length // groups))


def splits_of(problem: StridedProblem, tiles: int, results: int, most: int, blocks: int) -> int:
    """Return how many blocks share the positions of a tile, at most ``most``, for so many ``blocks`` of a
    multiprocessor."""
    if tiles > GROUPS:
        return 1
    wanted = blocks * SMS // tiles if tiles <= SMS // 4 else ceil_div(blocks * SMS, tiles)
    return max(1, min(wanted, most, SLOTS // (problem.words * results)))


def _along_row(vectors: int, load_bytes: int) -> int:
    """Return how many threads share a row of so many vectors."""
    if load_bytes < VECTOR_BYTES or vectors < MIN_ROW_VECTORS:
        return 1
    return min(MIN_GROUPS, power_of_two_below(vectors // ROW_UNROLL))


def _along_rows(units: int, length: int, load_bytes: int, fewest: int) -> int:
    """Return the groups of a block, at least the ``fewest``, whose threads are neighbours on positions of vectors: they
    read whole lines, and there are enough of them."""
    least = MIN_SHARED // (2 if units * length * load_bytes <= MAX_SHORT_BYTES else 1)
    counts = [fewest, *(g for g in (LANES, THREADS) if least * g <= length or units < MIN_ALONE)]
    return next((g for g in counts if g * load_bytes >= LINE_BYTES and g * units >= FULL_UNITS // 4), counts[-1])


def _along_reduced(units: int, length: int) -> int:
    """Return the groups of a block whose threads are neighbours on positions: each thread has four of them, or two
    where there are few threads (H200, sum int16 (36, 2, 126, 17) along axis 3: 1.7 us instead of 2.4)."""
    few = {groups: groups * units <= (FULL_UNITS if groups <= 8 else FULL_UNITS // 8) for groups in (256, 32, 8)}
    return next((groups for groups in few if (2 if few[groups] else 4) * groups <= length), 1)
