"""How TMA loads an operand: a block's part of each stage, also for other blocks of its cluster."""

from __future__ import annotations

from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Int16
from cutlass.cute.nvgpu import cpasync


class TmaLoad(namedtuple("TmaLoad", "atom tensor stages rows k_tile priority parts multicast", defaults=(1, None))):
    """The TMA load, the tensor of its coordinates, the stages in shared memory, the rows of a tile and the elements of
    K of a stage; the cache policy (see ``parameters.Order``); in how many parts blocks of the cluster that need the
    same rows load them, and a bit for each of these blocks, None if there is but one."""


def partition(load: TmaLoad, part) -> tuple:
    """``(shared, global)`` for the copies: (copy, stage) and (copy, tile of rows, k-tile, batch). A block loads
    ``part`` of the rows' parts."""
    tiles = cute.local_tile(load.tensor, (load.rows, load.k_tile), (None, None, None))
    parts, stages = cute.make_layout(load.parts), cute.group_modes(load.stages, 0, 2)
    return cpasync.tma_partition(load.atom, part, parts, stages, cute.group_modes(tiles, 0, 2))


def start(load: TmaLoad, source, target, full) -> None:
    """Start the load; its bytes arrive at ``full``, in every block of the cluster that needs them."""
    multicast = {} if load.multicast is None else {"mcast_mask": Int16(load.multicast)}
    cute.copy(load.atom, source, target, tma_bar_ptr=full, cache_policy=load.priority, **multicast)


@cute.jit
def ask_ahead(load: TmaLoad, source, place, first, count):
    """Ask the L2 for what this block loads of ``count`` k-tiles from ``first``, of the tile and the item ``place``.
    This reads nothing, and what the launches before write comes to the L2, too: it may come before they are waited
    for."""
    row, item = place
    for k in cutlass.range(first, first + count, 1, unroll=1):
        cute.prefetch(load.atom, source[None, row, k, item])
