"""What lies behind the selected elements of results of a given size: every block fills a part of it."""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Int64

from ...warp import LANES


def fill_rest(a, selection, total, worker, workers, lane) -> None:
    """Fill the elements of all results from ``total`` on. ``worker`` is the number of this warp of ``workers``."""
    *values, last = (*a.fill, None) if selection.lengths is None else a.fill
    results = list(zip(a.out, values))
    if selection.indices:
        results += [(array, values[-1]) for array in a.places.arrays]
    if selection.lengths is not None:
        results.append((a.lengths, last))
    for out, value in results:
        fill_result(out, value, total + Int64(worker) * LANES + lane, a.capacity, Int64(workers) * LANES)


@cute.jit
def fill_result(out, value, at, capacity, step):
    while at < capacity:
        cute.make_tensor(out + at, cute.make_layout((1,)))[0] = value
        at += step
