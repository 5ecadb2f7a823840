"""What decides the order of additions for any number of rows (``batch_invariant``): N, K and the types alone.

K may be cut in slices, which every number of rows then has: without them, few rows by few columns would leave most
multiprocessors idle. Slices are added in the order of K, whichever blocks have them (``split``), or by one block that
multiplies them one behind the other (``MatmulPolicy.slices``), which suits many rows; so the sum has the same bits in
every tile. Of float32 that holds with config=None."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .model import MIN_K_TILES, shortlists
from .policy import K_TILE_BYTES
from .workload import Workload

SLICED_ROWS = (16, 64, 256, 1024, 4096)  # of products that decide into how many slices K is cut for those of any number
SLICES, MOST_LOST = (2, 3, 4, 8), 0.1  # so many; the most that one of these products should lose, of a logarithm
INVARIANT_ROWS = 128  # of a product that decides for those of the same N and K (``batch_invariant``)


def parts_of_any_rows(product: Any) -> bool:
    """Whether the model would split float32 operands in the kernel for ``INVARIANT_ROWS`` rows of A."""
    (k, n), size = product.b.shape[-2:] if len(product.b.shape) > 1 else (*product.b.shape, 1), product.b.dtype.size
    m, k_tiles, out_bytes = INVARIANT_ROWS, -(-k * size // K_TILE_BYTES), product.out.dtype.size
    in_kernel = Workload(n, m, k_tiles, 1, out_bytes, True, 1, parts=True)
    moved = (m + n) * (k * size + 3 * k_tiles * K_TILE_BYTES)
    before = Workload(n, m, 3 * k_tiles, 1, out_bytes, True, 1, copies=2, copied=moved)
    in_kernel_best, before_best = shortlists((in_kernel, before))
    return in_kernel_best[0][0] <= before_best[0][0]


@functools.lru_cache(maxsize=1024)
def slices_of_any_rows(n: int, k_tiles: int, out_bytes: int, promoted: bool, parts: bool) -> int:
    """Of K, for products of any number of rows: those of ``SLICED_ROWS`` lose least against a free choice in the
    geometric mean, by the model, and none much, if that can be. No slice is empty."""
    counts = [count for count in SLICES if max(count * MIN_K_TILES, -(-k_tiles // count) * (count - 1) + 1) <= k_tiles]
    loads = [
        Workload(n, m, k_tiles, 1, out_bytes, promoted, count, parts=parts)
        for count in (0, 1, *counts)
        for m in SLICED_ROWS
    ]
    clocks = np.log([ranking[0][0] for ranking in shortlists(loads)]).reshape(-1, len(SLICED_ROWS))
    lost = clocks[1:] - clocks[0]
    most = lost.max(1)
    return (1, *counts)[int(np.where(most <= MOST_LOST, lost.mean(1), MOST_LOST + most).argmin())]
