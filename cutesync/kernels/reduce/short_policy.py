"""How many results a thread of strided arrays has where each has few positions: a pure function of the problem and the
policy of one a thread."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

from ...sizes import ceil_div, power_of_two
from ..hardware import SMS, VECTOR_BYTES
from .strided_problem import THREADS, ShortPolicy, StridedChoice, StridedPolicy, StridedProblem

FULL_UNITS = 8 * SMS * THREADS  # from so many on, a thread reduces its results alone
SHORT_LOADS, SHORT_BYTES = 8, 64  # of a thread in flight, where results have few positions
# So many threads are left where each has more results, or positions (H200, max uint32 (26, 2, 9647, 1) along its last
# axis, transposed: with four times as many 5.8 us, with these 3.5 us; max uint8 (464, 2, 1130) along its second axis:
# 4.6 and 2.0 us).
LEFT_UNITS = FULL_UNITS // 4


def with_results(choice: StridedChoice, results: int, units: int, length: int) -> StridedChoice:
    """Return the choice with so many units of a thread."""
    if results == 1:
        return choice
    fields = {each.name: getattr(choice.policy, each.name) for each in dataclasses.fields(choice.policy)}
    policy = ShortPolicy(**fields | {"unroll": power_of_two(length)}, results=results)
    return replace(choice, policy=policy, tiles=ceil_div(units, THREADS * results))


def results_of(problem: StridedProblem, policy: StridedPolicy, units: int, length: int) -> int:
    """Return how many units a thread has so that enough loads are in flight, and enough threads are left. Of those
    that store more than a vector it has one (H200, sum bool (32768, 2, 2, 512) along axis 2: 84 us, with two 142 us;
    max int8 (2, 18, 2944400) along axis 0, which stores a vector: 64 us, with two 44 us)."""
    width = policy.bytes // problem.size if policy.load == "vector" else 1
    alone = policy.groups == 1 and not policy.split and policy.load != "words" and not policy.wide
    alone &= policy.pace == 1
    if not alone or problem.inputs > 1 or problem.counted or problem.words > 4 or not 0 < length <= SHORT_LOADS // 2:
        return 1
    if width * max(output.size for output in problem.outputs) > VECTOR_BYTES:
        return 1
    results = SHORT_LOADS // power_of_two(length)
    while results > 1 and units < results * LEFT_UNITS:
        results //= 2
    return min(results, max(1, SHORT_BYTES // (power_of_two(length) * policy.bytes)))
