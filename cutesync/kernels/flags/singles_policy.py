"""When threads have single results, a block's threads apart: a pure function of extents, strides, types and alignment,
not of the GPU."""

from __future__ import annotations

import math
from dataclasses import replace

from ..hardware import VECTOR_BYTES
from .policy import ONE_VECTOR_THREADS
from .strided_choice import Facts, FlatPolicy, SinglesPolicy, StridedChoice

WIDE, WORD = 8, 4  # bytes
# Of a thread, if so many threads have as many (H200, along their second axes, both float64 (695814, 3, 7): in vectors
# 53.4 us, four a thread 38.7 us, eight 50.0 us; heads float64 (6504944, 2, 2): 59.1, 54.5 and 54.5 us, two 64.0 us).
SINGLES = 4, 2
# Differences of four bytes of fewer results (H200, difference int32 (2532, 3, 175) along its second axis: 5.0 us, so
# 4.1 us; but uint32 (110450, 3, 59), of 20 million: 38.8 and 39.6 us).
MAX_WORDS = 1 << 21
# Rows of wide elements of so many bytes have single results in place of tiles of single columns (H200, difference int64
# (175, 3603, 33) along its second axis: 94.9 us, so 80.8 us; but tails int64 (7, 61, 13629): 14.9 and 17.0 us).
MAX_ROW_BYTES = 1 << 13
SINGLE = {"vector": 1, "piece": 1, "near": 1, "long": False, "by_words": False, "close": False, "uniform": False}
# Of a thread of a small array of one or two bytes whose neighbours are loaded in less than words: two, from so many on
# four, up to so many (H200, along their first axes, heads float16 (1, 74533, 3): in vectors 1.4 us, two a thread 1.3
# us, four 1.1 us; both int16 (8192, 2): 1.06, 0.81 and 1.05 us; both bool (50074, 5): 1.8, 1.6 and 1.2 us; but heads
# uint8 (82849, 10): 1.9, 2.2 and 2.0 us), and of two bytes off by one in larger arrays (both int16 (3357, 189): 3.2 us,
# so 2.2 us; tails int16 (2947, 55, 15) along its second axis: 5.5 and 4.4 us; but heads bfloat16 (181668, 19): 5.4 and
# 5.8 us). Of two items along the axis, half have no neighbour, which vectors of an end use (difference bfloat16 (13304,
# 2, 23): 1.4, 1.9 and 2.1 us).
MIN_FOUR, MAX_SMALL, MAX_SMALL_OFF, MAX_NEAR = 1 << 17, ONE_VECTOR_THREADS * 3, 3 << 20, 2
# Vectors of a thread, each a slice, of two elements or so many bytes (H200, along their last axes, of which the one
# before runs backwards, difference uint16 (64, 262144, 4, 2): one 319 us, two 169 us, four 156 us, eight 179 us; heads
# uint8 (1702768, 8, 4): 71, 47, 44 and 56 us; but both uint16 (357004, 5, 8): 21.5, 21.7, 22.4 and 24.1 us).
SHORT, SHORT_BYTES, MIN_SHORT = 4, 8, 4 * ONE_VECTOR_THREADS


def in_singles(choice: StridedChoice, facts: Facts) -> StridedChoice:
    """Return the launch of single results in place of one whose threads load elements one by one."""
    policy = choice.policy
    if not isinstance(policy, FlatPolicy) or policy.counted or policy.periodic:
        return choice
    if _is_short(choice, policy, facts):
        return replace(choice, policy=SinglesPolicy(**vars(policy) | _of_short(choice, policy, facts), singles=SHORT))
    count = _of_small(choice, policy, facts)
    if count == 0 and _loads_singly(policy, abs(choice.axes[0].steps[0]), choice.work, facts):
        count = next((n for n in SINGLES if choice.work >= n * ONE_VECTOR_THREADS), 0)
    if count == 0:
        return choice
    return replace(choice, policy=SinglesPolicy(**vars(policy) | SINGLE, singles=count))


def _of_small(choice: StridedChoice, policy: FlatPolicy, facts: Facts) -> int:
    """Return the results of a thread of a small array of small elements whose neighbours would be loaded in less than
    words; 0 for others."""
    few = policy.vector == 1 or choice.counts[0] <= 2 * choice.axes[0].extent
    if facts.size >= WORD or few or not policy.whole or policy.adjacent or policy.close or policy.near > MAX_NEAR:
        return 0
    if choice.work < MIN_FOUR:
        return SINGLES[1] if policy.long else 0
    return SINGLES[0] if choice.work <= (MAX_SMALL_OFF if policy.piece == 1 < facts.size else MAX_SMALL) else 0


def _is_short(choice: StridedChoice, policy: FlatPolicy, facts: Facts) -> bool:
    """Return whether slices, each of one vector of a thread, are less than the bytes that a thread might load."""
    vector, slices = policy.vector, choice.counts[0]
    one = 1 < vector == slices and not (policy.whole or policy.equal or policy.row or policy.back)
    one = one and (vector == 2 or vector * facts.size <= SHORT_BYTES)
    return one and policy.pace == 1 and choice.axes[0].steps[0] == 1 and choice.work >= MIN_SHORT * vector


def _of_short(choice: StridedChoice, policy: FlatPolicy, facts: Facts) -> dict:
    """Return how elements of such slices are loaded."""
    starts, piece = math.gcd(*(axis.steps[0] for axis in choice.axes[1:])), policy.vector
    while facts.aligned % (piece * facts.size) or starts % piece:
        piece //= 2
    return {"piece": piece, "near": math.gcd(piece, choice.axes[0].extent), "long": False, "by_words": False}


def beats_tiles(choice: StridedChoice, facts: Facts) -> bool:
    """Return whether a launch has single results of wide elements whose neighbours along the axis are near."""
    policy, distance = choice.policy, choice.axes[0].extent
    singles = isinstance(policy, SinglesPolicy) and policy.singles == SINGLES[0]
    return singles and facts.size == WIDE and distance * facts.size <= MAX_ROW_BYTES


def _loads_singly(policy: FlatPolicy, step: int, work: int, facts: Facts) -> bool:
    """Return whether wide elements would be loaded one by one, or differences of four bytes in less than vectors. Of
    elements that lie apart on the flagged axis, only the latter gain (H200, difference uint32 (13802, 25, 145), every
    third: 242 us, so 181 us; but int16, every 16th: 3.7 and 4.6 us; both int64, every other: 12.7 and 13.0 us)."""
    words = facts.size == facts.result == WORD
    if policy.equal or policy.row or step == 0:
        return False
    if policy.adjacent or step > 1:
        return words and policy.adjacent and step > 1 and policy.vector == 1
    few = words and work < MAX_WORDS and policy.vector <= VECTOR_BYTES // WORD
    return (few or facts.size == WIDE) and min(policy.piece, policy.near) * facts.size < VECTOR_BYTES
