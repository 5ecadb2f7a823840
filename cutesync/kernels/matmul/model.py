"""The model of an H200 that chooses a policy: the clocks that a problem takes with each candidate.

Rates that no manual states are fitted to times on an H200: of up to 57 configurations for 33 shapes, and of as many
more, with K in 1 to 8 slices, for 66 shapes of few rows.
"""

from __future__ import annotations

import math
from collections import namedtuple
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from . import policy
from .candidates import COOPERATIVE, PINGPONG, PROMOTED, SKINNY, SPLITS, STRADDLING
from .policy import K_TILE_BYTES, MAX_ACCUMULATORS, MAX_SPLIT_ACCUMULATORS, MatmulPolicy

TENSOR_RATE = 2048  # multiply-adds of 16 bits that an SM does a clock; rows of 128 bytes of narrower types take as long
SHARED_RATE = 100  # bytes of shared memory that wgmma reads a clock
ARRIVAL_RATE = 58.7  # bytes that reach an SM a clock, multicast or not
L2_RATE = 64.0  # bytes that an SM's own loads bring a clock, in aligned rows of 128
DRAM_RATE = 2200.0  # bytes that the GPU reads from memory or writes there a clock
K_TILE_CLOCKS = 13.0  # what a k-tile adds to its multiplications
MIN_K_TILE_CLOCKS = 240.0  # the least a k-tile takes: a barrier, multiplications, a release
# the additions of float32 a k-tile: in a cooperative block the other warpgroup hides most
PROMOTION_CLOCKS = {"cooperative": 80.0, "pingpong": 300.0}
TILE_CLOCKS = 600.0  # between two tiles
DEFERRED_TILE_CLOCKS = 1300.0  # the same with a deferred epilogue
EPILOGUE_RATE = 9.5  # bytes of the result that an SM stores a clock
DIRECT_EPILOGUE_RATE = 4.0  # the same where threads store single elements
TURNSTILE_CLOCKS = 9000.0  # a write, an atomic and a read of the L2, one after the other
CLUSTER_SPLIT_RATE = 8.0  # bytes a clock of partial sums in a cluster: stored, waited for and added up
CLUSTER_CLOCKS = 1200.0  # the barrier of a cluster at its start and end
START_CLOCKS = 4500.0  # the first loads, the first barrier, the last store
UNHIDDEN = 0.03  # the part of the loads that shows beside whatever is slower: they share the power
UNHIDDEN_MEMORY = 0.5  # the part of a block's work that shows beside the streaming of memory, or the reverse
L2_SHARE = 0.05  # of what is loaded from the L2, this part costs as much as memory where memory is the limit
MIN_K_TILES = 4  # of a slice of K: fewer are not worth a block of their own


class Access(NamedTuple):
    """How TMA finds the operands: whether K is contiguous in B, and how much longer rows of 128 bytes of A and B take
    than those that are cache lines (``row_cost``)."""

    b_k_major: bool = True
    row_a: float = 1.0
    row_b: float = 1.0

    def bytes(self, config: MatmulPolicy) -> float:
        """What a block's loads of a k-tile are worth, in bytes. Columns of B come in boxes as wide as the swizzle that
        divides the tile."""
        boxes = 1 if self.b_k_major else 128 // math.gcd(2 * config.tile[1], 128)
        rows_a, rows_b = config.tile[0] / config.cluster[1], config.tile[1] / config.cluster[0]
        return K_TILE_BYTES * (self.row_a * rows_a + self.row_b * boxes * rows_b)


class Workload(
    namedtuple(
        "Workload",
        "m n k_tiles batch out_bytes promoted split access accumulators by_tma",
        defaults=(False, True, Access(), MAX_ACCUMULATORS, True),
    )
):
    """What the model knows of a problem; ``split`` says whether K may be cut, ``accumulators`` how many a thread may
    have, ``by_tma`` whether TMA stores the result."""


def row_cost(stride: int) -> float:
    """Of rows ``stride`` bytes apart: 1 if all are cache lines, more if they straddle two, yet more if also the sectors
    of lines."""
    return 1.0 if stride % 128 == 0 else 1.5 if stride % 32 == 0 else 2.6


