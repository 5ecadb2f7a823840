"""When threads have single results, a block's threads apart: a pure function of extents, strides, types and alignment,
not of the GPU."""

from __future__ import annotations

from dataclasses import replace

from .policy import ONE_VECTOR_THREADS, VECTOR_BYTES
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


def in_singles(choice: StridedChoice, facts: Facts) -> StridedChoice:
    """Return the launch of single results in place of one whose threads load elements one by one."""
    policy = choice.policy
    if not isinstance(policy, FlatPolicy) or policy.counted or policy.periodic:
        return choice
    count = next((n for n in SINGLES if choice.work >= n * ONE_VECTOR_THREADS), 0)
    if count == 0 or not _loads_singly(policy, abs(choice.axes[0].steps[0]), choice.work, facts):
        return choice
    given = vars(policy) | {"vector": 1, "piece": 1, "near": 1, "long": False, "by_words": False}
    return replace(choice, policy=SinglesPolicy(**given, singles=count))


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
