"""The order of tiles: which tile of the result a cluster computes first, second, third.

The grid fills the GPU once and stays (a persistent kernel): cluster c of C computes the units c, c + C, c + 2C, ... Units that follow one
another should share rows of A and columns of B while those are in the L2, so units count through the result in bands: ``group`` tiles
side by side, then the next such step along the band, and at its end the next band, walked backwards (a serpentine), because what was
read last is still there.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32


class TileOrder:
    """Numbers the cluster tiles of a batch of results. All extents are counts of cluster tiles.

    ``side`` x ``length`` is the result, seen so that bands run along ``length``: (tiles of M, tiles of N) if ``along_n``, else swapped.
    """

    def __init__(self, cluster: tuple[int, int]) -> None:
        self.cluster = cluster

    @cute.jit
    def units(self, tiles_m: Int32, tiles_n: Int32, batch: Int32):
        """How many cluster tiles there are."""
        return self.clusters_m(tiles_m) * self.clusters_n(tiles_n) * batch

    def clusters_m(self, tiles_m):
        return (tiles_m + self.cluster[0] - 1) // self.cluster[0]

    def clusters_n(self, tiles_n):
        return (tiles_n + self.cluster[1] - 1) // self.cluster[1]

    @cute.jit
    def tile(self, unit: Int32, tiles_m: Int32, tiles_n: Int32, along_n: Int32, group: Int32, rank: Int32):
        """``(m, n, l)``: the tile of block ``rank`` of the cluster that has this unit. It may lie outside the result at its edges."""
        side, length = self.clusters_m(tiles_m), self.clusters_n(tiles_n)
        if along_n == 0:
            side, length = self.clusters_n(tiles_n), self.clusters_m(tiles_m)
        item = unit // (side * length)
        within = unit - item * (side * length)
        band = within // (group * length)
        place = within - band * (group * length)
        width = cutlass.min(group, side - band * group)
        step = place // width
        across = band * group + place - step * width
        if band % 2 == 1:
            step = length - 1 - step
        m, n = across, step
        if along_n == 0:
            m, n = step, across
        return m * self.cluster[0] + rank % self.cluster[0], n * self.cluster[1] + rank // self.cluster[0], item