def cost(config: MatmulPolicy, load: Workload) -> float:
    """Clocks that a problem is expected to take: waves of tiles, each as slow as its slowest resource, but no faster
    than memory gives the operands."""
    tile_m, tile_n = config.tile
    k_tiles = -(-load.k_tiles // config.splits)
    units = math.prod(config.tiles(load.m, load.n)) * load.batch * config.splits
    waves = -(-units * config.peers // (config.slots(policy.SMS) * config.cluster_size))
    loaded = units * config.peers * k_tiles * load.access.bytes(config)
    moved = K_TILE_BYTES * load.k_tiles * (load.m + load.n) + load.m * load.n * load.out_bytes
    memory = load.batch * moved / DRAM_RATE
    mainloop = _mainloop(config, k_tiles, load.access.bytes(config))
    store = tile_m * tile_n * load.out_bytes / (EPILOGUE_RATE if load.by_tma else DIRECT_EPILOGUE_RATE)
    if config.cluster_split:
        store += config.exchange_bytes() / CLUSTER_SPLIT_RATE
    elif config.splits > 1:
        store += TURNSTILE_CLOCKS + 4 * tile_m * tile_n * (1 + config.splits) / L2_RATE
    deferred = config.defers(load.out_bytes, waves > 1)
    # while both warpgroups of a cooperative block store, its tensor cores idle
    between = max(mainloop, store) - mainloop if deferred or config.schedule == "pingpong" else store
    work = waves * mainloop + (waves - 1) * (between + (DEFERRED_TILE_CLOCKS if deferred else TILE_CLOCKS))
    return (
        START_CLOCKS
        + max(work, memory + L2_SHARE * loaded / DRAM_RATE)
        + UNHIDDEN_MEMORY * min(work, memory)
        + store
        + (CLUSTER_CLOCKS if config.cluster_size > 1 else 0.0)
    )


def _mainloop(config: MatmulPolicy, k_tiles: int, loaded: float) -> float:
    """Clocks of the multiplications and loads of a tile, ``loaded`` bytes a k-tile."""
    tile_m, tile_n = config.tile
    tensor = k_tiles * tile_m * tile_n * 64 / TENSOR_RATE
    shared = k_tiles * tile_m / 64 * (64 + tile_n) * K_TILE_BYTES / SHARED_RATE
    multiply = max(max(tensor, shared) + k_tiles * K_TILE_CLOCKS, k_tiles * MIN_K_TILE_CLOCKS)
    if config.promoted:
        multiply += k_tiles * PROMOTION_CLOCKS[config.schedule]
    loads, arrivals = k_tiles * loaded / L2_RATE, k_tiles * config.stage_bytes() / ARRIVAL_RATE
    return max(multiply, loads, arrivals) + UNHIDDEN * loads


@lru_cache(maxsize=4096)
def shortlist(load: Workload, count: int = 1) -> tuple[MatmulPolicy, ...]:
    """The ``count`` policies with the least modelled cost, best first; of equal ones those that are listed first."""
    tiles = PROMOTED if load.promoted else COOPERATIVE + PINGPONG + SKINNY + STRADDLING
    tiles = tuple(config for config in tiles if config.accumulators <= load.accumulators)
    cut = [replace(config, splits=n) for config in tiles for n in _splits(config, load)] if load.split else []
    return tuple(sorted([*tiles, *cut], key=lambda config: cost(config, load))[:count])


def _splits(config: MatmulPolicy, load: Workload) -> list[int]:
    """Into how many slices K may be cut: all slices of all tiles run at once, and each has some k-tiles. (Of clusters a
    few less may run at once.) Few accumulators, as adding up the partial sums takes registers, too."""
    if config.accumulators > MAX_SPLIT_ACCUMULATORS:
        return []
    room = config.slots(policy.SMS) // (math.prod(config.tiles(load.m, load.n)) * load.batch)
    return [splits for splits in SPLITS if splits <= min(room, load.k_tiles // MIN_K_TILES)]


def raster(config: MatmulPolicy, m: int, n: int) -> tuple[bool, int]:
    """``(along_n, group)``: the order of tiles walks ``group`` cluster tiles side by side along the longer way. Those
    that run at the same time then form the squarest patch of the result, and read the fewest bytes of A and B."""
    tiles_m, tiles_n = config.tiles(m, n)
    high, wide = config.tile[0] * config.cluster[0], config.tile[1] * config.cluster[1]
    along_n = tiles_n * wide >= tiles_m * high
    side, other, most = (high, wide, tiles_m) if along_n else (wide, high, tiles_n)
    group = config.group or round(math.sqrt(config.slots(policy.SMS) * other / side))
    return along_n, max(1, min(group, most))
