"""When threads have single results, a block's threads apart: a pure function of extents, strides, types and alignment,
not of the GPU."""

from __future__ import annotations

from dataclasses import replace

from .policy import ONE_VECTOR_THREADS, VECTOR_BYTES
from .strided_choice import Facts, FlatPolicy, SinglesPolicy, StridedChoice

WIDE, WORD = 8, 4  # bytes
SINGLES = 4, 2  # of a thread, if so many threads have as many


def in_singles(choice: StridedChoice, facts: Facts) -> StridedChoice:
    """Return the launch of single results in place of one whose threads load elements one by one."""
    policy = choice.policy
    if not isinstance(policy, FlatPolicy) or policy.counted or policy.periodic:
        return choice
    count = next((n for n in SINGLES if choice.work >= n * ONE_VECTOR_THREADS), 0)
    if count == 0 or not _loads_singly(policy, abs(choice.axes[0].steps[0]), facts):
        return choice
    given = vars(policy) | {"vector": 1, "piece": 1, "near": 1, "long": False, "by_words": False}
    return replace(choice, policy=SinglesPolicy(**given, singles=count))


def _loads_singly(policy: FlatPolicy, step: int, facts: Facts) -> bool:
    """Return whether threads have one result, or several of wide elements that no vectors load."""
    if policy.equal or policy.row or step == 0:
        return False
    if step > 1:
        return policy.vector == 1
    loaded = (policy.piece if policy.adjacent else min(policy.piece, policy.near)) * facts.size
    narrow = facts.size == facts.result == WORD and policy.vector <= VECTOR_BYTES // WORD  # else they are joined
    return loaded < VECTOR_BYTES and (facts.size == WIDE or narrow)
