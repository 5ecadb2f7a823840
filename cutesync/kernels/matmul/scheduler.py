"""The order of tiles: which tile of the result a cluster computes first, second, third.

The grid fills the GPU once and stays (a persistent kernel): cluster c of C computes the units c, c + C, c + 2C, ... A
unit is a cluster tile, or with split-K through global memory one slice of K of it. Units that follow one another should
share rows of A and columns of B while those are in the L2. So units count through the result in bands: ``group`` tiles
side by side, then the next such step along the band, and at its end the next band, in the opposite direction (a
serpentine), because what was read last is still in the L2.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32

from .parameters import Order, Split
from .policy import MatmulPolicy


class Tile(namedtuple("Tile", "m n item")):
    """A tile of the result, counted along M and N, and the item of the batch. It may lie outside the result at its
    edges."""


class Place(namedtuple("Place", "number k_slice tile")):
    """What a unit is for a block: the number of the block's tile among all tiles, its slice of K, and the tile."""


class TileOrder:
    """Numbers the cluster tiles of a batch of results. All extents are counts of cluster tiles.

    ``side`` x ``length`` is the result, seen so that bands run along ``length``: (tiles of M, tiles of N) if
    ``along_n``, else swapped.
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
        """The tile of block ``rank`` of the cluster that computes this unit."""
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
        return Tile(m * self.cluster[0] + rank % self.cluster[0], n * self.cluster[1] + rank // self.cluster[0], item)


@dataclass(frozen=True, eq=False)
class Work:
    """The units of a block, for a result ``d`` (M, N, L), with ``k_tile`` elements of K in a k-tile. ``k()`` is how
    many elements K has; it is called where that is used."""

    config: MatmulPolicy
    k: Callable[[], Any]
    d: Any
    k_tile: int
    order: Order
    split: Split

    def walk(self):
        """The first unit of this block's cluster, the step to its next, and the number of all units. (With cluster
        split-K each cluster has one unit.)"""
        slices = self.split.splits if self.config.splits > 1 and not self.config.cluster_split else 1
        units = TileOrder(self.config.cluster).units(*self.tiles(), self.d.shape[2]) * slices
        size = self.config.cluster_size
        return cute.arch.block_idx()[0] // size, cute.arch.grid_dim()[0] // size, units

    def rank(self):
        """Which block this is of those of the cluster that share loads."""
        return block_in_cluster() - self.first_peer()

    def first_peer(self):
        """The first block of the cluster that shares loads with this one; those of a slice of K are neighbours."""
        peers = self.config.peers
        return block_in_cluster() // peers * peers if self.config.cluster_split else Int32(0)

    def multicasts(self):
        """A bit for each block of the cluster that needs this block's rows of A, and for each that needs its rows of
        B, None where no other does. Block (m, n) of those that share loads is number ``m + n * peers_m``."""
        (peers_m, peers_n), rank = self.config.cluster, self.rank()
        m, n = (rank % peers_m, rank // peers_m) if min(peers_m, peers_n) > 1 else (0, 0)
        of_row, of_column = sum(1 << peers_m * i for i in range(peers_n)) << m, (1 << peers_m) - 1 << peers_m * n
        first = self.first_peer() if self.config.cluster_split else 0
        return of_row << first if peers_n > 1 else None, of_column << first if peers_m > 1 else None

    def tiles(self):
        """Tiles along M and along N."""
        tile_m, tile_n = self.config.tile
        return (self.d.shape[0] + tile_m - 1) // tile_m, (self.d.shape[1] + tile_n - 1) // tile_n

    def k_tiles(self):
        """K-tiles of a unit. Those of the last slice of K may lie outside K: TMA reads zeros there."""
        if self.config.slices > 1:
            return self.split.k_tiles * self.split.splits
        return self.split.k_tiles if self.config.splits > 1 else (self.k() + self.k_tile - 1) // self.k_tile

    def place(self, unit, rank) -> Place:
        if self.config.cluster_split:
            cluster_tile, k_slice = unit, block_in_cluster() // self.config.peers
        elif self.config.splits > 1:
            cluster_tile, k_slice = unit // self.split.splits, unit % self.split.splits
        else:
            cluster_tile, k_slice = unit, Int32(0)
        tile = TileOrder(self.config.cluster).tile(
            cluster_tile, *self.tiles(), self.order.along_n, self.order.group, rank
        )
        return Place(cluster_tile * self.config.peers + rank, k_slice, tile)

    def outside(self) -> Tile:
        """A tile outside the result: nothing of it is stored."""
        return Tile(self.tiles()[0] + self.config.peers, Int32(0), Int32(0))


def block_in_cluster():
    return cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
