"""What lies behind the selected elements of results of a given size: every block fills a part of it."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int64

from ...warp import LANES


@cute.jit
def fill_rest(a: cutlass.Constexpr, total, worker, workers, lane):
    """Fill the elements from ``total`` on. ``worker`` is the number of this warp of ``workers``."""
    results = (*a.out, *((a.places,) if len(a.fill) > len(a.out) else ()))
    for out, value in zip(results, a.fill):
        at = total + Int64(worker) * LANES + lane
        while at < a.capacity:
            cute.make_tensor(out + at, cute.make_layout((1,)))[0] = value
            at += Int64(workers) * LANES
