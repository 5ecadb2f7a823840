"""How launches that follow one another share the GPU: whether the next may start before this one has ended, and what a
block asks the L2 for before it waits for the launches before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from .. import hardware
from .policy import K_TILE_BYTES, MatmulPolicy

if TYPE_CHECKING:
    from .plan import Problem
    from .workload import Workload

FEW_CLUSTERS, SMALL_CLUSTER, FEW_BLOCKS = 0.7, 4, 0.9  # of the places; blocks; of the places (``lets_next_start``)
LASTING = 2e7  # bytes of such products, some 8 us
EVICT_NORMAL, EVICT_FIRST = 0x1000000000000000, 0x12F0000000000000  # cache policies, as createpolicy makes them
MIN_STREAMED_BYTES = 1 << 24  # of a large operand
# bytes of results and of operands that are read again, beside which a streamed operand still leaves the L2 first: its
# rows are whole lines, or share lines, which are gone before another box asks for the rest of them if more fills the L2
# (610 of 112x1040x208: 373 MB read instead of 292; 151 us instead of 113; 175 products of two seeds: 0.977)
MOST_BESIDE = 1 << 25, 6 << 20
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
    and some leave it first. ``early`` as in ``Order``: launches of equal products follow another."""
    tiles_m, tiles_n = config.tiles(problem.m, problem.n)
    size, ahead, streams = problem.elements[0].size, [], []
    loaded = config.tile[0] // config.cluster[1], config.tile[1] // config.parts_of_b
    sides = (problem.a, problem.m, tiles_n), (problem.b, problem.n, tiles_m)
    for (operand, extent, readers), rows in zip(sides, loaded):
        stream = Stream(operand.items * extent * problem.k * size, readers, operand.step * size)
        of_block = AHEAD_BYTES[1 + early if readers == 1 else 0]
        ahead.append(max(1, of_block // (rows * K_TILE_BYTES)) if stream.bytes >= MIN_STREAMED_BYTES else 0)
        streams.append(stream)
    first = leave_first(streams, problem.items * problem.m * problem.n * problem.out.size)
    return tuple(ahead), tuple(EVICT_FIRST if each else EVICT_NORMAL for each in first)


class Stream(NamedTuple):
    """An operand, or its part that a launch reads: bytes, how many rows or columns of tiles read them, the pitch."""

    bytes: int
    readers: int
    pitch: int


def leave_first(streams: Sequence[Stream], stored: int) -> list[bool]:
    """Which operands leave the L2 first: large ones that are read once, if little else fills it. ``stored``: bytes of
    results."""
    once = [of.bytes >= MIN_STREAMED_BYTES and of.readers == 1 for of in streams]
    beside = stored + sum(of.bytes for of, streamed in zip(streams, once) if not streamed)
    most = [MOST_BESIDE[of.pitch % hardware.LINE_BYTES > 0] for of in streams]
    return [streamed and beside < limit for streamed, limit in zip(once, most)]
