"""What the roles of a selection share: barriers and tensors in shared memory. Device code."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import cutlass.cute as cute
from cutlass.memory import SmemAllocator

from ...sync.barrier import Barriers
from ...sync.tiles import TileRing
from .tally import Before


@dataclass(frozen=True)
class Shared:
    """Shared memory: the tiles' bytes, the ring, the roles' barriers, the chunks' places and words, the teams' tags of
    the launch, the chunks' tallies and how many places of each are near (those of a stage side by side), what comes
    before each chunk in its tile, and at last the tile's tally, and what comes before each stage's tile."""

    buffers: tuple
    tiles: TileRing
    counted: Barriers
    ready: Barriers
    places: Any
    words: Any
    tags: cute.Tensor
    tallies: cute.Tensor
    nears: cute.Tensor
    inside: cute.Tensor
    before: Before
    gathered: Barriers | None


def tensor(kind, count: int) -> cute.Tensor:
    return cute.make_tensor(SmemAllocator().allocate_array(kind, count), cute.make_layout((count,)))


class Control(IntEnum):
    """The warps of a team's role "control", each of which has one job."""

    LOAD = 0
    PUBLISH = 1
    LOOK_AHEAD = 2
