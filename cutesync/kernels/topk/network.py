"""Sorting networks over the registers of neighbouring lanes. Device code.

Register ``c`` of lane ``l`` of a group is at position ``l * len(values) + c``. Every comparison puts the greater value
at the lower position: a run begins with the comparison of a position with its mirror image (Batcher's bitonic sort as
by Knuth, 1973), so none depends on more than one bit of the lane. Comparisons of values of one lane take no shuffle.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute

from ...monoid import choose, tree


def partners(values: list, distance: int) -> list:
    """What the lanes whose numbers differ in the bits of ``distance`` hold."""
    return [type(one)(cute.arch.shuffle_sync_bfly(one, offset=distance)) for one in values]


def compare(values: list, lane, bits: int) -> list:
    """Compare each position with the one whose number differs in ``bits``."""
    apart, within = bits // len(values), bits % len(values)
    if not apart:
        firsts = [max(c, c ^ within) != c for c in range(len(values))]
        return [
            (cutlass.max if first else cutlass.min)(one, values[c ^ within])
            for c, (one, first) in enumerate(zip(values, firsts))
        ]
    others = partners([values[c ^ within] for c in range(len(values))], apart)
    later = (lane & (1 << (apart.bit_length() - 1))) != 0
    return [choose(later, cutlass.min(*pair), cutlass.max(*pair)) for pair in zip(values, others)]


def sort(values: list, lane, count: int) -> list:
    """Sort runs of ``count`` positions, a power of two, the greatest first."""
    for run in range(1, count.bit_length()):
        values = compare(values, lane, (1 << run) - 1)
        for log in range(run - 2, -1, -1):
            values = compare(values, lane, 1 << log)
    return values


def middle(values: list, lane, lanes: int) -> tuple[Any, Any]:
    """``(greatest, limit)`` of the values of each ``lanes`` lanes, two or more: half of them are ``limit`` or more."""
    half = len(values) * lanes // 2
    values = sort(values, lane, half)
    first = lane & -lanes
    fronts = [type(values[0])(cute.arch.shuffle_sync(values[0], first + lane_of)) for lane_of in (0, lanes // 2)]
    upper = [cutlass.max(*pair) for pair in zip(values, partners(values[::-1], lanes - 1))]
    limit = tree(upper, cutlass.min)
    for log in range(lanes.bit_length() - 2):
        limit = cutlass.min(limit, *partners([limit], 1 << log))
    return cutlass.max(*fronts), limit
