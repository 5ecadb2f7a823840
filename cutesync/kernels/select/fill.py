"""What lies behind the selected elements of results of a given size: every block fills a part of it."""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Int64

from ...warp import LANES


def fill_rest(a, selection, total, worker, workers, lane) -> None:
    """Fill the elements of all results from ``total`` on. ``worker`` is the number of this warp of ``workers``."""
    results = [*a.out, *([a.places] * selection.indices), *([a.lengths] * (selection.lengths is not None))]
    for out, value in zip(results, a.fill):
        fill_result(out, value, total + Int64(worker) * LANES + lane, a.capacity, Int64(workers) * LANES)


@cute.jit
def fill_result(out: cute.Pointer, value, at, capacity, step):
    while at < capacity:
        cute.make_tensor(out + at, cute.make_layout((1,)))[0] = value
        at += step
