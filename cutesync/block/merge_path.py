"""The merge path: how two sorted lists are cut where their merged list is, without merging them.

The method is that of Green, McColl and Bader (GPU Merge Path, 2012): a binary search along a diagonal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cutlass
from cutlass import Int32, Int64, cute


def merge_path(diagonal, count_a, count_b, b_first: Callable[..., Any]):
    """Return how many of the first ``diagonal`` members of the merged list come from list a, in any thread.

    ``count_a`` and ``count_b`` are the lengths of the lists, ``diagonal`` is 0 to their sum: all Int32, or Int64.
    ``b_first(i, j)`` says whether element j of list b comes before element i of list a (a Boolean): with
    ``b[j] < a[i]``, elements of a come first among equal ones. It is called for elements that exist only. A thread, a
    warp or a block takes the members from one diagonal to another: a[i0:i1] and b[d0 - i0:d1 - i1].
    """
    kind = Int64 if any(isinstance(n, Int64) for n in (diagonal, count_a, count_b)) else Int32
    return _search(kind(diagonal), kind(count_a), kind(count_b), b_first)


@cute.jit
def _search(diagonal, count_a, count_b, b_first: cutlass.Constexpr):
    low = cutlass.max(diagonal - count_b, type(diagonal)(0))
    high = cutlass.min(diagonal, count_a)
    while low < high:
        middle = (low + high) // 2
        if b_first(middle, diagonal - 1 - middle):
            high = middle
        else:
            low = middle + 1
    return low
