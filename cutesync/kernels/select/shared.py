"""What the roles of a selection share: barriers and tensors in shared memory. Device code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8
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
    counted: Barriers | None
    ready: Barriers | None
    places: Any
    words: Any
    tags: cute.Tensor
    tallies: cute.Tensor
    nears: cute.Tensor
    inside: cute.Tensor
    before: Before
    gathered: Barriers | None

    @staticmethod
    def make(kernel: Any) -> Shared:
        """The shared memory of a ``pipeline.PipelineSelect``. In all threads; one block barrier must follow."""
        stages, chunks, policy = kernel.stages, kernel.chunks, kernel.policy
        return Shared(
            tuple(replace(buffer, start=aligned(stages * buffer.stage_bytes)) for buffer in kernel.buffers),
            TileRing.make(stages, consumers=policy.store_warps),
            Barriers.make(stages, policy.compact_warps, name="counted") if kernel.hands_over else None,
            Barriers.make(stages, 1 + kernel.looks_ahead, name="ready") if kernel.hands_over else None,
            SmemAllocator().allocate_array(Uint8, max(stages * kernel.places, 1)),
            SmemAllocator().allocate_array(Int64, max(stages * kernel.words, 1)),
            tensor(Int32, kernel.teams),
            tensor(Int32, stages * chunks),
            tensor(Int32, stages * chunks),
            tensor(Int32, stages * (chunks + 1)),
            Before(tensor(Int64, stages), tensor(Int64, stages)),
            Barriers.make(stages, policy.gather_warps, name="gathered") if kernel.gather else None,
        )


def aligned(count: int) -> cute.Pointer:
    """So many bytes of shared memory, at a multiple of 128."""
    return SmemAllocator().allocate_array(Uint8, count, byte_alignment=128)


def tensor(kind, count: int) -> cute.Tensor:
    return cute.make_tensor(SmemAllocator().allocate_array(kind, count), cute.make_layout((count,)))


class Control(IntEnum):
    """The warps of a team's role "control", each of which has one job."""

    LOAD = 0
    PUBLISH = 1
    LOOK_AHEAD = 2
