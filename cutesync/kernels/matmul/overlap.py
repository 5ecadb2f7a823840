"""How launches that follow one another share the GPU: whether the next may start before this one has ended, and what a
block asks the L2 for before it waits for the launches before."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .. import hardware
from .policy import K_TILE_BYTES, MatmulPolicy

if TYPE_CHECKING:
    from .plan import Problem
    from .workload import Workload

FEW_CLUSTERS, SMALL_CLUSTER, FEW_BLOCKS = 0.7, 4, 0.9  # of the places; blocks; of the places (``lets_next_start``)
LASTING = 2e7  # bytes of such products, some 8 us
EVICT_NORMAL, EVICT_FIRST = 0x1000000000000000, 0x12F0000000000000  # cache policies, as createpolicy makes them
MIN_STREAMED_BYTES = 1 << 24  # of a large operand
# that a block asks the L2 for of such an operand, if others read it, too, and if none does: where the launch before
# lets this one start late, or at once (with all stages, TMA is busy when loads could start: 8 % slower)
AHEAD_BYTES = 1 << 14, 1 << 15, 1 << 16


def lets_next_start(config: MatmulPolicy, load: Workload) -> bool:
    """Whether the next launch may start at once. Its blocks take the multiprocessors that this one leaves idle. If this
    one has more than half of the places, what does not fit beside it comes where it finds room: blocks lie unevenly,
    and are served more slowly, and longer products take more time than the later start (H200, bfloat16, 24x4608x3584
    in 72 blocks: 13.5 us instead of 11.1; 192x4096x4096 in 128: 15.5 instead of 13.5). Clusters lie as evenly as they
    can, if they are many or large, and so do single blocks on nearly all multiprocessors; but of those that read the
    same some then start too late to find it in the L2."""
    places, tiles = config.slots(hardware.SMS), config.tiles(load.m, load.n)
    clusters = math.prod(tiles) * load.batch * config.splits * config.peers / config.cluster_size
    most = FEW_CLUSTERS if config.cluster_size <= SMALL_CLUSTER else 0.0
    if config.cluster_size == 1:
        most = FEW_BLOCKS if min(tiles) == 1 else 1.0
    return not (places / 2 < clusters <= most * places and load.moved >= LASTING)


def streaming(problem: Problem, config: MatmulPolicy, early: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """For how many k-tiles of A and B the L2 is asked ahead, and their cache policies: it is asked for a large operand,
    and one that is read once leaves it first. ``early`` as in ``Order``: launches of equal products follow another."""
    tiles_m, tiles_n = config.tiles(problem.m, problem.n)
    of_row, ahead, priorities = problem.k * problem.elements[0].size, [], []
    loaded = config.tile[0] // config.cluster[1], config.tile[1] // config.parts_of_b
    sides = (problem.a, problem.m, tiles_n), (problem.b, problem.n, tiles_m)
    for (operand, extent, readers), rows in zip(sides, loaded):
        large, once = operand.items * extent * of_row >= MIN_STREAMED_BYTES, readers == 1
        size = AHEAD_BYTES[1 + early if once else 0]
        ahead.append(max(1, size // (rows * K_TILE_BYTES)) if large else 0)
        priorities.append(EVICT_FIRST if large and once else EVICT_NORMAL)
    return tuple(ahead), tuple(priorities)
